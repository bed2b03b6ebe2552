package cuda

import (
	"maps"
	"slices"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// variant is one of several ways to compute a convolution: a cuDNN graph, and commands that
// run before and after it.
type variant struct {
	ops           []cudnn.Op
	pointers      map[int64]driver.Ptr
	before, after []command
}

// commandsWith returns the commands of v, where call runs v's graph.
func (v variant) commandsWith(call command) []command {
	return slices.Concat(v.before, []command{call}, v.after)
}

// listVariants returns the variants of task t. c is t as a convolution. If operands have gaps
// between their pixels, because they are stored within other tensors, the list ends with
// variants that use gapless copies. cuDNN may reject gaps or have no fast engine for them.
func (x *executable) listVariants(t loweredTask, c convolution) ([]variant, error) {
	list, err := x.inPlaceVariants(t, c)
	if err != nil || x.memory.gapless.ptr == 0 || c.gaplessBytes() == 0 {
		return list, err
	}
	whole, before, after, err := x.withGaplessCopies(c)
	if err != nil {
		return nil, err
	}
	var packed []variant
	if c.pass == filterGrad {
		packed, err = x.inPlaceVariants(t, whole)
	} else {
		end, endErr := x.epilogueVariant(t)
		packed, err = []variant{x.unfusedVariant(whole).followedBy(variant{after: after}).followedBy(end)}, endErr
		switch {
		case err != nil:
		case t.sums != nil:
			after, err := x.gpu.newKernelCalls(x.fusedNormGradParams(t).Reduce(number.KernelType(c.x.typ)))
			if err != nil {
				return nil, err
			}
			packed[0] = packed[0].followedBy(variant{after: after})
		case t.stats != nil:
			var read variant
			read, err = x.fusedStatisticsVariant(t, false)
			packed[0] = packed[0].followedBy(read)
		}
	}
	for _, v := range packed {
		v.before = before
		list = append(list, v)
	}
	return list, err
}

// gappedOperands returns the maps of c that have gaps between their pixels.
func (c *convolution) gappedOperands() (list []gappedOperand) {
	for _, o := range []gappedOperand{{&c.x, &c.px, c.pass == dataGrad}, {&c.y, &c.py, c.pass == forward}} {
		if o.place.form == mapForm && o.place.pitch != o.place.paddedChannels() {
			list = append(list, o)
		}
	}
	return list
}

// gappedOperand is an operand of a convolution that has gaps between its pixels.
type gappedOperand struct {
	place   *tensorLocation
	ptr     *driver.Ptr
	written bool // the convolution writes the operand
}

// gaplessBytes returns the size of gapless copies of all operands of c that have gaps, in
// bytes. It is 0 if no operand has gaps.
func (c convolution) gaplessBytes() (bytes int) {
	for _, o := range c.gappedOperands() {
		bytes += roundUp(o.place.bytes(), tensorAlignmentBytes)
	}
	return bytes
}

// withGaplessCopies returns c with gapless copies of its operands, which are in x.memory.gapless.
// before contains the commands that make the copies, and after contains the commands that copy
// the result back.
func (x *executable) withGaplessCopies(c convolution) (gapless convolution, before, after []command, err error) {
	at := x.memory.gapless.ptr
	for _, o := range c.gappedOperands() {
		p := *o.place
		copied := kernels.ChannelCopy{Rows: p.positionCount(), Channels: p.paddedChannels(), Src: kernels.Pointer(*o.ptr), Dst: kernels.Pointer(at), SrcPitch: p.pitch, DstPitch: p.paddedChannels()}
		if o.written {
			copied.Src, copied.Dst, copied.SrcPitch, copied.DstPitch = copied.Dst, copied.Src, copied.DstPitch, copied.SrcPitch
		}
		launches, err := x.gpu.newKernelCalls(copied.Launches(number.KernelType(p.typ)))
		if err != nil {
			return c, nil, nil, err
		}
		if o.written {
			after = append(after, launches...)
		} else {
			before = append(before, launches...)
		}
		o.place.pitch, *o.ptr = p.paddedChannels(), at
		at = at.Add(int64(roundUp(p.bytes(), tensorAlignmentBytes)))
	}
	return c, before, after, nil
}

// inPlaceVariants returns the variants of task t, which is convolution c, that use the
// operands without copies. In the first variant, cuDNN computes only the convolution, and
// the engine's own kernels run after it. In the others, cuDNN's graph also contains the
// bias, the sum and the ReLU, or the statistics of a batch norm. Tuning chooses among them;
// cuDNN may not support the latter graphs.
func (x *executable) inPlaceVariants(t loweredTask, c convolution) ([]variant, error) {
	switch {
	case c.pass == filterGrad:
		return x.weightGradVariants(c)
	case t.sums != nil:
		return x.normGradientSumVariants(t, c)
	}
	direct := x.unfusedVariant(c)
	end, err := x.epilogueVariant(t)
	if err != nil {
		return nil, err
	}
	list := []variant{direct.followedBy(end)}
	fused := direct
	if len(t.in) == 3 && t.acceptsBias() || t.acc >= 0 {
		fused = x.fusedEpilogueVariant(t, c)
		list = append(list, fused)
	}
	if t.stats == nil {
		return list, nil
	}
	read, err := x.fusedStatisticsVariant(t, false)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i] = list[i].followedBy(read)
	}
	sums, err := x.fusedStatisticsVariant(t, true)
	if err != nil {
		return nil, err
	}
	graph := fused.followedBy(sums)
	graph.ops, graph.pointers = c.appendChannelSums(fused.ops), maps.Clone(fused.pointers)
	graph.pointers[idSum], graph.pointers[idSquare] = x.tensorAddress(t.stats.sum), x.tensorAddress(t.stats.square)
	return append(list, graph), nil
}

