package layer

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/conv"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// buildLinear builds a fully connected layer or one of its gradients. It treats each sample as
// a map of one pixel, whose channels are the features, and computes a convolution.
func (x *Builder) buildLinear(c Operation) ([]threads.Task, error) {
	var in, weights, out, bias tensor.Operand
	bias.ID = -1
	switch c.Op {
	case plan.OpLinear:
		in, weights, bias, out = c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Outputs[0]
	case plan.OpLinearBackwardData:
		weights, out, in = c.Inputs[0], c.Inputs[1], c.Outputs[0]
	default:
		in, out, weights = c.Inputs[0], c.Inputs[1], c.Outputs[0]
	}
	for _, o := range []tensor.Operand{in, weights, out} {
		if len(o.Logical) != 2 {
			return nil, c.errorf("want tensors of two dimensions")
		}
	}
	if in.Layout != tensor.ActivationLayout || out.Layout != tensor.ActivationLayout || weights.Layout != tensor.WeightLayout ||
		!slices.Equal(weights.Logical, []int{out.Logical[1], in.Logical[1]}) || in.Logical[0] != out.Logical[0] {
		return nil, c.errorf("want x [n,k], w [m,k] and y [n,m]")
	}
	if bias.IsPresent() && !bias.IsVector(out.Logical[1]) {
		return nil, c.errorf("the bias must have shape [%d]", out.Logical[1])
	}
	x.products++
	one, none := [3]int{1, 1, 1}, [3]int{}
	gather := conv.NewGeometry(in, out, weights, one, none, false)
	switch c.Op {
	case plan.OpLinear:
		return conv.NewDirect(x.Workspace, in, weights, out, bias.Data, gather, false).Tasks(), nil
	case plan.OpLinearBackwardData:
		return conv.NewDirect(x.Workspace, out, weights, in, nil, conv.NewGeometry(in, out, weights, one, none, true), true).Tasks(), nil
	}
	return conv.NewDirectGradient(x.Workspace, in, out, weights, gather).Tasks(), nil
}

// buildReshape copies all elements in logical order.
func (x *Builder) buildReshape(c Operation) ([]threads.Task, error) {
	in, y := c.Inputs[0], c.Outputs[0]
	if in.Elements() != y.Elements() || in.Layout == tensor.WeightLayout && (y.Layout != tensor.WeightLayout || !slices.Equal(in.Logical, y.Logical)) {
		return nil, c.errorf("want tensors with the same number of elements; weights can only be copied to the same shape")
	}
	if in.Layout == y.Layout && slices.Equal(in.Logical, y.Logical) {
		n := y.Layout.FloatCount(y.Shape)
		return []threads.Task{{Items: tensor.CeilDiv(n, workspace.TaskItemFloats), Run: func(_ *threads.Worker, lo, hi int) {
			copy(y.Data[lo*workspace.TaskItemFloats:min(n, hi*workspace.TaskItemFloats)], in.Data[lo*workspace.TaskItemFloats:])
		}}}, nil
	}
	x.ReserveSharedScratch(in.Elements())
	return []threads.Task{{Items: 1, Run: func(*threads.Worker, int, int) {
		tensor.Unpack(in.Layout, in.Shape, x.Shared[:in.Elements()], in.Data)
		clear(y.Data) // padding
		tensor.Pack(y.Layout, y.Shape, y.Data, x.Shared[:in.Elements()])
	}}}, nil
}
