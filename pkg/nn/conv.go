package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Conv2D is the cross-correlation of x [n,c,h,w] with weight [k,c,r,s], plus
// bias [k] (nil: none): y [n,k,h',w'] with h' = (h+2·pad−r)/stride+1, rounded
// down. It is torch.nn.functional.conv2d with groups = dilation = 1.
func Conv2D(x, weight, bias *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	if err := checkConv("conv2d", x, weight, bias, 0, stride, pad); err != nil {
		return nil, err
	}
	xs, ws := x.Shape(), weight.Shape()
	if xs[1] != ws[1] {
		return nil, fmt.Errorf("conv2d: input %v has %d channels, weight %v expects %d", xs, xs[1], ws, ws[1])
	}
	shape := tensor.Shape{xs[0], ws[0], 0, 0}
	for i := 2; i < 4; i++ {
		if xs[i]+2*pad < ws[i] {
			return nil, fmt.Errorf("conv2d: input %v with padding %d is smaller than the kernel %dx%d", xs, pad, ws[2], ws[3])
		}
		shape[i] = (xs[i]+2*pad-ws[i])/stride + 1
	}
	o := &operation{kind: KindConv, attr: window(stride, pad), of: -1, shape: shape}
	o.grad = convGradient(KindConvBackwardData, KindConvBackwardWeights)
	return apply(o, present(x, weight, bias)...)
}

// ConvTranspose2D is the transposed convolution (the gradient of Conv2D with
// respect to its input) of x [n,c,h,w] with weight [c,k,r,s], plus bias [k]
// (nil: none): y [n,k,h',w'] with h' = (h−1)·stride−2·pad+r. It is
// torch.nn.functional.conv_transpose2d without output padding.
func ConvTranspose2D(x, weight, bias *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	const name = "conv transpose2d"
	if err := checkConv(name, x, weight, bias, 1, stride, pad); err != nil {
		return nil, err
	}
	xs, ws := x.Shape(), weight.Shape()
	if xs[1] != ws[0] {
		return nil, fmt.Errorf("%s: input %v has %d channels, weight %v expects %d", name, xs, xs[1], ws, ws[0])
	}
	shape := tensor.Shape{xs[0], ws[1], 0, 0}
	for i := 2; i < 4; i++ {
		if shape[i] = (xs[i]-1)*stride - 2*pad + ws[i]; shape[i] < 1 {
			return nil, fmt.Errorf("%s: input %v with padding %d leaves no output", name, xs, pad)
		}
	}
	o := &operation{kind: KindConvTranspose, attr: window(stride, pad), of: -1, shape: shape}
	o.grad = convGradient(KindConvTransposeBackwardData, KindConvTransposeBackwardWeights)
	return apply(o, present(x, weight, bias)...)
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

// checkConv verifies what both convolutions ask for. outAxis is the axis of
// the output channels in weight.
func checkConv(name string, x, weight, bias *gorgonia.Node, outAxis, stride, pad int) error {
	operands := []operand{{"input", x, 4}, {"weight", weight, 4}}
	if bias != nil {
		operands = append(operands, operand{"bias", bias, 1})
	}
	if err := check(name, operands...); err != nil {
		return err
	}
	switch k := weight.Shape()[outAxis]; {
	case bias != nil && bias.Shape()[0] != k:
		return fmt.Errorf("%s: bias has %d elements, the output %d channels", name, bias.Shape()[0], k)
	case stride < 1:
		return fmt.Errorf("%s: stride is %d: use at least 1", name, stride)
	case pad < 0:
		return fmt.Errorf("%s: padding is %d: use at least 0", name, pad)
	}
	return nil
}

func window(stride, pad int) Attr {
	return Attr{Stride: []int{stride, stride}, Pad: []int{pad, pad}}
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
