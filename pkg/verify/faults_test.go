package verify

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// TestFaults checks the result of an exchange with each fault on two ranks. Before the exchange,
// bucket b of rank r contains 10·r + b.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		f    faultInjector
		want func(rank, bucket int) float64
	}{
		{"sum for mean", skipGradientAveraging, func(_, b int) float64 { return 10 + 2*float64(b) }},
		{"bucket skipped", skipBucketReduction, func(r, b int) float64 {
			if b == 0 {
				return 10 * float64(r)
			}
			return 5 + float64(b)
		}},
		{"own norms", skipStatisticsSync, func(_, b int) float64 { return 5 + float64(b) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p train.WorkerOptions
			c.f(&p)
			var wg sync.WaitGroup
			for rank, g := range collective.InProcess(2) {
				wg.Go(func() {
					if err := checkExchange(p, g, func(b int) float64 { return c.want(rank, b) }); err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// bucketExecutable is an executable that only exchanges its buckets in a step.
type bucketExecutable struct {
	engine.Executable // nil: nothing else may be asked of it
	buckets           []device.Buffer
}

func (x *bucketExecutable) Step(_ context.Context, sync engine.GradSync, _ *optim.Update) (engine.Timing, error) {
	for i, b := range x.buckets {
		if err := sync.ReduceBucket(i, b, device.Stream{}); err != nil {
			return engine.Timing{}, err
		}
	}
	return engine.Timing{}, sync.Wait()
}

// checkExchange exchanges three buckets in each of three steps, and compares them with want.
func checkExchange(p train.WorkerOptions, g collective.Group, want func(bucket int) float64) error {
	x, err := p.Strategy(context.Background(), strategy.Config{}, nil, g)
	if err != nil {
		return err
	}
	for step := range 3 {
		exe := &bucketExecutable{buckets: make([]device.Buffer, 3)}
		for i := range exe.buckets {
			v := float64(10*g.Rank() + i)
			exe.buckets[i] = device.Buffer{F64: []float64{v, v}}
		}
		if _, err := x.Step(context.Background(), exe, strategy.Step{Batch: 1, Batches: 1}); err != nil {
			return err
		}
		for i, b := range exe.buckets {
			if b.F64[0] != want(i) || b.F64[1] != want(i) {
				return fmt.Errorf("step %d, bucket %d: got %v, want %v", step, i, b.F64, want(i))
			}
		}
	}
	return x.Close()
}
