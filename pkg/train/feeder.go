package train

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// batchFeeder is the engine.Source of an epoch. Its batches contain the values that the loader
// returns, or only the indexes of samples if the training set is in the device's memory.
type batchFeeder struct {
	loaded     time.Time // when Next returned the last batch
	recordWait func(name string, start time.Time)

	needTargets bool
	// targets are the targets of the last batch that Next returned, or nil if the task does not need
	// them. Next does not overwrite the values: the engine may call it during the step before the batch's.
	targets []float32

	batches *data.Iterator // nil if the device holds the set

	device    *deviceDataset // nil: batches are loaded
	epoch     int
	remaining [][]int // sample indexes of the remaining batches, if the device holds the set
}

// newBatchFeeder returns a feeder of the current epoch's batches, starting with the given one,
// counted from 0. The caller must call stop.
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
		return f.nextSampleIndices()
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
		f.targets = slices.Clone(b.Target)
	}
	return engine.Batch{Inputs: map[string][]float32{model.ImageInput: b.Image, model.TargetInput: b.Target}}, true
}

// nextSampleIndices returns the sample indexes of the next batch.
func (f *batchFeeder) nextSampleIndices() (engine.Batch, bool) {
	if len(f.remaining) == 0 {
		return engine.Batch{}, false
	}
	batch := f.remaining[0]
	f.remaining = f.remaining[1:]
	if f.needTargets {
		f.targets = f.device.sampleTargets(batch)
	}
	return engine.Batch{Samples: batch, Epoch: f.epoch}, true
}

// err returns the error that ended the epoch's batches early, or nil.
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

type deviceDataset struct {
	values []float32 // one target per stored sample, such as its class; nil if targets are masks
	stored []int     // index of each sample's target in values
	bytes  int64     // memory of the set
}

// sampleTargets returns the targets (class indices) of the given samples.
func (d *deviceDataset) sampleTargets(samples []int) []float32 {
	var to []float32
	for _, i := range samples {
		to = append(to, d.values[d.stored[i]])
	}
	return to
}

// copySamplesToDevice copies an 8-bit training set that is not too large to the engine's device, if
// the device supports this. Otherwise batches are loaded, and t.hostReason says why. If loader.kind
// is "device", it returns an error instead.
func (t *Trainer) copySamplesToDevice(ctx context.Context) error {
	c := t.cfg.Loader
	if t.can.HoldDataset == nil || c.DeviceMiB == 0 {
		return nil
	}
	set, err := t.loader.Bytes(ctx, int64(c.DeviceMiB*(1<<20)))
	if err == nil {
		err = t.can.HoldDataset(model.ImageInput, model.TargetInput, engine.DeviceDataset{
			Image: set.Image, Target: set.Target, ImageShape: set.ImageShape, TargetShape: set.TargetShape,
			ImageDivisor: 255, TargetDivisor: set.TargetDivisor, Values: set.Values, Stored: set.Stored,
			Flip: set.Augment.Flip, Rotate: set.Augment.Rotate, Brightness: set.Augment.Brightness, Contrast: set.Augment.Contrast,
			Seed: set.Seed,
		})
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		if c.Kind == LoaderDevice {
			return fmt.Errorf("loader.kind device: copy the training set to the GPU: %w (set loader.kind to lowmem or inmem, or raise loader.device_mib)", err)
		}
		t.hostReason = fmt.Sprintf("the training set is not in the memory of the GPU, so each batch is copied there: %v", err)
		return nil
	}
	t.deviceSet = &deviceDataset{values: set.Values, stored: set.Stored, bytes: set.Size()}
	return nil
}

// describeDataPlacement returns a log line that says whether the GPU holds the training set, and if
// not, why. It returns "" if the engine or the config does not support this.
func (t *Trainer) describeDataPlacement() string {
	if d := t.deviceSet; d != nil {
		return fmt.Sprintf("the training set is in the memory of the GPU: %d samples, %.1f MiB", t.samples.Train.Len(), float64(d.bytes)/(1<<20))
	}
	return t.hostReason
}
