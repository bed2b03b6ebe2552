package cuda

import (
	"lockstep/pkg/engine/cuda/kernels"
)

// batchNormParams returns the kernel parameters of the batch norm t.
func (x *executable) batchNormParams(t loweredTask) kernels.BatchNorm {
	in := x.memory.locations[t.in[0]]
	b := kernels.BatchNorm{
		Rows: in.positionCount(), Channels: in.paddedChannels(),
		X: x.featureMap(t.in[0]), Y: x.featureMap(t.out[0]),
		Gamma: x.tensorPointer(t.in[1]), Beta: x.tensorPointer(t.in[2]), RunningMean: x.tensorPointer(t.in[3]), RunningVar: x.tensorPointer(t.in[4]),
		Partial: kernels.Pointer(x.memory.scratch.ptr), Epsilon: t.attr.Epsilon, Momentum: t.attr.Momentum, ReLU: t.attr.ReLU,
	}
	switch {
	case t.attr.Saved:
		b.Mean, b.InvStd = b.RunningMean, b.RunningVar
	case t.attr.Training:
		b.Mean, b.InvStd = x.tensorPointer(t.out[1]), x.tensorPointer(t.out[2])
	}
	return b
}

// batchNormLaunches returns the launches of the batch norm t. If the convolution before t
// computes the statistics, they are left out.
func (x *executable) batchNormLaunches(t loweredTask) ([]kernels.Launch, error) {
	b := x.batchNormParams(t)
	switch {
	case t.precomputed, t.attr.Saved:
		return b.Apply(x.kernelElementType(t.in[0]))
	case t.attr.Training:
		return b.Training(x.kernelElementType(t.in[0]))
	}
	return b.Inference(x.kernelElementType(t.in[0]))
}

// fusedStatisticsParams returns the kernel parameters for the batch norm after convolution t, whose
// statistics t computes.
func (x *executable) fusedStatisticsParams(t loweredTask) kernels.BatchNorm {
	y, s := x.memory.locations[t.out[0]], t.stats
	return kernels.BatchNorm{
		Rows: y.positionCount(), Channels: y.paddedChannels(), X: x.featureMap(t.out[0]), Mean: x.tensorPointer(s.mean), InvStd: x.tensorPointer(s.invstd),
		RunningMean: x.tensorPointer(s.runningMean), RunningVar: x.tensorPointer(s.runningVar), Partial: kernels.Pointer(x.memory.scratch.ptr),
		Epsilon: s.epsilon, Momentum: s.momentum,
	}
}

// fusedStatisticsVariant returns a variant with only the commands that compute the statistics of
// convolution t's result. If sums is set, they start from sums that cuDNN has computed,
// otherwise from the result itself.
func (x *executable) fusedStatisticsVariant(t loweredTask, sums bool) (v variant, err error) {
	b := x.fusedStatisticsParams(t)
	if sums {
		v.after, err = x.gpu.newKernelCalls(b.StatisticsFromSums(x.tensorPointer(t.stats.sum), x.tensorPointer(t.stats.square)))
		return v, err
	}
	v.after, err = x.gpu.newKernelCalls(b.Statistics(x.kernelElementType(t.out[0])))
	return v, err
}

// fusedNormGradParams returns the kernel parameters for the sums of a batch norm's
// gradient. Task t, the data gradient of the convolution after the batch norm, computes
// these sums.
func (x *executable) fusedNormGradParams(t loweredTask) kernels.BatchNormGrad {
	in, s := x.memory.locations[t.sums.x], t.sums
	return kernels.BatchNormGrad{
		Rows: in.positionCount(), Channels: in.paddedChannels(), X: x.featureMap(s.x), DY: x.featureMap(t.out[0]), Mask: kernels.MaskRecompute,
		Gamma: x.tensorPointer(s.gamma), Beta: x.tensorPointer(s.beta), Mean: x.tensorPointer(s.mean), InvStd: x.tensorPointer(s.invstd),
		DGamma: x.tensorPointer(s.dgamma), DBeta: x.tensorPointer(s.dbeta), Partial: kernels.Pointer(x.memory.scratch.ptr),
	}
}

// normGradParams returns the kernel parameters of t, the gradient of a batch norm.
func (x *executable) normGradParams(t loweredTask) kernels.BatchNormGrad {
	in := x.memory.locations[t.in[0]]
	b := kernels.BatchNormGrad{
		Rows: in.positionCount(), Channels: in.paddedChannels(),
		X: x.featureMap(t.in[0]), Gamma: x.tensorPointer(t.in[1]), Mean: x.tensorPointer(t.in[2]), InvStd: x.tensorPointer(t.in[3]),
		DY: x.featureMap(t.in[4]), Y: x.featureMap(t.in[5]), Beta: x.tensorPointer(t.in[6]),
		DX: x.featureMap(t.out[0]), DGamma: x.tensorPointer(t.out[1]), DBeta: x.tensorPointer(t.out[2]), Acc: x.featureMap(t.acc),
		Partial: kernels.Pointer(x.memory.scratch.ptr),
	}
	switch {
	case t.attr.ReLU && t.in[5] >= 0:
		b.Mask = kernels.MaskOutput
	case t.attr.ReLU:
		b.Mask = kernels.MaskRecompute
	}
	if b.Beta == 0 {
		b.Beta = b.Gamma // any valid address: the kernel reads it only with MaskRecompute
	}
	return b
}
