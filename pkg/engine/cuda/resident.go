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

// residentDataset is a training set in GPU memory. The kernels of a step crop, augment and
// convert its samples. For each step the host only sends the indexes of the samples, and
// the epoch in the control block.
type residentDataset struct {
	set           engine.DeviceDataset // without its data, which is on the GPU
	image, target *stagedInput
	stored        int  // number of samples in GPU memory
	samples       int  // number of samples in the data set, several of which may share memory
	values        bool // the targets are values, which are not augmented
	active        bool // the next step reads the data set
	epoch         int64
	host          pinnedMemory // two int32 per sample of the batch: its index in the set, then its index in memory
}

// loadDatasetToGPU copies set to the GPU, so that batches can consist of sample indexes. image and
// target are names of inputs.
func (x *executable) loadDatasetToGPU(image, target string, set engine.DeviceDataset) error {
	err := x.do(func() error {
		r, err := x.newResidentDataset(image, target, set)
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
			to   *memoryBlock
			data []byte
		}{{&x.data.images, set.Image}, {&x.data.targets, targets}, {&x.data.samples, make([]byte, 8*batch)}} {
			*b.to = memoryBlock{bytes: int64(len(b.data))}
			if err := x.gpu.allocate(b.to); err != nil {
				*b.to = memoryBlock{}
				return errors.Join(err, x.releaseDataset())
			}
			if err := x.gpu.writeMemory(b.to.ptr, b.data); err != nil {
				return err
			}
		}
		if r.host, err = x.gpu.allocatePinned(int64(8 * batch)); err != nil {
			return errors.Join(err, x.releaseDataset())
		}
		r.set.Image, r.set.Target, r.set.Values = nil, nil, nil
		x.data.dataset = r
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy training set to the GPU: %w", err)
	}
	return nil
}

// newResidentDataset checks that set matches the program's inputs. It allocates no memory.
func (x *executable) newResidentDataset(image, target string, set engine.DeviceDataset) (*residentDataset, error) {
	r := &residentDataset{set: set, values: set.Values != nil}
	var err error
	if r.image, r.stored, err = x.findByteSampleInput(image, set.ImageShape, set.Image, set.ImageDivisor); err != nil {
		return nil, err
	}
	var targets int
	if set.Values != nil {
		r.target, targets, err = x.findTargetValueInput(target, set.Values)
	} else {
		r.target, targets, err = x.findByteSampleInput(target, set.TargetShape, set.Target, set.TargetDivisor)
	}
	switch {
	case err != nil:
		return nil, err
	case targets != r.stored:
		return nil, fmt.Errorf("got %d images but %d targets", r.stored, targets)
	}
	a, b := x.program.Tensors[r.image.id].Shape, x.program.Tensors[r.target.id].Shape
	if set.Values == nil && (!slices.Equal(set.ImageShape[1:], set.TargetShape[1:]) || a[0] != b[0] || !slices.Equal(a[2:], b[2:])) {
		return nil, fmt.Errorf("images of shape %v and targets of shape %v must have the same height, width and depth, because they are cropped and rotated together", set.ImageShape, set.TargetShape)
	}
	r.samples = r.stored
	if set.Stored != nil {
		r.samples = len(set.Stored)
		if at := slices.IndexFunc(set.Stored, func(s int) bool { return s < 0 || s >= r.stored }); at >= 0 {
			return nil, fmt.Errorf("invalid stored index of sample %d: got %d, want 0 to %d", at, set.Stored[at], r.stored-1)
		}
	}
	return r, nil
}

