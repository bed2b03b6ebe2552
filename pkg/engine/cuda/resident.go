package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/kernels"
)

var _ engine.Resider = (*executable)(nil)

// resident is a training set on the GPU. Its samples are cut, turned and brought into
// the inputs' layouts by kernels of the step itself: from the host come their numbers,
// in page-locked memory that the step copies, and the epoch, in the control block.
type resident struct {
	set           engine.Resident // without its bytes
	image, target *input
	samples       int
	on            bool // the next step reads it
	epoch         int64
	host          pinned // int32 a place of the batch
}

// Hold implements engine.Resider.
func (x *executable) Hold(image, target string, set engine.Resident) error {
	err := x.do(func() error {
		r, err := x.resident(image, target, set)
		if err != nil {
			return err
		}
		if err := x.letGo(); err != nil {
			return err
		}
		batch := x.places[r.image.id].rows()
		for _, b := range []struct {
			to   *block
			data []byte
		}{{&x.heldImage, set.Image}, {&x.heldTarget, set.Target}, {&x.heldSamples, make([]byte, 4*batch)}} {
			*b.to = block{bytes: int64(len(b.data))}
			if err := x.gpu.allocate(b.to); err != nil {
				*b.to = block{}
				return errors.Join(err, x.letGo())
			}
			if err := x.gpu.write(b.to.ptr, b.data); err != nil {
				return err
			}
		}
		if r.host, err = x.gpu.pin(int64(4 * batch)); err != nil {
			return errors.Join(err, x.letGo())
		}
		r.set.Image, r.set.Target = nil, nil
		x.held = r
		return nil
	})
	if err != nil {
		return fmt.Errorf("hold the training set on the GPU: %w", err)
	}
	return nil
}

// resident checks a set against the program.
func (x *executable) resident(image, target string, set engine.Resident) (*resident, error) {
	r := &resident{set: set}
	for _, part := range []struct {
		name  string
		input **input
		shape []int
		data  []byte
		div   float64
	}{{image, &r.image, set.ImageShape, set.Image, set.ImageDivisor}, {target, &r.target, set.TargetShape, set.Target, set.TargetDivisor}} {
		at := slices.IndexFunc(x.inputs, func(in *input) bool { return x.program.Tensors[in.id].Name == part.name })
		if at < 0 {
			return nil, fmt.Errorf("the program has no input %q", part.name)
		}
		*part.input = x.inputs[at]
		wants := x.program.Tensors[x.inputs[at].id].Shape
		size := elements(part.shape)
		switch {
		case len(part.shape) != 3 && len(part.shape) != 4 || len(part.shape) != len(wants)-1 || part.shape[0] != wants[1]:
			return nil, fmt.Errorf("samples of %q have shape %v, the program takes %v: give [c,h,w] or [c,d,h,w] with its channels", part.name, part.shape, wants)
		case size <= 0 || len(part.data) == 0 || len(part.data)%size != 0:
			return nil, fmt.Errorf("%d bytes of %q are no samples of shape %v", len(part.data), part.name, part.shape)
		case !(part.div > 0):
			return nil, fmt.Errorf("the divisor of %q is %g: use 255 for pictures", part.name, part.div)
		}
		for i, n := range part.shape[1:] {
			if wants[2+i] > n {
				return nil, fmt.Errorf("samples of %q have shape %v: no window of %v lies in them", part.name, part.shape, wants[2:])
			}
		}
		if n := len(part.data) / size; r.samples == 0 {
			r.samples = n
		} else if n != r.samples {
			return nil, fmt.Errorf("%d images and %d targets", r.samples, n)
		}
	}
	a, b := x.program.Tensors[r.image.id].Shape, x.program.Tensors[r.target.id].Shape
	if !slices.Equal(set.ImageShape[1:], set.TargetShape[1:]) || a[0] != b[0] || !slices.Equal(a[2:], b[2:]) {
		return nil, fmt.Errorf("images of shape %v and targets of shape %v: both must have the same places, to be cut and turned together", set.ImageShape, set.TargetShape)
	}
	return r, nil
}

// letGo gives up what is held.
func (x *executable) letGo() error {
	// Recorded steps read it.
	errs := []error{x.gpu.synchronize()}
	for key, p := range x.plays {
		if key.held {
			errs = append(errs, p.close(x.gpu))
			delete(x.plays, key)
		}
	}
	for _, b := range []*block{&x.heldImage, &x.heldTarget, &x.heldSamples} {
		errs = append(errs, x.gpu.free(*b))
		*b = block{}
	}
	if x.held != nil {
		errs = append(errs, x.gpu.unpin(x.held.host))
		x.held = nil
	}
	return errors.Join(errs...)
}

// Samples implements engine.Resider.
func (x *executable) Samples(epoch int, indexes []int) error {
	err := x.do(func() error {
		r := x.held
		if r == nil {
			return errors.New("no training set is held: call Hold first")
		}
		if n := x.places[r.image.id].rows(); len(indexes) != n {
			return fmt.Errorf("%d samples for a batch of %d", len(indexes), n)
		}
		to := r.host.data()
		for i, s := range indexes {
			if s < 0 || s >= r.samples {
				return fmt.Errorf("sample %d is none: the set has %d, from 0", s, r.samples)
			}
			// No step is under way that would read it.
			binary.LittleEndian.PutUint32(to[4*i:], uint32(s))
		}
		r.on, r.epoch = true, int64(epoch)
		return nil
	})
	if err != nil {
		return fmt.Errorf("name samples: %w", err)
	}
	return nil
}

// holds says whether the next step reads the held set.
func (x *executable) holds() bool { return x.held != nil && x.held.on }

// leaves is called where an input gets values from outside.
func (r *resident) leaves(in *input) {
	if r != nil && (in == r.image || in == r.target) {
		r.on = false
	}
}

// vary is what brings the samples that are named into an input.
func (x *executable) vary(in *input) ([]command, error) {
	r, p := x.held, x.places[in.id]
	src, shape, divisor := x.heldImage, r.set.ImageShape, r.set.ImageDivisor
	a := kernels.Augment{Flip: r.set.Flip, Rotate: r.set.Rotate, Brightness: r.set.Brightness, Contrast: r.set.Contrast}
	if in == r.target {
		src, shape, divisor = x.heldTarget, r.set.TargetShape, r.set.TargetDivisor
		a.Brightness, a.Contrast = 0, 0
	}
	a.Pixels = kernels.Pixels{Channels: p.channels(), Padded: p.padded(), Divisor: divisor, Dst: x.pointer(in.id), Pitch: p.pitch}
	a.Batch, a.Size, a.Out = p.rows(), volume(shape[1:], 1), volume(p.spatial(), 1)
	a.Src, a.Samples, a.Control = kernels.Pointer(src.ptr), kernels.Pointer(x.heldSamples.ptr), kernels.Pointer(x.control.ptr)
	return x.gpu.calls(a.Launches(kernelType(p.typ)))
}
