package cuda

import (
	"fmt"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

// address returns the address of tensor id in the GPU's memory.
func (x *executable) address(id int) driver.Ptr {
	return x.memory.locations[id].address(x.memory.bases)
}

// pointer returns the address of tensor id for our kernels, or 0 if id is −1.
func (x *executable) pointer(id int) kernels.Pointer {
	if id < 0 {
		return 0
	}
	return kernels.Pointer(x.address(id))
}

// feature returns tensor id as rows of channels, or the zero Map if id is −1.
func (x *executable) feature(id int) kernels.Map {
	if id < 0 {
		return kernels.Map{}
	}
	return kernels.Map{Data: x.pointer(id), Pitch: x.memory.locations[id].pitch}
}

// typ returns the element type of tensor id for our kernels.
func (x *executable) typ(id int) kernels.Type { return number.KernelType(x.memory.locations[id].typ) }

// compile returns the commands of a task that is not a convolution.
func (x *executable) compile(t task) ([]command, error) {
	launches, err := x.launches(t)
	if err != nil {
		return nil, fmt.Errorf("kernel %s %q: %w", t.op, t.name, err)
	}
	return launches, nil
}

func (x *executable) launches(t task) ([]command, error) {
	g := x.gpu
	switch t.op {
	case plan.OpBatchNorm:
		return g.calls(x.batchNorm(t))
	case plan.OpBatchNormBackward:
		if t.given {
			return g.calls(x.normGradOf(t).Apply(x.typ(t.in[0])))
		}
		return g.calls(x.normGradOf(t).Launches(x.typ(t.in[0])))
	case plan.OpMaxPool:
		p := x.pool(t, t.in[0], t.out[0])
		p.X, p.Y, p.Index = x.feature(t.in[0]), x.feature(t.out[0]), x.pointer(t.out[1])
		return g.calls(p.Forward(x.typ(t.in[0])))
	case plan.OpMaxPoolBackward:
		p := x.pool(t, t.out[0], t.in[0])
		p.DY, p.DX, p.Acc, p.Index = x.feature(t.in[0]), x.feature(t.out[0]), x.feature(t.acc), x.pointer(t.in[1])
		return g.calls(p.Backward(x.typ(t.out[0])))
	case plan.OpAvgPool:
		p := x.pool(t, t.in[0], t.out[0])
		p.X, p.Y = x.feature(t.in[0]), x.feature(t.out[0])
		return g.calls(p.Average(x.typ(t.in[0])))
	case plan.OpAvgPoolBackward:
		p := x.pool(t, t.out[0], t.in[0])
		p.DY, p.DX, p.Acc = x.feature(t.in[0]), x.feature(t.out[0]), x.feature(t.acc)
		return g.calls(p.AverageBackward(x.typ(t.out[0])))
	case plan.OpGlobalAvgPool, plan.OpGlobalAvgPoolBackward:
		return g.calls(x.globalPool(t))
	case plan.OpReshape:
		return x.reshape(t)
	case plan.OpPad, plan.OpPadBackward:
		return g.calls(x.pad(t))
	case plan.OpDiceBCE, plan.OpDiceBCEBackward:
		return g.calls(x.dice(t))
	case plan.OpBCEWithLogits, plan.OpBCEWithLogitsBackward:
		return g.calls(x.entropy(t))
	case plan.OpL1, plan.OpL1Backward:
		return g.calls(x.absolute(t))
	case plan.OpSoftmaxCrossEntropy, plan.OpSoftmaxCrossEntropyBackward:
		return g.calls(x.softmax(t))
	case opHead, opHeadBackwardData, opHeadBackwardWeights:
		return g.calls(x.head(t))
	case opBias:
		y := x.memory.locations[t.out[0]]
		b := kernels.Bias{Rows: y.pixels(), Channels: y.padded(), X: x.feature(t.in[0]), Y: x.feature(t.out[0]), Bias: x.pointer(t.in[1]), ReLU: t.attr.ReLU}
		return g.calls(b.Launches(x.typ(t.out[0])))
	case plan.OpBiasBackward:
		dy := x.memory.locations[t.in[0]]
		b := kernels.BiasGrad{
			Rows: dy.pixels(), Channels: dy.padded(), DY: x.feature(t.in[0]), Y: x.feature(t.in[1]), DX: x.feature(t.out[1]),
			DBias: x.pointer(t.out[0]), Partial: kernels.Pointer(x.memory.scratch.ptr),
		}
		return g.calls(b.Launches(x.typ(t.in[0])))
	case plan.OpAdd, plan.OpReLU, plan.OpReLUBackward, plan.OpLeakyReLU, plan.OpLeakyReLUBackward, plan.OpTanh, plan.OpTanhBackward:
		return g.calls(x.elementwise(t))
	case opCopy:
		return x.copyChannels(t)
	case opClear:
		return []command{&clearCall{x.address(t.out[0]), int64(x.memory.locations[t.out[0]].bytes())}}, nil
	}
	return nil, fmt.Errorf("operation %q is not known to this engine", t.op)
}

// elementwise returns the launches of an operation that computes each element from elements
// at the same position.
func (x *executable) elementwise(t task) ([]kernels.Launch, error) {
	y := x.memory.locations[t.out[0]]
	for _, id := range t.in {
		if x.memory.locations[id].form != y.form || x.memory.locations[id].typ != y.typ {
			return nil, fmt.Errorf("a %s of %s and one of %s", y.form, x.memory.locations[id].typ, y.typ)
		}
	}
	e := kernels.Elementwise{
		Rows: y.pixels(), Channels: y.padded(),
		A: x.feature(t.in[0]), Y: x.feature(t.out[0]), Acc: x.feature(t.acc),
	}
	if len(t.in) > 1 {
		e.B = x.feature(t.in[1])
	}
	switch typ := number.KernelType(y.typ); t.op {
	case plan.OpReLU:
		return e.ReLU(typ)
	case plan.OpReLUBackward:
		return e.ReLUBackward(typ)
	case plan.OpLeakyReLU:
		return e.LeakyReLU(typ, t.attr.Slope)
	case plan.OpLeakyReLUBackward:
		return e.LeakyReLUBackward(typ, t.attr.Slope)
	case plan.OpTanh:
		return e.Tanh(typ)
	case plan.OpTanhBackward:
		return e.TanhBackward(typ)
	default:
		return e.Add(typ)
	}
}

// epilogue returns the variant of the kernel that runs after a convolution that cuDNN
// computes without bias: it adds the bias and the residual input and applies ReLU. The
// variant is empty if t has none of these.
func (x *executable) epilogue(t task) (v variant, err error) {
	biased := t.convolutional() && len(t.in) == 3
	if !biased && t.acc < 0 {
		return v, nil
	}
	y := x.memory.locations[t.out[0]]
	b := kernels.Bias{Rows: y.pixels(), Channels: y.padded(), X: x.feature(t.out[0]), Add: x.feature(t.acc), Y: x.feature(t.out[0]), ReLU: t.attr.ReLU}
	v.behind = float64(2 * y.bytes())
	if biased {
		b.Bias = x.pointer(t.in[2])
	}
	if t.acc >= 0 {
		v.behind += float64(x.memory.locations[t.acc].bytes())
	}
	v.after, err = x.gpu.calls(b.Launches(x.typ(t.out[0])))
	return v, err
}

// pool returns the geometry of a pooling from tensor in to tensor out.
func (x *executable) pool(t task, in, out int) kernels.Pool {
	big, small := x.memory.locations[in], x.memory.locations[out]
	return kernels.Pool{
		Batch: big.rows(), Channels: big.padded(), In: volume(big.spatial(), 1), Out: volume(small.spatial(), 1),
		Kernel: volume(t.attr.Kernel, 1), Stride: volume(t.attr.Stride, 1), Pad: volume(t.attr.Pad, 0),
		PadZeros: t.attr.PadZeros,
	}
}

// volume returns depth, height and width of a shape with up to three dimensions. Missing
// leading dimensions are fill.
func volume(s []int, fill int) [3]int {
	v := [3]int{fill, fill, fill}
	copy(v[3-len(s):], s)
	return v
}

// pad returns the launches that put zeros around a map, or remove the padding from its
// gradient.
func (x *executable) pad(t task) ([]kernels.Launch, error) {
	in, out := x.memory.locations[t.in[0]], x.memory.locations[t.out[0]]
	if in.form != mapForm || out.form != mapForm || in.typ != out.typ {
		return nil, fmt.Errorf("a %s of %s to a %s of %s", in.form, in.typ, out.form, out.typ)
	}
	p := kernels.Padding{
		Batch: in.rows(), Channels: in.padded(), In: volume(in.spatial(), 1), Out: volume(out.spatial(), 1), Shift: volume(t.attr.Pad, 0),
		X: x.feature(t.in[0]), Y: x.feature(t.out[0]), Acc: x.feature(t.acc),
	}
	if t.op == plan.OpPadBackward {
		for i := range p.Shift {
			p.Shift[i] = -p.Shift[i]
		}
	}
	return p.Launches(x.typ(t.in[0]))
}

func (x *executable) globalPool(t task) ([]kernels.Launch, error) {
	big, small := t.in[0], t.out[0]
	if t.op == plan.OpGlobalAvgPoolBackward {
		big, small = small, big
	}
	p := kernels.GlobalAvgPool{Batch: x.memory.locations[big].rows(), Points: x.memory.locations[big].points(), Channels: x.memory.locations[big].padded()}
	if t.op == plan.OpGlobalAvgPool {
		p.X, p.Y = x.feature(big), x.feature(small)
		return p.Forward(x.typ(big))
	}
	p.DY, p.DX, p.Acc = x.feature(small), x.feature(big), x.feature(t.acc)
	return p.Backward(x.typ(big))
}

// reshape returns the commands that bring the elements of a feature map into logical order
// and then into the layout of the result. Other tensors, and feature maps with one position
// before and after, are copied unchanged.
func (x *executable) reshape(t task) ([]command, error) {
	src, dst := x.memory.locations[t.in[0]], x.memory.locations[t.out[0]]
	if src.form != mapForm || dst.form != mapForm || src.typ != dst.typ {
		if src.form != dst.form || src.typ != dst.typ || src.bytes() != dst.bytes() || src.pitch != dst.pitch {
			return nil, fmt.Errorf("cannot copy a %s of shape %v to a %s of shape %v", src.form, src.shape, dst.form, dst.shape)
		}
		return []command{&copyCall{x.address(t.out[0]), x.address(t.in[0]), int64(dst.bytes())}}, nil
	}
	planar := kernels.Pointer(x.memory.scratch.ptr)
	out, err := x.gpu.calls(kernels.Transpose{
		Batch: src.rows(), Channels: src.channels(), Spatial: src.points(), Padded: src.padded(), Planar: planar, Rows: x.pointer(t.in[0]), Pitch: src.pitch,
	}.ToPlanar(number.KernelType(src.typ)))
	if err != nil {
		return nil, err
	}
	in, err := x.gpu.calls(kernels.Transpose{
		Batch: dst.rows(), Channels: dst.channels(), Spatial: dst.points(), Padded: dst.padded(), Planar: planar, Rows: x.pointer(t.out[0]), Pitch: dst.pitch,
	}.ToRows(number.KernelType(dst.typ)))
	return append(out, in...), err
}

// master returns the address of a parameter's fp32 weights.
func (x *executable) master(id int) kernels.Pointer {
	r := x.store.paramAt[x.program.Tensors[id].Name]
	return kernels.Pointer(x.store.masters.ptr.Add(int64(4 * r.offset)))
}

func (x *executable) head(t task) ([]kernels.Launch, error) {
	h := kernels.Head{Partial: kernels.Pointer(x.memory.scratch.ptr)}
	rows := func(id int) {
		h.Rows, h.Channels = x.memory.locations[id].pixels(), x.memory.locations[id].padded()
	}
	switch t.op {
	case opHead:
		rows(t.in[0])
		h.X, h.W, h.Z = x.feature(t.in[0]), x.master(t.in[1]), x.pointer(t.out[0])
		if len(t.in) == 3 {
			h.Bias = x.pointer(t.in[2])
		}
		return h.Forward(x.typ(t.in[0]))
	case opHeadBackwardData:
		rows(t.out[0])
		h.W, h.DZ, h.DX, h.Acc = x.master(t.in[0]), x.pointer(t.in[1]), x.feature(t.out[0]), x.feature(t.acc)
		return h.BackwardData(x.typ(t.out[0]))
	}
	rows(t.in[0])
	h.X, h.DZ, h.DW, h.DBias = x.feature(t.in[0]), x.pointer(t.in[1]), x.pointer(t.out[0]), x.pointer(t.out[1])
	return h.BackwardWeights(x.typ(t.in[0]))
}

// copyChannels returns the commands that copy one operand of a concatenation, or a slice.
func (x *executable) copyChannels(t task) ([]command, error) {
	src, dst := x.memory.locations[t.in[0]], x.memory.locations[t.out[0]]
	if src.form != mapForm {
		// A gradient that is copied completely.
		if src.bytes() != dst.bytes() || src.typ != dst.typ {
			return nil, fmt.Errorf("a %s of shape %v to one of shape %v", src.form, src.shape, dst.shape)
		}
		return []command{&copyCall{x.address(t.out[0]), x.address(t.in[0]), int64(dst.bytes())}}, nil
	}
	if src.typ != dst.typ {
		return nil, fmt.Errorf("from %s to %s", src.typ, dst.typ)
	}
	c := kernels.CopyChannels{Rows: src.pixels(), Src: x.pointer(t.in[0]), Dst: x.pointer(t.out[0]), SrcPitch: src.pitch, DstPitch: dst.pitch}
	shift := kernels.Pointer(t.attr.Offset * src.typ.Size())
	if t.slice {
		c.Channels = dst.channels()
		c.Src += shift
	} else {
		c.Channels = src.channels()
		c.Dst += shift
	}
	return x.gpu.calls(c.Launches(number.KernelType(src.typ)))
}

// scratchFor returns the number of bytes of scratch memory that a task needs while it runs.
func (x *executable) scratchFor(t task) int {
	rows := func(id int) int {
		return 4 * kernels.PartialFloats(x.memory.locations[id].pixels(), x.memory.locations[id].padded())
	}
	switch t.op {
	case plan.OpBatchNorm, plan.OpBatchNormBackward, plan.OpBiasBackward, opHeadBackwardWeights:
		return rows(t.in[0])
	case plan.OpBCEWithLogits, plan.OpL1, plan.OpSoftmaxCrossEntropy:
		return 4 * kernels.LossPartialFloats
	case plan.OpDiceBCE, plan.OpDiceBCEBackward:
		z := x.memory.locations[t.in[0]]
		return 4 * kernels.DicePartialFloats(z.pixels(), z.points(), z.channels())
	case plan.OpReshape:
		return 4 * elements(x.memory.locations[t.in[0]].shape)
	}
	if c, ok := x.asConvolution(t); ok {
		n := c.scratch()
		if t.stats != nil || t.sums != nil {
			n = max(n, rows(t.out[0]))
		}
		return n
	}
	return 0
}
