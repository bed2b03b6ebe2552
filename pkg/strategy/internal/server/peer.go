package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
	"lockstep/pkg/strategy/internal/vector"
)

// Peer is one worker of asynchronous decentralized parallel SGD (AD-PSGD; Lian et al. 2018,
// arXiv:1710.06952). As in section 4.2 of the paper, the workers form a bipartite graph, so that no
// two workers wait for each other: the first half is passive, the others are active. An active
// worker averages its parameters with those of a random passive one, which answers at any time,
// even while it computes a gradient.
//
// The parameters of a worker are in a store with its own memory. The executable has the copy for
// which the worker computes a gradient.
type Peer struct {
	Heartbeat time.Duration // longest time until a worker replies

	group       collective.Group
	passive     int                   // number of passive workers, which have the first ranks
	buckets     []engine.BucketMemory // of the executable
	own         parameterStore
	averaged    int           // averages of own, protected by its mutex
	readAt      int           // value of averaged when the executable's parameters were read
	coordinator *coordinator  // rank 0: knows which workers have finished the epoch
	links       *messageLinks // nil before the first Begin
	running     bool          // between Begin and Finish
}

// NewPeer returns the worker of this rank.
func NewPeer(group collective.Group) *Peer {
	return &Peer{Heartbeat: HeartbeatInterval, group: group, passive: PassivePeerCount(group.Size())}
}

// PassivePeerCount returns the number of passive workers.
func PassivePeerCount(workers int) int { return max(1, workers/2) }

// UseShard makes s the memory of this worker. s must be started, and must own all parameters.
func (a *Peer) UseShard(s *shard.Shard) {
	a.buckets = s.Buckets
	s.Detach()
	a.own.shard, a.own.part = s, bucketPart{s.Buckets, 1, 0}
}

func (a *Peer) completePart(int) bucketPart { return bucketPart{a.buckets, 1, 0} }

// BeginEpoch starts the passive workers before the first step of an epoch, whose update is u. It
// does nothing if they are already running. They end when ctx ends.
func (a *Peer) BeginEpoch(ctx context.Context, u optim.Update) {
	if a.running {
		return
	}
	a.own.update, a.own.version = u, u.Step-1
	if a.group.Rank() == 0 {
		a.coordinator = newCoordinator(a.group.Size(), 1, 0)
	}
	a.links = newMessageLinks(ctx, a.group, a.passive, a.completePart)
	a.links.handle = a.handleRequest
	a.links.startReceiving()
	a.running = true
}

func (a *Peer) handleRequest(ctx context.Context, worker int, m serverMessage) (serverMessage, error) {
	switch m.kind {
	case messageFinish:
		return serverMessage{ok: a.coordinator.finishWorker(ctx, a.Heartbeat, worker)}, nil
	case messageAverage:
		b := a.links.answerBuffer(worker)
		a.own.waitFor(ctx, a.Heartbeat, func() bool {
			a.own.part.copyWeightsTo(b)
			vector.Add(b, m.payload)
			vector.Divide(b, 2)
			a.own.part.copyWeightsFrom(b)
			a.averaged++
			return true
		})
		return serverMessage{ok: true, payload: b}, nil
	}
	return serverMessage{}, fmt.Errorf("answer worker %d: unknown request %d", worker, m.kind)
}

// ReadParameters copies this worker's parameters to the executable, before an optimizer step.
func (a *Peer) ReadParameters(ctx context.Context) {
	b := a.links.outgoingBuffer(0)
	a.own.waitFor(ctx, a.Heartbeat, func() bool {
		a.own.part.copyWeightsTo(b)
		a.readAt = a.averaged
		return true
	})
	a.completePart(0).copyWeightsFrom(b)
}

// ApplyGradients updates this worker's parameters with the executable's gradients, and returns the
// staleness of the gradients. The parameters may have been averaged since ReadParameters.
func (a *Peer) ApplyGradients(ctx context.Context, u optim.Update) (staleness int, err error) {
	b := a.links.outgoingBuffer(0)
	a.completePart(0).copyGradientsTo(b)
	a.own.waitFor(ctx, a.Heartbeat, func() bool {
		staleness = a.averaged - a.readAt
		err = a.own.applyUpdate(u.Step, u.LearningRate, b)
		return true
	})
	return staleness, err
}

// AverageWithPassivePeer averages an active worker's parameters with those of a random passive one,
// and returns the number of bytes sent. It sends a ping to all other passive workers, because they
// expect messages from each worker.
func (a *Peer) AverageWithPassivePeer(step int) (sent int, err error) {
	neighbor := -1
	if rank := a.group.Rank(); rank >= a.passive {
		neighbor = rand.New(rand.NewPCG(uint64(step), uint64(rank))).IntN(a.passive)
	}
	replies, err := a.links.askUntilAccepted(a.links.allServers(), func(server int) serverMessage {
		if server != neighbor {
			return serverMessage{kind: messagePing}
		}
		b := a.links.outgoingBuffer(server)
		a.own.part.copyWeightsTo(b)
		return serverMessage{kind: messageAverage, payload: b}
	})
	if err != nil {
		return 0, fmt.Errorf("average parameters with another worker: %w", err)
	}
	if neighbor < 0 {
		return 0, nil
	}
	a.own.part.copyWeightsFrom(replies[neighbor].payload) // nobody else uses an active worker's parameters
	return replies[neighbor].payload.Bytes(), nil
}

// FinishEpoch waits until all workers have finished the epoch, and returns a copy of this worker's
// parameters. ended is false if the workers were not running.
func (a *Peer) FinishEpoch() (weights device.Buffer, ended bool, err error) {
	if !a.running {
		return weights, false, nil
	}
	if err := a.links.finishEpoch(); err != nil {
		return weights, false, fmt.Errorf("end the exchange with random neighbors: %w", err)
	}
	a.running = false
	weights = a.links.outgoingBuffer(0)
	a.own.part.copyWeightsTo(weights)
	return weights, true, nil
}

// SetWeights sets the parameters of this worker and of its executable.
func (a *Peer) SetWeights(weights device.Buffer) {
	a.own.part.copyWeightsFrom(weights)
	a.completePart(0).copyWeightsFrom(weights)
}

// Close returns when all goroutines have ended. Cancel the context of BeginEpoch first.
func (a *Peer) Close() {
	if a.running {
		a.links.receivers.Wait()
	}
}
