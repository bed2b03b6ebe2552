package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/device"
)

var _ engine.DatasetHolder = (*executable)(nil)

// resident is a training set on the GPU. Kernels of the step crop, augment and convert its
// samples. The host only sends the samples' indexes, in page-locked memory that the step
// copies, and the epoch, in the control block.
type resident struct {
	set           engine.DeviceDataset // without its data
	image, target *input
	stored        int // number of samples in memory
	samples       int
	values        bool // the targets are values, which are not augmented
	active        bool // the next step reads it
	epoch         int64
	host          pinned // two int32 per sample of the batch: its index in the set, then its index in memory
}

// Hold implements engine.DatasetHolder.
func (x *executable) Hold(image, target string, set engine.DeviceDataset) error {
	err := x.do(func() error {
		r, err := x.resident(image, target, set)
		if err != nil {
			return err
		}
		if err := x.releaseDataset(); err != nil {
			return err
		}
		batch := x.memory.locations[r.image.id].rows()
		targets := set.Target
		if set.Values != nil {
			targets = number.Encode(device.F32, set.Values)
		}
		for _, b := range []struct {
			to   *block
			data []byte
		}{{&x.data.images, set.Image}, {&x.data.targets, targets}, {&x.data.samples, make([]byte, 8*batch)}} {
			*b.to = block{bytes: int64(len(b.data))}
			if err := x.gpu.allocate(b.to); err != nil {
				*b.to = block{}
				return errors.Join(err, x.releaseDataset())
			}
			if err := x.gpu.write(b.to.ptr, b.data); err != nil {
				return err
			}
		}
		if r.host, err = x.gpu.pin(int64(8 * batch)); err != nil {
			return errors.Join(err, x.releaseDataset())
		}
		r.set.Image, r.set.Target, r.set.Values = nil, nil, nil
		x.data.dataset = r
		return nil
	})
	if err != nil {
		return fmt.Errorf("hold the training set on the GPU: %w", err)
	}
	return nil
}

// resident checks set against the program's inputs and returns it with the sizes of its
// samples.
func (x *executable) resident(image, target string, set engine.DeviceDataset) (*resident, error) {
	r := &resident{set: set, values: set.Values != nil}
	var err error
	if r.image, r.stored, err = x.bytesOf(image, set.ImageShape, set.Image, set.ImageDivisor); err != nil {
		return nil, err
	}
	var targets int
	if set.Values != nil {
		r.target, targets, err = x.valuesOf(target, set.Values)
	} else {
		r.target, targets, err = x.bytesOf(target, set.TargetShape, set.Target, set.TargetDivisor)
	}
	switch {
	case err != nil:
		return nil, err
	case targets != r.stored:
		return nil, fmt.Errorf("%d images and %d targets", r.stored, targets)
	}
	a, b := x.program.Tensors[r.image.id].Shape, x.program.Tensors[r.target.id].Shape
	if set.Values == nil && (!slices.Equal(set.ImageShape[1:], set.TargetShape[1:]) || a[0] != b[0] || !slices.Equal(a[2:], b[2:])) {
		return nil, fmt.Errorf("images of shape %v and targets of shape %v: both must have the same places, to be cut and turned together", set.ImageShape, set.TargetShape)
	}
	r.samples = r.stored
	if set.Stored != nil {
		r.samples = len(set.Stored)
		if at := slices.IndexFunc(set.Stored, func(s int) bool { return s < 0 || s >= r.stored }); at >= 0 {
			return nil, fmt.Errorf("sample %d is said to be stored as number %d of %d", at, set.Stored[at], r.stored)
		}
	}
	return r, nil
}

