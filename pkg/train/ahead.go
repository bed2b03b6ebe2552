package train

import (
	"context"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// feeder provides the batches of an epoch in one of three ways: it loads each batch when
// next is called; it passes the next batch to an engine that prefetches, during a step; or
// it passes the numbers of the samples to an engine whose device holds the training set.
type feeder struct {
	batches *data.Iterator
	engine  engine.Prefetcher // nil if the engine does not prefetch
	asked   bool              // the engine has asked for the next batch
	more    bool              // the next batch existed when the engine asked
	with    bool              // the engine already has the current batch

	label          bool      // targets are needed after the step
	present, after []float32 // targets of the current and the next batch, if the engine prefetches

	on      *onDevice // nil: batches are loaded
	epoch   int
	numbers [][]int // sample numbers of the remaining batches, if on is set
	failed  error   // first error of the device's engine
}

// feedFrom returns a feeder for the batches of the current epoch, starting with the given
// batch. The caller must call stop.
func (t *Trainer) feedFrom(ctx context.Context, batch int) *feeder {
	f := &feeder{label: t.net.Task() == model.Classification, on: t.onDevice, epoch: t.epoch}
	if f.on != nil {
		f.numbers = t.loader.Batches(t.epoch)[batch:]
		return f
	}
	f.batches = t.loader.EpochFrom(ctx, t.epoch, batch)
	if p, ok := t.train.(engine.Prefetcher); ok {
		f.engine = p
		p.SetPrefetch(f.ahead)
	}
	return f
}

// ahead returns the inputs of the next batch, or nil at the end of the epoch. The engine
// calls it during a step.
func (f *feeder) ahead() map[string][]float32 {
	f.asked, f.more = true, f.batches.Next()
	if !f.more {
		return nil
	}
	b := f.batches.Batch()
	if f.label {
		f.after = append(f.after[:0], b.Target...)
	}
	return map[string][]float32{model.ImageInput: b.Image, model.TargetInput: b.Target}
}

// next waits for the next batch. It returns false at the end of the epoch or after an error.
func (f *feeder) next() bool {
	if f.on != nil {
		return f.name()
	}
	if f.asked {
		f.asked, f.with = false, true
		f.present, f.after = f.after, f.present
		return f.more
	}
	f.with = false
	if !f.batches.Next() {
		return false
	}
	if f.label && f.engine != nil { // the batch is overwritten when the engine asks for the next one
		f.present = append(f.present[:0], f.batches.Batch().Target...)
	}
	return true
}

// name passes the sample numbers of the next batch to the engine. It returns false at the
// end of the epoch or after an error.
func (f *feeder) name() bool {
	if len(f.numbers) == 0 || f.failed != nil {
		return false
	}
	batch := f.numbers[0]
	f.numbers, f.with = f.numbers[1:], true
	if f.failed = f.on.engine.Samples(f.epoch, batch); f.failed != nil {
		return false
	}
	if f.label {
		f.present = f.on.labels(f.present[:0], batch)
	}
	return true
}

// err returns the error that ended the batches early, or nil if there was none.
func (f *feeder) err() error {
	if f.on != nil {
		return f.failed
	}
	return f.batches.Err()
}

// batch returns the inputs of the current batch, or nil if the engine already has them.
func (f *feeder) batch() (image, target []float32) {
	if f.with {
		return nil, nil
	}
	b := f.batches.Batch()
	return b.Image, b.Target
}

// labels returns the targets of the current batch. They are valid until the next call of
// next, and only if f.label is set.
func (f *feeder) labels() []float32 {
	if f.engine != nil || f.on != nil {
		return f.present
	}
	return f.batches.Batch().Target
}

// stop stops loading and prefetching.
func (f *feeder) stop() {
	if f.engine != nil {
		f.engine.SetPrefetch(nil)
	}
	if f.batches != nil {
		f.batches.Close()
	}
}
