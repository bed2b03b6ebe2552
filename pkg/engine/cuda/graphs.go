package cuda

import (
	"errors"
	"maps"
	"slices"

	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// virtualTensor returns a tensor like t that stays in registers.
func virtualTensor(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	t.ID, t.Type, t.Virtual, t.Strides = id, typ, true, nil
	return t
}

// vector returns a tensor with one number per channel of t.
func vector(t cudnn.Tensor, id int64, typ cudnn.DataType) cudnn.Tensor {
	return cudnn.Tensor{ID: id, Type: typ, Dims: vectorDims(t)}
}

// withEpilogue returns c with what t has of a bias per channel, another map that is added to
// the result, and ReLU. Values in between stay in registers, in fp32.
func (x *executable) withEpilogue(t task, c convolution) variant {
	v := x.unfused(c)
	result := c.result().tensor(c.resultID())
	raw := virtualTensor(result, idRaw, cudnn.Float32)
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
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: vector(result, idBias, cudnn.Float32), Y: virtualTensor(result, idBiased, cudnn.Float32)})
		v.pointers[idBias] = x.address(t.in[2])
	}
	if t.acc >= 0 {
		steps = append(steps, cudnn.Pointwise{Mode: cudnn.PointwiseAdd, B: x.memory.locations[t.acc].tensor(idAdd), Y: virtualTensor(result, idAdded, cudnn.Float32)})
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

// withSums returns a graph of c that also sums its result and the squares of its result, per
// channel.
func (c convolution) withSums(ops []cudnn.Op) []cudnn.Op {
	y := c.y.tensor(idY)
	return append(slices.Clone(ops), cudnn.Genstats{X: y, Sum: vector(y, idSum, cudnn.Float32), SqSum: vector(y, idSquare, cudnn.Float32)})
}

// sumsAt returns a copy of pointers to which the addresses of the task's sums are added.
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

// withNormSums returns the graph of a data gradient through ReLU with the sums of the batch
// norm's gradient. The input of ReLU is computed again from the batch norm's input.
func (c convolution) withNormSums() []cudnn.Op {
	dx := c.x.tensor(idX)
	x := dx
	x.ID = idNormed
	stay := func(id int64) cudnn.Tensor { return virtualTensor(dx, id, cudnn.Float32) }
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

// withPrologue returns the ways to compute a task that reads the result of a batch norm with
// ReLU, without that result: cuDNN computes it from the norm's input as it reads that.
func (x *executable) withPrologue(t task, c convolution) ([]variant, error) {
	p := t.prologue
	in := c.x.tensor(idX)
	read := virtualTensor(in, idRead, cudnn.Float16)
	front := []cudnn.Op{
		cudnn.Pointwise{Mode: cudnn.PointwiseMul, X: in, B: vector(in, idScale, cudnn.Float16), Y: virtualTensor(in, idScaled, cudnn.Float16)},
		cudnn.Pointwise{Mode: cudnn.PointwiseAdd, X: virtualTensor(in, idScaled, cudnn.Float16), B: vector(in, idShift, cudnn.Float16), Y: virtualTensor(in, idShifted, cudnn.Float16)},
		cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: virtualTensor(in, idShifted, cudnn.Float16), Y: read},
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

// vectorDims returns the dimensions of a tensor with one number per channel of t.
func vectorDims(t cudnn.Tensor) []int64 {
	dims := slices.Repeat([]int64{1}, len(t.Dims))
	dims[1] = t.Dims[1]
	return dims
}
