package strategy

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy/internal/vector"
)

// Accumulator is a GradSync for optimizer steps that use several batches, one after
// another. During the last batch, it passes each bucket's mean over the batches to another
// GradSync while the backward pass continues, so the exchange takes as long as for one
// batch.
//
//	acc.Begin(2)
//	timing, err := exe.Step(ctx, acc, nil)      // gradients only
//	timing, err = exe.Step(ctx, acc, &update)   // update by both batches
//
// The Accumulator adds up gradients on the host. A GPU engine adds them up on its device
// instead; see engine.AccumulatingSync.
type Accumulator struct {
	inner engine.GradSync
	sums  []device.Buffer // sum of each bucket
	parts int             // number of batches of the current optimizer step
	part  int             // number of the current batch, from 1
}

var (
	_ engine.AccumulatingSync = (*Accumulator)(nil)
	_ engine.NormSync         = (*Accumulator)(nil)
)

// NewAccumulator returns an Accumulator that passes mean gradients to inner.
func NewAccumulator(inner engine.GradSync) *Accumulator { return &Accumulator{inner: inner} }

// Begin starts an optimizer step that uses the given number of batches, at least 1.
func (a *Accumulator) Begin(parts int) { a.parts, a.part = max(1, parts), 1 }

// ReduceBucket adds b to the sum of bucket i over the batches of the step. During the last
// batch, it then replaces b by the mean over the batches and passes it to the inner
// GradSync.
func (a *Accumulator) ReduceBucket(i int, b device.Buffer, s device.Stream) error {
	if a.parts <= 1 {
		return a.inner.ReduceBucket(i, b, s)
	}
	if !b.OnHost() {
		return errors.New("accumulate gradients: the engine keeps them on its device but cannot add them up there: set accumulate to 1")
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
		return fmt.Errorf("accumulate gradients: bucket %d has %d values, want %d as in the first batch", i, b.Len(), sum.Len())
	}
	if a.part < a.parts {
		vector.Add(*sum, b)
		return nil
	}
	vector.Add(b, *sum)
	vector.Divide(b, a.parts)
	return a.inner.ReduceBucket(i, b, s)
}

// ShareStatistics calls ShareStatistics of the inner GradSync, which must be an
// engine.NormSync, so that batch norms use the statistics of all workers' current batches.
func (a *Accumulator) ShareStatistics(own []float64) ([]float64, error) {
	g, ok := a.inner.(engine.NormSync)
	if !ok {
		return nil, fmt.Errorf("synchronize batch norms: %T exchanges only gradients: use sync_batchnorm=false", a.inner)
	}
	return g.ShareStatistics(own)
}

// Wait ends a batch. After the last batch, it waits until the inner GradSync has reduced
// all buckets.
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

// Accumulated ends a batch whose gradients the engine has added up itself.
func (a *Accumulator) Accumulated() { a.part++ }

// Reduced returns the reductions of the inner GradSync. It returns nil before the end of
// the last batch, and if the inner GradSync is not an engine.ReductionReporter.
func (a *Accumulator) Reduced() []engine.Reduction {
	if r, ok := a.inner.(engine.ReductionReporter); ok && a.part > a.parts {
		return r.Reduced()
	}
	return nil
}

// Capturable returns false if the optimizer step uses several batches or the inner GradSync
// is not capturable.
func (a *Accumulator) Capturable() bool { return a.parts <= 1 && a.inner.Capturable() }
