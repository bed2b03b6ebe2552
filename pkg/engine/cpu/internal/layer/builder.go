package layer

import (
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// Builder turns the operations of a program into tasks. BuildTasks selects one of the methods
// build*, which checks the shapes of an operation and returns its tasks.
type Builder struct {
	*workspace.Workspace
	norms       *SyncNormState
	convolution string
	statistics  *workspace.ChannelStatistics // of the output of the previous operation; nil if it computes none
	pixelLoss   *pixelLoss                   // of the forward pass, whose sums the gradient needs; nil if there is none
	// products counts the convolutions, fully connected layers and their gradients, and rounded
	// those among them whose operands are rounded to bfloat16.
	products, rounded int
}

// CountBF16Operations counts the convolutions, fully connected layers and their gradients:
// rounded is the number of those that round their operands to bfloat16, and all is their total
// number.
func (x *Builder) CountBF16Operations() (rounded, all int) { return x.rounded, x.products }

// SyncNormState is the state that the synchronized batch norms of an executable share.
type SyncNormState struct {
	Statistics engine.NormExchange
	Failed     error                 // the error of an exchange in the current step
	OnWait     func(start time.Time) // called when an exchange that began at start has ended
}

// NewBuilder returns a Builder whose tasks use the memory of w. n is shared by all synchronized
// batch norms. convolution is engine.Options.Convolution.
func NewBuilder(w *workspace.Workspace, n *SyncNormState, convolution string) *Builder {
	return &Builder{Workspace: w, norms: n, convolution: convolution}
}

// BuildTasks checks operation c and returns its tasks. Call it for the operations in the order
// of the program.
func (x *Builder) BuildTasks(c Operation) ([]threads.Task, error) {
	statistics := x.statistics // of c.Inputs[0]
	x.statistics = nil
	if !c.Outputs[0].IsPresent() && c.Op != plan.OpBatchNormBackward {
		return nil, c.errorf("the first output is missing")
	}
	switch c.Op {
	case plan.OpConv, plan.OpConvTranspose, plan.OpConvBackwardData, plan.OpConvTransposeBackwardData,
		plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return x.buildConvolution(c)
	case plan.OpBiasBackward:
		return x.buildBiasGradient(c)
	case plan.OpBatchNorm:
		return x.buildBatchNorm(c, statistics)
	case plan.OpBatchNormBackward:
		return x.buildBatchNormGradient(c)
	case plan.OpMaxPool, plan.OpMaxPoolBackward:
		return x.buildMaxPool(c)
	case plan.OpConcat:
		return x.buildConcat(c)
	case plan.OpSlice:
		return x.buildChannelSlice(c)
	case plan.OpBCEWithLogits:
		return x.buildBCE(c)
	case plan.OpBCEWithLogitsBackward:
		return x.buildBCEGradient(c)
	case plan.OpAdd, plan.OpReLU, plan.OpReLUBackward, plan.OpLeakyReLU, plan.OpLeakyReLUBackward, plan.OpTanh, plan.OpTanhBackward:
		return x.buildPointwise(c)
	case plan.OpLinear, plan.OpLinearBackwardData, plan.OpLinearBackwardWeights:
		return x.buildLinear(c)
	case plan.OpReshape:
		return x.buildReshape(c)
	case plan.OpGlobalAvgPool, plan.OpGlobalAvgPoolBackward:
		return x.buildGlobalAveragePool(c)
	case plan.OpAvgPool, plan.OpAvgPoolBackward:
		return x.buildAveragePool(c)
	case plan.OpPad, plan.OpPadBackward:
		return x.buildPadding(c)
	case plan.OpSoftmaxCrossEntropy, plan.OpSoftmaxCrossEntropyBackward:
		return x.buildSoftmaxCrossEntropy(c)
	case plan.OpDiceBCE, plan.OpDiceBCEBackward:
		return x.buildDiceBCE(c)
	case plan.OpPixelCrossEntropy, plan.OpPixelCrossEntropyBackward:
		return x.buildPixelLoss(c)
	case plan.OpL1, plan.OpL1Backward:
		return x.buildL1Loss(c)
	}
	return nil, c.errorf("this engine does not support the operation")
}
