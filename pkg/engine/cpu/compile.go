package cpu

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/plan"
)

// operand is a tensor of a kernel with its memory. An absent optional operand
// has id −1. Its Shape is folded.
type operand struct {
	plan.Tensor
	logical []int  // shape
	space   [3]int // depth, height and width, of the window where it is weights
	id      int
	layout  layout
	data    []float32 // nil where it has no memory of its own
	pieces  []piece   // of an activation
}

// present says whether the operand is there.
func (o operand) present() bool { return o.id >= 0 }

// is says whether o is an activation of shape [n,c,h,w].
func (o operand) is(n, c, h, w int) bool {
	return o.layout == activationLayout && slices.Equal(o.Shape, []int{n, c, h, w})
}

// vector says whether o has shape [n].
func (o operand) vector(n int) bool { return slices.Equal(o.Shape, []int{n}) }

// absentOr says whether an optional vector is absent or has shape [n].
func (o operand) absentOr(n int) bool { return !o.present() || o.vector(n) }

// set writes element i of a vector, where there is one.
func (o operand) set(i int, v float32) {
	if o.present() {
		o.data[i] = v
	}
}

// call is a kernel with its operands.
type call struct {
	plan.Kernel
	in, out []operand
	at      int    // index of the kernel
	tally   *tally // of in[0], where the kernel before has taken its statistics
}

// errorf is an error that names the kernel and its shapes.
func (c call) errorf(format string, args ...any) error {
	list := func(ops []operand) string {
		var s []string
		for _, o := range ops {
			if o.present() {
				s = append(s, fmt.Sprint(o.logical))
			}
		}
		return strings.Join(s, " ")
	}
	return fmt.Errorf("kernel %s %q with shapes %s → %s: %s", c.Op, c.Name, list(c.in), list(c.out), fmt.Sprintf(format, args...))
}

// compile turns kernel at into tasks.
func (x *executable) compile(at int) ([]task, error) {
	k := x.program.Kernels[at]
	c := call{Kernel: k, in: x.operands(k.In), out: x.operands(k.Out), at: at, tally: x.tally}
	x.tally = nil
	if !c.out[0].present() && k.Op != plan.OpBatchNormBackward {
		return nil, c.errorf("it must write its first tensor")
	}
	switch k.Op {
	case plan.OpConv, plan.OpConvTranspose, plan.OpConvBackwardData, plan.OpConvTransposeBackwardData,
		plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return x.convolve(c)
	case plan.OpBiasBackward:
		return x.biasGradient(c)
	case plan.OpBatchNorm:
		return x.batchNorm(c)
	case plan.OpBatchNormBackward:
		return x.batchNormGradient(c)
	case plan.OpMaxPool, plan.OpMaxPoolBackward:
		return x.pool(c)
	case plan.OpConcat:
		return x.concat(c)
	case plan.OpSlice:
		return x.slice(c)
	case plan.OpBCEWithLogits:
		return x.bce(c)
	case plan.OpBCEWithLogitsBackward:
		return x.bceGradient(c)
	case plan.OpAdd, plan.OpReLU, plan.OpReLUBackward, plan.OpLeakyReLU, plan.OpLeakyReLUBackward, plan.OpTanh, plan.OpTanhBackward:
		return x.pointwise(c)
	case plan.OpLinear, plan.OpLinearBackwardData, plan.OpLinearBackwardWeights:
		return x.linear(c)
	case plan.OpReshape:
		return x.reshape(c)
	case plan.OpGlobalAvgPool, plan.OpGlobalAvgPoolBackward:
		return x.globalAverage(c)
	case plan.OpAvgPool, plan.OpAvgPoolBackward:
		return x.average(c)
	case plan.OpPad, plan.OpPadBackward:
		return x.padding(c)
	case plan.OpSoftmaxCrossEntropy, plan.OpSoftmaxCrossEntropyBackward:
		return x.softmax(c)
	case plan.OpDiceBCE, plan.OpDiceBCEBackward:
		return x.diceBCE(c)
	case plan.OpL1, plan.OpL1Backward:
		return x.l1(c)
	}
	return nil, c.errorf("this engine does not offer the operation")
}

// maxOperands is more than any kernel reads or writes.
const maxOperands = 8

// operands looks up a kernel's tensors; those beyond ids are absent.
func (x *executable) operands(ids []int) []operand {
	list := make([]operand, maxOperands)
	for i := range list {
		if i < len(ids) && ids[i] >= 0 {
			id := ids[i]
			t := x.program.Tensors[id]
			list[i] = operand{Tensor: t, logical: t.Shape, space: spatial(t.Shape), id: id, layout: x.layouts[id], data: x.data[id]}
			list[i].Shape = folded(t.Shape)
			if x.layouts[id] == activationLayout {
				list[i].pieces = x.pieces(id)
			}
		} else {
			list[i] = operand{id: -1}
		}
	}
	return list
}

