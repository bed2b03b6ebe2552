package cuda

import (
	"errors"
	"fmt"
	"slices"

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
	// What goes into a graph behind it, or comes out.
	idBias, idSum, idSquare = 4, 5, 6
	// What stays within.
	idRaw, idBiased = 11, 12
)

// convolution is one of them, or a linear layer, with its operands: x is the larger map, y the
// smaller, w [channels of y, channels of x, window…].
type convolution struct {
	relation    relation
	x, w, y     place
	px, pw, py  driver.Ptr
	stride, pad []int64
	extra       string // what is done with the result, for the tuning cache: " bias relu", " statistics"
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
		if t.attr.ReLU {
			extra += " relu"
		}
	}
	if t.stats != nil {
		extra += " statistics"
	}
	return convolution{
		relation: r, extra: extra,
		x: x.places[ids[0]], w: x.places[ids[1]], y: x.places[ids[2]],
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
func (p place) tensor(id int64) cudnn.Tensor {
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
	at := func(p place) string { return fmt.Sprint(p.typ, p.shape, "/", p.pitch) }
	return fmt.Sprint(c.relation, mode, " x", at(c.x), " w", at(c.w), " y", at(c.y), " stride", c.stride, " pad", c.pad) + c.extra
}

// variant is a way to compute a convolution: a graph of cuDNN's, and what must
// run behind it.
type variant struct {
	ops      []cudnn.Op
	pointers map[int64]driver.Ptr
	after    []command
}

// variants are the ways to compute a task, which is convolution c.
//
// A weights' gradient is wanted in fp32; not every algorithm of cuDNN's writes that
// from 16-bit maps, so that one which writes 16 bits, to scratch memory, and a cast
// behind it, competes. What follows a convolution (a bias and ReLU, the statistics of
// a batch norm) our own kernels do, and cuDNN in one graph with it, where it can:
// the two compete, and where it cannot, ours is left.
func (x *executable) variants(t task, c convolution) ([]variant, error) {
	direct := variant{ops: []cudnn.Op{c.op()}, pointers: map[int64]driver.Ptr{idX: c.px, idW: c.pw, idY: c.py}}
	var err error
	switch {
	case c.relation == filterGrad && c.w.typ != c.x.typ:
		low := c
		low.w.typ = c.x.typ
		cast := variant{ops: []cudnn.Op{low.op()}, pointers: map[int64]driver.Ptr{idX: c.px, idW: x.scratch.ptr, idY: c.py}}
		cast.after, err = x.gpu.calls(kernels.CastToF32(kernelType(c.x.typ), kernels.Pointer(x.scratch.ptr), kernels.Pointer(c.pw), c.w.size()))
		return []variant{direct, cast}, err
	case t.convolutional() && len(t.in) == 3:
		fused := variant{ops: c.withBias(t.attr.ReLU), pointers: map[int64]driver.Ptr{idX: c.px, idW: c.pw, idY: c.py, idBias: x.address(t.in[2])}}
		direct.after, err = x.biased(t)
		return []variant{direct, fused}, err
	case t.stats != nil:
		fused := variant{ops: c.withSums(), pointers: map[int64]driver.Ptr{
			idX: c.px, idW: c.pw, idY: c.py, idSum: x.address(t.stats.sum), idSquare: x.address(t.stats.square),
		}}
		var fusedErr error
		direct.after, err = x.summed(t, false)
		fused.after, fusedErr = x.summed(t, true)
		return []variant{direct, fused}, errors.Join(err, fusedErr)
	}
	return []variant{direct}, nil
}

// withBias is the graph of c with a bias a channel of its result, and ReLU: what is in
// between stays in registers, in fp32.
func (c convolution) withBias(relu bool) []cudnn.Op {
	result := c.y.tensor(idY)
	if c.relation == dataGrad {
		result = c.x.tensor(idX)
	}
	between := func(id int64) cudnn.Tensor {
		v := result
		v.ID, v.Type, v.Virtual = id, cudnn.Float32, true
		return v
	}
	bias := cudnn.Tensor{ID: idBias, Type: cudnn.Float32, Dims: vectorDims(result)}
	var first cudnn.Op
	switch op := c.op().(type) {
	case cudnn.ConvForward:
		op.Y = between(idRaw)
		first = op
	case cudnn.ConvBackwardData:
		op.DX = between(idRaw)
		first = op
	}
	if !relu {
		return []cudnn.Op{first, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: between(idRaw), B: bias, Y: result}}
	}
	return []cudnn.Op{
		first,
		cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: between(idRaw), B: bias, Y: between(idBiased)},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: between(idBiased), Y: result},
	}
}

// withSums is the graph of c with the sums of its result, and of its squares, over all
// but the channels.
func (c convolution) withSums() []cudnn.Op {
	y := c.y.tensor(idY)
	vector := func(id int64) cudnn.Tensor {
		return cudnn.Tensor{ID: id, Type: cudnn.Float32, Dims: vectorDims(y)}
	}
	return []cudnn.Op{c.op(), cudnn.Genstats{X: y, Sum: vector(idSum), SqSum: vector(idSquare)}}
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

// noteDownConvert is cuDNN's numerical note of an engine that rounds its inputs.
const noteDownConvert int32 = 1

// allowed says whether a plan keeps to the precision asked for, and gives the
// same bits every time.
func (x *executable) allowed(p *cudnn.Plan, typ device.Type) bool {
	if typ == device.F32 && !x.engine.tf32 && (slices.Contains(p.Numerical, cudnn.NoteTensorCore) || slices.Contains(p.Numerical, noteDownConvert)) {
		return false
	}
	return p.Deterministic()
}

// candidate is a plan that may be chosen.
type candidate struct {
	plan    *cudnn.Plan
	variant int
}

// How many plans of each heuristic are made of a convolution alone, and of a graph with
// something behind it.
const (
	maxPlans = 128
	maxFused = 4
)

// candidates makes the plans of all variants; those that may not be used are
// closed again. missing says why a variant has none.
func (x *executable) candidates(c convolution, list []variant, modes ...cudnn.HeurMode) (all []candidate, missing error, err error) {
	var first error
	for i, v := range list {
		graph, err := x.gpu.cudnn.NewGraph(x.gpu.dnn, v.ops...)
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		most, asked := maxPlans, modes
		if len(v.ops) > 1 { // compiled one by one when they are made
			most, asked = maxFused, modes[:1]
		}
		plans, _, err := graph.PlansAtMost(most, asked...)
		if err != nil {
			first = errors.Join(first, err)
		}
		for _, p := range plans {
			if x.allowed(p, c.x.typ) {
				all = append(all, candidate{p, i})
			} else if err := p.Close(); err != nil {
				return all, nil, err
			}
		}
		if err := graph.Close(); err != nil {
			return all, nil, err
		}
	}
	if len(all) == 0 {
		if first == nil {
			first = errors.New("cuDNN has only algorithms that round their inputs or give other bits from run to run")
		}
		return nil, nil, fmt.Errorf("no algorithm computes this convolution (%s): %w", c.key(x.engine.tf32), first)
	}
	return all, first, nil
}
