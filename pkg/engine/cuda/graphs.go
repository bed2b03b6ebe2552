package cuda

import (
	"slices"

	"lockstep/pkg/internal/clib/cudnn"
)

// virtualTensor returns an intermediate result with t's dimensions, which cuDNN does not
// store in memory.
func virtualTensor(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	t.ID, t.Type, t.Virtual, t.Strides = id, typ, true, nil
	return t
}

// newChannelVectorTensor returns a tensor with one element per channel of t.
func newChannelVectorTensor(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	return cudnn.Tensor{ID: id, Type: typ, Dims: channelVectorDims(t)}
}

// fusedEpilogueVariant returns a variant of c whose cuDNN graph also computes the operations
// that t adds to the convolution: adding a bias, adding the map t.acc, and ReLU. Intermediate
// results are fp32 and not stored.
func (x *executable) fusedEpilogueVariant(t loweredTask, c convolution) variant {
	v := x.unfusedVariant(c)
	result := c.resultLocation().cudnnTensor(c.resultTensorID())
	raw := virtualTensor(result, idRaw, cudnn.Float32)
	switch op := c.cudnnOp().(type) {
	case cudnn.ConvForward:
		op.Y = raw
		v.ops = []cudnn.Op{op}
	case cudnn.ConvBackwardData:
		op.DX = raw
		v.ops = []cudnn.Op{op}
	}
	var steps []cudnn.Pointwise
	if t.acceptsBias() && len(t.in) == 3 {
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: newChannelVectorTensor(result, idBias, cudnn.Float32), Y: virtualTensor(result, idBiased, cudnn.Float32)})
		v.pointers[idBias] = x.tensorAddress(t.in[2])
	}
	if t.acc >= 0 {
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: x.memory.locations[t.acc].cudnnTensor(idAdd), Y: virtualTensor(result, idAdded, cudnn.Float32)})
		v.pointers[idAdd] = x.tensorAddress(t.acc)
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

// appendChannelSums returns ops followed by an operation that computes, for each channel,
// the sum of c's result and the sum of its squares.
func (c convolution) appendChannelSums(ops []cudnn.Op) []cudnn.Op {
	y := c.y.cudnnTensor(idY)
	return append(slices.Clone(ops), cudnn.Genstats{X: y, Sum: newChannelVectorTensor(y, idSum, cudnn.Float32), SqSum: newChannelVectorTensor(y, idSquare, cudnn.Float32)})
}

// normGradientSumOps returns the operations of a graph with three results: the data gradient c, the
// gradient of the ReLU before the convolution, and the sums for the gradient of the batch norm
// before that ReLU. The graph recomputes the input of the ReLU from the input of the batch
// norm.
func (c convolution) normGradientSumOps() []cudnn.Op {
	dx := c.x.cudnnTensor(idX)
	x := dx
	x.ID = idNormed
	stay := func(id int64) cudnn.Tensor { return virtualTensor(dx, id, cudnn.Float32) }
	one := func(id int64) cudnn.Tensor { return newChannelVectorTensor(dx, id, cudnn.Float32) }
	conv := cudnn.ConvBackwardData{
		Conv: cudnn.Conv{Pad: c.pad, Stride: c.stride, Compute: cudnn.Float32}, DX: stay(idRaw), W: c.w.cudnnTensor(idW), DY: c.y.cudnnTensor(idY),
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

// channelVectorDims returns the dimensions of a tensor with one element per channel of t.
func channelVectorDims(t cudnn.Tensor) []int64 {
	dims := slices.Repeat([]int64{1}, len(t.Dims))
	dims[1] = t.Dims[1]
	return dims
}
