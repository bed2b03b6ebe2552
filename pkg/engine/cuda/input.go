package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// input receives the values of one of the program's inputs. They are copied to page-locked
// memory of the host, then to the GPU's memory in logical order, from which the step packs
// them into the tensor's layout and type. There are two pairs of buffers, so that the next
// step's values can arrive while a step reads the current ones.
type input struct {
	id      int
	buffers [2]buffer
	next    int // index of the buffer that the next step reads
	classes int // number of classes, if the values are class indexes; otherwise 0
}

// buffer is memory on the host and on the GPU.
type buffer struct {
	host pinned
	gpu  driver.Ptr
}

// inputBytes returns the size of an input in logical order, in bytes.
func (x *executable) inputBytes(id int) int { return 4 * x.program.Tensors[id].Elements() }

// stagingBytes returns the number of bytes of GPU memory for inputs in logical order.
func (x *executable) stagingBytes() int64 {
	n := 0
	for _, id := range x.program.Inputs {
		n += 2 * roundUp(x.inputBytes(id), alignment)
	}
	return int64(n)
}

// prepareInputs allocates the buffers of all inputs.
func (x *executable) prepareInputs() error {
	at := x.memory.staging.ptr
	for _, id := range x.program.Inputs {
		in := &input{id: id, classes: x.program.Classes(id)}
		for i := range in.buffers {
			host, err := x.gpu.pin(int64(x.inputBytes(id)))
			if err != nil {
				return err
			}
			in.buffers[i] = buffer{host, at}
			at = at.Add(int64(roundUp(x.inputBytes(id), alignment)))
		}
		x.data.inputs = append(x.data.inputs, in)
	}
	return nil
}

// isPlanar reports whether the tensor is stored in logical order.
func (p location) isPlanar() bool {
	return p.typ == device.F32 && (p.form == vectorForm || p.form == denseForm && (p.channels() == 1 || p.points() == 1))
}

// packing returns the commands that pack the inputs into their layouts, from the buffers that
// the next step reads.
func (x *executable) packing() ([]command, error) {
	var all []command
	for _, in := range x.data.inputs {
		t, p, from := x.program.Tensors[in.id], x.memory.locations[in.id], in.buffers[in.next].gpu
		if x.usesDataset() && (in == x.data.dataset.image || in == x.data.dataset.target) {
			list, err := x.augment(in)
			if err != nil {
				return nil, fmt.Errorf("input %q: %w", t.Name, err)
			}
			for _, c := range list {
				all = append(all, &named{c, t.Name, -1})
			}
			continue
		}
		if p.isPlanar() {
			all = append(all, &named{&copyCall{x.address(in.id), from, int64(x.inputBytes(in.id))}, t.Name, -1})
			continue
		}
		list, err := x.gpu.calls(kernels.Transpose{
			Batch: t.Shape[0], Channels: t.Shape[1], Spatial: p.points(), Padded: p.padded(),
			Planar: kernels.Pointer(from), Rows: x.pointer(in.id), Pitch: p.pitch,
		}.ToRows(number.KernelType(p.typ)))
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		for _, c := range list {
			all = append(all, &named{c, t.Name, -1})
		}
	}
	return all, nil
}

// nextBuffers returns one bit per input, which is set if the next step reads the input's
// second buffer.
func (x *executable) nextBuffers() (bits uint64) {
	for i, in := range x.data.inputs {
		bits |= uint64(in.next) << i
	}
	return bits
}

// input returns the input with the given name. It is an error if its number of elements is
// not n.
func (x *executable) input(name string, n int) (*input, error) {
	for _, in := range x.data.inputs {
		if t := x.program.Tensors[in.id]; t.Name == name {
			if n != t.Elements() {
				return nil, fmt.Errorf("%d values for shape %v, which has %d", n, t.Shape, t.Elements())
			}
			return in, nil
		}
	}
	return nil, errors.New("the program has no such input")
}

// SetInput copies v, in the logical order of the input's shape. When it returns, v may be
// changed; the copy to the GPU may still be in progress.
func (x *executable) SetInput(name string, v []float32) error {
	var refused error
	err := x.do(func() error {
		in, err := x.input(name, len(v))
		if err != nil {
			return err
		}
		if refused = x.checkClasses(in, v); refused != nil {
			return refused
		}
		x.data.dataset.setFromHost(in)
		// The last call's copy from the page-locked memory may not have finished.
		if err := x.gpu.driver.StreamSynchronize(x.gpu.copies); err != nil {
			return x.gpu.failed(err)
		}
		return x.feed(in, in.next, v)
	})
	if refused != nil {
		return refused // the error names the input already
	}
	if err != nil {
		return fmt.Errorf("set input %q: %w", name, err)
	}
	return nil
}

// checkClasses returns an error for the first value that is not a class index, if the input
// contains class indexes: kernels use them as indexes without a check.
func (x *executable) checkClasses(in *input, v []float32) error {
	if in.classes == 0 {
		return nil
	}
	return plan.CheckClasses(x.program.Tensors[in.id].Name, v, in.classes)
}

// Ahead implements engine.Prefetcher. next is called on the engine's thread: it
// must not call the engine.
func (x *executable) Ahead(next func() map[string][]float32) {
	_ = x.do(func() error { // on a closed executable there is nothing to do
		x.data.ahead = next
		return nil
	})
}

// feed copies values to one of the two buffers of an input; slot is 0 or 1.
func (x *executable) feed(in *input, slot int, v []float32) error {
	g, w := x.gpu, in.buffers[slot]
	name := x.program.Tensors[in.id].Name
	step := g.profile.step + 1
	g.stack.NVTX.Push(fmt.Sprint("data copy in ", step))
	defer g.stack.NVTX.Pop()
	copy(w.host.floats(), v)
	return g.traced("copy "+name, "", "input", g.copies, func() error {
		return g.failed(g.driver.MemcpyHtoDAsync(w.gpu, w.host.ptr, int64(4*len(v)), g.copies))
	})
}

// feedNext copies the inputs of the next step to the GPU while this step runs.
func (x *executable) feedNext() error {
	if x.data.ahead == nil {
		return nil
	}
	values := x.data.ahead()
	for _, in := range x.data.inputs {
		name := x.program.Tensors[in.id].Name
		v, ok := values[name]
		if !ok {
			continue
		}
		if _, err := x.input(name, len(v)); err != nil {
			return fmt.Errorf("set input %q ahead: %w", name, err)
		}
		if err := x.checkClasses(in, v); err != nil {
			return err
		}
		x.data.dataset.setFromHost(in)
		if err := x.feed(in, 1-in.next, v); err != nil {
			return err
		}
		in.next = 1 - in.next
	}
	return nil
}
