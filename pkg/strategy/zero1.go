package strategy

import (
	"context"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
	"lockstep/pkg/strategy/internal/vector"
)

// NameZeRO1 is the name of the strategy that shards the optimizer's state.
const NameZeRO1 = "zero1"

// zero1 is stage 1 of ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1). Every rank
// owns an equal part of each bucket. The gradients are reduce-scattered, each rank updates its
// part, and the parameters are all-gathered.
type zero1 struct {
	*bucketQueue
	shard shard.Shard
}

func newZeRO1(ctx context.Context, _ Config, _ *engine.Accelerator, group collective.Group) (Strategy, error) {
	return &zero1{bucketQueue: newBucketQueue(ctx, group, reduceScatterBucket)}, nil
}

// reduceScatterBucket replaces this rank's shard of a bucket by its mean over all ranks.
func reduceScatterBucket(q *bucketQueue, b gradientBucket) error {
	if err := q.group.ReduceScatter(q.ctx, b.buffer); err != nil {
		return err
	}
	n := q.group.Size()
	vector.Divide(b.buffer.Slice(collective.Shard(b.buffer.Len(), n, q.group.Rank())), n)
	return nil
}

func (z *zero1) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	own := func(n int) (lo, hi int) { return collective.Shard(n, z.group.Size(), z.group.Rank()) }
	return startSharded(ctx, exe, z.group, &z.shard, own, saved)
}

// startSharded implements Start for strategies that apply the update themselves.
func startSharded(ctx context.Context, exe engine.Executable, group collective.Group, s *shard.Shard, own func(n int) (lo, hi int), saved map[string][]float64) error {
	if err := s.Start(exe, own); err != nil {
		return err
	}
	names := namesWithoutSlots(exe)
	if err := restoreTensors(exe, saved, names); err != nil {
		return err
	}
	if err := BroadcastTensors(ctx, exe, group, names); err != nil {
		return err
	}
	return s.RestoreSlots(saved)
}

// Step updates this rank's part of the parameters after the last batch of an optimizer
// step, and gathers the other parts.
func (z *zero1) Step(ctx context.Context, exe engine.Executable, s Step) (engine.Timing, error) {
	t, err := z.runBatch(ctx, exe, z.bucketQueue, s, nil)
	if err != nil || !s.isLast() {
		return t, err
	}
	err = z.updateShards(&z.shard, s.Update, &t, z.gatherWeights)
	return t, err
}

func (z *zero1) gatherWeights(ctx context.Context, b device.Buffer) error {
	return z.group.AllGather(ctx, b)
}

// updateShards applies u to this rank's shards, exchanges the shards, and adds the times to t.
func (q *bucketQueue) updateShards(s *shard.Shard, u optim.Update, t *engine.Timing, exchange func(ctx context.Context, b device.Buffer) error) error {
	begin := time.Now()
	if err := s.ApplyUpdate(u, q.sumFloat64s); err != nil {
		return err
	}
	t.Optimizer += time.Since(begin)
	if q.group.Size() == 1 {
		return nil
	}
	begin = time.Now()
	owned, _ := s.OwnedBytes()
	err := q.exchangeBetweenSteps(owned, func(ctx context.Context) error {
		return s.ExchangeWeights(func(b device.Buffer) error { return exchange(ctx, b) })
	})
	t.Wait += time.Since(begin)
	return err
}

func (q *bucketQueue) sumFloat64s(v []float64) error {
	if q.group.Size() == 1 {
		return nil
	}
	return q.exchangeBetweenSteps(8*len(v), func(ctx context.Context) error { return q.group.AllReduce(ctx, device.Buffer{F64: v}) })
}

func (z *zero1) Equalize(context.Context, engine.Executable) error { return nil }

func (z *zero1) State(_ context.Context, _ engine.Executable) (map[string][]float64, error) {
	return z.collectOptimizerSlots(&z.shard, z.gatherWeights)
}

// collectOptimizerSlots returns the complete slots of the optimizer on rank 0, and nil on the other ranks.
// exchange is called with a buffer that contains this rank's shard, and must fill in the others.
func (q *bucketQueue) collectOptimizerSlots(s *shard.Shard, exchange func(ctx context.Context, b device.Buffer) error) (all map[string][]float64, err error) {
	if q.group.Size() == 1 {
		return s.CollectSlots(func(device.Buffer) error { return nil })
	}
	err = q.exchangeBetweenSteps(0, func(ctx context.Context) (err error) {
		all, err = s.CollectSlots(func(b device.Buffer) error { return exchange(ctx, b) })
		return err
	})
	if q.group.Rank() != 0 {
		all = nil
	}
	return all, err
}

func (z *zero1) OptimizerBytes(u optim.Update) (own, replicated int64) {
	return z.shard.OptimizerBytes(u)
}
