package cpu

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

// linear prepares a fully connected layer and its gradients: to a convolution
// features are the channels of a map of one pixel.
func (x *builder) linear(c call) ([]task, error) {
	var in, weights, out, bias operand
	bias.id = -1
	switch c.Op {
	case plan.OpLinear:
		in, weights, bias, out = c.in[0], c.in[1], c.in[2], c.out[0]
	case plan.OpLinearBackwardData:
		weights, out, in = c.in[0], c.in[1], c.out[0]
	default:
		in, out, weights = c.in[0], c.in[1], c.out[0]
	}
	for _, o := range []operand{in, weights, out} {
		if len(o.logical) != 2 {
			return nil, c.errorf("it takes tensors of two dimensions")
		}
	}
	if in.layout != activationLayout || out.layout != activationLayout || weights.layout != weightLayout ||
		!slices.Equal(weights.logical, []int{out.logical[1], in.logical[1]}) || in.logical[0] != out.logical[0] {
		return nil, c.errorf("the shapes do not fit together: x [n,k], w [m,k] and y [n,m]")
	}
	if bias.present() && !bias.vector(out.logical[1]) {
		return nil, c.errorf("the bias must have shape [%d]", out.logical[1])
	}
	one, none := [3]int{1, 1, 1}, [3]int{}
	gather := spaceOf(in, out, weights, one, none, false)
	switch c.Op {
	case plan.OpLinear:
		return newConvolution(x.workspace, in, weights, out, bias.data, gather, false).tasks(), nil
	case plan.OpLinearBackwardData:
		return newConvolution(x.workspace, out, weights, in, nil, spaceOf(in, out, weights, one, none, true), true).tasks(), nil
	}
	return newWeightGradient(x.workspace, in, out, weights, gather).tasks(), nil
}

// reshape copies the elements in logical order to another shape.
func (x *builder) reshape(c call) ([]task, error) {
	in, y := c.in[0], c.out[0]
	if in.Elements() != y.Elements() || in.layout == weightLayout && (y.layout != weightLayout || !slices.Equal(in.logical, y.logical)) {
		return nil, c.errorf("it takes a tensor of as many elements, and of weights it makes a copy alone")
	}
	if in.layout == y.layout && slices.Equal(in.logical, y.logical) {
		n := y.layout.size(y.Shape)
		return []task{{ceilDiv(n, pieceFloats), func(_ *worker, lo, hi int) {
			copy(y.data[lo*pieceFloats:min(n, hi*pieceFloats)], in.data[lo*pieceFloats:])
		}}}, nil
	}
	x.needShared(in.Elements())
	return []task{{1, func(*worker, int, int) {
		unpack(in.layout, in.Shape, x.shared[:in.Elements()], in.data)
		clear(y.data) // padding
		pack(y.layout, y.Shape, y.data, x.shared[:in.Elements()])
	}}}, nil
}
