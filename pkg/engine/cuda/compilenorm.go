package cuda

import (
	"lockstep/pkg/engine/cuda/kernels"
)

// normOf returns the launch parameters of the batch norm that t computes.
func (x *executable) normOf(t task) kernels.BatchNorm {
	in := x.memory.locations[t.in[0]]
	b := kernels.BatchNorm{
		Rows: in.pixels(), Channels: in.padded(),
		X: x.feature(t.in[0]), Y: x.feature(t.out[0]),
		Gamma: x.pointer(t.in[1]), Beta: x.pointer(t.in[2]), RunningMean: x.pointer(t.in[3]), RunningVar: x.pointer(t.in[4]),
		Partial: kernels.Pointer(x.memory.scratch.ptr), Epsilon: t.attr.Epsilon, Momentum: t.attr.Momentum, ReLU: t.attr.ReLU,
	}
	switch {
	case t.attr.Saved:
		b.Mean, b.InvStd = b.RunningMean, b.RunningVar
	case t.attr.Training:
		b.Mean, b.InvStd = x.pointer(t.out[1]), x.pointer(t.out[2])
	}
	return b
}

func (x *executable) batchNorm(t task) ([]kernels.Launch, error) {
	b := x.normOf(t)
	switch {
	case t.prologue != nil && t.prologue.applied:
		return x.scaleShift(t, b)
	case t.given, t.attr.Saved:
		return b.Apply(x.typ(t.in[0]))
	case t.attr.Training:
		return b.Training(x.typ(t.in[0]))
	}
	return b.Inference(x.typ(t.in[0]))
}

// scaleShift returns the launches that compute scale and shift of a batch norm for the
// convolutions that apply it.
func (x *executable) scaleShift(t task, b kernels.BatchNorm) ([]kernels.Launch, error) {
	last, err := b.ScaleShift(x.typ(t.in[0]), x.pointer(t.prologue.scale), x.pointer(t.prologue.shift))
	if err != nil || t.given {
		return last, err
	}
	first, err := b.Statistics(x.typ(t.in[0]))
	return append(first, last...), err
}

// statisticsOf returns the parameters of the batch norm after convolution t, whose
// statistics t computes.
func (x *executable) statisticsOf(t task) kernels.BatchNorm {
	y, s := x.memory.locations[t.out[0]], t.stats
	return kernels.BatchNorm{
		Rows: y.pixels(), Channels: y.padded(), X: x.feature(t.out[0]), Mean: x.pointer(s.mean), InvStd: x.pointer(s.invstd),
		RunningMean: x.pointer(s.runningMean), RunningVar: x.pointer(s.runningVar), Partial: kernels.Pointer(x.memory.scratch.ptr),
		Epsilon: s.epsilon, Momentum: s.momentum,
	}
}

// summed returns the launches that compute a convolution's statistics: from the sums that
// cuDNN computed if sums is set, otherwise from the convolution's result.
func (x *executable) summed(t task, sums bool) (v variant, err error) {
	b := x.statisticsOf(t)
	if sums {
		v.after, err = x.gpu.calls(b.StatisticsOfSums(x.pointer(t.stats.sum), x.pointer(t.stats.square)))
		return v, err
	}
	v.behind = float64(x.memory.locations[t.out[0]].bytes())
	v.after, err = x.gpu.calls(b.Statistics(x.typ(t.out[0])))
	return v, err
}

// normGrad returns the gradient of the batch norm before t, a gradient of data that
// computes the sums.
func (x *executable) normGrad(t task) kernels.BatchNormGrad {
	in, s := x.memory.locations[t.sums.x], t.sums
	return kernels.BatchNormGrad{
		Rows: in.pixels(), Channels: in.padded(), X: x.feature(s.x), DY: x.feature(t.out[0]), Mask: kernels.MaskRecompute,
		Gamma: x.pointer(s.gamma), Beta: x.pointer(s.beta), Mean: x.pointer(s.mean), InvStd: x.pointer(s.invstd),
		DGamma: x.pointer(s.dgamma), DBeta: x.pointer(s.dbeta), Partial: kernels.Pointer(x.memory.scratch.ptr),
	}
}

// normGradOf returns the launch parameters of the batch norm's gradient that t computes.
func (x *executable) normGradOf(t task) kernels.BatchNormGrad {
	in := x.memory.locations[t.in[0]]
	b := kernels.BatchNormGrad{
		Rows: in.pixels(), Channels: in.padded(),
		X: x.feature(t.in[0]), Gamma: x.pointer(t.in[1]), Mean: x.pointer(t.in[2]), InvStd: x.pointer(t.in[3]),
		DY: x.feature(t.in[4]), Y: x.feature(t.in[5]), Beta: x.pointer(t.in[6]),
		DX: x.feature(t.out[0]), DGamma: x.pointer(t.out[1]), DBeta: x.pointer(t.out[2]), Acc: x.feature(t.acc),
		Partial: kernels.Pointer(x.memory.scratch.ptr),
	}
	switch {
	case t.attr.ReLU && t.in[5] >= 0:
		b.Mask = kernels.MaskOutput
	case t.attr.ReLU:
		b.Mask = kernels.MaskRecompute
	}
	if b.Beta == 0 {
		b.Beta = b.Gamma // Validate requires it, though only MaskRecompute reads it
	}
	return b
}
