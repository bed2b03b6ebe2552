package server

import (
	"context"
	"fmt"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
)

// AsyncExchange is one rank's part of a parameter server whose workers do not wait for each other
// in each step. The servers run beside the workers from BeginEpoch until FinishEpoch, and so does a
// coordinator in rank 0's process.
//
// Every gradient is a separate update, as in Downpour SGD (Dean et al. 2012, "Large Scale
// Distributed Deep Networks", NIPS), but its staleness is limited.
type AsyncExchange struct {
	Heartbeat time.Duration // longest time until a server replies

	group   collective.Group
	servers int
	limit   int // the largest staleness

	buckets     []engine.BucketMemory // of the executable
	store       parameterStore        // this rank's server; without values on a rank that has none
	coordinator *coordinator          // rank 0
	links       *messageLinks         // nil before the first Begin
	running     bool                  // between Begin and Finish
}

// NewAsyncExchange returns one rank's part of the exchange. servers is the number of servers, which
// run in the processes of the first ranks. maxStaleness is at least 1.
func NewAsyncExchange(group collective.Group, servers, maxStaleness int) *AsyncExchange {
	return &AsyncExchange{Heartbeat: HeartbeatInterval, group: group, servers: servers, limit: maxStaleness}
}

// UseShard makes s the memory of this rank's server. s must be started. The executable keeps the
// parameters that the worker has read.
func (a *AsyncExchange) UseShard(s *shard.Shard) {
	a.buckets = s.Buckets
	s.Detach()
	a.store.shard, a.store.part = s, bucketPart{s.Buckets, a.servers, a.group.Rank()}
}

// serverPart returns the part of each bucket that belongs to the given server.
func (a *AsyncExchange) serverPart(server int) bucketPart {
	return bucketPart{a.buckets, a.servers, server}
}

// BeginEpoch starts the servers before the first step of an epoch, whose update is u. All workers
// must have completed the same number of steps, u.Step - 1. It does nothing if the servers are
// already running. The servers end when ctx ends.
func (a *AsyncExchange) BeginEpoch(ctx context.Context, u optim.Update) error {
	if a.running {
		return nil
	}
	if a.servers > 1 && (u.ClipNorm != 0 || u.Rule == optim.RuleLARS || u.Rule == optim.RuleLAMB) {
		return fmt.Errorf("update parameters: optimizer %s with clip_norm %g needs norms over all servers, which do not update at the same time: use strategy.servers=1", u.Rule, u.ClipNorm)
	}
	n, rank := a.group.Size(), a.group.Rank()
	version := (u.Step - 1) * n // each gradient was an update
	s := &a.store
	s.update, s.version = u, version
	for _, name := range u.Slots() {
		s.shard.SlotValues(name) // on all ranks, so that slots are collected in the same order
	}
	if rank == 0 {
		a.coordinator = newCoordinator(n, a.limit, version)
	}
	a.links = newMessageLinks(ctx, a.group, a.servers, a.serverPart)
	a.links.handle = a.handleRequest
	a.links.startReceiving()
	a.running = true
	return nil
}

// handleRequest answers a worker's request to this rank's server.
func (a *AsyncExchange) handleRequest(ctx context.Context, worker int, m serverMessage) (reply serverMessage, err error) {
	switch m.kind {
	case messageCheckout:
		version, ok := a.coordinator.checkOutVersion(ctx, a.Heartbeat, worker)
		return serverMessage{ok: ok, a: float64(version)}, nil
	case messageAdmit:
		update, staleness, ok := a.coordinator.admitUpdate(ctx, a.Heartbeat, worker)
		return serverMessage{ok: ok, a: float64(update), b: float64(staleness)}, nil
	case messageFinish:
		return serverMessage{ok: a.coordinator.finishWorker(ctx, a.Heartbeat, worker)}, nil
	case messagePush:
		return serverMessage{ok: true}, a.store.pushUpdate(ctx, int(m.a), m.b, m.payload)
	case messagePull:
		b := a.links.answerBuffer(worker)
		if !a.store.readParametersAtVersion(ctx, a.Heartbeat, int(m.a), b) {
			return serverMessage{}, nil
		}
		return serverMessage{ok: true, payload: b}, nil
	}
	return reply, fmt.Errorf("answer worker %d: unknown request %d", worker, m.kind)
}

// ReadParameters reads the parameters from the servers into the executable, before an optimizer
// step.
func (a *AsyncExchange) ReadParameters() error {
	replies, err := a.links.askUntilAccepted([]int{0}, func(int) serverMessage { return serverMessage{kind: messageCheckout} })
	if err != nil {
		return fmt.Errorf("ask the parameter server for a version: %w", err)
	}
	version := replies[0].a
	replies, err = a.links.askUntilAccepted(a.links.allServers(), func(int) serverMessage { return serverMessage{kind: messagePull, a: version} })
	if err != nil {
		return fmt.Errorf("read parameters from the parameter server: %w", err)
	}
	for server, m := range replies {
		a.serverPart(server).copyWeightsFrom(m.payload)
	}
	return nil
}

// PushGradients sends the executable's gradients to the servers, and returns the staleness of the gradients.
func (a *AsyncExchange) PushGradients(u optim.Update) (staleness int, err error) {
	replies, err := a.links.askUntilAccepted([]int{0}, func(int) serverMessage { return serverMessage{kind: messageAdmit} })
	if err != nil {
		return 0, fmt.Errorf("ask the parameter server for an update: %w", err)
	}
	update, staleness := int(replies[0].a), int(replies[0].b)
	if _, err := a.links.askUntilAccepted(a.links.allServers(), func(server int) serverMessage {
		b := a.links.outgoingBuffer(server)
		a.serverPart(server).copyGradientsTo(b)
		return serverMessage{kind: messagePush, a: float64(update), b: u.LearningRate, payload: b}
	}); err != nil {
		return staleness, fmt.Errorf("send gradients to the parameter server: %w", err)
	}
	return staleness, nil
}

// FinishEpoch waits until all workers have finished the epoch, and ends the servers. ended is false
// if the servers were not running.
func (a *AsyncExchange) FinishEpoch() (ended bool, err error) {
	if !a.running {
		return false, nil
	}
	if err := a.links.finishEpoch(); err != nil {
		return false, fmt.Errorf("end the parameter servers: %w", err)
	}
	a.running = false
	return true, nil
}

// BroadcastParameters copies the parameters of all servers to all executables. Call it after FinishEpoch.
func (a *AsyncExchange) BroadcastParameters(ctx context.Context) error {
	for server := range a.servers {
		if err := a.broadcastFrom(ctx, server); err != nil {
			return fmt.Errorf("copy parameters of parameter server %d: %w", server, err)
		}
	}
	return nil
}

func (a *AsyncExchange) broadcastFrom(ctx context.Context, server int) error {
	b := a.links.allocateOnce(&a.links.peers[server].reply, server)
	if b.Len() == 0 {
		return nil
	}
	if a.group.Rank() == server {
		a.store.part.copyWeightsTo(b)
	}
	if a.group.Size() > 1 {
		if err := a.group.Broadcast(ctx, b, server); err != nil {
			return err
		}
	}
	a.serverPart(server).copyWeightsFrom(b)
	return nil
}

// Close returns when all goroutines have ended. Cancel the context of BeginEpoch first.
func (a *AsyncExchange) Close() {
	if a.running {
		a.links.receivers.Wait()
	}
}
