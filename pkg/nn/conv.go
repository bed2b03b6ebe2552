package nn

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Conv is the cross-correlation of x [n,c,h,w] with weight [k,c,r,s], plus bias
// [k] (nil: none): y [n,k,h',w'] with h' = (h+2·pad−r)/stride+1, rounded down;
// with five dimensions the same on volumes [n,c,d,h,w]. stride and pad have a
// number for each spatial dimension, or one for all; nil is 1 and 0. It is
// torch.nn.functional.conv2d and conv3d with groups = dilation = 1.
func Conv(x, weight, bias *gorgonia.Node, stride, pad []int) (*gorgonia.Node, error) {
	o, err := convolution(KindConv, x, weight, bias, stride, pad)
	if err != nil {
		return nil, err
	}
	o.grad = convGradient(KindConvBackwardData, KindConvBackwardWeights)
	return apply(o, present(x, weight, bias)...)
}

// ConvTranspose is the transposed convolution (the gradient of Conv with
// respect to its input) of x [n,c,h,w] with weight [c,k,r,s], plus bias [k]
// (nil: none): y [n,k,h',w'] with h' = (h−1)·stride−2·pad+r; with five
// dimensions the same on volumes. stride and pad are as Conv's. It is
// torch.nn.functional.conv_transpose2d and 3d without output padding.
func ConvTranspose(x, weight, bias *gorgonia.Node, stride, pad []int) (*gorgonia.Node, error) {
	o, err := convolution(KindConvTranspose, x, weight, bias, stride, pad)
	if err != nil {
		return nil, err
	}
	o.grad = convGradient(KindConvTransposeBackwardData, KindConvTransposeBackwardWeights)
	return apply(o, present(x, weight, bias)...)
}

// Conv2D is Conv on images, with one stride and one padding.
func Conv2D(x, weight, bias *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	return Conv(x, weight, bias, []int{stride}, []int{pad})
}

// ConvTranspose2D is ConvTranspose on images, with one stride and one padding.
func ConvTranspose2D(x, weight, bias *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	return ConvTranspose(x, weight, bias, []int{stride}, []int{pad})
}

// convolution checks the operands of either convolution and works out its
// attributes and the shape of its result.
func convolution(kind Kind, x, weight, bias *gorgonia.Node, stride, pad []int) (*operation, error) {
	name, in, out := "conv", 1, 0 // axes of the channels in weight
	if kind == KindConvTranspose {
		name, in, out = "conv transpose", 0, 1
	}
	if err := check(name, operand{"input", x, feature}); err != nil {
		return nil, err
	}
	xs := x.Shape()
	spatial := len(xs) - 2
	name = fmt.Sprintf("%s%dd", name, spatial)
	operands := []operand{{"input", x, feature}, {"weight", weight, len(xs)}}
	if bias != nil {
		operands = append(operands, operand{"bias", bias, 1})
	}
	if err := check(name, operands...); err != nil {
		return nil, err
	}
	ws := weight.Shape()
	if k := ws[out]; bias != nil && bias.Shape()[0] != k {
		return nil, fmt.Errorf("%s: bias has %d elements, the output %d channels", name, bias.Shape()[0], k)
	}
	attr := Attr{}
	var err error
	if attr.Stride, err = each(name, "stride", stride, spatial, 1, 1); err != nil {
		return nil, err
	}
	if attr.Pad, err = each(name, "padding", pad, spatial, 0, 0); err != nil {
		return nil, err
	}
	if xs[1] != ws[in] {
		return nil, fmt.Errorf("%s: input %v has %d channels, weight %v expects %d", name, xs, xs[1], ws, ws[in])
	}
	o := &operation{kind: kind, attr: attr, of: -1, shape: tensor.Shape{xs[0], ws[out]}}
	for i := range spatial {
		h, r, s, p := xs[2+i], ws[2+i], attr.Stride[i], attr.Pad[i]
		switch {
		case kind == KindConv && h+2*p < r:
			return nil, fmt.Errorf("%s: input %v with padding %s is smaller than the kernel %s", name, xs, spread(attr.Pad), times(ws[2:]))
		case kind == KindConv:
			o.shape = append(o.shape, (h+2*p-r)/s+1)
		case (h-1)*s-2*p+r < 1:
			return nil, fmt.Errorf("%s: input %v with padding %s leaves no output", name, xs, spread(attr.Pad))
		default:
			o.shape = append(o.shape, (h-1)*s-2*p+r)
		}
	}
	return o, nil
}

// each is v with a number for each of n spatial dimensions: one number stands
// for all, none for the usual one.
func each(op, what string, v []int, n, usual, least int) ([]int, error) {
	if len(v) == 0 {
		v = []int{usual}
	}
	if len(v) != 1 && len(v) != n {
		return nil, fmt.Errorf("%s: %s %v has %d numbers: give one, or one for each of %d dimensions", op, what, v, len(v), n)
	}
	all := make([]int, n)
	for i := range all {
		all[i] = v[min(i, len(v)-1)]
		if all[i] < least {
			return nil, fmt.Errorf("%s: %s is %d: use at least %d", op, what, all[i], least)
		}
	}
	return all, nil
}

// spread writes a padding: one number where all are equal.
func spread(v []int) string {
	if slices.Min(v) == slices.Max(v) {
		return fmt.Sprint(v[0])
	}
	return times(v)
}

// times writes a window: 3x3.
func times(v []int) string {
	s := make([]string, len(v))
	for i, n := range v {
		s[i] = fmt.Sprint(n)
	}
	return strings.Join(s, "x")
}

// convGradient is the gradient of both convolutions: they differ in the kinds
// of their operations alone.
func convGradient(data, weights Kind) gradient {
	return func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		attr := mustCall(out).Attr
		dx, err := backward(data, attr, out, in[0], in[1], dy)
		if err != nil {
			return nil, err
		}
		dw, err := backward(weights, attr, out, in[1], in[0], dy)
		if err != nil || len(in) == 2 {
			return gorgonia.Nodes{dx, dw}, err
		}
		db, err := backward(KindBiasBackward, Attr{}, out, in[2], dy)
		return gorgonia.Nodes{dx, dw, db}, err
	}
}

// present leaves out the nodes that are nil.
func present(in ...*gorgonia.Node) []*gorgonia.Node {
	var out []*gorgonia.Node
	for _, n := range in {
		if n != nil {
			out = append(out, n)
		}
	}
	return out
}

// mustCall is the Call of a node that is known to be of this package.
func mustCall(n *gorgonia.Node) Call {
	c, _ := CallOf(n)
	return c
}
