package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// Pool configures the windows of a pooling layer. Each slice contains one number per
// spatial dimension, or one number for all dimensions.
type Pool struct {
	Kernel []int // size of the window
	Stride []int // distance between windows; nil: Kernel
	Pad    []int // padding on each side, less than Kernel; nil: 0
	// PadZeros means that the padding of MaxPool has the value 0, as with Keras'
	// ZeroPadding2D before a pooling layer. If false, padding is never the maximum, as in
	// PyTorch.
	PadZeros bool
}

// MaxPool returns the maximum over windows: x [n,c,h,w] → y [n,c,h',w'] with h' =
// (h+2·pad−kernel)/stride+1, rounded down. Rows and columns that no window covers are
// ignored. x may also be a volume [n,c,d,h,w]. If several elements of a window are the
// maximum, the first in row order gets the gradient, as in PyTorch.
func MaxPool(x *gorgonia.Node, p Pool) (*gorgonia.Node, error) {
	o, err := newPooling("max pool", KindMaxPool, x, p)
	if err != nil {
		return nil, err
	}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := addBackwardOperation(KindMaxPoolBackward, o.attr, out, in[0], in[0], out, dy)
		return gorgonia.Nodes{dx}, err
	}
	return addOperation(o, x)
}

// MaxPool2D returns the maximum over kernel×kernel windows with the given stride, without
// padding.
func MaxPool2D(x *gorgonia.Node, kernel, stride int) (*gorgonia.Node, error) {
	return MaxPool(x, Pool{Kernel: []int{kernel}, Stride: []int{stride}})
}

// AvgPool returns the mean over windows. The shapes are as in MaxPool. AvgPool does not
// support padding; apply ZeroPad first to include zeros in the mean.
func AvgPool(x *gorgonia.Node, p Pool) (*gorgonia.Node, error) {
	for _, n := range p.Pad {
		if n != 0 {
			return nil, fmt.Errorf("avg pool: padding %v is not supported: use ZeroPad before it", p.Pad)
		}
	}
	o, err := newPooling("avg pool", KindAvgPool, x, Pool{Kernel: p.Kernel, Stride: p.Stride})
	if err != nil {
		return nil, err
	}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := addBackwardOperation(KindAvgPoolBackward, o.attr, out, in[0], dy)
		return gorgonia.Nodes{dx}, err
	}
	return addOperation(o, x)
}

// newPooling checks x and the windows p, and returns the operation, without gradient.
func newPooling(name string, kind Kind, x *gorgonia.Node, p Pool) (*operation, error) {
	if err := checkOperands(name, operand{"input", x, imageOrVolume}); err != nil {
		return nil, err
	}
	s := x.Shape()
	spatial := len(s) - 2
	name = fmt.Sprintf("%s%dd", name, spatial)
	if len(p.Kernel) == 0 {
		return nil, fmt.Errorf("%s: window size is missing: set Kernel", name)
	}
	attr := Attr{}
	var err error
	if attr.Kernel, err = expandPerDimension(name, "kernel", p.Kernel, spatial, 0, 1); err != nil {
		return nil, err
	}
	if len(p.Stride) == 0 {
		p.Stride = p.Kernel
	}
	if attr.Stride, err = expandPerDimension(name, "stride", p.Stride, spatial, 0, 1); err != nil {
		return nil, err
	}
	pad, err := expandPerDimension(name, "padding", p.Pad, spatial, 0, 0)
	if err != nil {
		return nil, err
	}
	if slices.Max(pad) > 0 { // Pad stays nil without padding
		attr.Pad, attr.PadZeros = pad, p.PadZeros
	}
	o := &operation{kind: kind, of: -1, attr: attr, shape: s[:2].Clone()}
	for i := range spatial {
		h, k := s[2+i], attr.Kernel[i]
		switch {
		case pad[i] >= k:
			return nil, fmt.Errorf("%s: padding %s must be less than the window %s", name, formatPadding(pad), formatWindow(attr.Kernel))
		case h+2*pad[i] < k:
			return nil, fmt.Errorf("%s: input %v is smaller than the window %s", name, s, formatWindow(attr.Kernel))
		}
		o.shape = append(o.shape, (h+2*pad[i]-k)/attr.Stride[i]+1)
	}
	return o, nil
}

// GlobalAvgPool returns the mean of each channel: x [n,c,h,w] or [n,c,d,h,w] → [n,c].
func GlobalAvgPool(x *gorgonia.Node) (*gorgonia.Node, error) {
	if err := checkOperands("global avg pool", operand{"input", x, imageOrVolume}); err != nil {
		return nil, err
	}
	o := &operation{kind: KindGlobalAvgPool, of: -1, shape: x.Shape()[:2].Clone()}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := addBackwardOperation(KindGlobalAvgPoolBackward, Attr{}, out, in[0], dy)
		return gorgonia.Nodes{dx}, err
	}
	return addOperation(o, x)
}

// ZeroPad inserts zeros before and after each spatial dimension of x. before and after
// contain one number per spatial dimension, or one number for all dimensions. Unlike the
// padding of a convolution, the numbers before and after may differ, as Keras' padding
// "same" with a stride of 2 requires.
func ZeroPad(x *gorgonia.Node, before, after []int) (*gorgonia.Node, error) {
	if err := checkOperands("zero pad", operand{"input", x, imageOrVolume}); err != nil {
		return nil, err
	}
	attr := Attr{}
	shape := x.Shape().Clone()
	var err error
	if attr.Pad, err = expandPerDimension("zero pad", "padding before", before, len(shape)-2, 0, 0); err != nil {
		return nil, err
	}
	if attr.PadEnd, err = expandPerDimension("zero pad", "padding after", after, len(shape)-2, 0, 0); err != nil {
		return nil, err
	}
	for i := range attr.Pad {
		shape[2+i] += attr.Pad[i] + attr.PadEnd[i]
	}
	o := &operation{kind: KindPad, of: -1, attr: attr, shape: shape}
	o.grad = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := addBackwardOperation(KindPadBackward, attr, out, in[0], dy)
		return gorgonia.Nodes{dx}, err
	}
	return addOperation(o, x)
}
