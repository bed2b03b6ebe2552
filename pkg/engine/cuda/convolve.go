package cuda

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// relation is one of the three computations that a convolution and its gradients
// are; a transposed convolution is the same three with the maps exchanged.
type relation uint8

const (
	forward    relation = iota // y from x and w
	dataGrad                   // x from y and w
	filterGrad                 // w from x and y
)

func (r relation) String() string {
	return [...]string{"forward", "backward data", "backward weights"}[r]
}

// The ids of a convolution's operands in cuDNN's graphs.
const (
	idX = 1
	idW = 2
	idY = 3
	// What goes into a graph beside it, or comes out.
	idBias, idSum, idSquare, idAdd         = 4, 5, 6, 7
	idScale, idShift                       = 21, 22
	idMean, idInvStd, idGamma, idBeta      = 23, 24, 25, 26
	idDGamma, idDBeta, idEqDY, idEqX, idEq = 27, 28, 29, 30, 31
	idNormed                               = 32 // the input of the batch norm in front
	// What stays within.
	idRaw, idBiased, idAdded     = 11, 12, 13
	idScaled, idShifted, idRead  = 14, 15, 16
	idCentred, idUnit, idStretch = 17, 18, 19
	idForward                    = 20
)

// convolution is one of them, or a linear layer, with its operands: x is the larger map, y the
// smaller, w [channels of y, channels of x, window…].
type convolution struct {
	relation    relation
	x, w, y     location
	px, pw, py  driver.Ptr
	stride, pad []int64
	extra       string // what is done with the result, for the tuning cache: " bias add relu", " statistics"
}

// asConvolution finds the operands of a task.
func (x *executable) asConvolution(t task) (convolution, bool) {
	var ids [3]int // x, w, y
	var r relation
	switch t.op {
	case plan.OpConv:
		r, ids = forward, [3]int{t.in[0], t.in[1], t.out[0]}
	case plan.OpConvBackwardData:
		r, ids = dataGrad, [3]int{t.out[0], t.in[0], t.in[1]}
	case plan.OpConvBackwardWeights:
		r, ids = filterGrad, [3]int{t.in[0], t.out[0], t.in[1]}
	case plan.OpConvTranspose:
		r, ids = dataGrad, [3]int{t.out[0], t.in[1], t.in[0]}
	case plan.OpConvTransposeBackwardData:
		r, ids = forward, [3]int{t.in[1], t.in[0], t.out[0]}
	case plan.OpConvTransposeBackwardWeights:
		r, ids = filterGrad, [3]int{t.in[1], t.out[0], t.in[0]}
	case plan.OpLinear:
		r, ids = forward, [3]int{t.in[0], t.in[1], t.out[0]}
	case plan.OpLinearBackwardData:
		r, ids = dataGrad, [3]int{t.out[0], t.in[0], t.in[1]}
	case plan.OpLinearBackwardWeights:
		r, ids = filterGrad, [3]int{t.in[0], t.out[0], t.in[1]}
	default:
		return convolution{}, false
	}
	stride, pad := t.attr.Stride, t.attr.Pad
	if len(stride) == 0 { // a linear layer is a convolution of maps of one point
		stride, pad = []int{1, 1}, []int{0, 0}
	}
	extra := ""
	if t.convolutional() && len(t.in) == 3 {
		extra += " bias"
	}
	if t.acc >= 0 {
		extra += " add"
		if p := x.memory.locations[t.acc]; p.pitch != p.padded() {
			extra += fmt.Sprint("/", p.pitch)
		}
	}
	if t.attr.ReLU {
		extra += " relu"
	}
	if t.stats != nil {
		extra += " statistics"
	}
	if t.sums != nil {
		extra += " sums of a norm's gradient"
	}
	return convolution{
		relation: r, extra: extra,
		x: x.memory.locations[ids[0]], w: x.memory.locations[ids[1]], y: x.memory.locations[ids[2]],
		px: x.address(ids[0]), pw: x.address(ids[1]), py: x.address(ids[2]),
		stride: wide(stride), pad: wide(pad),
	}, true
}

