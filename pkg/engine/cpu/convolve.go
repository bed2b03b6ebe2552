package cpu

import "lockstep/pkg/internal/plan"

// convolve prepares the six convolution kernels. All have a large side (a
// convolution's input, a transposed one's output), a small side, and weights
// [small's channels, large's channels, …].
func (x *builder) convolve(c call) ([]task, error) {
	var large, weights, small, bias operand
	bias.id = -1
	switch c.Op {
	case plan.OpConv:
		large, weights, bias, small = c.in[0], c.in[1], c.in[2], c.out[0]
	case plan.OpConvBackwardData:
		weights, small, large = c.in[0], c.in[1], c.out[0]
	case plan.OpConvBackwardWeights:
		large, small, weights = c.in[0], c.in[1], c.out[0]
	case plan.OpConvTranspose:
		small, weights, bias, large = c.in[0], c.in[1], c.in[2], c.out[0]
	case plan.OpConvTransposeBackwardData:
		weights, large, small = c.in[0], c.in[1], c.out[0]
	case plan.OpConvTransposeBackwardWeights:
		small, large, weights = c.in[0], c.in[1], c.out[0]
	}
	if large.layout != activationLayout || small.layout != activationLayout || weights.layout != weightLayout {
		return nil, c.errorf("it takes activations [n,c,…] and weights of as many dimensions")
	}
	stride, ok1 := triple(c.Attr.Stride, large.logical, 1, 1)
	pad, ok2 := triple(c.Attr.Pad, large.logical, 0, 0)
	if !ok1 || !ok2 {
		return nil, c.errorf("stride is %v and pad %v: give a number for each spatial dimension, strides of at least 1 and pads of at least 0", c.Attr.Stride, c.Attr.Pad)
	}
	l, s, w := large.Shape, small.Shape, weights.Shape
	transposed := c.Op == plan.OpConvTranspose || c.Op == plan.OpConvTransposeBackwardData || c.Op == plan.OpConvTransposeBackwardWeights
	fits := l[0] == s[0] && w[0] == s[1] && w[1] == l[1] && len(large.logical) == len(small.logical) && len(large.logical) == len(weights.logical)
	for i := range stride {
		fits = fits && matches(large.space[i], small.space[i], weights.space[i], stride[i], pad[i], transposed)
	}
	if !fits {
		return nil, c.errorf("the shapes do not fit together with stride %v and pad %v", c.Attr.Stride, c.Attr.Pad)
	}
	if bias.present() && !bias.vector(c.out[0].Shape[1]) {
		return nil, c.errorf("the bias must have shape [%d]", c.out[0].Shape[1])
	}
	if useWinograd(x.convolution, large, small, weights, stride, pad) {
		switch c.Op {
		case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
			return newWinogradGradient(x.workspace, large, small, weights).tasks(), nil
		case plan.OpConv, plan.OpConvTransposeBackwardData:
			return x.counting(c, newWinograd(x.workspace, large, weights, small, bias.data, false)), nil
		default:
			return x.counting(c, newWinograd(x.workspace, small, weights, large, bias.data, true)), nil
		}
	}
	gather := spaceOf(large, small, weights, stride, pad, false)
	switch c.Op {
	case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return newWeightGradient(x.workspace, large, small, weights, gather).tasks(), nil
	case plan.OpConv, plan.OpConvTransposeBackwardData:
		return x.counting(c, newConvolution(x.workspace, large, weights, small, bias.data, gather, false)), nil
	default:
		scatter := spaceOf(large, small, weights, stride, pad, true)
		return x.counting(c, newConvolution(x.workspace, small, weights, large, bias.data, scatter, true)), nil
	}
}

// matches says whether the lengths of the large and the small side fit the
// window. A transposed convolution has the one large length that its small
// length gives; a convolution drops rows that no window reaches.
func matches(large, small, kernel, stride, pad int, transposed bool) bool {
	if transposed {
		return large == (small-1)*stride-2*pad+kernel
	}
	return large+2*pad >= kernel && small == (large+2*pad-kernel)/stride+1
}

// counting returns the tasks of a convolution, which also takes the statistics of
// its output if the next kernel needs them.
func (x *builder) counting(c call, conv interface {
	tasks() []task
	takeTally() *tally
},
) []task {
	if c.tallied {
		x.tally = conv.takeTally()
	}
	return conv.tasks()
}
