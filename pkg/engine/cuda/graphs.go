package cuda

import (
	"errors"
	"maps"
	"slices"

	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// virtualTensor returns an intermediate result with t's dimensions, which cuDNN does not
// store in memory.
func virtualTensor(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	t.ID, t.Type, t.Virtual, t.Strides = id, typ, true, nil
	return t
}

// channelVector returns a tensor with one element per channel of t.
func channelVector(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	return cudnn.Tensor{ID: id, Type: typ, Dims: channelVectorDims(t)}
}

// fusedEpilogueVariant returns a variant of c whose graph also adds the bias of t and the
// map t.acc and applies ReLU, as far as t contains these operations. Intermediate results
// are fp32 and not stored.
func (x *executable) fusedEpilogueVariant(t task, c convolution) variant {
	v := x.unfusedVariant(c)
	result := c.resultLocation().cudnnTensor(c.resultID())
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
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: channelVector(result, idBias, cudnn.Float32), Y: virtualTensor(result, idBiased, cudnn.Float32)})
		v.pointers[idBias] = x.address(t.in[2])
	}
	if t.acc >= 0 {
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: x.memory.locations[t.acc].cudnnTensor(idAdd), Y: virtualTensor(result, idAdded, cudnn.Float32)})
		v.pointers[idAdd] = x.address(t.acc)
		v.graphBytes += float64(x.memory.locations[t.acc].bytes())
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
	return append(slices.Clone(ops), cudnn.Genstats{X: y, Sum: channelVector(y, idSum, cudnn.Float32), SqSum: channelVector(y, idSquare, cudnn.Float32)})
}

// addSumPointers returns a copy of pointers with the addresses of the sums that t's graph
// computes.
func (x *executable) addSumPointers(t task, pointers map[int64]driver.Ptr) map[int64]driver.Ptr {
	pointers = maps.Clone(pointers)
	if t.stats != nil {
		pointers[idSum], pointers[idSquare] = x.address(t.stats.sum), x.address(t.stats.square)
	} else {
		unwanted := t.prologue.unwanted[t.out[0]]
		pointers[idSum], pointers[idSquare] = x.address(unwanted[0]), x.address(unwanted[1])
	}
	return pointers
}

// normSumOps returns the operations of a graph that computes the data gradient c, the
// gradient of the ReLU before it, and the sums of the gradient of the batch norm before the
// ReLU. The graph recomputes the input of the ReLU from the input of the batch norm.
func (c convolution) normSumOps() []cudnn.Op {
	dx := c.x.cudnnTensor(idX)
	x := dx
	x.ID = idNormed
	stay := func(id int64) cudnn.Tensor { return virtualTensor(dx, id, cudnn.Float32) }
	one := func(id int64) cudnn.Tensor { return channelVector(dx, id, cudnn.Float32) }
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

// prologueVariants returns the variants of task t, which is convolution c, in which cuDNN
// applies the batch norm and ReLU before the convolution while it reads the input of the
// batch norm.
func (x *executable) prologueVariants(t task, c convolution) ([]variant, error) {
	p := t.prologue
	in := c.x.cudnnTensor(idX)
	read := virtualTensor(in, idRead, cudnn.Float16)
	front := []cudnn.Op{
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: in, B: channelVector(in, idScale, cudnn.Float16), Y: virtualTensor(in, idScaled, cudnn.Float16)},
		cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: virtualTensor(in, idScaled, cudnn.Float16), B: channelVector(in, idShift, cudnn.Float16), Y: virtualTensor(in, idShifted, cudnn.Float16)},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: virtualTensor(in, idShifted, cudnn.Float16), Y: read},
	}
	pointers := map[int64]driver.Ptr{idX: x.address(p.x), idScale: x.address(p.scale), idShift: x.address(p.shift), idY: c.py}
	switch op := c.cudnnOp().(type) {
	case cudnn.ConvBackwardFilter:
		op.X = read
		return x.weightGradVariants(c, variant{ops: append(front, op), pointers: pointers})
	case cudnn.ConvForward:
		op.X = read
		v := variant{ops: append(front, op), pointers: x.addSumPointers(t, pointers), traffic: traffic{graphBytes: c.bytes()}}
		v.ops, v.pointers[idW] = c.appendChannelSums(v.ops), c.pw
		end, err := x.epilogueVariant(t)
		if err != nil {
			return nil, err
		}
		if t.stats == nil {
			return []variant{v.followedBy(end)}, nil
		}
		// cuDNN sums the result of the convolution alone. If a kernel adds a bias or a map
		// to it, the statistics are computed after that kernel.
		sums, err := x.statisticsVariant(t, len(end.after) == 0)
		return []variant{v.followedBy(end).followedBy(sums)}, err
	}
	return nil, errors.New("a data gradient cannot apply a batch norm")
}

// channelVectorDims returns the dimensions of a tensor with one element per channel of t.
func channelVectorDims(t cudnn.Tensor) []int64 {
	dims := slices.Repeat([]int64{1}, len(t.Dims))
	dims[1] = t.Dims[1]
	return dims
}
