package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy/internal/shard"
	"lockstep/pkg/strategy/internal/vector"
)

// NameLocalSGD is the name of the strategy that averages parameters instead of gradients.
const NameLocalSGD = "local_sgd"

const defaultLocalSteps = 8

// localSGD is local SGD (Stich 2019, arXiv:1805.09767): every worker updates its own
// parameters by its own gradients, and every few steps the parameters are averaged.
type localSGD struct {
	*bucketQueue
	every         int  // optimizer steps between two averages; 0: the parameters are never averaged
	averagesSlots bool // also average the optimizer's slots
	slots         []string
	differ        bool // the parameters may differ between the ranks
	buckets       []engine.BucketMemory
	staging       device.Buffer
}

func newLocalSGD(ctx context.Context, c Config, _ *engine.Accelerator, group collective.Group) (Strategy, error) {
	return &localSGD{bucketQueue: newBucketQueue(ctx, group, nil), every: c.localSteps(), averagesSlots: c.AverageOptimizer}, nil
}

// newNoCommunication creates the strategy of a worker that never communicates during training. Its
// loss is not meaningful for a training with several workers.
func newNoCommunication(ctx context.Context, group collective.Group) *localSGD {
	l := &localSGD{bucketQueue: newBucketQueue(ctx, group, nil)}
	l.silent = true
	return l
}

// Start copies rank 0's state to all ranks. In a resumed run, each rank then restores the tensors
// in which it differed from rank 0.
func (l *localSGD) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	memory, err := shard.HostMemoryOf(exe)
	if err != nil {
		return err
	}
	l.buckets = memory.Buckets()
	l.staging = shard.NewStagingBuffer(l.buckets)
	if err := (equalReplicas{l.group}).Start(ctx, exe, saved); err != nil {
		return err
	}
	own := map[string][]float64{}
	for name, v := range saved {
		// Rank 1 is enough: either every rank's parameters were saved, or none.
		if of, ok := strings.CutPrefix(name, RankPrefix(1)); ok && !strings.HasPrefix(of, shard.OptimizerSlotPrefix) {
			l.differ = true
		}
		if of, ok := strings.CutPrefix(name, RankPrefix(l.group.Rank())); ok {
			own[of] = v
		}
		if rest, ok := strings.CutPrefix(name, shard.OptimizerSlotPrefix); ok {
			if slot, _, _ := strings.Cut(rest, "."); !slices.Contains(l.slots, slot) {
				l.slots = append(l.slots, slot)
			}
		}
	}
	return restoreTensors(exe, own, exe.Names())
}

// Step averages the parameters of all ranks after every l.every optimizer steps.
func (l *localSGD) Step(ctx context.Context, exe engine.Executable, s Step) (engine.Timing, error) {
	t, err := l.runBatch(ctx, exe, l.bucketQueue, s, &s.Update)
	if err != nil || !s.isLast() {
		return t, err
	}
	l.slots, l.differ = s.Update.Slots(), true
	if l.every == 0 || s.Update.Step%l.every != 0 {
		return t, nil
	}
	begin := time.Now()
	err = l.Equalize(ctx, exe)
	t.Wait += time.Since(begin)
	return t, err
}

// Equalize averages the parameters, and the optimizer's slots if averagesSlots is set. It does
// nothing if they were averaged after the last step.
func (l *localSGD) Equalize(_ context.Context, exe engine.Executable) error {
	if l.group.Size() == 1 || l.every == 0 || !l.differ {
		return nil
	}
	l.differ = false
	size := 0
	for _, b := range l.buckets {
		size += b.Gradients.Bytes()
	}
	if l.averagesSlots {
		size += len(l.slots) * size
	}
	return l.exchangeBetweenSteps(size, func(ctx context.Context) error {
		for i, b := range l.buckets {
			if err := l.averageParameters(ctx, b); err != nil {
				return fmt.Errorf("average parameters of bucket %d: %w", i, err)
			}
		}
		if l.averagesSlots {
			return l.averageSlots(ctx, exe)
		}
		return nil
	})
}

func (l *localSGD) averageParameters(ctx context.Context, b engine.BucketMemory) error {
	stage := l.staging.Slice(0, b.Gradients.Len())
	for _, p := range b.Parameters {
		vector.Copy(stage.Slice(p.Offset, p.Offset+p.Weights.Len()), p.Weights)
	}
	if err := averageBuffer(ctx, l.group, stage); err != nil {
		return err
	}
	for _, p := range b.Parameters {
		vector.Copy(p.Weights, stage.Slice(p.Offset, p.Offset+p.Weights.Len()))
	}
	return nil
}

func (l *localSGD) averageSlots(ctx context.Context, exe engine.Executable) error {
	for _, name := range l.slotNames(exe) {
		v, err := exe.Get(name)
		if err != nil {
			return fmt.Errorf("average %s: %w", name, err)
		}
		b := device.Buffer{F64: v}
		if l.staging.F64 == nil {
			b = device.Buffer{F32: make([]float32, len(v))}
			for i := range v {
				b.F32[i] = float32(v[i])
			}
		}
		if err := averageBuffer(ctx, l.group, b); err != nil {
			return fmt.Errorf("average %s: %w", name, err)
		}
		for i, x := range b.F32 {
			v[i] = float64(x)
		}
		if err := exe.Set(name, v); err != nil {
			return fmt.Errorf("average %s: %w", name, err)
		}
	}
	return nil
}

func (l *localSGD) slotNames(exe engine.Executable) []string {
	return slices.DeleteFunc(slices.Clone(exe.Names()), func(name string) bool {
		rest, ok := strings.CutPrefix(name, shard.OptimizerSlotPrefix)
		slot, _, _ := strings.Cut(rest, ".")
		return !ok || !slices.Contains(l.slots, slot)
	})
}

// State returns, on rank 0, the tensors of the other ranks that differ from those of rank 0: the
// optimizer's slots unless they are averaged and, between two averages, all tensors except running
// statistics, which are always those of rank 0.
func (l *localSGD) State(_ context.Context, exe engine.Executable) (map[string][]float64, error) {
	n, rank := l.group.Size(), l.group.Rank()
	var names []string
	if l.differ || !l.averagesSlots {
		names = l.slotNames(exe)
	}
	if l.differ {
		for _, p := range exe.Program().Params {
			names = append(names, p.Name)
		}
	}
	if n == 1 || len(names) == 0 {
		return nil, nil
	}
	all := map[string][]float64{}
	err := l.exchangeBetweenSteps(0, func(ctx context.Context) error {
		for _, name := range names {
			v, err := exe.Get(name)
			if err != nil {
				return fmt.Errorf("collect %s: %w", name, err)
			}
			values := make([]float64, n*len(v)) // the shard of rank r has len(v) values
			copy(values[rank*len(v):], v)
			if err := l.group.AllGather(ctx, device.Buffer{F64: values}); err != nil {
				return fmt.Errorf("collect %s: %w", name, err)
			}
			for r := 1; r < n && rank == 0; r++ {
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
