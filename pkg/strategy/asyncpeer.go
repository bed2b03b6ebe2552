package strategy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy/internal/server"
	"lockstep/pkg/strategy/internal/shard"
)

// NameAsyncPeer is the name of the strategy in which workers average their parameters with those of
// a random neighbor.
const NameAsyncPeer = "async_peer"

// asyncPeer is asynchronous decentralized parallel SGD (AD-PSGD; Lian et al. 2018,
// arXiv:1710.06952). Each worker updates its own parameters by its own gradients, and pairs of
// workers average their parameters; see server.Peer.
type asyncPeer struct {
	*bucketQueue
	shard shard.Shard // all parameters of this worker
	core  *server.Peer
}

func newAsyncPeer(ctx context.Context, _ Config, _ *engine.Accelerator, group collective.Group) (Strategy, error) {
	a := &asyncPeer{bucketQueue: newBucketQueue(ctx, group, nil), core: server.NewPeer(group)}
	a.silent = true // workers are in different steps, so each normalizes its own batch
	return a, nil
}

func (a *asyncPeer) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	all := func(n int) (lo, hi int) { return 0, n }
	own := saved
	if rank := a.group.Rank(); rank > 0 {
		own = maps.Clone(saved)
		maps.DeleteFunc(own, func(name string, _ []float64) bool { return strings.HasPrefix(name, shard.OptimizerSlotPrefix) })
		for name, v := range saved {
			if of, ok := strings.CutPrefix(name, RankPrefix(rank)); ok {
				own[of] = v
			}
		}
	}
	if err := startSharded(ctx, exe, a.group, &a.shard, all, own); err != nil {
		return err
	}
	a.core.UseShard(&a.shard)
	return nil
}

// Step computes gradients for a copy of this worker's parameters. After the last batch of an
// optimizer step, it updates the parameters, which may have been averaged in the meantime. An
// active worker then averages its parameters with those of a random passive worker.
func (a *asyncPeer) Step(ctx context.Context, exe engine.Executable, s Step) (t engine.Timing, err error) {
	a.core.BeginEpoch(a.ctx, s.Update)
	if s.Batch <= 1 {
		a.core.ReadParameters(ctx)
	}
	if t, err = a.runBatch(ctx, exe, a.bucketQueue, s, nil); err != nil || !s.isLast() {
		return t, err
	}
	begin := time.Now()
	staleness, err := a.core.ApplyGradients(ctx, s.Update)
	if err != nil {
		return t, err
	}
	t.Optimizer += time.Since(begin)
	sent := 0
	waited, err := a.measureExchange(func() (err error) {
		sent, err = a.core.AverageWithPassivePeer(s.Update.Step)
		return err
	})
	t.Wait += waited
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Staleness = staleness
	a.stats.Bytes += sent
	return t, err
}

// Equalize waits until all workers have finished the epoch. It then sets the parameters of every
// worker to the mean over all workers.
func (a *asyncPeer) Equalize(context.Context, engine.Executable) error {
	weights, ended, err := a.core.FinishEpoch()
	if err != nil || !ended {
		return err
	}
	if a.group.Size() > 1 {
		if err := a.exchangeBetweenSteps(weights.Bytes(), func(ctx context.Context) error { return averageBuffer(ctx, a.group, weights) }); err != nil {
			return fmt.Errorf("average parameters: %w", err)
		}
	}
	a.core.SetWeights(weights)
	return nil
}

// State returns, on rank 0, the optimizer's slots of all ranks.
func (a *asyncPeer) State(context.Context, engine.Executable) (map[string][]float64, error) {
	all, err := a.shard.CollectSlots(func(device.Buffer) error { return nil })
	n, rank := a.group.Size(), a.group.Rank()
	if err != nil || n == 1 {
		return all, err
	}
	err = a.exchangeBetweenSteps(0, func(ctx context.Context) error {
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

func (a *asyncPeer) Close() error {
	err := a.bucketQueue.Close() // ends the context of the core
	a.core.Close()
	return err
}
