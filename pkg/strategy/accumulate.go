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
// instead; see engine.Accumulation.
type Accumulator struct {
	inner engine.GradSync
	sums  []device.Buffer // sum of each bucket
	parts int             // number of batches of the current optimizer step
	part  int             // number of the current batch, from 1
}

// NewAccumulator returns an Accumulator that passes mean gradients to inner. inner may be nil if
// the engine adds up the gradients itself and there is only one worker.
func NewAccumulator(inner engine.GradSync) *Accumulator { return &Accumulator{inner: inner} }

// Begin starts an optimizer step that uses the given number of batches. Values below 1 mean 1.
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

// Capabilities returns the capabilities of the inner GradSync: batch norms use the statistics of
// all workers' current batches, and traces show the reductions after the last batch. If the
// optimizer step uses several batches, the engine must not record and repeat the calls.
func (a *Accumulator) Capabilities() engine.SyncCapabilities {
	var c engine.SyncCapabilities
	if a.inner != nil {
		c = a.inner.Capabilities()
	}
	c.Enqueues = c.Enqueues && a.parts <= 1
	c.Accumulation = &engine.Accumulation{Step: a.part, Steps: max(1, a.parts), Mean: a.inner, Done: func() { a.part++ }}
	if a.part <= a.parts {
		c.Reduced = nil
	}
	return c
}
