package train

import (
	"context"
	"slices"
	"time"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// batchFeeder is the engine.Source of an epoch: its batches contain the values that the loader
// returns, or the indexes of samples if the training set is in the device's memory.
type batchFeeder struct {
	loaded     time.Time // when Next returned the last batch
	recordWait func(name string, start time.Time)

	needTargets bool
	// targets has the targets of the batches that takeTargets has not returned yet, the oldest
	// first: the engine may load a batch during the step before it.
	targets [][]float32

	batches *data.Iterator // nil if the device holds the set

	device    *deviceDataset // nil: batches are loaded
	epoch     int
	remaining [][]int // sample indexes of the remaining batches, if the device holds the set
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
	if t.options.Profile.Steps > 0 {
		f.recordWait = t.can.RecordWait
	}
	return f
}

// Next waits for the next batch. It returns false at the end of the epoch and after an error, which
// err returns.
func (f *batchFeeder) Next() (engine.Batch, bool) {
	if f.device != nil {
		return f.nextSamples()
	}
	begin := time.Now()
	if !f.batches.Next() {
		return engine.Batch{}, false
	}
	if f.loaded = time.Now(); f.recordWait != nil {
		f.recordWait("load batch", begin)
	}
	b := f.batches.Batch()
	if f.needTargets {
		f.targets = append(f.targets, slices.Clone(b.Target))
	}
	return engine.Batch{Inputs: map[string][]float32{model.ImageInput: b.Image, model.TargetInput: b.Target}}, true
}

// nextSamples returns the sample indexes of the next batch.
func (f *batchFeeder) nextSamples() (engine.Batch, bool) {
	if len(f.remaining) == 0 {
		return engine.Batch{}, false
	}
	batch := f.remaining[0]
	f.remaining = f.remaining[1:]
	if f.needTargets {
		f.targets = append(f.targets, f.device.targetsOf(batch))
	}
	return engine.Batch{Samples: batch, Epoch: f.epoch}, true
}

// takeTargets returns the targets of the batch that the next step trains on, or nil if the task does
// not need them.
func (f *batchFeeder) takeTargets() []float32 {
	if len(f.targets) == 0 {
		return nil
	}
	v := f.targets[0]
	f.targets = f.targets[1:]
	return v
}

// err returns the error that ended the batches early, or nil.
func (f *batchFeeder) err() error {
	if f.device != nil {
		return nil
	}
	return f.batches.Err()
}

func (f *batchFeeder) stop() {
	if f.batches != nil {
		f.batches.Close()
	}
}
