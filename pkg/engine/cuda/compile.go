package cuda

import (
	"fmt"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

func (x *executable) tensorAddress(id int) driver.Ptr {
	return x.memory.locations[id].address(x.memory.bases)
}

// tensorPointer returns the address of tensor id, 0 if id is −1.
func (x *executable) tensorPointer(id int) kernels.Pointer {
	if id < 0 {
		return 0
	}
	return kernels.Pointer(x.tensorAddress(id))
}

// featureMap returns tensor id as a FeatureMap, or the zero FeatureMap if id is −1.
func (x *executable) featureMap(id int) kernels.FeatureMap {
	if id < 0 {
		return kernels.FeatureMap{}
	}
	return kernels.FeatureMap{Data: x.tensorPointer(id), Pitch: x.memory.locations[id].pitch}
}

func (x *executable) kernelElementType(id int) kernels.ElementType {
	return number.KernelType(x.memory.locations[id].typ)
}

// compileTask returns the commands of t, which must not be a convolution.
func (x *executable) compileTask(t loweredTask) ([]command, error) {
	launches, err := x.commandsFor(t)
	if err != nil {
		return nil, fmt.Errorf("prepare kernel %s %q: %w", t.op, t.name, err)
	}
	return launches, nil
}

// commandsFor is like compileTask, but its errors do not name the task.
func (x *executable) commandsFor(t loweredTask) ([]command, error) {
	g := x.gpu
	switch t.op {
	case plan.OpBatchNorm:
		return g.newKernelCalls(x.batchNormLaunches(t))
	case plan.OpBatchNormBackward:
		if t.precomputed {
			return g.newKernelCalls(x.normGradParams(t).Apply(x.kernelElementType(t.in[0])))
		}
		return g.newKernelCalls(x.normGradParams(t).Launches(x.kernelElementType(t.in[0])))
	case plan.OpMaxPool:
		p := x.poolGeometry(t, t.in[0], t.out[0])
		p.X, p.Y, p.Index = x.featureMap(t.in[0]), x.featureMap(t.out[0]), x.tensorPointer(t.out[1])
		return g.newKernelCalls(p.Forward(x.kernelElementType(t.in[0])))
	case plan.OpMaxPoolBackward:
		p := x.poolGeometry(t, t.out[0], t.in[0])
		p.DY, p.DX, p.Acc, p.Index = x.featureMap(t.in[0]), x.featureMap(t.out[0]), x.featureMap(t.acc), x.tensorPointer(t.in[1])
		return g.newKernelCalls(p.Backward(x.kernelElementType(t.out[0])))
	case plan.OpAvgPool:
		p := x.poolGeometry(t, t.in[0], t.out[0])
		p.X, p.Y = x.featureMap(t.in[0]), x.featureMap(t.out[0])
		return g.newKernelCalls(p.Average(x.kernelElementType(t.in[0])))
	case plan.OpAvgPoolBackward:
		p := x.poolGeometry(t, t.out[0], t.in[0])
		p.DY, p.DX, p.Acc = x.featureMap(t.in[0]), x.featureMap(t.out[0]), x.featureMap(t.acc)
		return g.newKernelCalls(p.AverageBackward(x.kernelElementType(t.out[0])))
	case plan.OpGlobalAvgPool, plan.OpGlobalAvgPoolBackward:
		return g.newKernelCalls(x.globalPoolLaunches(t))
	case plan.OpReshape:
		return x.reshapeCommands(t)
	case plan.OpPad, plan.OpPadBackward:
		return g.newKernelCalls(x.padLaunches(t))
	case plan.OpDiceBCE, plan.OpDiceBCEBackward:
		return g.newKernelCalls(x.diceLaunches(t))
	case plan.OpBCEWithLogits, plan.OpBCEWithLogitsBackward:
		return g.newKernelCalls(x.bceLaunches(t))
	case plan.OpL1, plan.OpL1Backward:
		return g.newKernelCalls(x.l1LossLaunches(t))
	case plan.OpSoftmaxCrossEntropy, plan.OpSoftmaxCrossEntropyBackward:
		return g.newKernelCalls(x.softmaxLaunches(t))
	case opHead, opHeadBackwardData, opHeadBackwardWeights:
		return g.newKernelCalls(x.headConvolutionLaunches(t))
	case opBias:
		y := x.memory.locations[t.out[0]]
		b := kernels.Bias{Rows: y.positionCount(), Channels: y.paddedChannels(), X: x.featureMap(t.in[0]), Y: x.featureMap(t.out[0]), Bias: x.tensorPointer(t.in[1]), ReLU: t.attr.ReLU}
		return g.newKernelCalls(b.Launches(x.kernelElementType(t.out[0])))
	case plan.OpBiasBackward:
		dy := x.memory.locations[t.in[0]]
		b := kernels.BiasGrad{
			Rows: dy.positionCount(), Channels: dy.paddedChannels(), DY: x.featureMap(t.in[0]), Y: x.featureMap(t.in[1]), DX: x.featureMap(t.out[1]),
			DBias: x.tensorPointer(t.out[0]), Partial: kernels.Pointer(x.memory.scratch.ptr),
		}
		return g.newKernelCalls(b.Launches(x.kernelElementType(t.in[0])))
	case plan.OpAdd, plan.OpReLU, plan.OpReLUBackward, plan.OpLeakyReLU, plan.OpLeakyReLUBackward, plan.OpTanh, plan.OpTanhBackward:
		return g.newKernelCalls(x.elementwiseLaunches(t))
	case opCopy:
		return x.copyChannelsCommands(t)
	case opClear:
		return []command{&clearMemoryCall{x.tensorAddress(t.out[0]), int64(x.memory.locations[t.out[0]].bytes())}}, nil
	}
	return nil, fmt.Errorf("unknown operation %q", t.op)
}

// elementwiseLaunches returns the launches of t, an operation that computes each element of the
// result from the elements at the same position in the operands.
func (x *executable) elementwiseLaunches(t loweredTask) ([]kernels.Launch, error) {
	y := x.memory.locations[t.out[0]]
	for _, id := range t.in {
		if x.memory.locations[id].form != y.form || x.memory.locations[id].typ != y.typ {
			return nil, fmt.Errorf("operands have different layouts: %s of %s and %s of %s", x.memory.locations[id].form, x.memory.locations[id].typ, y.form, y.typ)
		}
	}
	e := kernels.ElementwiseOp{
		Rows: y.positionCount(), Channels: y.paddedChannels(),
		A: x.featureMap(t.in[0]), Y: x.featureMap(t.out[0]), Acc: x.featureMap(t.acc),
	}
	if len(t.in) > 1 {
		e.B = x.featureMap(t.in[1])
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

// epilogueVariant returns the kernel that must run after a convolution if cuDNN computes only
// the convolution: the kernel adds the bias and the map t.acc and applies ReLU. If t has
// neither a bias nor t.acc, the variant is empty.
func (x *executable) epilogueVariant(t loweredTask) (v variant, err error) {
	biased := t.acceptsBias() && len(t.in) == 3
	if !biased && t.acc < 0 {
		return v, nil
	}
	y := x.memory.locations[t.out[0]]
	b := kernels.Bias{Rows: y.positionCount(), Channels: y.paddedChannels(), X: x.featureMap(t.out[0]), Add: x.featureMap(t.acc), Y: x.featureMap(t.out[0]), ReLU: t.attr.ReLU}
	if biased {
		b.Bias = x.tensorPointer(t.in[2])
	}
	v.after, err = x.gpu.newKernelCalls(b.Launches(x.kernelElementType(t.out[0])))
	return v, err
}

func (x *executable) poolGeometry(t loweredTask, in, out int) kernels.Pooling {
	big, small := x.memory.locations[in], x.memory.locations[out]
	return kernels.Pooling{
		Batch: big.rows(), Channels: big.paddedChannels(), In: toDepthHeightWidth(big.spatialShape(), 1), Out: toDepthHeightWidth(small.spatialShape(), 1),
		Kernel: toDepthHeightWidth(t.attr.Kernel, 1), Stride: toDepthHeightWidth(t.attr.Stride, 1), Pad: toDepthHeightWidth(t.attr.Pad, 0),
		PadZeros: t.attr.PadZeros,
	}
}

// toDepthHeightWidth extends s to three dimensions: missing leading dimensions become fill.
func toDepthHeightWidth(s []int, fill int) [3]int {
	v := [3]int{fill, fill, fill}
	copy(v[3-len(s):], s)
	return v
}

func (x *executable) padLaunches(t loweredTask) ([]kernels.Launch, error) {
	in, out := x.memory.locations[t.in[0]], x.memory.locations[t.out[0]]
	if in.form != mapForm || out.form != mapForm || in.typ != out.typ {
		return nil, fmt.Errorf("pad: input is a %s of type %s, result is a %s of type %s, want two feature maps of the same type", in.form, in.typ, out.form, out.typ)
	}
	p := kernels.Padding{
		Batch: in.rows(), Channels: in.paddedChannels(), In: toDepthHeightWidth(in.spatialShape(), 1), Out: toDepthHeightWidth(out.spatialShape(), 1), Shift: toDepthHeightWidth(t.attr.Pad, 0),
		X: x.featureMap(t.in[0]), Y: x.featureMap(t.out[0]), Acc: x.featureMap(t.acc),
	}
	if t.op == plan.OpPadBackward {
		for i := range p.Shift {
			p.Shift[i] = -p.Shift[i]
		}
	}
	return p.Launches(x.kernelElementType(t.in[0]))
}

func (x *executable) globalPoolLaunches(t loweredTask) ([]kernels.Launch, error) {
	big, small := t.in[0], t.out[0]
	if t.op == plan.OpGlobalAvgPoolBackward {
		big, small = small, big
	}
	p := kernels.GlobalAvgPool{Batch: x.memory.locations[big].rows(), Points: x.memory.locations[big].positionsPerRow(), Channels: x.memory.locations[big].paddedChannels()}
	if t.op == plan.OpGlobalAvgPool {
		p.X, p.Y = x.featureMap(big), x.featureMap(small)
		return p.Forward(x.kernelElementType(big))
	}
	p.DY, p.DX, p.Acc = x.featureMap(small), x.featureMap(big), x.featureMap(t.acc)
	return p.Backward(x.kernelElementType(big))
}

// reshapeCommands returns the commands of a reshape. They convert a feature map to logical
// order and then to the layout of the result. If the layout in memory does not change, they
// only copy the tensor.
func (x *executable) reshapeCommands(t loweredTask) ([]command, error) {
	src, dst := x.memory.locations[t.in[0]], x.memory.locations[t.out[0]]
	if src.form != mapForm || dst.form != mapForm || src.typ != dst.typ {
		if src.form != dst.form || src.typ != dst.typ || src.bytes() != dst.bytes() || src.pitch != dst.pitch {
			return nil, fmt.Errorf("cannot copy a %s of shape %v to a %s of shape %v", src.form, src.shape, dst.form, dst.shape)
		}
		return []command{&copyWithinGPUCall{x.tensorAddress(t.out[0]), x.tensorAddress(t.in[0]), int64(dst.bytes())}}, nil
	}
	planar := kernels.Pointer(x.memory.scratch.ptr)
	out, err := x.gpu.newKernelCalls(kernels.Transposition{
		Batch: src.rows(), Channels: src.channels(), Spatial: src.positionsPerRow(), Padded: src.paddedChannels(), Planar: planar, Rows: x.tensorPointer(t.in[0]), Pitch: src.pitch,
	}.ToPlanar(number.KernelType(src.typ)))
	if err != nil {
		return nil, err
	}
	in, err := x.gpu.newKernelCalls(kernels.Transposition{
		Batch: dst.rows(), Channels: dst.channels(), Spatial: dst.positionsPerRow(), Padded: dst.paddedChannels(), Planar: planar, Rows: x.tensorPointer(t.out[0]), Pitch: dst.pitch,
	}.ToRows(number.KernelType(dst.typ)))
	return append(out, in...), err
}

func (x *executable) masterWeightsPointer(id int) kernels.Pointer {
	r := x.store.paramAt[x.program.Tensors[id].Name]
	return kernels.Pointer(x.store.masters.ptr.Add(int64(4 * r.offset)))
}

func (x *executable) headConvolutionLaunches(t loweredTask) ([]kernels.Launch, error) {
	h := kernels.HeadConvolution{Partial: kernels.Pointer(x.memory.scratch.ptr)}
	rows := func(id int) {
		h.Rows, h.Channels = x.memory.locations[id].positionCount(), x.memory.locations[id].paddedChannels()
	}
	switch t.op {
	case opHead:
		rows(t.in[0])
		h.X, h.W, h.Z = x.featureMap(t.in[0]), x.masterWeightsPointer(t.in[1]), x.tensorPointer(t.out[0])
		if len(t.in) == 3 {
			h.Bias = x.tensorPointer(t.in[2])
		}
		return h.Forward(x.kernelElementType(t.in[0]))
	case opHeadBackwardData:
		rows(t.out[0])
		h.W, h.DZ, h.DX, h.Acc = x.masterWeightsPointer(t.in[0]), x.tensorPointer(t.in[1]), x.featureMap(t.out[0]), x.featureMap(t.acc)
		return h.BackwardData(x.kernelElementType(t.out[0]))
	}
	rows(t.in[0])
	h.X, h.DZ, h.DW, h.DBias = x.featureMap(t.in[0]), x.tensorPointer(t.in[1]), x.tensorPointer(t.out[0]), x.tensorPointer(t.out[1])
	return h.BackwardWeights(x.kernelElementType(t.in[0]))
}

func (x *executable) copyChannelsCommands(t loweredTask) ([]command, error) {
	src, dst := x.memory.locations[t.in[0]], x.memory.locations[t.out[0]]
	if src.form != mapForm {
		// The gradient of a weight, which is copied as a unit.
		if src.bytes() != dst.bytes() || src.typ != dst.typ {
			return nil, fmt.Errorf("cannot copy a %s of type %s and shape %v to a tensor of type %s and shape %v", src.form, src.typ, src.shape, dst.typ, dst.shape)
		}
		return []command{&copyWithinGPUCall{x.tensorAddress(t.out[0]), x.tensorAddress(t.in[0]), int64(dst.bytes())}}, nil
	}
	if src.typ != dst.typ {
		return nil, fmt.Errorf("cannot copy channels of type %s to a map of type %s", src.typ, dst.typ)
	}
	c := kernels.ChannelCopy{Rows: src.positionCount(), Src: x.tensorPointer(t.in[0]), Dst: x.tensorPointer(t.out[0]), SrcPitch: src.pitch, DstPitch: dst.pitch}
	shift := kernels.Pointer(t.attr.Offset * src.typ.Size())
	if t.slice {
		c.Channels = dst.channels()
		c.Src += shift
	} else {
		c.Channels = src.channels()
		c.Dst += shift
	}
	return x.gpu.newKernelCalls(c.Launches(number.KernelType(src.typ)))
}

func (x *executable) scratchBytes(t loweredTask) int {
	rows := func(id int) int {
		return 4 * kernels.PartialSumFloats(x.memory.locations[id].positionCount(), x.memory.locations[id].paddedChannels())
	}
	switch t.op {
	case plan.OpBatchNorm, plan.OpBatchNormBackward, plan.OpBiasBackward, opHeadBackwardWeights:
		return rows(t.in[0])
	case plan.OpBCEWithLogits, plan.OpL1, plan.OpSoftmaxCrossEntropy:
		return 4 * kernels.LossPartialSumFloats
	case plan.OpDiceBCE, plan.OpDiceBCEBackward:
		z := x.memory.locations[t.in[0]]
		return 4 * kernels.DicePartialSumFloats(z.positionCount(), z.positionsPerRow(), z.channels())
	case plan.OpReshape:
		return 4 * elementCount(x.memory.locations[t.in[0]].shape)
	}
	if c, ok := x.asConvolution(t); ok {
		n := c.scratchBytes()
		if t.stats != nil || t.sums != nil {
			n = max(n, rows(t.out[0]))
		}
		return n
	}
	return 0
}
