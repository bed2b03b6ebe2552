package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// Pool says which windows a pooling takes. Each list has a number for each
// spatial dimension, or one for all.
type Pool struct {
	Kernel []int // of the window
	Stride []int // from window to window; nil: Kernel
	Pad    []int // on each side; nil: 0; less than Kernel
	// PadZeros makes the padding of a max pool zeros that take part in the
	// maximum, as Keras' ZeroPadding2D before a pool does. Without, padding is
	// never the maximum, as in PyTorch.
	PadZeros bool
}

// MaxPool is the maximum over windows: x [n,c,h,w] → y [n,c,h',w'] with
// h' = (h+2·pad−kernel)/stride+1, rounded down: rows and columns that no window
// covers are left out; with five dimensions the same on volumes [n,c,d,h,w]. Of
// equal maxima the first in row order gets the gradient, as in PyTorch.
func MaxPool(x *gorgonia.Node, p Pool) (*gorgonia.Node, error) {
	o, err := pooling("max pool", KindMaxPool, x, p)
	if err != nil {
		return nil, err
	}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := backward(KindMaxPoolBackward, o.attr, out, in[0], in[0], out, dy)
		return gorgonia.Nodes{dx}, err
	}
	return apply(o, x)
}

// MaxPool2D is MaxPool over windows of kernel×kernel, stride apart, without
// padding.
func MaxPool2D(x *gorgonia.Node, kernel, stride int) (*gorgonia.Node, error) {
	return MaxPool(x, Pool{Kernel: []int{kernel}, Stride: []int{stride}})
}

// AvgPool is the mean over windows, which are as MaxPool's and take no padding:
// ZeroPad before it where zeros are to count.
func AvgPool(x *gorgonia.Node, p Pool) (*gorgonia.Node, error) {
	for _, n := range p.Pad {
		if n != 0 {
			return nil, fmt.Errorf("avg pool: padding is %v: it takes none: use ZeroPad before it", p.Pad)
		}
	}
	o, err := pooling("avg pool", KindAvgPool, x, Pool{Kernel: p.Kernel, Stride: p.Stride})
	if err != nil {
		return nil, err
	}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := backward(KindAvgPoolBackward, o.attr, out, in[0], dy)
		return gorgonia.Nodes{dx}, err
	}
	return apply(o, x)
}

// pooling checks the windows over x and works out attributes and shape.
func pooling(name string, kind Kind, x *gorgonia.Node, p Pool) (*operation, error) {
	if err := check(name, operand{"input", x, feature}); err != nil {
		return nil, err
	}
	s := x.Shape()
	spatial := len(s) - 2
	name = fmt.Sprintf("%s%dd", name, spatial)
	if len(p.Kernel) == 0 {
		return nil, fmt.Errorf("%s: the window has no size: set Kernel", name)
	}
	attr := Attr{}
	var err error
	if attr.Kernel, err = each(name, "kernel", p.Kernel, spatial, 0, 1); err != nil {
		return nil, err
	}
	if len(p.Stride) == 0 {
		p.Stride = p.Kernel
	}
	if attr.Stride, err = each(name, "stride", p.Stride, spatial, 0, 1); err != nil {
		return nil, err
	}
	pad, err := each(name, "padding", p.Pad, spatial, 0, 0)
	if err != nil {
		return nil, err
	}
	if slices.Max(pad) > 0 { // Without padding there is no attribute for it.
		attr.Pad, attr.PadZeros = pad, p.PadZeros
	}
	o := &operation{kind: kind, of: -1, attr: attr, shape: s[:2].Clone()}
	for i := range spatial {
		h, k := s[2+i], attr.Kernel[i]
		switch {
		case pad[i] >= k:
			return nil, fmt.Errorf("%s: padding %s must be less than the window %s", name, spread(pad), times(attr.Kernel))
		case h+2*pad[i] < k:
			return nil, fmt.Errorf("%s: input %v is smaller than the window %s", name, s, times(attr.Kernel))
		}
		o.shape = append(o.shape, (h+2*pad[i]-k)/attr.Stride[i]+1)
	}
	return o, nil
}

// GlobalAvgPool is the mean of each channel: x [n,c,h,w] or [n,c,d,h,w] → [n,c].
func GlobalAvgPool(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := check("global avg pool", operand{"input", x, feature}); err != nil {
		return nil, err
	}
	o := &operation{kind: KindGlobalAvgPool, of: -1, shape: x.Shape()[:2].Clone()}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := backward(KindGlobalAvgPoolBackward, Attr{}, out, in[0], dy)
		return gorgonia.Nodes{dx}, err
	}
	return apply(o, x)
}

// ZeroPad puts zeros around the spatial dimensions of x, before and after each:
// a number for each dimension or one for all. The convolutions' own padding is
// the same on both sides; this one need not be, as for Keras' "same" with a
// stride of 2.
func ZeroPad(x *gorgonia.Node, before, after []int) (*gorgonia.Node, error) {
	if err := check("zero pad", operand{"input", x, feature}); err != nil {
		return nil, err
	}
	attr := Attr{}
	shape := x.Shape().Clone()
	var err error
	if attr.Pad, err = each("zero pad", "padding in front", before, len(shape)-2, 0, 0); err != nil {
		return nil, err
	}
	if attr.PadEnd, err = each("zero pad", "padding behind", after, len(shape)-2, 0, 0); err != nil {
		return nil, err
	}
	for i := range attr.Pad {
		shape[2+i] += attr.Pad[i] + attr.PadEnd[i]
	}
	o := &operation{kind: KindPad, of: -1, attr: attr, shape: shape}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := backward(KindPadBackward, attr, out, in[0], dy)
		return gorgonia.Nodes{dx}, err
	}
	return apply(o, x)
}
