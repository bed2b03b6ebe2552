package layer

import (
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// Builder prepares the operations of a program, in their order.
type Builder struct {
	*workspace.Workspace
	norms       *Norms
	convolution string
	statistics  *workspace.Statistics // of the output of the last operation; nil if it takes none
}

// Norms holds what the synchronized batch norms of an executable share.
type Norms struct {
	Statistics engine.NormExchange
	Failed     error                 // the error of an exchange in the current step
	Waited     func(start time.Time) // called when an exchange that began at start has ended
}

// NewBuilder returns a builder of operations that compute in w. convolution is
// engine.Options.Convolution.
func NewBuilder(w *workspace.Workspace, n *Norms, convolution string) *Builder {
	return &Builder{Workspace: w, norms: n, convolution: convolution}
}

// Tasks checks the shapes of c and returns the tasks that compute it.
func (x *Builder) Tasks(c Call) ([]threads.Task, error) {
	statistics := x.statistics // of c.Inputs[0]
	x.statistics = nil
	if !c.Outputs[0].Present() && c.Op != plan.OpBatchNormBackward {
		return nil, c.errorf("it must write its first tensor")
	}
	switch c.Op {
	case plan.OpConv, plan.OpConvTranspose, plan.OpConvBackwardData, plan.OpConvTransposeBackwardData,
		plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return x.convolve(c)
	case plan.OpBiasBackward:
		return x.biasGradient(c)
	case plan.OpBatchNorm:
		return x.batchNorm(c, statistics)
	case plan.OpBatchNormBackward:
		return x.batchNormGradient(c)
	case plan.OpMaxPool, plan.OpMaxPoolBackward:
		return x.maxPool(c)
	case plan.OpConcat:
		return x.concat(c)
	case plan.OpSlice:
		return x.slice(c)
	case plan.OpBCEWithLogits:
		return x.bce(c)
	case plan.OpBCEWithLogitsBackward:
		return x.bceGradient(c)
	case plan.OpAdd, plan.OpReLU, plan.OpReLUBackward, plan.OpLeakyReLU, plan.OpLeakyReLUBackward, plan.OpTanh, plan.OpTanhBackward:
		return x.pointwise(c)
	case plan.OpLinear, plan.OpLinearBackwardData, plan.OpLinearBackwardWeights:
		return x.linear(c)
	case plan.OpReshape:
		return x.reshape(c)
	case plan.OpGlobalAvgPool, plan.OpGlobalAvgPoolBackward:
		return x.globalAverage(c)
	case plan.OpAvgPool, plan.OpAvgPoolBackward:
		return x.average(c)
	case plan.OpPad, plan.OpPadBackward:
		return x.padding(c)
	case plan.OpSoftmaxCrossEntropy, plan.OpSoftmaxCrossEntropyBackward:
		return x.softmax(c)
	case plan.OpDiceBCE, plan.OpDiceBCEBackward:
		return x.diceBCE(c)
	case plan.OpL1, plan.OpL1Backward:
		return x.l1(c)
	}
	return nil, c.errorf("this engine does not offer the operation")
}
