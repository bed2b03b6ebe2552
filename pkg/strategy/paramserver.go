package strategy

import (
	"context"
	"fmt"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
	"lockstep/pkg/strategy/internal/vector"
)

// NameParamServer is the name of the strategy in which servers update the parameters.
const NameParamServer = "paramserver"

// paramServer is a synchronous parameter server (Li et al. 2014, "Scaling Distributed Machine
// Learning with the Parameter Server", OSDI; Chen et al. 2016, arXiv:1604.00981). Every worker
// sends its gradients to the server, which updates the parameters with the mean gradient and sends
// them back. With several servers, each has an equal part of every bucket. Server s runs in the
// process of rank s, which is also a worker.
type paramServer struct {
	*bucketQueue
	servers  int
	shard    shard.Shard
	incoming device.Buffer // gradients that this server has received from one worker
}

func newParamServer(ctx context.Context, c Config, _ *engine.Accelerator, group collective.Group) (Strategy, error) {
	if c.MaxStaleness > 0 {
		return newAsyncServer(ctx, c, group), nil
	}
	p := &paramServer{servers: c.serverCount()}
	p.bucketQueue = newBucketQueue(ctx, group, func(_ *bucketQueue, b gradientBucket) error { return p.pushGradients(b.buffer) })
	return p, nil
}

// checkServerCount returns an error if there are more servers than workers.
func checkServerCount(c Config, workers int) error {
	if n := c.serverCount(); n > workers {
		return fmt.Errorf("strategy %s: got %s for %s, but each server runs in the process of a worker: use at most %d",
			NameParamServer, english.FormatCount(n, "server"), english.FormatCount(workers, "worker"), workers)
	}
	return nil
}

// forEachServer calls f with each server and its shard of b. Because all ranks send and receive in
// the same order, no two ranks wait for each other.
func forEachServer(b device.Buffer, servers int, f func(server int, shard device.Buffer) error) error {
	for server := range servers {
		lo, hi := collective.Shard(b.Len(), servers, server)
		if lo == hi {
			continue
		}
		if err := f(server, b.Slice(lo, hi)); err != nil {
			return fmt.Errorf("parameter server %d: %w", server, err)
		}
	}
	return nil
}

// pushGradients sends each shard of b, a bucket of gradients, to its server. In a server's process,
// it replaces the server's shard by the mean over all workers. The server adds the gradients in the
// order of the ranks, so that repeated runs compute the same bits.
func (p *paramServer) pushGradients(b device.Buffer) error {
	n, rank := p.group.Size(), p.group.Rank()
	return forEachServer(b, p.servers, func(server int, shard device.Buffer) error {
		if rank != server {
			return p.group.Send(p.ctx, shard, server)
		}
		if p.incoming.Len() < shard.Len() {
			p.incoming = vector.NewLike(shard, shard.Len())
		}
		incoming := p.incoming.Slice(0, shard.Len())
		for r := range n {
			if r == rank {
				continue
			}
			if err := p.group.Recv(p.ctx, incoming, r); err != nil {
				return err
			}
			vector.Add(shard, incoming)
		}
		vector.Divide(shard, n)
		return nil
	})
}

func (p *paramServer) pullParameters(ctx context.Context, b device.Buffer) error {
	n, rank := p.group.Size(), p.group.Rank()
	return forEachServer(b, p.servers, func(server int, shard device.Buffer) error {
		if rank != server {
			return p.group.Recv(ctx, shard, server)
		}
		for r := range n {
			if r == rank {
				continue
			}
			if err := p.group.Send(ctx, shard, r); err != nil {
				return err
			}
		}
		return nil
	})
}

func collectFromServers(ctx context.Context, group collective.Group, b device.Buffer, servers int) error {
	rank := group.Rank()
	return forEachServer(b, servers, func(server int, shard device.Buffer) error {
		switch {
		case server == 0:
			return nil
		case rank == 0:
			return group.Recv(ctx, shard, server)
		case rank == server:
			return group.Send(ctx, shard, 0)
		}
		return nil
	})
}

func (p *paramServer) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	return startSharded(ctx, exe, p.group, &p.shard, serverShardRange(p.servers, p.group.Rank()), saved)
}

// serverShardRange returns a function that returns the range of a bucket with n elements that
// belongs to the server on the given rank. The range is empty if the rank has no server.
func serverShardRange(servers, rank int) func(n int) (lo, hi int) {
	return func(n int) (lo, hi int) {
		if rank >= servers {
			return 0, 0
		}
		return collective.Shard(n, servers, rank)
	}
}

// Step sends the gradients of one batch to the servers. After the last batch of an
// optimizer step, the servers update the parameters and all ranks receive them.
func (p *paramServer) Step(ctx context.Context, exe engine.Executable, s Step) (engine.Timing, error) {
	t, err := p.runBatch(ctx, exe, p.bucketQueue, s, nil)
	if err != nil || !s.isLast() {
		return t, err
	}
	err = p.updateShards(&p.shard, s.Update, &t, p.pullParameters)
	return t, err
}

func (*paramServer) Equalize(context.Context, engine.Executable) error { return nil }

// State returns the servers' optimizer slots on rank 0.
func (p *paramServer) State(_ context.Context, _ engine.Executable) (map[string][]float64, error) {
	return p.collectOptimizerSlots(&p.shard, func(ctx context.Context, b device.Buffer) error {
		return collectFromServers(ctx, p.group, b, p.servers)
	})
}

func (p *paramServer) OptimizerBytes(u optim.Update) (own, replicated int64) {
	return p.shard.OptimizerBytes(u)
}
