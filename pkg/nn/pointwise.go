package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ReLU returns max(0, x), element by element. x is a batch of tensors of any shape.
func ReLU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return addActivationOperation("relu", KindReLU, KindReLUBackward, x, Attr{})
}

// LeakyReLU returns x if x > 0, else slope·x, element by element; slope must be above 0.
// It equals torch.nn.LeakyReLU.
func LeakyReLU(x *gorgonia.Node, slope float64) (*gorgonia.Node, error) {
	if !(slope > 0) {
		return nil, fmt.Errorf("leaky relu: invalid slope %v: use a number above 0 (for 0, use ReLU)", slope)
	}
	return addActivationOperation("leaky relu", KindLeakyReLU, KindLeakyReLUBackward, x, Attr{Slope: slope})
}

// Tanh returns the hyperbolic tangent of x, element by element.
func Tanh(x *gorgonia.Node) (*gorgonia.Node, error) {
	return addActivationOperation("tanh", KindTanh, KindTanhBackward, x, Attr{})
}

// addActivationOperation adds an element-wise function of x. An operation of kind backward computes
// its gradient from the function's result, so that engines do not have to keep x in memory.
func addActivationOperation(name string, kind, backward Kind, x *gorgonia.Node, attr Attr) (*gorgonia.Node, error) {
	if err := checkOperands(name, operand{"input", x, batched}); err != nil {
		return nil, err
	}
	o := &operation{kind: kind, attr: attr, of: -1, shape: x.Shape().Clone()}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := addBackwardOperation(backward, attr, out, in[0], out, dy)
		return gorgonia.Nodes{dx}, err
	}
	return addOperation(o, x)
}

// Add returns a + b, element by element. The shapes must be equal (no broadcasting).
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := checkOperands("add", operand{"first input", a, batched}, operand{"second input", b, batched}); err != nil {
		return nil, err
	}
	if !a.Shape().Eq(b.Shape()) {
		return nil, fmt.Errorf("add: shapes %v and %v differ", a.Shape(), b.Shape())
	}
	o := &operation{kind: KindAdd, of: -1, shape: a.Shape().Clone()}
	o.grad = func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy, dy}, nil
	}
	return addOperation(o, a, b)
}

// Concat appends the channels of b to the channels of a: [n,ca,h,w] and [n,cb,h,w] →
// [n,ca+cb,h,w]. a and b may also be volumes [n,c,d,h,w].
func Concat(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := checkOperands("concat", operand{"first input", a, imageOrVolume}, operand{"second input", b, imageOrVolume}); err != nil {
		return nil, err
	}
	as, bs := a.Shape(), b.Shape()
	if as[0] != bs[0] || !slices.Equal(as[2:], bs[2:]) {
		return nil, fmt.Errorf("concat: shapes %v and %v differ, want equal dimensions except for channels", as, bs)
	}
	shape := append(tensor.Shape{as[0], as[1] + bs[1]}, as[2:]...)
	o := &operation{kind: KindConcat, of: -1, shape: shape}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		da, err := addBackwardOperation(KindSlice, Attr{}, out, in[0], dy)
		if err != nil {
			return nil, err
		}
		db, err := addBackwardOperation(KindSlice, Attr{Offset: in[0].Shape()[1]}, out, in[1], dy)
		return gorgonia.Nodes{da, db}, err
	}
	return addOperation(o, a, b)
}
