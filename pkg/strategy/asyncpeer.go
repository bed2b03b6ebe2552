package strategy

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// NameAsyncPeer is the name of the strategy whose workers average with a random neighbor.
const NameAsyncPeer = "async_peer"

// asyncPeer is asynchronous decentralized parallel SGD (AD-PSGD; Lian et al. 2018,
// arXiv:1710.06952): each worker updates its own parameters by its own gradients, and pairs of
// workers average their parameters. As in section 4.2 of the paper, the workers form a bipartite
// graph, so that no two workers wait for each other: the first half is passive, the others are
// active. After each of its steps, an active worker averages with a random passive one, which
// answers at any time, also while it computes a gradient. It then applies the gradient to the
// averaged parameters.
//
// The parameters of a worker are in memory of its own, a serverShard that contains all of them.
// The executable has those for which the worker computes a gradient.
type asyncPeer struct {
	*queue
	passive     int                   // number of passive workers, which have the first ranks
	heartbeat   time.Duration         // longest time until a worker replies
	buckets     []engine.BucketMemory // of the executable
	own         serverShard
	averaged    int          // averages of own, protected by its mutex
	readAt      int          // value of averaged when the executable's parameters were read
	coordinator *coordinator // rank 0: knows which workers have finished the epoch
	links       *serverLinks // nil between two epochs
}

// newAsyncPeer creates the strategy of one worker.
func newAsyncPeer(ctx context.Context, _ Config, _ engine.Engine, group collective.Group) (Strategy, error) {
	a := &asyncPeer{queue: newQueue(ctx, group, nil), passive: passivePeers(group.Size()), heartbeat: defaultHeartbeat}
	a.silent = true // workers are in different steps, so each normalizes its own batch
	return a, nil
}

// passivePeers returns the number of passive workers.
func passivePeers(workers int) int { return max(1, workers/2) }

// Start copies rank 0's parameters and running statistics to all ranks, and restores each
// rank's optimizer slots.
func (a *asyncPeer) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	all := func(n int) (lo, hi int) { return 0, n }
	own := saved
	if rank := a.group.Rank(); rank > 0 {
		own = maps.Clone(saved)
		maps.DeleteFunc(own, func(name string, _ []float64) bool { return strings.HasPrefix(name, slotPrefix) })
		for name, v := range saved {
			if of, ok := strings.CutPrefix(name, RankPrefix(rank)); ok {
				own[of] = v
			}
		}
	}
	if err := startSharded(ctx, exe, a.group, &a.own.shards, all, own); err != nil {
		return err
	}
	a.buckets = a.own.shards.buckets
	a.own.shards.separate()
	a.own.part, a.own.quorum = serverPart{a.own.shards.buckets, 1, 0}, 1
	return nil
}

// part returns all of the executable's parameters and gradients.
func (a *asyncPeer) part(int) serverPart { return serverPart{a.buckets, 1, 0} }

// begin starts the passive workers before the first step of an epoch.
func (a *asyncPeer) begin(u optim.Update) {
	a.own.update, a.own.version = u, u.Step-1
	if a.group.Rank() == 0 {
		a.coordinator = newCoordinator(a.group.Size(), 1, 1, 0)
	}
	a.links = newServerLinks(a.ctx, a.group, a.passive, a.part)
	a.links.handle = a.handle
	a.links.start()
}

// handle answers a request to this passive worker.
func (a *asyncPeer) handle(ctx context.Context, worker int, m serverMessage) (serverMessage, error) {
	switch m.kind {
	case messageFinish:
		return serverMessage{ok: a.coordinator.finish(ctx, a.heartbeat, worker)}, nil
	case messageAverage:
		b := a.links.answers(worker)
		a.own.waitFor(ctx, a.heartbeat, func() bool {
			a.own.part.readWeights(b)
			addTo(b.F32, m.payload.F32)
			addTo(b.F64, m.payload.F64)
			divide(b, 2)
			a.own.part.writeWeights(b)
			a.averaged++
			return true
		})
		return serverMessage{ok: true, payload: b}, nil
	}
	return serverMessage{}, fmt.Errorf("answer worker %d: unknown request %d", worker, m.kind)
}

