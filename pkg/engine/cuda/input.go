package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// stagedInput receives the values of one of the program's inputs. They are copied to page-locked
// host memory and then, in logical order, to GPU memory. The step converts them to the
// tensor's layout and type. There are two pairs of buffers, so that the values of the next
// step can be copied while a step runs.
type stagedInput struct {
	id      int
	buffers [2]stagingBuffer
	next    int // index of the buffer that the next step reads
}

// stagingBuffer is page-locked host memory with GPU memory of the same size.
type stagingBuffer struct {
	host pinnedMemory
	gpu  driver.Ptr
}

func (x *executable) inputBytes(id int) int { return 4 * x.program.Tensors[id].Elements() }

// stagingBytes counts the GPU memory for both buffers of all inputs.
func (x *executable) stagingBytes() int64 {
	n := 0
	for _, id := range x.program.Inputs {
		n += 2 * roundUp(x.inputBytes(id), tensorAlignmentBytes)
	}
	return int64(n)
}

func (x *executable) prepareInputs() error {
	at := x.memory.staging.ptr
	for _, id := range x.program.Inputs {
		in := &stagedInput{id: id}
		for i := range in.buffers {
			host, err := x.gpu.allocatePinned(int64(x.inputBytes(id)))
			if err != nil {
				return err
			}
			in.buffers[i] = stagingBuffer{host, at}
			at = at.Add(int64(roundUp(x.inputBytes(id), tensorAlignmentBytes)))
		}
		x.data.inputs = append(x.data.inputs, in)
	}
	return nil
}

// isStoredInLogicalOrder reports whether the tensor is stored in logical order and fp32, without padding.
func (p tensorLocation) isStoredInLogicalOrder() bool {
	return p.typ == device.F32 && (p.form == vectorForm || p.form == denseForm && (p.channels() == 1 || p.positionsPerRow() == 1))
}

func (x *executable) inputConversionCommands() ([]command, error) {
	var all []command
	for _, in := range x.data.inputs {
		t, p, from := x.program.Tensors[in.id], x.memory.locations[in.id], in.buffers[in.next].gpu
		if x.usesDataset() && (in == x.data.dataset.image || in == x.data.dataset.target) {
			list, err := x.augmentationCommands(in)
			if err != nil {
				return nil, fmt.Errorf("input %q: %w", t.Name, err)
			}
			for _, c := range list {
				all = append(all, &taskCommand{c, t.Name, -1})
			}
			continue
		}
		if p.isStoredInLogicalOrder() {
			all = append(all, &taskCommand{&copyWithinGPUCall{x.tensorAddress(in.id), from, int64(x.inputBytes(in.id))}, t.Name, -1})
			continue
		}
		list, err := x.gpu.newKernelCalls(kernels.Transposition{
			Batch: t.Shape[0], Channels: t.Shape[1], Spatial: p.positionsPerRow(), Padded: p.paddedChannels(),
			Planar: kernels.Pointer(from), Rows: x.tensorPointer(in.id), Pitch: p.pitch,
		}.ToRows(number.KernelType(p.typ)))
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		for _, c := range list {
			all = append(all, &taskCommand{c, t.Name, -1})
		}
	}
	return all, nil
}

// inputBufferMask returns a bit mask in which bit i is set if the next step reads the second
// buffer of input i.
func (x *executable) inputBufferMask() (bits uint64) {
	for i, in := range x.data.inputs {
		bits |= uint64(in.next) << i
	}
	return bits
}

// findInput returns the input with the given name. It returns an error if there is none, or if
// it does not have n elements.
func (x *executable) findInput(name string, n int) (*stagedInput, error) {
	for _, in := range x.data.inputs {
		if t := x.program.Tensors[in.id]; t.Name == name {
			if n != t.Elements() {
				return nil, fmt.Errorf("got %d values, want %d for shape %v", n, t.Elements(), t.Shape)
			}
			return in, nil
		}
	}
	return nil, errors.New("the program has no such input")
}

// SetInput sets an input to v, in logical order. The caller may change v afterwards, even
// though the copy to the GPU may still be in progress.
func (x *executable) SetInput(name string, v []float32) error {
	var invalid error
	err := x.do(func() error {
		in, err := x.findInput(name, len(v))
		if err != nil {
			return err
		}
		if invalid = x.checkClassIndexes(in, v); invalid != nil {
			return invalid
		}
		x.data.dataset.recordHostInput(in)
		// The last call's copy from the page-locked memory may not have finished.
		if err := x.gpu.driver.StreamSynchronize(x.gpu.copies); err != nil {
			return x.gpu.explainLostGPU(err)
		}
		return x.copyInput(in, in.next, v)
	})
	if invalid != nil {
		return invalid // the error names the input already
	}
	if err != nil {
		return fmt.Errorf("set input %q: %w", name, err)
	}
	return nil
}

// checkClassIndexes returns an error for the first invalid class index in v, because
// kernels use class indexes without checks.
func (x *executable) checkClassIndexes(in *stagedInput, v []float32) error {
	return plan.CheckClassIndexes(x.program, in.id, v)
}

// NextBatch makes the next batch of s the inputs of the next step. If the batch contains
// values, the next step takes the batch after it from s and copies it to the GPU. s is called
// on the engine's thread then, so it must not call the engine.
func (x *executable) NextBatch(s engine.Source) (ok bool, err error) {
	var ahead prefetchedBatch
	err = x.do(func() error {
		if x.data.source == s {
			ahead = x.data.ahead
		}
		x.data.source, x.data.ahead = nil, prefetchedBatch{}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("set inputs: %w", err)
	}
	if ahead.taken {
		return ahead.ok, x.prefetchBatchFrom(s)
	}
	b, ok := s.Next()
	if !ok {
		return false, nil
	}
	if b.Samples != nil {
		return true, x.selectSamples(b.Epoch, b.Samples)
	}
	for name, v := range b.Inputs {
		if err := x.SetInput(name, v); err != nil {
			return false, err
		}
	}
	return true, x.prefetchBatchFrom(s)
}

// prefetchBatchFrom makes the next step take the batch after its own from s.
func (x *executable) prefetchBatchFrom(s engine.Source) error {
	return x.do(func() error {
		x.data.source = s
		return nil
	})
}

func (x *executable) copyInput(in *stagedInput, slot int, v []float32) error {
	g, w := x.gpu, in.buffers[slot]
	name := x.program.Tensors[in.id].Name
	step := g.profile.step + 1
	g.stack.NVTX.Push(fmt.Sprint("data copy in ", step))
	defer g.stack.NVTX.Pop()
	copy(w.host.floatSlice(), v)
	return g.runTracedSpan("copy "+name, "", "input", g.copies, func() error {
		return g.explainLostGPU(g.driver.MemcpyHtoDAsync(w.gpu, w.host.ptr, int64(4*len(v)), g.copies))
	})
}

func (x *executable) prefetchNextInputs() error {
	if x.data.source == nil || x.data.ahead.taken {
		return nil
	}
	b, ok := x.data.source.Next()
	x.data.ahead = prefetchedBatch{true, ok}
	for _, in := range x.data.inputs {
		name := x.program.Tensors[in.id].Name
		v, ok := b.Inputs[name]
		if !ok {
			continue
		}
		if _, err := x.findInput(name, len(v)); err != nil {
			return fmt.Errorf("set input %q of the next step: %w", name, err)
		}
		if err := x.checkClassIndexes(in, v); err != nil {
			return err
		}
		x.data.dataset.recordHostInput(in)
		if err := x.copyInput(in, 1-in.next, v); err != nil {
			return err
		}
		in.next = 1 - in.next
	}
	return nil
}
