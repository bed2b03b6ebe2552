package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Linear returns y [n,m] = x·weightᵀ + bias for x [n,k], weight [m,k] and bias [m]. bias may
// be nil. The result equals torch.nn.functional.linear.
func Linear(x, weight, bias *gorgonia.Node) (*gorgonia.Node, error) {
	operands := []operand{{"input", x, 2}, {"weight", weight, 2}}
	if bias != nil {
		operands = append(operands, operand{"bias", bias, 1})
	}
	if err := checkOperands("linear", operands...); err != nil {
		return nil, err
	}
	xs, ws := x.Shape(), weight.Shape()
	switch {
	case xs[1] != ws[1]:
		return nil, fmt.Errorf("linear: input %v has %d features, weight %v expects %d", xs, xs[1], ws, ws[1])
	case bias != nil && bias.Shape()[0] != ws[0]:
		return nil, fmt.Errorf("linear: bias has %d elements, but the output has %d features", bias.Shape()[0], ws[0])
	}
	o := &operation{kind: KindLinear, of: -1, shape: tensor.Shape{xs[0], ws[0]}}
	o.grad = newConvGradient(KindLinearBackwardData, KindLinearBackwardWeights)
	return addOperation(o, removeNilNodes(x, weight, bias)...)
}

// Flatten reshapes each sample to one row, in row-major order: x [n,c,h,w] → [n,c·h·w].
func Flatten(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := checkOperands("flatten", operand{"input", x, batched}); err != nil {
		return nil, err
	}
	s := x.Shape()
	o := &operation{kind: KindReshape, of: -1, shape: tensor.Shape{s[0], elementCount(s[1:])}}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := addBackwardOperation(KindReshape, Attr{}, out, in[0], dy)
		return gorgonia.Nodes{dx}, err
	}
	return addOperation(o, x)
}