// wide is a list of numbers as cuDNN takes them.
func wide(v []int) []int64 {
	w := make([]int64, len(v))
	for i := range v {
		w[i] = int64(v[i])
	}
	return w
}

// tensor describes a place to cuDNN: dimensions N, C, spatial… (1, 1 where there are
// none); strides channels-last, with the place's pitch.
func (p location) tensor(id int64) cudnn.Tensor {
	spatial := p.spatial()
	if len(spatial) == 0 {
		spatial = []int{1, 1}
	}
	dims := append([]int64{int64(p.rows()), int64(p.padded())}, wide(spatial)...)
	strides := make([]int64, len(dims))
	strides[1] = 1
	step := int64(p.pitch)
	for i := len(dims) - 1; i >= 2; i-- {
		strides[i] = step
		step *= dims[i]
	}
	strides[0] = step
	return cudnn.Tensor{ID: id, Type: dnnType(p.typ), Dims: dims, Strides: strides}
}

// op describes c to cuDNN.
func (c convolution) op() cudnn.Op {
	geometry := cudnn.Conv{Pad: c.pad, Stride: c.stride, Compute: cudnn.Float32}
	x, w, y := c.x.tensor(idX), c.w.tensor(idW), c.y.tensor(idY)
	switch c.relation {
	case dataGrad:
		return cudnn.ConvBackwardData{Conv: geometry, DX: x, W: w, DY: y}
	case filterGrad:
		return cudnn.ConvBackwardFilter{Conv: geometry, X: x, DW: w, DY: y}
	}
	return cudnn.ConvForward{Conv: geometry, X: x, W: w, Y: y}
}

// key names c for the tuning cache: all that decides which algorithm is fastest.
func (c convolution) key(tf32 bool) string {
	mode := ""
	if c.x.typ == device.F32 && tf32 {
		mode = " tf32"
	}
	at := func(p location) string { return fmt.Sprint(p.typ, p.shape, "/", p.pitch) }
	return fmt.Sprint(c.relation, mode, " x", at(c.x), " w", at(c.w), " y", at(c.y), " stride", c.stride, " pad", c.pad) + c.extra
}

// variant is a way to compute a convolution: a graph of cuDNN's, and what must
// run behind it.
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

// traffic are the bytes that a convolution's graph and the commands behind it move.
type traffic struct{ graph, behind float64 }

func (t traffic) bytes() float64 { return t.graph + t.behind }

// variants are the ways to compute a task, which is convolution c. Where an operand is a
// part of another tensor's channels, so that there are gaps between its pixels, ways that
// copy it to or from a memory without gaps come last: cuDNN may refuse the gaps, or have no
// fast engine for them.
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

// gapped lists the operands of c that have gaps between their pixels, with what is written.
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

// gaps returns the bytes of the operands that have gaps, without these; 0: none has.
func (c convolution) gaps() (bytes int) {
	for _, o := range c.gapped() {
		bytes += roundUp(o.place.bytes(), alignment)
	}
	return bytes
}

// withoutGaps returns c with operands that lie in x.packed, and the copies before and after.
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

// direct are the ways to compute a task, which is convolution c, on its operands as they
// lie: cuDNN's alone with our
// kernels behind it comes first, then those where cuDNN does in one graph what it can of
// that: a bias, a sum, ReLU, the statistics of a batch norm. They compete, and where cuDNN
// cannot, ours is left.
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

// unfused is c by itself.
func (x *executable) unfused(c convolution) variant {
	return variant{
		ops: []cudnn.Op{c.op()}, pointers: map[int64]driver.Ptr{idX: c.px, idW: c.pw, idY: c.py},
		traffic: traffic{graph: c.bytes()},
	}
}

