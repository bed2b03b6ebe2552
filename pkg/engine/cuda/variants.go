package cuda

import (
	"fmt"
	"maps"
	"slices"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// variant is one of several ways to compute a convolution: a graph of cuDNN's, and the
// commands that run before and after it.
type variant struct {
	ops           []cudnn.Op
	pointers      map[int64]driver.Ptr
	before, after []command
	traffic
}

// around returns the commands of v with its graph's call among them.
func (v variant) around(call command) []command {
	return slices.Concat(v.before, []command{call}, v.after)
}

// traffic is the bytes that a convolution's graph and the commands after it move.
type traffic struct{ graph, behind float64 }

func (t traffic) bytes() float64 { return t.graph + t.behind }

// variants returns the ways to compute task t, which is convolution c. If an operand is a
// view of another tensor's channels, so that there are gaps between its pixels, variants
// that copy it to or from memory without gaps come last: cuDNN may refuse the gaps, or have
// no fast engine for them.
func (x *executable) variants(t task, c convolution) ([]variant, error) {
	list, err := x.direct(t, c)
	if err != nil || x.memory.packed.ptr == 0 || c.gaps() == 0 {
		return list, err
	}
	whole, before, after, err := x.withoutGaps(c)
	if err != nil {
		return nil, err
	}
	copies := c.gaps()
	var packed []variant
	if c.relation == filterGrad {
		packed, err = x.direct(t, whole)
	} else {
		end, endErr := x.epilogue(t)
		packed, err = []variant{x.unfused(whole).then(variant{after: after}).then(end)}, endErr
		switch {
		case err != nil:
		case t.sums != nil:
			after, err := x.gpu.calls(x.normGrad(t).Reduce(number.KernelType(c.x.typ)))
			if err != nil {
				return nil, err
			}
			packed[0] = packed[0].then(variant{after: after, traffic: traffic{behind: float64(2 * c.x.bytes())}})
		case t.stats != nil:
			var read variant
			read, err = x.summed(t, false)
			packed[0] = packed[0].then(read)
		}
	}
	for _, v := range packed {
		v.before = before
		v.behind += float64(2 * copies)
		list = append(list, v)
	}
	return list, err
}

// gapped lists the operands of c that have gaps between their pixels.
func (c *convolution) gapped() (list []gapped) {
	for _, o := range []gapped{{&c.x, &c.px, c.relation == dataGrad}, {&c.y, &c.py, c.relation == forward}} {
		if o.place.form == mapForm && o.place.pitch != o.place.padded() {
			list = append(list, o)
		}
	}
	return list
}

// gapped is an operand of a convolution that has gaps.
type gapped struct {
	place   *location
	ptr     *driver.Ptr
	written bool
}

// gaps returns the bytes of the operands that have gaps, not counting the gaps, or 0 if none
// has.
func (c convolution) gaps() (bytes int) {
	for _, o := range c.gapped() {
		bytes += roundUp(o.place.bytes(), alignment)
	}
	return bytes
}

// withoutGaps returns c with copies of its gapped operands in x.memory.packed, and the
// commands that copy before and after it.
func (x *executable) withoutGaps(c convolution) (whole convolution, before, after []command, err error) {
	at := x.memory.packed.ptr
	for _, o := range c.gapped() {
		p := *o.place
		copied := kernels.CopyChannels{Rows: p.pixels(), Channels: p.padded(), Src: kernels.Pointer(*o.ptr), Dst: kernels.Pointer(at), SrcPitch: p.pitch, DstPitch: p.padded()}
		if o.written {
			copied.Src, copied.Dst, copied.SrcPitch, copied.DstPitch = copied.Dst, copied.Src, copied.DstPitch, copied.SrcPitch
		}
		launches, err := x.gpu.calls(copied.Launches(number.KernelType(p.typ)))
		if err != nil {
			return c, nil, nil, err
		}
		if o.written {
			after = append(after, launches...)
		} else {
			before = append(before, launches...)
		}
		o.place.pitch, *o.ptr = p.padded(), at
		at = at.Add(int64(roundUp(p.bytes(), alignment)))
	}
	return c, before, after, nil
}

// direct returns the ways to compute task t, which is convolution c, on its operands in
// place. The first is cuDNN's convolution alone, with our kernels after it. In the others
// cuDNN computes in one graph what it can of a bias, a sum, ReLU and the statistics of a
// batch norm. They compete; where cuDNN has no such graph, the first remains.
func (x *executable) direct(t task, c convolution) ([]variant, error) {
	switch {
	case c.relation == filterGrad:
		return x.filterVariants(c, variant{ops: []cudnn.Op{c.op()}, pointers: map[int64]driver.Ptr{idX: c.px, idY: c.py}})
	case t.sums != nil:
		return x.sumVariants(t, c)
	}
	direct := x.unfused(c)
	end, err := x.epilogue(t)
	if err != nil {
		return nil, err
	}
	list := []variant{direct.then(end)}
	fused := direct
	if len(t.in) == 3 && t.convolutional() || t.acc >= 0 {
		fused = x.withEpilogue(t, c)
		list = append(list, fused)
	}
	if t.stats == nil {
		return list, nil
	}
	read, err := x.summed(t, false)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i] = list[i].then(read)
	}
	sums, err := x.summed(t, true)
	if err != nil {
		return nil, err
	}
	graph := fused.then(sums)
	graph.ops, graph.pointers = c.withSums(fused.ops), x.sumsAt(t, fused.pointers)
	return append(list, graph), nil
}