// inputNamed returns the input with the given name, and its shape.
func (x *executable) inputNamed(name string) (*input, []int, error) {
	at := slices.IndexFunc(x.data.inputs, func(in *input) bool { return x.program.Tensors[in.id].Name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("the program has no input %q", name)
	}
	return x.data.inputs[at], x.program.Tensors[x.data.inputs[at].id].Shape, nil
}

// bytesOf checks the data of samples that are augmented, and returns their input and their
// number.
func (x *executable) bytesOf(name string, shape []int, data []byte, divisor float64) (*input, int, error) {
	in, wants, err := x.inputNamed(name)
	if err != nil {
		return nil, 0, err
	}
	size := elements(shape)
	switch {
	case len(shape) != 3 && len(shape) != 4 || len(shape) != len(wants)-1 || shape[0] != wants[1]:
		return nil, 0, fmt.Errorf("samples of %q have shape %v, the program takes %v: give [c,h,w] or [c,d,h,w] with its channels", name, shape, wants)
	case len(shape) == 4 && shape[1] == 1:
		return nil, 0, fmt.Errorf("samples of %q have shape %v: volumes one slice deep are varied as pictures here, and not on the host", name, shape)
	case size <= 0 || len(data) == 0 || len(data)%size != 0:
		return nil, 0, fmt.Errorf("%d bytes of %q are no samples of shape %v", len(data), name, shape)
	case !(divisor > 0):
		return nil, 0, fmt.Errorf("the divisor of %q is %g: use 255 for pictures", name, divisor)
	}
	for i, n := range shape[1:] {
		if wants[2+i] > n {
			return nil, 0, fmt.Errorf("samples of %q have shape %v: no window of %v lies in them", name, shape, wants[2:])
		}
	}
	return in, len(data) / size, nil
}

// valuesOf checks targets that are not augmented, and returns their input and their number.
func (x *executable) valuesOf(name string, v []float32) (*input, int, error) {
	in, wants, err := x.inputNamed(name)
	if err != nil {
		return nil, 0, err
	}
	size := elements(wants[1:])
	switch {
	case !x.memory.locations[in.id].isPlanar() || x.memory.locations[in.id].points() != 1:
		return nil, 0, fmt.Errorf("targets of shape %v have places: give them as bytes", wants)
	case len(v)%size != 0:
		return nil, 0, fmt.Errorf("%d values of %q are no samples of shape %v", len(v), name, wants[1:])
	}
	return in, len(v) / size, x.checkClasses(in, v)
}

// releaseDataset frees the data set and the replays that read it.
func (x *executable) releaseDataset() error {
	// Captured steps read the data set, so they are freed first.
	errs := []error{x.gpu.synchronize()}
	for key, p := range x.schedule.replays {
		if key.dataset {
			errs = append(errs, p.close(x.gpu))
			delete(x.schedule.replays, key)
		}
	}
	for _, b := range []*block{&x.data.images, &x.data.targets, &x.data.samples} {
		errs = append(errs, x.gpu.free(*b))
		*b = block{}
	}
	if x.data.dataset != nil {
		errs = append(errs, x.gpu.unpin(x.data.dataset.host))
		x.data.dataset = nil
	}
	return errors.Join(errs...)
}

// Samples implements engine.DatasetHolder.
func (x *executable) Samples(epoch int, indexes []int) error {
	err := x.do(func() error {
		r := x.data.dataset
		if r == nil {
			return errors.New("no training set is held: call Hold first")
		}
		if n := x.memory.locations[r.image.id].rows(); len(indexes) != n {
			return fmt.Errorf("%d samples for a batch of %d", len(indexes), n)
		}
		to := r.host.data()
		for i, s := range indexes {
			if s < 0 || s >= r.samples {
				return fmt.Errorf("sample %d is none: the set has %d, from 0", s, r.samples)
			}
			stored := s
			if r.set.Stored != nil {
				stored = r.set.Stored[s]
			}
			// No step is in progress that reads the page-locked memory.
			binary.LittleEndian.PutUint32(to[4*i:], uint32(s))
			binary.LittleEndian.PutUint32(to[4*(len(indexes)+i):], uint32(stored))
		}
		r.active, r.epoch = true, int64(epoch)
		return nil
	})
	if err != nil {
		return fmt.Errorf("name samples: %w", err)
	}
	return nil
}

// usesDataset reports whether the next step reads the data set on the GPU.
func (x *executable) usesDataset() bool { return x.data.dataset != nil && x.data.dataset.active }

// setFromHost records that the host has set an input, which the next step then reads
// instead of the data set.
func (r *resident) setFromHost(in *input) {
	if r != nil && (in == r.image || in == r.target) {
		r.active = false
	}
}

// augment returns the commands that crop, augment and convert the chosen samples to an
// input.
func (x *executable) augment(in *input) ([]command, error) {
	r, p := x.data.dataset, x.memory.locations[in.id]
	batch := x.memory.locations[r.image.id].rows()
	stored := kernels.Pointer(x.data.samples.ptr.Add(int64(4 * batch)))
	if in == r.target && r.values {
		return x.gpu.calls(kernels.TakeRows(kernels.Pointer(x.data.targets.ptr), stored, x.pointer(in.id), batch, x.inputBytes(in.id)/4/batch))
	}
	src, shape, divisor := x.data.images, r.set.ImageShape, r.set.ImageDivisor
	a := kernels.Augment{Flip: r.set.Flip, Rotate: r.set.Rotate, Brightness: r.set.Brightness, Contrast: r.set.Contrast}
	if in == r.target {
		src, shape, divisor = x.data.targets, r.set.TargetShape, r.set.TargetDivisor
		a.Brightness, a.Contrast = 0, 0
	}
	a.Pixels = kernels.Pixels{Channels: p.channels(), Padded: p.padded(), Divisor: divisor, Dst: x.pointer(in.id), Pitch: p.pitch}
	a.Batch, a.Size, a.Out = batch, volume(shape[1:], 1), volume(p.spatial(), 1)
	a.Src, a.Samples, a.Stored, a.Control = kernels.Pointer(src.ptr), kernels.Pointer(x.data.samples.ptr), stored, kernels.Pointer(x.memory.control.ptr)
	return x.gpu.calls(a.Launches(number.KernelType(p.typ)))
}
