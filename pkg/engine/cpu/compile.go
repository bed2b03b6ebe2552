package cpu

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/plan"
)

// operand is a tensor of a kernel with its memory. An absent optional operand
// has id −1.
type operand struct {
	plan.Tensor
	id     int
	layout layout
	data   []float32 // nil where it has no memory of its own
	pieces []piece   // of an activation
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
				s = append(s, fmt.Sprint(o.Shape))
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
	case plan.OpAdd, plan.OpReLU, plan.OpReLUBackward:
		return x.pointwise(c)
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
			list[i] = operand{Tensor: x.program.Tensors[id], id: id, layout: x.layouts[id], data: x.data[id]}
			if x.layouts[id] == activationLayout {
				list[i].pieces = x.pieces(id)
			}
		} else {
			list[i] = operand{id: -1}
		}
	}
	return list
}

// pair reads an attribute with a number for each of two dimensions.
func pair(v []int, least int) (a, b int, ok bool) {
	if len(v) != 2 || v[0] < least || v[1] < least {
		return 0, 0, false
	}
	return v[0], v[1], true
}

// convolve prepares the six convolution kernels. All have a large side (a
// convolution's input, a transposed one's output), a small side, and weights
// [small's channels, large's channels, r, s].
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
		return nil, c.errorf("it takes activations [n,c,h,w] and weights of four dimensions")
	}
	sh, sw, ok1 := pair(c.Attr.Stride, 1)
	ph, pw, ok2 := pair(c.Attr.Pad, 0)
	if !ok1 || !ok2 {
		return nil, c.errorf("stride is %v and pad %v: give two numbers each, strides of at least 1 and pads of at least 0", c.Attr.Stride, c.Attr.Pad)
	}
	l, s, w := large.Shape, small.Shape, weights.Shape
	transposed := c.Op == plan.OpConvTranspose || c.Op == plan.OpConvTransposeBackwardData || c.Op == plan.OpConvTransposeBackwardWeights
	if l[0] != s[0] || w[0] != s[1] || w[1] != l[1] ||
		!matches(l[2], s[2], w[2], sh, ph, transposed) || !matches(l[3], s[3], w[3], sw, pw, transposed) {
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
	gatherH, gatherW := gatherAxis(l[2], s[2], w[2], sh, ph), gatherAxis(l[3], s[3], w[3], sw, pw)
	switch c.Op {
	case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights:
		return newWeightGradient(x, large, small, weights, gatherH, gatherW).tasks(), nil
	case plan.OpConv, plan.OpConvTransposeBackwardData:
		return x.counting(c.at, newConvolution(x, large, weights, small, bias.data, gatherH, gatherW, false)), nil
	default:
		scatterH, scatterW := scatterAxis(s[2], l[2], w[2], sh, ph), scatterAxis(s[3], l[3], w[3], sw, pw)
		return x.counting(c.at, newConvolution(x, small, weights, large, bias.data, scatterH, scatterW, true)), nil
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
	if x.engine.options.Convolution == "direct" ||
		!slices.Equal(weights.Shape[2:], []int{3, 3}) || !slices.Equal(c.Attr.Stride, []int{1, 1}) || !slices.Equal(c.Attr.Pad, []int{1, 1}) {
		return false
	}
	return x.engine.options.Convolution == "winograd" || winogradPays(large, small)
}
