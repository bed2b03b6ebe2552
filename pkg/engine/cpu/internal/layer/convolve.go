package layer

import (
	"lockstep/pkg/engine/cpu/internal/conv"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// convolve prepares the six operations of convolutions. Each has a large side (the
// input of a convolution, the output of a transposed one), a small side, and weights
// [channels of the small side, channels of the large side, …].
func (x *Builder) convolve(c Call) ([]threads.Task, error) {
	var large, weights, small, bias tensor.Operand
	bias.ID = -1
	switch c.Op {
	case plan.OpConv:
		large, weights, bias, small = c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Outputs[0]
	case plan.OpConvBackwardData:
		weights, small, large = c.Inputs[0], c.Inputs[1], c.Outputs[0]
	case plan.OpConvBackwardWeights:
		large, small, weights = c.Inputs[0], c.Inputs[1], c.Outputs[0]
	case plan.OpConvTranspose:
		small, weights, bias, large = c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Outputs[0]
	case plan.OpConvTransposeBackwardData:
		weights, large, small = c.Inputs[0], c.Inputs[1], c.Outputs[0]
	case plan.OpConvTransposeBackwardWeights:
		small, large, weights = c.Inputs[0], c.Inputs[1], c.Outputs[0]
	}
	if large.Layout != tensor.ActivationLayout || small.Layout != tensor.ActivationLayout || weights.Layout != tensor.WeightLayout {
		return nil, c.errorf("it takes activations [n,c,…] and weights of as many dimensions")
	}
	stride, ok1 := perAxis(c.Attr.Stride, large.Logical, 1, 1)
	pad, ok2 := perAxis(c.Attr.Pad, large.Logical, 0, 0)
	if !ok1 || !ok2 {
		return nil, c.errorf("stride is %v and pad %v: give a number for each spatial dimension, strides of at least 1 and pads of at least 0", c.Attr.Stride, c.Attr.Pad)
	}
	l, s, w := large.Shape, small.Shape, weights.Shape
	transposed := c.Op == plan.OpConvTranspose || c.Op == plan.OpConvTransposeBackwardData || c.Op == plan.OpConvTransposeBackwardWeights
	fits := l[0] == s[0] && w[0] == s[1] && w[1] == l[1] && len(large.Logical) == len(small.Logical) && len(large.Logical) == len(weights.Logical)
	for i := range stride {
		fits = fits && matches(large.Space[i], small.Space[i], weights.Space[i], stride[i], pad[i], transposed)
	}
	if !fits {
		return nil, c.errorf("the shapes do not fit together with stride %v and pad %v", c.Attr.Stride, c.Attr.Pad)
	}
	if bias.Present() && !bias.IsVector(c.Outputs[0].Shape[1]) {
		return nil, c.errorf("the bias must have shape [%d]", c.Outputs[0].Shape[1])
	}
	if conv.UseWinograd(x.convolution, large, small, weights, stride, pad) {
		switch c.Op {
		case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
			return conv.NewWinogradGradient(x.Workspace, large, small, weights).Tasks(), nil
		case plan.OpConv, plan.OpConvTransposeBackwardData:
			return x.withStatistics(c, conv.NewWinograd(x.Workspace, large, weights, small, bias.Data, false)), nil
		default:
			return x.withStatistics(c, conv.NewWinograd(x.Workspace, small, weights, large, bias.Data, true)), nil
		}
	}
	gather := conv.SpaceOf(large, small, weights, stride, pad, false)
	switch c.Op {
	case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return conv.NewDirectGradient(x.Workspace, large, small, weights, gather).Tasks(), nil
	case plan.OpConv, plan.OpConvTransposeBackwardData:
		return x.withStatistics(c, conv.NewDirect(x.Workspace, large, weights, small, bias.Data, gather, false)), nil
	default:
		scatter := conv.SpaceOf(large, small, weights, stride, pad, true)
		return x.withStatistics(c, conv.NewDirect(x.Workspace, small, weights, large, bias.Data, scatter, true)), nil
	}
}

// matches reports whether the lengths of the large and the small side fit the
// window. The small length of a transposed convolution determines the large length;
// a convolution ignores rows at the end that no window reaches.
func matches(large, small, kernel, stride, pad int, transposed bool) bool {
	if transposed {
		return large == (small-1)*stride-2*pad+kernel
	}
	return large+2*pad >= kernel && small == (large+2*pad-kernel)/stride+1
}

// withStatistics returns the tasks of a convolution, which also take the statistics
// of its output if the next operation needs them.
func (x *Builder) withStatistics(c Call, conv interface {
	Tasks() []threads.Task
	TakeStatistics() *workspace.Statistics
},
) []threads.Task {
	if c.NeedsStatistics {
		x.statistics = conv.TakeStatistics()
	}
	return conv.Tasks()
}