// Step computes the gradients of one batch for a copy of this worker's parameters. After the
// last batch of an optimizer step, it updates the parameters, which may have been averaged
// meanwhile, and an active worker averages them with a random passive one.
func (a *asyncPeer) Step(ctx context.Context, exe engine.Executable, s Step) (t engine.Timing, err error) {
	if a.links == nil {
		a.begin(s.Update)
	}
	b := a.links.outgoing(0)
	if s.Batch <= 1 {
		a.own.waitFor(ctx, a.heartbeat, func() bool {
			a.own.part.readWeights(b)
			a.readAt = a.averaged
			return true
		})
		a.part(0).writeWeights(b)
	}
	if t, err = a.run(ctx, exe, a.queue, s, nil); err != nil || !s.isLast() {
		return t, err
	}
	begin, staleness := time.Now(), 0
	a.part(0).readGradients(b)
	a.own.waitFor(ctx, a.heartbeat, func() bool {
		staleness = a.averaged - a.readAt
		err = a.own.add(s.Update.Step, s.Update.LearningRate, b)
		return true
	})
	if err != nil {
		return t, err
	}
	t.Optimizer += time.Since(begin)
	waited, err := a.measure(func() error { return a.average(s.Update.Step) })
	t.Wait += waited
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Staleness = staleness
	return t, err
}

// average averages an active worker's parameters with those of a random passive one. All other
// passive workers get a ping, because they expect to hear something from each worker.
func (a *asyncPeer) average(step int) error {
	neighbor := -1
	if rank := a.group.Rank(); rank >= a.passive {
		neighbor = rand.New(rand.NewPCG(uint64(step), uint64(rank))).IntN(a.passive)
	}
	replies, err := a.links.ask(a.links.allServers(), func(server int) serverMessage {
		if server != neighbor {
			return serverMessage{kind: messagePing}
		}
		b := a.links.outgoing(server)
		a.own.part.readWeights(b)
		return serverMessage{kind: messageAverage, payload: b}
	})
	if err != nil {
		return fmt.Errorf("average parameters with another worker: %w", err)
	}
	if neighbor < 0 {
		return nil
	}
	a.own.part.writeWeights(replies[neighbor].payload) // nobody else uses an active worker's parameters
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Bytes += replies[neighbor].payload.Bytes()
	return nil
}

// Equalize waits until all workers have finished the epoch, and sets the parameters of all to
// their mean.
func (a *asyncPeer) Equalize(context.Context, engine.Executable) error {
	if a.links == nil {
		return nil
	}
	if err := a.links.finish(); err != nil {
		return fmt.Errorf("end the exchange with random neighbors: %w", err)
	}
	b := a.links.outgoing(0)
	a.links = nil
	a.own.part.readWeights(b)
	if a.group.Size() > 1 {
		if err := a.operate(b.Bytes(), func(ctx context.Context) error { return averageBuffer(ctx, a.group, b) }); err != nil {
			return fmt.Errorf("average parameters: %w", err)
		}
	}
	a.own.part.writeWeights(b)
	a.part(0).writeWeights(b)
	return nil
}

// State returns, on rank 0, the optimizer's slots of all ranks.
func (a *asyncPeer) State(context.Context, engine.Executable) (map[string][]float64, error) {
	all, err := a.own.shards.collectSlots(func(device.Buffer) error { return nil })
	n, rank := a.group.Size(), a.group.Rank()
	if err != nil || n == 1 {
		return all, err
	}
	err = a.operate(0, func(ctx context.Context) error {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			v := all[name]
			values := make([]float64, n*len(v)) // the shard of rank r has len(v) values
			copy(values[rank*len(v):], v)
			if err := a.group.AllGather(ctx, device.Buffer{F64: values}); err != nil {
				return fmt.Errorf("collect %s: %w", name, err)
			}
			for r := 1; r < n; r++ {
				all[RankPrefix(r)+name] = values[r*len(v) : (r+1)*len(v)]
			}
		}
		return nil
	})
	if rank != 0 {
		all = nil
	}
	return all, err
}

// Close ends the exchange and all goroutines. It does not close the group.
func (a *asyncPeer) Close() error {
	err := a.queue.Close() // ends the context of the links
	if a.links != nil {
		a.links.receivers.Wait()
	}
	return err
}
