package train

import (
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// feeder gives the batches of an epoch: each when it is asked for, or, to an
// engine that works on its own, the next one while a step runs.
type feeder struct {
	batches *data.Iterator
	engine  engine.Prefetcher // nil: one that does not
	asked   bool              // for the batch after the step under way
	more    bool              // there was one
	with    bool              // the present batch is with the engine already

	label          bool      // targets are asked for after the step
	present, after []float32 // targets of the present batch and the one after, where the engine takes batches
}

// feedFrom begins to give batches; call stop at the end.
func (t *Trainer) feedFrom(batches *data.Iterator) *feeder {
	f := &feeder{batches: batches, label: t.net.Task() == model.Classification}
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
	if f.engine != nil {
		return f.present
	}
	return f.batches.Batch().Target
}

// stop ends it.
func (f *feeder) stop() {
	if f.engine != nil {
		f.engine.Ahead(nil)
	}
}
