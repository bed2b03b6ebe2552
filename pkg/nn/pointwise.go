package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ReLU is max(0, x), element by element.
func ReLU(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := check("relu", operand{"input", x, 4}); err != nil {
		return nil, err
	}
	o := &operation{kind: KindReLU, of: -1, shape: x.Shape().Clone()}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := backward(KindReLUBackward, Attr{}, out, in[0], out, dy)
		return gorgonia.Nodes{dx}, err
	}
	return apply(o, x)
}

// Add is a + b of equal shapes, element by element (no broadcasting).
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := check("add", operand{"first input", a, 4}, operand{"second input", b, 4}); err != nil {
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
// [n,ca+cb,h,w].
func Concat(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	if err := check("concat", operand{"first input", a, 4}, operand{"second input", b, 4}); err != nil {
		return nil, err
	}
	as, bs := a.Shape(), b.Shape()
	if as[0] != bs[0] || as[2] != bs[2] || as[3] != bs[3] {
		return nil, fmt.Errorf("concat: shapes %v and %v may differ in their channels alone", as, bs)
	}
	o := &operation{kind: KindConcat, of: -1, shape: tensor.Shape{as[0], as[1] + bs[1], as[2], as[3]}}
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

// MaxPool2D is the maximum over windows of kernel×kernel, stride apart: x
// [n,c,h,w] → y [n,c,h',w'] with h' = (h−kernel)/stride+1, rounded down: rows
// and columns that no window covers are left out. Of equal maxima the first in
// row order gets the gradient, as in PyTorch.
func MaxPool2D(x *gorgonia.Node, kernel, stride int) (*gorgonia.Node, error) {
	if err := check("max pool2d", operand{"input", x, 4}); err != nil {
		return nil, err
	}
	s := x.Shape()
	switch {
	case kernel < 1 || stride < 1:
		return nil, fmt.Errorf("max pool2d: kernel %d and stride %d must be at least 1", kernel, stride)
	case s[2] < kernel || s[3] < kernel:
		return nil, fmt.Errorf("max pool2d: input %v is smaller than the window %dx%d", s, kernel, kernel)
	}
	attr := Attr{Kernel: []int{kernel, kernel}, Stride: []int{stride, stride}}
	o := &operation{
		kind: KindMaxPool, attr: attr, of: -1,
		shape: tensor.Shape{s[0], s[1], (s[2]-kernel)/stride + 1, (s[3]-kernel)/stride + 1},
	}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := backward(KindMaxPoolBackward, attr, out, in[0], in[0], out, dy)
		return gorgonia.Nodes{dx}, err
	}
	return apply(o, x)
}

// BCEWithLogits is the binary cross-entropy of the logits z with the targets t
// in [0,1], of one shape: the mean over all elements of
// max(z,0) − z·t + log(1+e^−|z|), a scalar. There is no gradient for t.
// It is torch.nn.BCEWithLogitsLoss with its defaults.
func BCEWithLogits(z, t *gorgonia.Node) (*gorgonia.Node, error) {
	if err := check("bce with logits", operand{"logits", z, 4}, operand{"target", t, 4}); err != nil {
		return nil, err
	}
	if !z.Shape().Eq(t.Shape()) {
		return nil, fmt.Errorf("bce with logits: logits have shape %v, targets %v: they must be equal", z.Shape(), t.Shape())
	}
	o := &operation{kind: KindBCEWithLogits, of: -1, shape: tensor.ScalarShape(), wrt: []bool{true, false}}
	o.grad = func(in gorgonia.Nodes, out, dloss *gorgonia.Node) (gorgonia.Nodes, error) {
		dz, err := backward(KindBCEWithLogitsBackward, Attr{}, out, in[0], in[0], in[1], dloss)
		return gorgonia.Nodes{dz, nil}, err
	}
	return apply(o, z, t)
}
