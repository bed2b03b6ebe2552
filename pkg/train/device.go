package train

import (
	"context"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/model"
)

// onDevice is a training set that lies on the engine's device.
type onDevice struct {
	engine engine.DatasetHolder
	values []float32 // targets that have no places, sample after sample; nil: masks
	stored []int     // where each sample's is
	bytes  int64
}

// labels appends the targets of samples: the index of the class each.
func (d *onDevice) labels(to []float32, samples []int) []float32 {
	for _, i := range samples {
		to = append(to, d.values[d.stored[i]])
	}
	return to
}

// hold puts the training set on the engine's device, where that is one that can hold
// it and the set is of bytes and not too large. Where it cannot, batches are loaded,
// and the reason is a note; it is an error where the loader is to be of that kind.
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

// whereData says where an engine on a device has its training data from, "" for
// another engine.
func (t *Trainer) whereData() string {
	if d := t.onDevice; d != nil {
		return fmt.Sprintf("the training set lies on the GPU: %d samples, %.1f MiB", t.samples.Train.Len(), float64(d.bytes)/(1<<20))
	}
	return t.atHost
}
