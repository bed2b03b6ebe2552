package strategy

import (
	"context"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/server"
	"lockstep/pkg/strategy/internal/shard"
)

// asyncServer is a parameter server whose workers do not wait for each other in each step. The
// exchange is described in package server. The servers run from the first step of an epoch until
// Equalize.
type asyncServer struct {
	*bucketQueue
	servers int
	shard   shard.Shard // what this rank's server updates
	core    *server.AsyncExchange
}

func newAsyncServer(ctx context.Context, c Config, group collective.Group) *asyncServer {
	a := &asyncServer{bucketQueue: newBucketQueue(ctx, group, nil), servers: c.serverCount()}
	a.core = server.NewAsyncExchange(group, a.servers, c.MaxStaleness)
	a.silent = true // workers are in different steps, so each normalizes its own batch
	return a
}

// Start copies rank 0's parameters and running statistics to all ranks, and restores the
// servers' optimizer slots.
func (a *asyncServer) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	if err := startSharded(ctx, exe, a.group, &a.shard, serverShardRange(a.servers, a.group.Rank()), saved); err != nil {
		return err
	}
	a.core.UseShard(&a.shard)
	return nil
}

// Step reads the servers' parameters, computes the gradients of one batch and, after the last
// batch of an optimizer step, sends them to the servers.
func (a *asyncServer) Step(ctx context.Context, exe engine.Executable, s Step) (t engine.Timing, err error) {
	if err := a.core.BeginEpoch(a.ctx, s.Update); err != nil {
		return t, err
	}
	read := time.Duration(0)
	if s.Batch <= 1 {
		if read, err = a.measureExchange(a.core.ReadParameters); err != nil {
			return t, err
		}
	}
	if t, err = a.runBatch(ctx, exe, a.bucketQueue, s, nil); err != nil {
		return t, err
	}
	t.Wait += read
	if !s.isLast() {
		return t, nil
	}
	sent, err := a.measureExchange(func() error { return a.pushGradients(s.Update) })
	t.Wait += sent
	return t, err
}

// pushGradients sends the executable's gradients to the servers.
func (a *asyncServer) pushGradients(u optim.Update) error {
	staleness, err := a.core.PushGradients(u)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Staleness = staleness
	for _, b := range a.shard.Buckets {
		a.stats.Buckets++
		a.stats.Bytes += b.Gradients.Bytes()
	}
	return nil
}

// Equalize waits until all workers have finished the epoch, ends the servers, and copies their
// parameters to all workers.
func (a *asyncServer) Equalize(context.Context, engine.Executable) error {
	if ended, err := a.core.FinishEpoch(); err != nil || !ended {
		return err
	}
	return a.exchangeBetweenSteps(0, a.core.BroadcastParameters)
}

// State returns the servers' optimizer slots on rank 0.
func (a *asyncServer) State(context.Context, engine.Executable) (map[string][]float64, error) {
	return a.collectOptimizerSlots(&a.shard, func(ctx context.Context, b device.Buffer) error {
		return collectFromServers(ctx, a.group, b, a.servers)
	})
}

// OptimizerBytes returns the size of the optimizer's state on this rank (own), and the size that it
// has on every rank with NameDDP (replicated).
func (a *asyncServer) OptimizerBytes(u optim.Update) (own, replicated int64) {
	return a.shard.OptimizerBytes(u)
}

// Close ends the exchange and all goroutines. It does not close the group.
func (a *asyncServer) Close() error {
	err := a.bucketQueue.Close() // ends the context of the core
	a.core.Close()
	return err
}
