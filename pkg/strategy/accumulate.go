package strategy

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
)

// Accumulator is a GradSync for updates that use several batches, one after
// another. It sums their gradients, and passes the mean to the
// strategy with the last batch, bucket by bucket, while the backward pass of that batch
// continues. So the exchange costs as much as for one batch.
//
//	acc.Begin(2)
//	timing, err := exe.Step(ctx, acc, nil)      // gradients only
//	timing, err = exe.Step(ctx, acc, &update)   // update by both batches
//
// The Accumulator itself sums gradients on the host. A GPU engine sums them on the device
// (engine.AccumulatingSync).
type Accumulator struct {
	inner engine.GradSync
	sums  []device.Buffer // sum of each bucket
	parts int             // number of parts of the current update
	part  int             // the current part, from 1
}

var (
	_ engine.AccumulatingSync = (*Accumulator)(nil)
	_ engine.NormSync         = (*Accumulator)(nil)
)

// NewAccumulator returns an Accumulator that passes mean gradients to inner.
func NewAccumulator(inner engine.GradSync) *Accumulator { return &Accumulator{inner: inner} }

// Begin starts an update of the given number of parts, at least 1.
func (a *Accumulator) Begin(parts int) { a.parts, a.part = max(1, parts), 1 }

// ReduceBucket adds bucket i to the sum. With the last part, it passes the mean to the inner
// GradSync.
func (a *Accumulator) ReduceBucket(i int, b device.Buffer, s device.Stream) error {
	if a.parts <= 1 {
		return a.inner.ReduceBucket(i, b, s)
	}
	if !b.OnHost() {
		return errors.New("accumulate gradients: this engine keeps them on its device and does not add them up there: use accumulate 1")
	}
	for len(a.sums) <= i {
		a.sums = append(a.sums, device.Buffer{})
	}
	sum := &a.sums[i]
	if a.part == 1 {
		sum.F32, sum.F64 = append(sum.F32[:0], b.F32...), append(sum.F64[:0], b.F64...)
		return nil
	}
	if len(sum.F32) != len(b.F32) || len(sum.F64) != len(b.F64) {
		return fmt.Errorf("accumulate gradients: bucket %d has %d values, had %d", i, b.Len(), sum.Len())
	}
	if a.part < a.parts {
		plus(sum.F32, b.F32)
		plus(sum.F64, b.F64)
		return nil
	}
	plus(b.F32, sum.F32)
	plus(b.F64, sum.F64)
	divide(b, a.parts)
	return a.inner.ReduceBucket(i, b, s)
}

func plus[T float32 | float64](to, from []T) {
	for i, v := range from {
		to[i] += v
	}
}

// ShareStatistics calls the inner GradSync's method: in each part, batch norms use the
// statistics of all workers' batches in that part.
func (a *Accumulator) ShareStatistics(own []float64) ([]float64, error) {
	g, ok := a.inner.(engine.NormSync)
	if !ok {
		return nil, fmt.Errorf("%T exchanges only gradients: use sync_batchnorm=false", a.inner)
	}
	return g.ShareStatistics(own)
}

// Wait ends a part. With the last part, it waits for the exchange.
func (a *Accumulator) Wait() error {
	last := a.part >= a.parts
	a.part++
	if !last {
		return nil
	}
	return a.inner.Wait()
}

// Part implements engine.AccumulatingSync.
func (a *Accumulator) Part() (part, parts int, inner engine.GradSync) {
	return a.part, max(1, a.parts), a.inner
}

// Accumulated ends a part whose gradients the engine has summed itself.
func (a *Accumulator) Accumulated() { a.part++ }

// Reduced returns the inner GradSync's reductions; nil before the last part, because
// nothing is reduced then.
func (a *Accumulator) Reduced() []engine.Reduction {
	if r, ok := a.inner.(engine.ReductionReporter); ok && a.part > a.parts {
		return r.Reduced()
	}
	return nil
}

// Capturable reports whether updates have a single part and the inner GradSync is
// capturable.
func (a *Accumulator) Capturable() bool { return a.parts <= 1 && a.inner.Capturable() }