// unfusedVariant returns the variant whose graph contains only c.
func (x *executable) unfusedVariant(c convolution) variant {
	return variant{
		ops: []cudnn.Op{c.cudnnOp()}, pointers: map[int64]driver.Ptr{idX: c.px, idW: c.pw, idY: c.py},
	}
}

// followedBy returns v with the commands of next after its own.
func (v variant) followedBy(next variant) variant {
	v.after = slices.Concat(v.after, next.after)
	return v
}

// weightGradVariants returns the variants of a weight gradient c. The result is fp32, but not
// every cuDNN algorithm can write fp32 for 16-bit maps. Therefore a second variant writes 16
// bits to scratch memory and casts them.
func (x *executable) weightGradVariants(c convolution) ([]variant, error) {
	direct := x.unfusedVariant(c)
	if c.w.typ == c.x.typ {
		return []variant{direct}, nil
	}
	low := c
	low.w.typ, low.pw = c.x.typ, x.memory.scratch.ptr
	cast := x.unfusedVariant(low)
	var err error
	cast.after, err = x.gpu.newKernelCalls(kernels.CastToF32(number.KernelType(c.x.typ), kernels.Pointer(x.memory.scratch.ptr), kernels.Pointer(c.pw), c.w.paddedElementCount()))
	return []variant{direct, cast}, err
}

// normGradientSumVariants returns the variants of a data gradient that also computes the sums of
// the gradient of the batch norm before the convolution.
func (x *executable) normGradientSumVariants(t loweredTask, c convolution) ([]variant, error) {
	s := t.sums
	direct, fused := x.unfusedVariant(c), x.unfusedVariant(c)
	var err error
	direct.after, err = x.gpu.newKernelCalls(x.fusedNormGradParams(t).Reduce(number.KernelType(c.x.typ)))
	fused.ops = c.normGradientSumOps()
	fused.pointers = maps.Clone(direct.pointers)
	for id, tensor := range map[int64]int{
		idNormed: s.x, idMean: s.mean, idInvStd: s.invstd, idGamma: s.gamma, idBeta: s.beta, idDGamma: s.dgamma, idDBeta: s.dbeta,
		idEqDY: s.factors[0], idEqX: s.factors[1], idEq: s.factors[2],
	} {
		fused.pointers[id] = x.tensorAddress(tensor)
	}
	return []variant{direct, fused}, err
}
