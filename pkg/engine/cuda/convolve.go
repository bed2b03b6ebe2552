package cuda

import (
	"fmt"

	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// convPass selects which of the maps x and y and the weights w is computed from the other
// two. Transposed convolutions and their gradients are the same three computations with x
// and y exchanged.
type convPass uint8

const (
	forward    convPass = iota // computes y from x and w
	dataGrad                   // computes x from y and w
	filterGrad                 // computes w from x and y
)

func (r convPass) String() string {
	return [...]string{"forward", "backward data", "backward weights"}[r]
}

// Ids of tensors in cuDNN graphs.
const (
	// The operands of the convolution:
	idX = 1
	idW = 2
	idY = 3
	// Further inputs and outputs of the graph:
	idBias, idSum, idSquare, idAdd         = 4, 5, 6, 7
	idMean, idInvStd, idGamma, idBeta      = 23, 24, 25, 26
	idDGamma, idDBeta, idEqDY, idEqX, idEq = 27, 28, 29, 30, 31
	idNormed                               = 32 // the input of the batch norm before the convolution
	// Intermediate results, which are not stored:
	idRaw, idBiased, idAdded     = 11, 12, 13
	idCentred, idUnit, idStretch = 17, 18, 19
	idForward                    = 20
)

// convolution is a convolution, a gradient of a convolution, or a linear layer, with its
// operands. x is the larger map, y is the smaller map, and w has the shape [channels of y,
// channels of x, window…].
type convolution struct {
	pass        convPass
	x, w, y     tensorLocation
	px, pw, py  driver.Ptr
	stride, pad []int64
	extra       string // further computations with the result, for the tuning cache: " bias add relu", " statistics"
}

// asConvolution returns task t as a convolution. ok is false if t is another operation.
func (x *executable) asConvolution(t loweredTask) (c convolution, ok bool) {
	var ids [3]int // x, w, y
	var r convPass
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
	if len(stride) == 0 { // a linear layer is a convolution of maps with one point
		stride, pad = []int{1, 1}, []int{0, 0}
	}
	extra := ""
	if t.acceptsBias() && len(t.in) == 3 {
		extra += " bias"
	}
	if t.acc >= 0 {
		extra += " add"
		if p := x.memory.locations[t.acc]; p.pitch != p.paddedChannels() {
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
		pass: r, extra: extra,
		x: x.memory.locations[ids[0]], w: x.memory.locations[ids[1]], y: x.memory.locations[ids[2]],
		px: x.tensorAddress(ids[0]), pw: x.tensorAddress(ids[1]), py: x.tensorAddress(ids[2]),
		stride: toInt64(stride), pad: toInt64(pad),
	}, true
}

func toInt64(v []int) []int64 {
	w := make([]int64, len(v))
	for i := range v {
		w[i] = int64(v[i])
	}
	return w
}

// cudnnTensor describes p to cuDNN. Its dimensions are N, C and the spatial dimensions, which
// are 1 and 1 for a tensor without any. Its strides are channels-last with p's pitch.
func (p tensorLocation) cudnnTensor(id int64) cudnn.Tensor {
	spatial := p.spatialShape()
	if len(spatial) == 0 {
		spatial = []int{1, 1}
	}
	dims := append([]int64{int64(p.rows()), int64(p.paddedChannels())}, toInt64(spatial)...)
	strides := make([]int64, len(dims))
	strides[1] = 1
	step := int64(p.pitch)
	for i := len(dims) - 1; i >= 2; i-- {
		strides[i] = step
		step *= dims[i]
	}
	strides[0] = step
	return cudnn.Tensor{ID: id, Type: cudnnType(p.typ), Dims: dims, Strides: strides}
}

// cudnnOp returns c as an operation of a cuDNN graph.
func (c convolution) cudnnOp() cudnn.Op {
	geometry := cudnn.Conv{Pad: c.pad, Stride: c.stride, Compute: cudnn.Float32}
	x, w, y := c.x.cudnnTensor(idX), c.w.cudnnTensor(idW), c.y.cudnnTensor(idY)
	switch c.pass {
	case dataGrad:
		return cudnn.ConvBackwardData{Conv: geometry, DX: x, W: w, DY: y}
	case filterGrad:
		return cudnn.ConvBackwardFilter{Conv: geometry, X: x, DW: w, DY: y}
	}
	return cudnn.ConvForward{Conv: geometry, X: x, W: w, Y: y}
}

// tuningKey returns the key of c in the tuning cache. The key contains everything that
// affects which algorithm is fastest.
func (c convolution) tuningKey(tf32 bool) string {
	mode := ""
	if c.x.typ == device.F32 && tf32 {
		mode = " tf32"
	}
	at := func(p tensorLocation) string { return fmt.Sprint(p.typ, p.shape, "/", p.pitch) }
	return fmt.Sprint(c.pass, mode, " x", at(c.x), " w", at(c.w), " y", at(c.y), " stride", c.stride, " pad", c.pad) + c.extra
}

// resultLocation returns the location of the operand that c computes.
func (c convolution) resultLocation() tensorLocation {
	switch c.pass {
	case dataGrad:
		return c.x
	case filterGrad:
		return c.w
	}
	return c.y
}

// resultTensorID returns the id of c's result in cuDNN graphs. c must not be a weight gradient.
func (c convolution) resultTensorID() int64 {
	if c.pass == dataGrad {
		return idX
	}
	return idY
}

// scratchBytes returns the size of the scratch memory that the variants of c need.
func (c convolution) scratchBytes() int {
	if c.pass == filterGrad && c.w.typ != c.x.typ {
		return c.w.paddedElementCount() * c.x.typ.Size()
	}
	return 0
}

// resultAddress returns the address of the operand that c computes.
func (c convolution) resultAddress() driver.Ptr {
	switch c.pass {
	case dataGrad:
		return c.px
	case filterGrad:
		return c.pw
	}
	return c.py
}