func (x *executable) findInputWithShape(name string) (*stagedInput, []int, error) {
	at := slices.IndexFunc(x.data.inputs, func(in *stagedInput) bool { return x.program.Tensors[in.id].Name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("the program has no input %q", name)
	}
	return x.data.inputs[at], x.program.Tensors[x.data.inputs[at].id].Shape, nil
}

// findByteSampleInput checks samples that are stored as bytes and augmented. It returns the input
// that they feed and their number.
func (x *executable) findByteSampleInput(name string, shape []int, data []byte, divisor float64) (*stagedInput, int, error) {
	in, wants, err := x.findInputWithShape(name)
	if err != nil {
		return nil, 0, err
	}
	size := elementCount(shape)
	switch {
	case len(shape) != 3 && len(shape) != 4 || len(shape) != len(wants)-1 || shape[0] != wants[1]:
		return nil, 0, fmt.Errorf("samples of %q have shape %v, want [c,h,w] or [c,d,h,w] to match the input's shape %v", name, shape, wants)
	case len(shape) == 4 && shape[1] == 1:
		return nil, 0, fmt.Errorf("samples of %q have shape %v: volumes with one slice are not supported, because the GPU would augment them as images", name, shape)
	case size <= 0 || len(data) == 0 || len(data)%size != 0:
		return nil, 0, fmt.Errorf("size of %q is %d bytes, want a positive multiple of the size of a sample of shape %v", name, len(data), shape)
	case !(divisor > 0):
		return nil, 0, fmt.Errorf("divisor of %q is %g, want more than 0 (255 for images)", name, divisor)
	}
	for i, n := range shape[1:] {
		if wants[2+i] > n {
			return nil, 0, fmt.Errorf("samples of %q have shape %v, which is smaller than the crop %v", name, shape, wants[2:])
		}
	}
	return in, len(data) / size, nil
}

// findTargetValueInput checks targets that are stored as values and not augmented. It returns the
// input that they feed and their number.
func (x *executable) findTargetValueInput(name string, v []float32) (*stagedInput, int, error) {
	in, wants, err := x.findInputWithShape(name)
	if err != nil {
		return nil, 0, err
	}
	size := elementCount(wants[1:])
	switch {
	case !x.memory.locations[in.id].isStoredInLogicalOrder() || x.memory.locations[in.id].positionsPerRow() != 1:
		return nil, 0, fmt.Errorf("targets of shape %v have spatial dimensions, so they must be set as bytes, not as floats", wants)
	case len(v)%size != 0:
		return nil, 0, fmt.Errorf("got %d values for %q, want a multiple of the size of a sample of shape %v", len(v), name, wants[1:])
	}
	return in, len(v) / size, x.checkClassIndexes(in, v)
}

// releaseDataset frees the data set, but first the captured steps that read it.
func (x *executable) releaseDataset() error {
	errs := []error{x.gpu.synchronize()}
	for key, p := range x.schedule.replays {
		if key.dataset {
			errs = append(errs, p.close(x.gpu))
			delete(x.schedule.replays, key)
		}
	}
	for _, b := range []*memoryBlock{&x.data.images, &x.data.targets, &x.data.samples} {
		errs = append(errs, x.gpu.free(*b))
		*b = memoryBlock{}
	}
	if x.data.dataset != nil {
		errs = append(errs, x.gpu.freePinned(x.data.dataset.host))
		x.data.dataset = nil
	}
	return errors.Join(errs...)
}

func (x *executable) selectSamples(epoch int, indexes []int) error {
	err := x.do(func() error {
		r := x.data.dataset
		if r == nil {
			return errors.New("there is no training set on the GPU: copy it there first")
		}
		if n := x.memory.locations[r.image.id].rows(); len(indexes) != n {
			return fmt.Errorf("got %d samples, want a batch of %d", len(indexes), n)
		}
		to := r.host.byteSlice()
		for i, s := range indexes {
			if s < 0 || s >= r.samples {
				return fmt.Errorf("unknown sample %d: the training set has %d samples, numbered from 0", s, r.samples)
			}
			stored := s
			if r.set.Stored != nil {
				stored = r.set.Stored[s]
			}
			// No step is running that could read the page-locked memory.
			binary.LittleEndian.PutUint32(to[4*i:], uint32(s))
			binary.LittleEndian.PutUint32(to[4*(len(indexes)+i):], uint32(stored))
		}
		r.active, r.epoch = true, int64(epoch)
		return nil
	})
	if err != nil {
		return fmt.Errorf("choose samples: %w", err)
	}
	return nil
}

func (x *executable) usesDataset() bool { return x.data.dataset != nil && x.data.dataset.active }

// recordHostInput records that the host has set the input in. If the data set also feeds in,
// the next step does not read the data set. r may be nil.
func (r *residentDataset) recordHostInput(in *stagedInput) {
	if r != nil && (in == r.image || in == r.target) {
		r.active = false
	}
}

func (x *executable) augmentationCommands(in *stagedInput) ([]command, error) {
	r, p := x.data.dataset, x.memory.locations[in.id]
	batch := x.memory.locations[r.image.id].rows()
	stored := kernels.Pointer(x.data.samples.ptr.Add(int64(4 * batch)))
	if in == r.target && r.values {
		return x.gpu.newKernelCalls(kernels.GatherRows(kernels.Pointer(x.data.targets.ptr), stored, x.tensorPointer(in.id), batch, x.inputBytes(in.id)/4/batch))
	}
	src, shape, divisor := x.data.images, r.set.ImageShape, r.set.ImageDivisor
	a := kernels.Augmentation{Flip: r.set.Flip, Rotate: r.set.Rotate, Brightness: r.set.Brightness, Contrast: r.set.Contrast}
	if in == r.target {
		src, shape, divisor = x.data.targets, r.set.TargetShape, r.set.TargetDivisor
		a.Brightness, a.Contrast = 0, 0
	}
	a.PixelConversion = kernels.PixelConversion{Channels: p.channels(), Padded: p.paddedChannels(), Divisor: divisor, Dst: x.tensorPointer(in.id), Pitch: p.pitch}
	a.Batch, a.Size, a.Out = batch, toDepthHeightWidth(shape[1:], 1), toDepthHeightWidth(p.spatialShape(), 1)
	a.Src, a.Samples, a.Stored, a.Control = kernels.Pointer(src.ptr), kernels.Pointer(x.data.samples.ptr), stored, kernels.Pointer(x.memory.control.ptr)
	return x.gpu.newKernelCalls(a.Launches(number.KernelType(p.typ)))
}
