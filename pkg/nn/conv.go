package nn

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Conv returns y [n,k,h',w'], the cross-correlation of x [n,c,h,w] with weight [k,c,r,s],
// plus bias [k] unless bias is nil. h' is (h+2·pad−r)/stride+1, rounded down. x may also be
// a volume [n,c,d,h,w]. stride and pad contain one number per spatial dimension, or one
// number for all dimensions; nil means stride 1 and padding 0. The result equals
// torch.nn.functional.conv2d and conv3d with groups = dilation = 1.
func Conv(x, weight, bias *gorgonia.Node, stride, pad []int) (*gorgonia.Node, error) {
	o, err := newConvolution(KindConv, x, weight, bias, stride, pad)
	if err != nil {
		return nil, err
	}
	o.grad = newConvGradient(KindConvBackwardData, KindConvBackwardWeights)
	return addOperation(o, removeNilNodes(x, weight, bias)...)
}

// ConvTranspose returns y [n,k,h',w'], the transposed convolution (the gradient of Conv
// with respect to its input) of x [n,c,h,w] with weight [c,k,r,s], plus bias [k] unless
// bias is nil. h' is (h−1)·stride−2·pad+r. x may also be a volume [n,c,d,h,w]. stride and
// pad are as in Conv. The result equals torch.nn.functional.conv_transpose2d and
// conv_transpose3d without output padding.
func ConvTranspose(x, weight, bias *gorgonia.Node, stride, pad []int) (*gorgonia.Node, error) {
	o, err := newConvolution(KindConvTranspose, x, weight, bias, stride, pad)
	if err != nil {
		return nil, err
	}
	o.grad = newConvGradient(KindConvTransposeBackwardData, KindConvTransposeBackwardWeights)
	return addOperation(o, removeNilNodes(x, weight, bias)...)
}

// Conv2D calls Conv with the same stride and padding in each dimension.
func Conv2D(x, weight, bias *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	return Conv(x, weight, bias, []int{stride}, []int{pad})
}

// ConvTranspose2D calls ConvTranspose with the same stride and padding in each dimension.
func ConvTranspose2D(x, weight, bias *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	return ConvTranspose(x, weight, bias, []int{stride}, []int{pad})
}

// newConvolution checks the operands of Conv or ConvTranspose. The result has no gradient
// yet.
func newConvolution(kind Kind, x, weight, bias *gorgonia.Node, stride, pad []int) (*operation, error) {
	name, in, out := "conv", 1, 0 // axes of the channels in weight
	if kind == KindConvTranspose {
		name, in, out = "conv transpose", 0, 1
	}
	if err := checkOperands(name, operand{"input", x, imageOrVolume}); err != nil {
		return nil, err
	}
	xs := x.Shape()
	spatial := len(xs) - 2
	name = fmt.Sprintf("%s%dd", name, spatial)
	operands := []operand{{"input", x, imageOrVolume}, {"weight", weight, len(xs)}}
	if bias != nil {
		operands = append(operands, operand{"bias", bias, 1})
	}
	if err := checkOperands(name, operands...); err != nil {
		return nil, err
	}
	ws := weight.Shape()
	if k := ws[out]; bias != nil && bias.Shape()[0] != k {
		return nil, fmt.Errorf("%s: bias has %d elements, but the output has %d channels", name, bias.Shape()[0], k)
	}
	attr := Attr{}
	var err error
	if attr.Stride, err = expandPerDimension(name, "stride", stride, spatial, 1, 1); err != nil {
		return nil, err
	}
	if attr.Pad, err = expandPerDimension(name, "padding", pad, spatial, 0, 0); err != nil {
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
			return nil, fmt.Errorf("%s: input %v with padding %s is smaller than the kernel %s", name, xs, formatPadding(attr.Pad), formatWindow(ws[2:]))
		case kind == KindConv:
			o.shape = append(o.shape, (h+2*p-r)/s+1)
		case (h-1)*s-2*p+r < 1:
			return nil, fmt.Errorf("%s: input %v with padding %s leaves no output", name, xs, formatPadding(attr.Pad))
		default:
			o.shape = append(o.shape, (h-1)*s-2*p+r)
		}
	}
	return o, nil
}

// expandPerDimension returns one number for each of n spatial dimensions: v, its only
// number, or defaultValue if v is empty. A number below minimum is an error. op and what
// describe v in errors.
func expandPerDimension(op, what string, v []int, n, defaultValue, minimum int) ([]int, error) {
	if len(v) == 0 {
		v = []int{defaultValue}
	}
	if len(v) != 1 && len(v) != n {
		return nil, fmt.Errorf("%s: %s %v has %d numbers: give one number, or one for each of the %d dimensions", op, what, v, len(v), n)
	}
	all := make([]int, n)
	for i := range all {
		all[i] = v[min(i, len(v)-1)]
		if all[i] < minimum {
			return nil, fmt.Errorf("%s: %s is %d: use at least %d", op, what, all[i], minimum)
		}
	}
	return all, nil
}

// formatPadding returns, for example, "1", or "1x2" if the dimensions differ.
func formatPadding(v []int) string {
	if slices.Min(v) == slices.Max(v) {
		return fmt.Sprint(v[0])
	}
	return formatWindow(v)
}

func formatWindow(v []int) string {
	s := make([]string, len(v))
	for i, n := range v {
		s[i] = fmt.Sprint(n)
	}
	return strings.Join(s, "x")
}

// newConvGradient returns the gradient function of a convolution or linear layer. data and
// weights are the kinds of the operations that compute the gradients of input and weight.
func newConvGradient(data, weights Kind) gradientFunc {
	return func(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		attr := mustOperationInfoOf(out).Attr
		dx, err := addBackwardOperation(data, attr, out, in[0], in[1], dy)
		if err != nil {
			return nil, err
		}
		dw, err := addBackwardOperation(weights, attr, out, in[1], in[0], dy)
		if err != nil || len(in) == 2 {
			return gorgonia.Nodes{dx, dw}, err
		}
		db, err := addBackwardOperation(KindBiasBackward, Attr{}, out, in[2], dy)
		return gorgonia.Nodes{dx, dw, db}, err
	}
}

func removeNilNodes(in ...*gorgonia.Node) []*gorgonia.Node {
	var out []*gorgonia.Node
	for _, n := range in {
		if n != nil {
			out = append(out, n)
		}
	}
	return out
}

// mustOperationInfoOf returns the OperationInfo of n, which must be the result of one of this
// package's operations.
func mustOperationInfoOf(n *gorgonia.Node) OperationInfo {
	c, _ := OperationInfoOf(n)
	return c
}