// unfused returns the graph of c alone.
func (x *executable) unfused(c convolution) variant {
	return variant{
		ops: []cudnn.Op{c.op()}, pointers: map[int64]driver.Ptr{idX: c.px, idW: c.pw, idY: c.py},
		traffic: traffic{graph: c.bytes()},
	}
}

// then returns v with the commands of next after its own.
func (v variant) then(next variant) variant {
	v.after = slices.Concat(v.after, next.after)
	v.behind += next.behind
	return v
}

// filterVariants returns the ways to compute a weights' gradient; v is its graph without the
// result. The result is fp32. Not every algorithm of cuDNN's writes fp32 from 16-bit maps,
// so a graph that writes 16 bits to scratch memory, with a cast after it, competes.
func (x *executable) filterVariants(c convolution, v variant) ([]variant, error) {
	v.graph = c.bytes()
	direct := v
	direct.pointers = maps.Clone(v.pointers)
	direct.pointers[idW] = c.pw
	if c.w.typ == c.x.typ {
		return []variant{direct}, nil
	}
	low := c
	low.w.typ = c.x.typ
	cast := v
	cast.ops = slices.Clone(v.ops)
	cast.pointers = maps.Clone(v.pointers)
	cast.pointers[idW] = x.memory.scratch.ptr
	last := len(cast.ops) - 1
	op, ok := cast.ops[last].(cudnn.ConvBackwardFilter)
	if !ok {
		return nil, fmt.Errorf("the graph of a weights' gradient ends with a %T", cast.ops[last])
	}
	op.DW = low.w.tensor(idW)
	cast.ops[last] = op
	var err error
	cast.after, err = x.gpu.calls(kernels.CastToF32(number.KernelType(c.x.typ), kernels.Pointer(x.memory.scratch.ptr), kernels.Pointer(c.pw), c.w.size()))
	cast.graph += float64(low.w.bytes() - c.w.bytes())
	cast.behind = float64(low.w.bytes() + c.w.bytes())
	return []variant{direct, cast}, err
}

// sumVariants returns the ways to compute a gradient of data, and the sums of the gradient of
// the batch norm before it.
func (x *executable) sumVariants(t task, c convolution) ([]variant, error) {
	s := t.sums
	direct, fused := x.unfused(c), x.unfused(c)
	var err error
	direct.after, err = x.gpu.calls(x.normGrad(t).Reduce(number.KernelType(c.x.typ)))
	direct.behind = float64(2 * c.x.bytes())
	fused.ops = c.withNormSums()
	fused.graph += float64(c.x.bytes())
	fused.pointers = maps.Clone(direct.pointers)
	for id, tensor := range map[int64]int{
		idNormed: s.x, idMean: s.mean, idInvStd: s.invstd, idGamma: s.gamma, idBeta: s.beta, idDGamma: s.dgamma, idDBeta: s.dbeta,
		idEqDY: s.factors[0], idEqX: s.factors[1], idEq: s.factors[2],
	} {
		fused.pointers[id] = x.address(tensor)
	}
	return []variant{direct, fused}, err
}
