package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
)

// layOutGradients places the gradients in one flat fp32 buffer, in the order of the
// buckets, and determines for each bucket the task that computes the last of its gradients.
//
// Gradients are fp32 in every precision: then sums over ranks do not lose small values, the
// rounding does not depend on the number of ranks, and small gradients of biases and norms
// do not underflow. Compared with 16 bits, this costs 2 more bytes of memory traffic per
// parameter and step and doubles the network traffic, as in PyTorch's DDP with autocast.
func (x *executable) layOutGradients() {
	p := x.program
	at := 0
	x.exchange.buckets = make([]gradientBucket, len(p.Buckets))
	for i, b := range p.Buckets {
		x.exchange.buckets[i].offset = at
		for _, j := range b.Params {
			q := p.Params[j]
			name := p.Tensors[q.Tensor].Name
			r := region{at, x.layouts[q.Grad]}
			x.exchange.gradAt[name] = r
			size := roundUp(r.layout.paddedElementCount(), regionAlignmentElements)
			x.update.segments.add(parameterSegment{x.store.paramAt[name].offset, at, size, len(p.Tensors[q.Tensor].Shape) == 1})
			at += size
		}
		x.exchange.buckets[i].size = at - x.exchange.buckets[i].offset
	}
	if len(p.Buckets) > 0 {
		// The loss is exchanged after the last bucket. If the loss of one rank is not
		// finite, the mean is not finite either, and all ranks skip the update.
		x.exchange.lossAt = at
		at += regionAlignmentElements
	}
	x.memory.grads.bytes = int64(4 * at)
	last := -1
	for i, t := range x.tasks {
		for _, id := range t.out {
			if id >= 0 && id < len(p.Tensors) && p.Tensors[id].Role == plan.Gradient {
				if b := x.bucketIndex(id); b >= 0 {
					x.exchange.buckets[b].ready = max(x.exchange.buckets[b].ready, i)
				}
			}
		}
	}
	for i := range x.exchange.buckets {
		// Buckets are exchanged in order.
		x.exchange.buckets[i].ready = max(x.exchange.buckets[i].ready, last)
		last = x.exchange.buckets[i].ready
	}
}

// bucketIndex returns the index of the bucket that contains the gradient with tensor id grad,
// or −1 if no bucket does.
func (x *executable) bucketIndex(grad int) int {
	for _, q := range x.program.Params {
		if q.Grad == grad {
			return q.Bucket
		}
	}
	return -1
}

func (x *executable) layOutActivations() {
	p := x.program
	var arena, fixed int
	x.memory.locations, arena, fixed = layOutTensors(p, x.loweredProgram)
	x.memory.arena.bytes, x.memory.fixed.bytes = int64(arena), int64(fixed)
	put := func(id int, s gpuMemorySpace, r region) {
		x.memory.locations[id].space, x.memory.locations[id].offset = s, r.offset*x.memory.locations[id].typ.Size()
	}
	for _, q := range p.Params {
		name := p.Tensors[q.Tensor].Name
		s := lowSpace
		if x.memory.locations[q.Tensor].typ == device.F32 {
			s = masterSpace
		}
		put(q.Tensor, s, x.store.paramAt[name])
		if q.Grad >= 0 {
			put(q.Grad, gradSpace, x.exchange.gradAt[name])
		}
	}
	for _, id := range p.States {
		x.memory.locations[id].typ = device.F32
		put(id, stateSpace, x.store.stateAt[p.Tensors[id].Name])
	}
}