// triple reads an attribute with a number for each spatial dimension of a shape;
// the dimensions that it lacks get the number lacking.
func triple(v, shape []int, least, lacking int) (all [3]int, ok bool) {
	n := len(shape) - 2
	if len(v) != n || n < 1 || n > 3 || slices.Min(v) < least {
		return all, false
	}
	all = [3]int{lacking, lacking, lacking}
	copy(all[3-n:], v)
	return all, true
}

// convolve prepares the six convolution kernels. All have a large side (a
// convolution's input, a transposed one's output), a small side, and weights
// [small's channels, large's channels, …].
func (x *executable) convolve(c call) ([]task, error) {
	var large, weights, small, bias operand
	bias.id = -1
	switch c.Op {
	case plan.OpConv:
		large, weights, bias, small = c.in[0], c.in[1], c.in[2], c.out[0]
	case plan.OpConvBackwardData:
		weights, small, large = c.in[0], c.in[1], c.out[0]
	case plan.OpConvBackwardWeights:
		large, small, weights = c.in[0], c.in[1], c.out[0]
	case plan.OpConvTranspose:
		small, weights, bias, large = c.in[0], c.in[1], c.in[2], c.out[0]
	case plan.OpConvTransposeBackwardData:
		weights, large, small = c.in[0], c.in[1], c.out[0]
	case plan.OpConvTransposeBackwardWeights:
		small, large, weights = c.in[0], c.in[1], c.out[0]
	}
	if large.layout != activationLayout || small.layout != activationLayout || weights.layout != weightLayout {
		return nil, c.errorf("it takes activations [n,c,…] and weights of as many dimensions")
	}
	stride, ok1 := triple(c.Attr.Stride, large.logical, 1, 1)
	pad, ok2 := triple(c.Attr.Pad, large.logical, 0, 0)
	if !ok1 || !ok2 {
		return nil, c.errorf("stride is %v and pad %v: give a number for each spatial dimension, strides of at least 1 and pads of at least 0", c.Attr.Stride, c.Attr.Pad)
	}
	l, s, w := large.Shape, small.Shape, weights.Shape
	transposed := c.Op == plan.OpConvTranspose || c.Op == plan.OpConvTransposeBackwardData || c.Op == plan.OpConvTransposeBackwardWeights
	fits := l[0] == s[0] && w[0] == s[1] && w[1] == l[1] && len(large.logical) == len(small.logical) && len(large.logical) == len(weights.logical)
	for i := range stride {
		fits = fits && matches(large.space[i], small.space[i], weights.space[i], stride[i], pad[i], transposed)
	}
	if !fits {
		return nil, c.errorf("the shapes do not fit together with stride %v and pad %v", c.Attr.Stride, c.Attr.Pad)
	}
	if bias.present() && !bias.vector(c.out[0].Shape[1]) {
		return nil, c.errorf("the bias must have shape [%d]", c.out[0].Shape[1])
	}
	if x.useWinograd(c, large, small, weights) {
		switch c.Op {
		case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
			return newWinogradGradient(x, large, small, weights).tasks(), nil
		case plan.OpConv, plan.OpConvTransposeBackwardData:
			return x.counting(c.at, newWinograd(x, large, weights, small, bias.data, false)), nil
		default:
			return x.counting(c.at, newWinograd(x, small, weights, large, bias.data, true)), nil
		}
	}
	gather := spaceOf(large, small, weights, stride, pad, false)
	switch c.Op {
	case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return newWeightGradient(x, large, small, weights, gather).tasks(), nil
	case plan.OpConv, plan.OpConvTransposeBackwardData:
		return x.counting(c.at, newConvolution(x, large, weights, small, bias.data, gather, false)), nil
	default:
		scatter := spaceOf(large, small, weights, stride, pad, true)
		return x.counting(c.at, newConvolution(x, small, weights, large, bias.data, scatter, true)), nil
	}
}

// counting is the tasks of kernel at, a convolution, which takes the statistics
// of its output too where the next kernel wants them.
func (x *executable) counting(at int, c interface {
	tasks() []task
	takeTally() *tally
},
) []task {
	if x.tallied(at) {
		x.tally = c.takeTally()
	}
	return c.tasks()
}

// matches says whether the lengths of the large and the small side fit the
// window. A transposed convolution has the one large length that its small
// length gives; a convolution drops rows that no window reaches.
func matches(large, small, kernel, stride, pad int, transposed bool) bool {
	if transposed {
		return large == (small-1)*stride-2*pad+kernel
	}
	return large+2*pad >= kernel && small == (large+2*pad-kernel)/stride+1
}

// useWinograd says whether a convolution is computed by Winograd's method.
func (x *executable) useWinograd(c call, large, small, weights operand) bool {
	stride, _ := triple(c.Attr.Stride, weights.logical, 1, 1)
	pad, _ := triple(c.Attr.Pad, weights.logical, 0, 0)
	if x.engine.options.Convolution == "direct" || stride != [3]int{1, 1, 1} ||
		(weights.space != [3]int{1, 3, 3} || pad != [3]int{0, 1, 1}) && (weights.space != [3]int{3, 3, 3} || pad != [3]int{1, 1, 1}) {
		return false
	}
	return x.engine.options.Convolution == "winograd" || winogradPays(large, small, weights)
}