// bytes are those of c's operands.
func (c convolution) bytes() float64 { return float64(c.x.bytes() + c.w.bytes() + c.y.bytes()) }

// then is v with the commands of another one behind its own.
func (v variant) then(next variant) variant {
	v.after = slices.Concat(v.after, next.after)
	v.behind += next.behind
	return v
}

// filterVariants are the ways to compute a weights' gradient, whose graph v is but for the
// result. It is wanted in fp32; not every algorithm of cuDNN's writes that from 16-bit
// maps, so that one which writes 16 bits, to scratch memory, and a cast behind it, competes.
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

// sumVariants are the ways to compute a gradient of data and the sums of that of the batch
// norm in front.
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

// result is the place that a convolution writes.
func (c convolution) result() location {
	switch c.relation {
	case dataGrad:
		return c.x
	case filterGrad:
		return c.w
	}
	return c.y
}

// resultID is the id of that in a graph.
func (c convolution) resultID() int64 {
	if c.relation == dataGrad {
		return idX
	}
	return idY
}

// within is a tensor like t that stays in registers.
func within(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	t.ID, t.Type, t.Virtual, t.Strides = id, typ, true, nil
	return t
}

// vector is a number for each channel of t.
func vector(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	return cudnn.Tensor{ID: id, Type: typ, Dims: vectorDims(t)}
}

// withEpilogue is c with a bias a channel of its result, another map added to that, and
// ReLU, as far as t has them: what is in between stays in registers, in fp32.
func (x *executable) withEpilogue(t task, c convolution) variant {
	v := x.unfused(c)
	result := c.result().tensor(c.resultID())
	raw := within(result, idRaw, cudnn.Float32)
	switch op := c.op().(type) {
	case cudnn.ConvForward:
		op.Y = raw
		v.ops = []cudnn.Op{op}
	case cudnn.ConvBackwardData:
		op.DX = raw
		v.ops = []cudnn.Op{op}
	}
	var steps []cudnn.Pointwise
	if t.convolutional() && len(t.in) == 3 {
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: vector(result, idBias, cudnn.Float32), Y: within(result, idBiased, cudnn.Float32)})
		v.pointers[idBias] = x.address(t.in[2])
	}
	if t.acc >= 0 {
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: x.memory.locations[t.acc].tensor(idAdd), Y: within(result, idAdded, cudnn.Float32)})
		v.pointers[idAdd] = x.address(t.acc)
		v.graph += float64(x.memory.locations[t.acc].bytes())
	}
	if t.attr.ReLU {
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseReLU})
	}
	at := raw
	for i, s := range steps {
		s.X = at
		if i == len(steps)-1 {
			s.Y = result
		}
		at = s.Y
		v.ops = append(v.ops, s)
	}
	return v
}

// withSums is a graph of c with the sums of its result, and of its squares, over all but
// the channels.
func (c convolution) withSums(ops []cudnn.Op) []cudnn.Op {
	y := c.y.tensor(idY)
	return append(slices.Clone(ops), cudnn.Genstats{X: y, Sum: vector(y, idSum, cudnn.Float32), SqSum: vector(y, idSquare, cudnn.Float32)})
}

// sumsAt adds the addresses of a task's sums.
func (x *executable) sumsAt(t task, pointers map[int64]driver.Ptr) map[int64]driver.Ptr {
	pointers = maps.Clone(pointers)
	if t.stats != nil {
		pointers[idSum], pointers[idSquare] = x.address(t.stats.sum), x.address(t.stats.square)
	} else {
		unwanted := t.prologue.unwanted[t.out[0]]
		pointers[idSum], pointers[idSquare] = x.address(unwanted[0]), x.address(unwanted[1])
	}
	return pointers
}

