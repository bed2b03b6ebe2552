package train

import (
	"context"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// onDevice is a training set in the memory of the engine's device.
type onDevice struct {
	engine engine.DatasetHolder
	values []float32 // one target per stored sample, such as its class; nil if targets are masks
	stored []int     // index of each sample's target in values
	bytes  int64     // memory of the set
}

// labels appends the target of each sample, the index of its class, to to.
func (d *onDevice) labels(to []float32, samples []int) []float32 {
	for _, i := range samples {
		to = append(to, d.values[d.stored[i]])
	}
	return to
}

// hold copies the training set to the engine's device if the device supports this and the
// set has 8-bit values and is not too large. Otherwise batches are loaded, and t.atHost is
// the reason; with loader.kind device, this is an error.
func (t *Trainer) hold(ctx context.Context) error {
	device, ok := t.train.(engine.DatasetHolder)
	c := t.cfg.Loader
	if !ok || c.DeviceMiB == 0 {
		return nil
	}
	set, err := t.loader.Bytes(ctx, int64(c.DeviceMiB*(1<<20)))
	if err == nil {
		err = device.Hold(model.ImageInput, model.TargetInput, engine.DeviceDataset{
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
			return fmt.Errorf("loader.kind device: %w (use lowmem or inmem, or raise loader.device_mib)", err)
		}
		t.atHost = fmt.Sprintf("the training set does not lie on the GPU, each batch is copied there: %v", err)
		return nil
	}
	t.onDevice = &onDevice{engine: device, values: set.Values, stored: set.Stored, bytes: set.Size()}
	return nil
}

// whereData returns a line for the log that says whether the GPU holds the training set. It
// returns "" for an engine without such memory.
func (t *Trainer) whereData() string {
	if d := t.onDevice; d != nil {
		return fmt.Sprintf("the training set lies on the GPU: %d samples, %.1f MiB", t.samples.Train.Len(), float64(d.bytes)/(1<<20))
	}
	return t.atHost
}
