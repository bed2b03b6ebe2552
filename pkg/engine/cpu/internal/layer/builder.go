package layer

import (
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// Builder prepares the kernels of a program, one after another.
type Builder struct {
	*workspace.Workspace
	norms       *Norms
	convolution string           // engine.Options.Convolution
	tally       *workspace.Tally // of the output of the kernel that was prepared last
}

// Norms is what the synchronized batch norms of an executable share.
type Norms struct {
	Statistics engine.Statistics
	Failed     error                 // of an exchange in the step
	Waited     func(start time.Time) // records that the exchange began at start and has just ended
}

// NewBuilder returns a builder.
func NewBuilder(w *workspace.Workspace, n *Norms, convolution string) *Builder {
	return &Builder{Workspace: w, norms: n, convolution: convolution}
}

// Tasks returns the tasks that compute c. All of its shapes are checked.
func (x *Builder) Tasks(c Call) ([]threads.Task, error) {
	tally := x.tally
	x.tally = nil
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
		return x.batchNorm(c, tally)
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