// withNormSums is the graph of a data gradient through ReLU, whose input is computed again
// from that of the batch norm, with the sums of the batch norm's gradient.
func (c convolution) withNormSums() []cudnn.Op {
	dx := c.x.tensor(idX)
	x := dx
	x.ID = idNormed
	stay := func(id int64) cudnn.Tensor { return within(dx, id, cudnn.Float32) }
	one := func(id int64) cudnn.Tensor { return vector(dx, id, cudnn.Float32) }
	conv := cudnn.ConvBackwardData{
		Conv: cudnn.Conv{Pad: c.pad, Stride: c.stride, Compute: cudnn.Float32}, DX: stay(idRaw), W: c.w.tensor(idW), DY: c.y.tensor(idY),
	}
	return []cudnn.Op{
		conv,
		cudnn.Pointwise{Mode: cudnn.PointwiseSub, X: x, B: one(idMean), Y: stay(idCentred)},
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: stay(idCentred), B: one(idInvStd), Y: stay(idUnit)},
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: stay(idUnit), B: one(idGamma), Y: stay(idStretch)},
		cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: stay(idStretch), B: one(idBeta), Y: stay(idForward)},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLUBack, X: stay(idForward), DY: stay(idRaw), DX: dx},
		cudnn.BNBackwardWeights{
			X: x, Mean: one(idMean), InvStd: one(idInvStd), Scale: one(idGamma), DY: dx,
			DScale: one(idDGamma), DBias: one(idDBeta), EqDY: one(idEqDY), EqX: one(idEqX), EqBias: one(idEq),
		},
	}
}

// withPrologue are the ways to compute a task that reads the result of a batch norm with
// ReLU without that: cuDNN computes it of the norm's input as it reads that.
func (x *executable) withPrologue(t task, c convolution) ([]variant, error) {
	p := t.prologue
	in := c.x.tensor(idX)
	read := within(in, idRead, cudnn.Float16)
	front := []cudnn.Op{
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: in, B: vector(in, idScale, cudnn.Float16), Y: within(in, idScaled, cudnn.Float16)},
		cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: within(in, idScaled, cudnn.Float16), B: vector(in, idShift, cudnn.Float16), Y: within(in, idShifted, cudnn.Float16)},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: within(in, idShifted, cudnn.Float16), Y: read},
	}
	pointers := map[int64]driver.Ptr{idX: x.address(p.x), idScale: x.address(p.scale), idShift: x.address(p.shift), idY: c.py}
	switch op := c.op().(type) {
	case cudnn.ConvBackwardFilter:
		op.X = read
		return x.filterVariants(c, variant{ops: append(front, op), pointers: pointers})
	case cudnn.ConvForward:
		op.X = read
		v := variant{ops: append(front, op), pointers: x.sumsAt(t, pointers), traffic: traffic{graph: c.bytes()}}
		v.ops, v.pointers[idW] = c.withSums(v.ops), c.pw
		end, err := x.epilogue(t)
		if err != nil {
			return nil, err
		}
		if t.stats == nil {
			return []variant{v.then(end)}, nil
		}
		// cuDNN's sums are those of the convolution: with a bias or a sum behind it the
		// statistics are taken afterwards.
		sums, err := x.summed(t, len(end.after) == 0)
		return []variant{v.then(end).then(sums)}, err
	}
	return nil, errors.New("a data gradient reads no batch norm")
}

// vectorDims are the dimensions of a number for each channel of t.
func vectorDims(t cudnn.Tensor) []int64 {
	dims := slices.Repeat([]int64{1}, len(t.Dims))
	dims[1] = t.Dims[1]
	return dims
}

// scratchOf is the scratch memory, in bytes, that a convolution's variants need.
func (c convolution) scratch() int {
	if c.relation == filterGrad && c.w.typ != c.x.typ {
		return c.w.size() * c.x.typ.Size()
	}
	return 0
}

// resultAt is the address of what a convolution writes.
func (c convolution) resultAt() driver.Ptr {
	switch c.relation {
	case dataGrad:
		return c.px
	case filterGrad:
		return c.pw
	}
	return c.py
}
