package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/strategy/internal/horovod"
)

// NameHorovod is the name of the strategy in which a coordinator decides when gradients are
// exchanged.
const NameHorovod = "horovod"

// Defaults of Horovod's options, taken from Horovod.
const (
	defaultCycleMilliseconds = 1
	defaultFusionMiB         = 128
	defaultCacheCapacity     = 1024
)

// horovodStrategy is Horovod's DistributedOptimizer (Sergeev and Del Balso 2018, arXiv:1802.05799).
// It averages the gradients over all workers in the order that a coordinator on rank 0 decides.
// Every worker's optimizer then applies the same update. Package horovod describes the exchange.
type horovodStrategy struct {
	*bucketQueue
	equalReplicas
	controller *horovod.Controller
	timeline   *horovod.Timeline
	names      []string // of the tensors, by bucket
}

func newHorovod(ctx context.Context, c Config, _ *engine.Accelerator, group collective.Group) (Strategy, error) {
	h := &horovodStrategy{equalReplicas: equalReplicas{group}}
	h.controller = horovod.New(group, horovod.Options{
		CycleTime:     time.Duration(c.cycleMilliseconds() * float64(time.Millisecond)),
		FusionBytes:   int(c.fusionThresholdMiB() * (1 << 20)),
		CacheCapacity: c.responseCacheCapacity(),
		Reduce:        func(ctx context.Context, b device.Buffer) error { return averageBuffer(ctx, group, b) },
	})
	h.bucketQueue = newNegotiatingQueue(ctx, group, h.runCycle)
	return h, nil
}

func (c Config) cycleMilliseconds() float64 { return cmp.Or(c.CycleTime, defaultCycleMilliseconds) }

func (c Config) fusionThresholdMiB() float64 { return cmp.Or(c.FusionThreshold, defaultFusionMiB) }

func (c Config) responseCacheCapacity() int { return cmp.Or(c.CacheCapacity, defaultCacheCapacity) }

func checkHorovodOptions(c Config) error {
	switch {
	case !(c.CycleTime >= 0 && c.CycleTime <= 1e6):
		return fmt.Errorf("strategy.cycle_time is %g: use milliseconds, more than 0, or 0 for %d", c.CycleTime, defaultCycleMilliseconds)
	case !(c.FusionThreshold >= 0 && c.FusionThreshold <= 1<<20):
		return fmt.Errorf("strategy.fusion_threshold is %g: use MiB, more than 0, or 0 for %d; a small value such as 1e-6 turns fusion off", c.FusionThreshold, defaultFusionMiB)
	case c.CacheCapacity < 0:
		return fmt.Errorf("strategy.cache_capacity is %d: use a number of tensors, at least 1, or 0 for %d", c.CacheCapacity, defaultCacheCapacity)
	}
	return nil
}

// BucketBytes returns the size at which a bucket of gradients is complete. It is of, the size in
// the config, except with Horovod: there each gradient is a bucket, because Horovod fuses gradients
// itself.
func (c Config) BucketBytes(of int) int {
	if c.Name == NameHorovod {
		return 1
	}
	return of
}

// TimelineWriter is a Strategy that can write Horovod's timeline.
type TimelineWriter interface {
	Strategy
	// StartTimeline writes the timeline of all workers to the file path, until Close. Only
	// rank 0 writes one. In a world of one rank, there is nothing to write.
	StartTimeline(path string) error
}

func (h *horovodStrategy) StartTimeline(path string) (err error) {
	if h.bucketQueue.group.Size() == 1 || h.bucketQueue.group.Rank() != 0 {
		return nil
	}
	h.timeline, err = horovod.CreateTimeline(path)
	h.controller.SetTimeline(h.timeline)
	return err
}

func (h *horovodStrategy) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	h.names = bucketParameterNames(exe.Program())
	return h.equalReplicas.Start(ctx, exe, saved)
}

// bucketParameterNames returns the name of the parameter in each bucket.
func bucketParameterNames(p *plan.Program) []string {
	names := make([]string, len(p.Buckets))
	for i, b := range p.Buckets {
		var params []string
		for _, k := range b.Params {
			params = append(params, p.Params[k].Name)
		}
		names[i] = strings.Join(params, "+")
	}
	return names
}

func (h *horovodStrategy) Step(ctx context.Context, exe engine.Executable, s Step) (engine.Timing, error) {
	return h.runBatch(ctx, exe, h.bucketQueue, s, &s.Update)
}

func (h *horovodStrategy) runCycle(q *bucketQueue) ([]completedExchange, error) {
	operations, err := h.controller.Cycle(q.ctx, func() (tensors []horovod.Tensor, complete bool) {
		waiting, complete := q.waitingBuckets()
		for _, b := range waiting {
			name := fmt.Sprintf("bucket %d", b.index)
			if b.index < len(h.names) {
				name = h.names[b.index]
			}
			tensors = append(tensors, horovod.Tensor{Number: b.index, Name: name, Buffer: b.buffer})
		}
		return tensors, complete
	})
	var done []completedExchange
	for _, o := range operations {
		done = append(done, completedExchange{buckets: o.Tensors, begin: o.Begin, took: o.Took, bytes: o.Bytes})
	}
	return done, err
}

// Close ends all goroutines and completes the timeline.
func (h *horovodStrategy) Close() error {
	err := h.bucketQueue.Close()
	if h.timeline != nil {
		err = errors.Join(err, h.timeline.Close())
		h.timeline = nil
	}
	return err
}
