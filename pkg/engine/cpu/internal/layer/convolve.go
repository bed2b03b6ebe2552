package layer

import (
	"lockstep/pkg/engine/cpu/internal/conv"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// buildConvolution builds a convolution, a transposed convolution or one of their
// gradients. All six relate a large map (the input of a convolution, the output of a
// transposed one), a small map, and weights with the shape [channels of the small map,
// channels of the large map, …].
func (x *Builder) buildConvolution(c Operation) ([]threads.Task, error) {
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
		return nil, c.errorf("want activations [n,c,…] and weights with the same number of dimensions")
	}
	stride, ok1 := attributePerAxis(c.Attr.Stride, large.Logical, 1, 1)
	pad, ok2 := attributePerAxis(c.Attr.Pad, large.Logical, 0, 0)
	if !ok1 || !ok2 {
		return nil, c.errorf("stride is %v and pad is %v: want a stride of at least 1 and a pad of at least 0 for each spatial dimension", c.Attr.Stride, c.Attr.Pad)
	}
	l, s, w := large.Shape, small.Shape, weights.Shape
	transposed := c.Op == plan.OpConvTranspose || c.Op == plan.OpConvTransposeBackwardData || c.Op == plan.OpConvTransposeBackwardWeights
	fits := l[0] == s[0] && w[0] == s[1] && w[1] == l[1] && len(large.Logical) == len(small.Logical) && len(large.Logical) == len(weights.Logical)
	for i := range stride {
		fits = fits && convSizesMatch(large.Space[i], small.Space[i], weights.Space[i], stride[i], pad[i], transposed)
	}
	if !fits {
		return nil, c.errorf("the shapes do not match stride %v and pad %v", c.Attr.Stride, c.Attr.Pad)
	}
	if bias.IsPresent() && !bias.IsVector(c.Outputs[0].Shape[1]) {
		return nil, c.errorf("the bias must have shape [%d]", c.Outputs[0].Shape[1])
	}
	winograd := conv.ShouldUseWinograd(x.convolution, large, small, weights, stride, pad)
	gather := conv.NewGeometry(large, small, weights, stride, pad, false)
	x.products++
	if conv.ShouldUseBF16(x.Set.BF16, x.convolution, large, small, gather, winograd) {
		x.rounded++
		switch c.Op {
		case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
			return conv.NewDirectBF16Gradient(x.Workspace, large, small, weights, gather).Tasks(), nil
		case plan.OpConv, plan.OpConvTransposeBackwardData:
			return x.buildConvTasks(c, conv.NewDirectBF16(x.Workspace, large, weights, small, bias.Data, gather, false)), nil
		default:
			scatter := conv.NewGeometry(large, small, weights, stride, pad, true)
			return x.buildConvTasks(c, conv.NewDirectBF16(x.Workspace, small, weights, large, bias.Data, scatter, true)), nil
		}
	}
	if winograd {
		switch c.Op {
		case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
			return conv.NewWinogradGradient(x.Workspace, large, small, weights).Tasks(), nil
		case plan.OpConv, plan.OpConvTransposeBackwardData:
			return x.buildConvTasks(c, conv.NewWinograd(x.Workspace, large, weights, small, bias.Data, false)), nil
		default:
			return x.buildConvTasks(c, conv.NewWinograd(x.Workspace, small, weights, large, bias.Data, true)), nil
		}
	}
	switch c.Op {
	case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return conv.NewDirectGradient(x.Workspace, large, small, weights, gather).Tasks(), nil
	case plan.OpConv, plan.OpConvTransposeBackwardData:
		return x.buildConvTasks(c, conv.NewDirect(x.Workspace, large, weights, small, bias.Data, gather, false)), nil
	default:
		scatter := conv.NewGeometry(large, small, weights, stride, pad, true)
		return x.buildConvTasks(c, conv.NewDirect(x.Workspace, small, weights, large, bias.Data, scatter, true)), nil
	}
}

// convSizesMatch reports whether the sizes of the large and the small map along an axis match
// the window. For a transposed convolution the small size determines the large one. A
// convolution ignores rows at the end that no window reaches.
func convSizesMatch(large, small, kernel, stride, pad int, transposed bool) bool {
	if transposed {
		return large == (small-1)*stride-2*pad+kernel
	}
	return large+2*pad >= kernel && small == (large+2*pad-kernel)/stride+1
}

func (x *Builder) buildConvTasks(c Operation, conv interface {
	Tasks() []threads.Task
	EnableStatistics() *workspace.ChannelStatistics
},
) []threads.Task {
	if c.NeedsStatistics {
		x.statistics = conv.EnableStatistics()
	}
	return conv.Tasks()
}
