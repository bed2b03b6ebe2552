package train

import (
	"context"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// batchFeeder provides the batches of an epoch in one of three ways:
//   - next loads each batch.
//   - The engine prefetches: during a step it calls prefetch for the next batch.
//   - The training set is in the device's memory: next passes the indexes of the batch's
//     samples to the engine.
type batchFeeder struct {
	batches        *data.Iterator
	engine         engine.Prefetcher // nil if the engine does not prefetch
	requested      bool              // the engine has called prefetch for the next batch
	hasNext        bool              // there was a next batch when the engine called prefetch
	engineHasBatch bool              // the engine already has the current batch

	needTargets          bool      // batchTargets is called after each step
	targets, nextTargets []float32 // targets of the current and the next batch, if the engine prefetches

	device    *deviceDataset // nil: batches are loaded
	epoch     int
	remaining [][]int // sample indexes of the remaining batches, if the device holds the set
	deviceErr error   // first error of the engine that holds the set
}

// newBatchFeeder provides the batches of the current epoch from number batch on, counted from 0.
// The caller must call stop.
func (t *Trainer) newBatchFeeder(ctx context.Context, batch int) *batchFeeder {
	f := &batchFeeder{needTargets: t.net.Task() == model.Classification, device: t.deviceSet, epoch: t.epoch}
	if f.device != nil {
		f.remaining = t.loader.BatchIndices(t.epoch)[batch:]
		return f
	}
	f.batches = t.loader.EpochFrom(ctx, t.epoch, batch)
	if p, ok := t.train.(engine.Prefetcher); ok {
		f.engine = p
		p.SetPrefetch(f.prefetch)
	}
	return f
}

// prefetch returns the inputs of the next batch by name, or nil at the end of the epoch. The engine
// calls it during a step.
func (f *batchFeeder) prefetch() map[string][]float32 {
	f.requested, f.hasNext = true, f.batches.Next()
	if !f.hasNext {
		return nil
	}
	b := f.batches.Batch()
	if f.needTargets {
		f.nextTargets = append(f.nextTargets[:0], b.Target...)
	}
	return map[string][]float32{model.ImageInput: b.Image, model.TargetInput: b.Target}
}

// next waits for the next batch. It returns false at the end of the epoch or after an error.
func (f *batchFeeder) next() bool {
	if f.device != nil {
		return f.selectSamples()
	}
	if f.requested {
		f.requested, f.engineHasBatch = false, true
		f.targets, f.nextTargets = f.nextTargets, f.targets
		return f.hasNext
	}
	f.engineHasBatch = false
	if !f.batches.Next() {
		return false
	}
	if f.needTargets && f.engine != nil { // the batch is overwritten when the engine asks for the next one
		f.targets = append(f.targets[:0], f.batches.Batch().Target...)
	}
	return true
}

// selectSamples passes the sample indexes of the next batch to the engine whose device holds the
// training set. It returns false at the end of the epoch or after an error.
func (f *batchFeeder) selectSamples() bool {
	if len(f.remaining) == 0 || f.deviceErr != nil {
		return false
	}
	batch := f.remaining[0]
	f.remaining, f.engineHasBatch = f.remaining[1:], true
	if f.deviceErr = f.device.engine.SelectSamples(f.epoch, batch); f.deviceErr != nil {
		return false
	}
	if f.needTargets {
		f.targets = f.device.appendTargets(f.targets[:0], batch)
	}
	return true
}

// err returns the error that ended the batches early, or nil.
func (f *batchFeeder) err() error {
	if f.device != nil {
		return f.deviceErr
	}
	return f.batches.Err()
}

// batch returns the image and target of the current batch, or nil, nil if the engine has them.
func (f *batchFeeder) batch() (image, target []float32) {
	if f.engineHasBatch {
		return nil, nil
	}
	b := f.batches.Batch()
	return b.Image, b.Target
}

// batchTargets returns the targets of the current batch, valid until the next call of next, and
// only if f.needTargets is set.
func (f *batchFeeder) batchTargets() []float32 {
	if f.engine != nil || f.device != nil {
		return f.targets
	}
	return f.batches.Batch().Target
}

func (f *batchFeeder) stop() {
	if f.engine != nil {
		f.engine.SetPrefetch(nil)
	}
	if f.batches != nil {
		f.batches.Close()
	}
}
