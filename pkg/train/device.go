package train

import (
	"context"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

type deviceDataset struct {
	values []float32 // one target per stored sample, such as its class; nil if targets are masks
	stored []int     // index of each sample's target in values
	bytes  int64     // memory of the set
}

// targetsOf returns the targets (class indices) of the given samples.
func (d *deviceDataset) targetsOf(samples []int) []float32 {
	var to []float32
	for _, i := range samples {
		to = append(to, d.values[d.stored[i]])
	}
	return to
}

// copySamplesToDevice copies an 8-bit training set that is not too large to the engine's device, if
// the device supports this. Otherwise batches are loaded, and copySamplesToDevice sets
// t.hostReason, or returns an error with loader.kind device.
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

// describeDataPlacement returns a log line that says why the GPU holds the training set or does
// not. It returns "" if the engine or the config does not support this.
func (t *Trainer) describeDataPlacement() string {
	if d := t.deviceSet; d != nil {
		return fmt.Sprintf("the training set is in the memory of the GPU: %d samples, %.1f MiB", t.samples.Train.Len(), float64(d.bytes)/(1<<20))
	}
	return t.hostReason
}