func (x *executable) allocateMemory() error {
	x.memory.scratch.bytes = tensorAlignmentBytes
	for _, t := range x.tasks {
		x.memory.scratch.bytes = max(x.memory.scratch.bytes, int64(x.scratchBytes(t)))
	}
	x.memory.control.bytes = kernels.ControlBytes
	x.memory.backup.bytes = x.store.states.bytes
	x.memory.staging.bytes = x.stagingBytes()
	if x.store.users == 0 {
		x.store.users = 1
		if err := x.store.allocateBuffers(); err != nil {
			return x.explainOutOfMemory(err)
		}
	}
	for _, b := range x.memoryBlocks() {
		if err := x.gpu.allocate(b); err != nil {
			return x.explainOutOfMemory(err)
		}
	}
	x.memory.bases = [noSpace]driver.Ptr{
		arenaSpace: x.memory.arena.ptr, fixedSpace: x.memory.fixed.ptr, masterSpace: x.store.masters.ptr, lowSpace: x.store.copies.ptr,
		stateSpace: x.store.states.ptr, gradSpace: x.memory.grads.ptr,
	}
	var err error
	if x.memory.hostControl, err = x.gpu.allocatePinned(kernels.ControlHostBytes); err != nil {
		return err
	}
	if x.memory.result, err = x.gpu.allocatePinned(resultBytes); err != nil {
		return err
	}
	for _, e := range []*driver.Event{&x.profile.begin, &x.profile.forwardEnd, &x.profile.backwardEnd, &x.profile.end} {
		if *e, err = x.gpu.driver.EventCreate(driver.EventDefault); err != nil {
			return x.gpu.explainLostGPU(err)
		}
	}
	for _, e := range []*driver.Event{&x.exchange.fork, &x.exchange.join, &x.data.fed} {
		if *e, err = x.gpu.driver.EventCreate(driver.EventDisableTiming); err != nil {
			return x.gpu.explainLostGPU(err)
		}
	}
	scale := float32(1)
	if x.low == device.F16 {
		scale = initialLossScale
	}
	x.last.control.LossScale, x.last.scale, x.last.clip = scale, float64(scale), 1
	return x.gpu.writeMemory(x.memory.control.ptr, x.last.control.Bytes())
}

func (x *executable) memoryBlocks() []*memoryBlock {
	return []*memoryBlock{
		&x.memory.arena, &x.memory.fixed, &x.memory.grads, &x.memory.scratch, &x.memory.control, &x.memory.backup, &x.memory.staging, &x.data.images, &x.data.targets, &x.data.samples,
		&x.update.norms, &x.exchange.sums, &x.exchange.norms.vector, &x.exchange.norms.partial,
	}
}

// fillConstants writes the values of the program's constants to GPU memory. It leaves their
// padding, which is zero.
func (x *executable) fillConstants() error {
	for id, t := range x.program.Tensors {
		if t.Role != plan.Constant {
			continue
		}
		v := make([]float64, t.Elements())
		for i := range v {
			v[i] = t.Value
		}
		l := x.memory.locations[id].layout
		memory := make([]float32, l.paddedElementCount())
		packToLayout(l, memory, v)
		if err := x.gpu.writeMemory(x.tensorAddress(id), number.Encode(l.typ, memory)); err != nil {
			return err
		}
	}
	return nil
}

// explainOutOfMemory adds two facts to an out-of-memory error: how much memory the program
// needs, and which batch size would fit. It returns other errors unchanged.
func (x *executable) explainOutOfMemory(err error) error {
	if !errors.Is(err, driver.ErrorOutOfMemory) {
		return err
	}
	needed := x.store.bytes()
	for _, b := range x.memoryBlocks() {
		needed += b.bytes
	}
	needed += x.memory.workspace.bytes
	free, total, infoErr := x.gpu.driver.MemGetInfo()
	if infoErr != nil {
		return errors.Join(err, infoErr)
	}
	for _, b := range x.memoryBlocks() {
		if b.ptr != 0 {
			free += b.bytes
		}
	}
	if x.store.masters.ptr != 0 {
		free += x.store.bytes()
	}
	batch := 0
	if len(x.program.Inputs) > 0 {
		batch = x.program.Tensors[x.program.Inputs[0]].Shape[0]
	}
	advice := "use a smaller model"
	perImage := (x.memory.arena.bytes + x.memory.fixed.bytes + x.memory.staging.bytes) / int64(max(batch, 1))
	if fits := (free - (needed - perImage*int64(batch))) / max(perImage, 1); batch > 1 && fits >= 1 {
		advice = fmt.Sprintf("use --batch %d or less (or about twice as much with --set engine.precision=bf16 instead of fp32)", min(fits, int64(batch-1)))
	} else if batch > 1 {
		advice = "not even one image fits in the free memory: see nvidia-smi for other programs, or use a smaller model"
	}
	return fmt.Errorf("the program needs %s of GPU memory at batch %d, of which %s is for activations; GPU %d has %s free of %s: %s: %w",
		english.FormatBytes(needed), batch, english.FormatBytes(x.memory.arena.bytes), x.gpu.number, english.FormatBytes(free), english.FormatBytes(total), advice, err)
}
