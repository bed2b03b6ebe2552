package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ReLU is max(0, x), element by element, of a batch of any shape.
func ReLU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activation("relu", KindReLU, KindReLUBackward, x, Attr{})
}

// LeakyReLU is x where x > 0 and slope·x elsewhere, element by element; slope
// is above 0. It is torch.nn.LeakyReLU.
func LeakyReLU(x *gorgonia.Node, slope float64) (*gorgonia.Node, error) {
	if !(slope > 0) {
		return nil, fmt.Errorf("leaky relu: slope is %v: it must be above 0 (0 is ReLU)", slope)
	}
	return activation("leaky relu", KindLeakyReLU, KindLeakyReLUBackward, x, Attr{Slope: slope})
}

// Tanh is the hyperbolic tangent, element by element.
func Tanh(x *gorgonia.Node) (*gorgonia.Node, error) {
	return activation("tanh", KindTanh, KindTanhBackward, x, Attr{})
}

// activation is a function of each element whose derivative follows from its
// result, so that its input need not be kept.
func activation(name string, kind, back Kind, x *gorgonia.Node, attr Attr) (*gorgonia.Node, error) {
	if err := check(name, operand{"input", x, several}); err != nil {
		return nil, err
	}
	o := &operation{kind: kind, attr: attr, of: -1, shape: x.Shape().Clone()}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := backward(back, attr, out, in[0], out, dy)
		return gorgonia.Nodes{dx}, err
	}
	return apply(o, x)
}

// Add is a + b of equal shapes, element by element (no broadcasting).
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := check("add", operand{"first input", a, several}, operand{"second input", b, several}); err != nil {
		return nil, err
	}
	if !a.Shape().Eq(b.Shape()) {
		return nil, fmt.Errorf("add: shapes %v and %v differ", a.Shape(), b.Shape())
	}
	o := &operation{kind: KindAdd, of: -1, shape: a.Shape().Clone()}
	o.grad = func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy, dy}, nil
	}
	return apply(o, a, b)
}

// Concat puts the channels of b after those of a: [n,ca,h,w] and [n,cb,h,w] →
// [n,ca+cb,h,w]; with five dimensions the same on volumes.
func Concat(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := check("concat", operand{"first input", a, feature}, operand{"second input", b, feature}); err != nil {
		return nil, err
	}
	as, bs := a.Shape(), b.Shape()
	if as[0] != bs[0] || !slices.Equal(as[2:], bs[2:]) {
		return nil, fmt.Errorf("concat: shapes %v and %v may differ in their channels alone", as, bs)
	}
	shape := append(tensor.Shape{as[0], as[1] + bs[1]}, as[2:]...)
	o := &operation{kind: KindConcat, of: -1, shape: shape}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		da, err := backward(KindSlice, Attr{}, out, in[0], dy)
		if err != nil {
			return nil, err
		}
		db, err := backward(KindSlice, Attr{Offset: in[0].Shape()[1]}, out, in[1], dy)
		return gorgonia.Nodes{da, db}, err
	}
	return apply(o, a, b)
}
