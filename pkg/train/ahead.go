package train

import (
	"context"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// feeder gives the batches of an epoch: each when it is asked for, or, to an
// engine that works on its own, the next one while a step runs, or the numbers of
// its samples where these lie on the engine's device.
type feeder struct {
	batches *data.Iterator
	engine  engine.Prefetcher // nil: one that does not
	asked   bool              // for the batch after the step under way
	more    bool              // there was one
	with    bool              // the present batch is with the engine already

	label          bool      // targets are asked for after the step
	present, after []float32 // targets of the present batch and the one after, where the engine takes batches

	on      *onDevice // nil: batches are loaded
	epoch   int
	numbers [][]int // of the samples of the batches to come
	failed  error
}

// feedFrom begins to give the batches of the next epoch from one on; call stop at the
// end.
func (t *Trainer) feedFrom(ctx context.Context, batch int) *feeder {
	f := &feeder{label: t.net.Task() == model.Classification, on: t.onDevice, epoch: t.epoch}
	if f.on != nil {
		f.numbers = t.loader.Batches(t.epoch)[batch:]
		return f
	}
	f.batches = t.loader.EpochFrom(ctx, t.epoch, batch)
	if p, ok := t.train.(engine.Prefetcher); ok {
		f.engine = p
		p.Ahead(f.ahead)
	}
	return f
}

// ahead is called while a step runs.
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

// next waits for the next batch.
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
	if f.label && f.engine != nil { // the batch is gone once the engine asked for the one after
		f.present = append(f.present[:0], f.batches.Batch().Target...)
	}
	return true
}

// name tells the engine which samples of its device the next batch has.
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

// err is what ended the batches early, nil at the end of the epoch.
func (f *feeder) err() error {
	if f.on != nil {
		return f.failed
	}
	return f.batches.Err()
}

// batch is the present one's values, nil where the engine has them.
func (f *feeder) batch() (image, target []float32) {
	if f.with {
		return nil, nil
	}
	b := f.batches.Batch()
	return b.Image, b.Target
}

// labels is the present batch's target, until next; only where f.label.
func (f *feeder) labels() []float32 {
	if f.engine != nil || f.on != nil {
		return f.present
	}
	return f.batches.Batch().Target
}

// stop ends it.
func (f *feeder) stop() {
	if f.engine != nil {
		f.engine.Ahead(nil)
	}
	if f.batches != nil {
		f.batches.Close()
	}
}
