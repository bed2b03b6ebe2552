package selftest

import (
	"math"

	"lockstep/pkg/internal/plan"
)

// allOperations returns the operations to check. Their shapes cover first layers, channel
// counts that do not fill a block, maps smaller than a tile, sums over several blocks, strides,
// and windows of all kinds.
func (t *tester) allOperations() []operation {
	var all []operation
	all = append(all, t.convOperations()...)
	all = append(all, t.transposedConvOperations()...)
	all = append(all, t.conv3DOperations()...)
	for _, s := range t.featureMapShapes() {
		all = append(all, t.normOperations(s)...)
		all = append(all, t.pointwiseOperations(s)...)
	}
	all = append(all, t.channelCopyOperations()...)
	all = append(all, t.poolOperations()...)
	all = append(all, t.linearOperations()...)
	return append(all, t.classificationOperations()...)
}

func (t *tester) featureMapShapes() [][]int {
	list := [][]int{{2, 3, 5, 7}, {1, 17, 9, 6}, {2, 16, 40, 33}, {1, 9, 23, 50}}
	if t.options.Large {
		list = append(list, []int{2, 64, 128, 96}, []int{3, 72, 61, 67})
	}
	return list
}

// sumErrorBound is errorBound for sums of n products. The error of a sum of n terms in fp32
// is about √n·2⁻²⁴ times the size of a term.
func (t *tester) sumErrorBound(n, roundings int) float64 {
	return t.errorBound(float64(roundings)) + math.Sqrt(float64(n))*0x1p-24
}

// convShape is the shape of a two-dimensional convolution: n images of h×w pixels, from c to
// k channels, with windows of r×s pixels.
type convShape struct{ n, c, h, w, k, r, s, stride, pad int }

func (c convShape) attr() plan.KernelAttr {
	return plan.KernelAttr{Stride: []int{c.stride, c.stride}, Pad: []int{c.pad, c.pad}}
}

func (t *tester) convOperations() []operation {
	list := []convShape{
		{1, 1, 9, 13, 16, 3, 3, 1, 1},
		{1, 13, 7, 17, 19, 3, 3, 1, 1},
		{3, 24, 6, 5, 40, 3, 3, 1, 1},
		{2, 17, 5, 9, 3, 1, 1, 1, 0},
		{2, 9, 10, 11, 12, 3, 3, 2, 1},
		{1, 3, 21, 19, 11, 7, 7, 2, 3},
	}
	if t.options.Large {
		list = append(list, convShape{2, 64, 48, 40, 64, 3, 3, 1, 1}, convShape{1, 192, 16, 24, 128, 3, 3, 1, 1})
	}
	var all []operation
	for _, c := range list {
		x, w := []int{c.n, c.c, c.h, c.w}, []int{c.k, c.c, c.r, c.s}
		y := []int{c.n, c.k, (c.h+2*c.pad-c.r)/c.stride + 1, (c.w+2*c.pad-c.s)/c.stride + 1}
		taps := c.r * c.s
		all = append(
			all,
			operation{op: plan.OpConv, attr: c.attr(), in: [][]int{x, w}, out: [][]int{y}, bound: t.sumErrorBound(c.c*taps, 1), plans: true},
			operation{name: "conv with bias", op: plan.OpConv, attr: c.attr(), in: [][]int{x, w, {c.k}}, out: [][]int{y}, bound: t.sumErrorBound(c.c*taps, 2), plans: true},
			operation{op: plan.OpConvBackwardData, attr: c.attr(), in: [][]int{w, y}, out: [][]int{x}, bound: t.sumErrorBound(c.k*taps, 1), plans: true},
			operation{op: plan.OpConvBackwardWeights, attr: c.attr(), in: [][]int{x, y}, out: [][]int{w}, bound: t.sumErrorBound(c.n*y[2]*y[3], 1), plans: true},
		)
	}
	return all
}

func (t *tester) transposedConvOperations() []operation {
	list := []convShape{{2, 24, 5, 3, 12, 2, 2, 2, 0}, {1, 3, 4, 7, 5, 3, 3, 1, 1}}
	if t.options.Large {
		list = append(list, convShape{2, 128, 16, 24, 64, 2, 2, 2, 0})
	}
	var all []operation
	for _, c := range list {
		x, w := []int{c.n, c.c, c.h, c.w}, []int{c.c, c.k, c.r, c.s}
		y := []int{c.n, c.k, (c.h-1)*c.stride - 2*c.pad + c.r, (c.w-1)*c.stride - 2*c.pad + c.s}
		taps := c.r * c.s
		all = append(
			all,
			operation{op: plan.OpConvTranspose, attr: c.attr(), in: [][]int{x, w}, out: [][]int{y}, bound: t.sumErrorBound(c.c*taps, 1), plans: true},
			operation{name: "conv_transpose with bias", op: plan.OpConvTranspose, attr: c.attr(), in: [][]int{x, w, {c.k}}, out: [][]int{y}, bound: t.sumErrorBound(c.c*taps, 2), plans: true},
			operation{op: plan.OpConvTransposeBackwardData, attr: c.attr(), in: [][]int{w, y}, out: [][]int{x}, bound: t.sumErrorBound(c.k*taps, 1), plans: true},
			operation{op: plan.OpConvTransposeBackwardWeights, attr: c.attr(), in: [][]int{x, y}, out: [][]int{w}, bound: t.sumErrorBound(c.n*c.h*c.w, 1), plans: true},
		)
	}
	return all
}

// normOperations returns batch norms and their gradients for a map of shape s. In the forward
// pass the mean is far from zero, to reveal cancellation.
func (t *tester) normOperations(s []int) []operation {
	c := []int{s[1]}
	far := func(i int, v []float32, _ [][]float32) {
		for j := range v {
			if i == 0 {
				v[j] = 3*v[j] + 100
			}
		}
	}
	var all []operation
	for _, relu := range []bool{false, true} {
		name := map[bool]string{true: " and ReLU"}[relu]
		for _, training := range []bool{true, false} {
			o := operation{
				name: "batch_norm in training" + name, op: plan.OpBatchNorm, bound: t.errorBoundWithoutTensorCores(2), fill: far,
				attr: plan.KernelAttr{Training: training, ReLU: relu, Epsilon: 1e-5, Momentum: 0.1},
				in:   [][]int{s, c, c, c, c}, out: [][]int{s, c, c}, state: []int{3, 4},
			}
			if !training {
				o.name, o.out = "batch_norm in inference"+name, o.out[:1]
			}
			all = append(all, o)
		}
		back := operation{
			name: "batch_norm_backward" + name, op: plan.OpBatchNormBackward, bound: t.errorBoundWithoutTensorCores(2),
			attr: plan.KernelAttr{Training: true, ReLU: relu, Epsilon: 1e-5},
			in:   [][]int{s, c, c, c, s}, out: [][]int{s, c, c},
		}
		if relu {
			back.in = append(back.in, s)
		}
		all = append(all, back)
	}
	return all
}

func (t *tester) pointwiseOperations(s []int) []operation {
	one := t.errorBoundWithoutTensorCores(1)
	return []operation{
		{op: plan.OpAdd, in: [][]int{s, s}, out: [][]int{s}, bound: one},
		{op: plan.OpReLU, in: [][]int{s}, out: [][]int{s}, bound: one},
		{op: plan.OpReLUBackward, in: [][]int{s, s}, out: [][]int{s}, bound: one},
		{op: plan.OpBiasBackward, in: [][]int{s}, out: [][]int{{s[1]}}, bound: one},
		{op: plan.OpBCEWithLogits, in: [][]int{s, s}, out: [][]int{{1}}, bound: one, fill: roundTargetsToMask},
		{op: plan.OpBCEWithLogitsBackward, in: [][]int{s, s, {1}}, out: [][]int{s}, bound: one, fill: roundTargetsToMask},
	}
}

func roundTargetsToMask(i int, v []float32, _ [][]float32) {
	for j := range v {
		if i == 1 {
			v[j] = float32(math.Round(1 / (1 + math.Exp(-float64(v[j])))))
		}
	}
}

// channelCopyOperations returns operations that copy channels. Their expected results are exact.
func (t *tester) channelCopyOperations() []operation {
	var all []operation
	for _, c := range [][2]int{{8, 16}, {3, 5}, {5, 24}, {7, 9}} {
		a, b, y := []int{2, c[0], 3, 5}, []int{2, c[1], 3, 5}, []int{2, c[0] + c[1], 3, 5}
		all = append(
			all,
			operation{op: plan.OpConcat, in: [][]int{a, b}, out: [][]int{y}},
			operation{op: plan.OpSlice, in: [][]int{y}, out: [][]int{a}},
			operation{op: plan.OpSlice, attr: plan.KernelAttr{Offset: c[0]}, in: [][]int{y}, out: [][]int{b}},
		)
	}
	return all
}

// poolOperations returns poolings whose windows touch, overlap or leave gaps, and contain equal
// maxima.
func (t *tester) poolOperations() []operation {
	var all []operation
	coarse := func(i int, v []float32, _ [][]float32) {
		for j := range v {
			v[j] = float32(int(2 * v[j]))
		}
	}
	for _, s := range t.featureMapShapes() {
		for _, w := range [][2]int{{2, 2}, {3, 2}, {2, 3}} {
			attr := plan.KernelAttr{Kernel: []int{w[0], w[0]}, Stride: []int{w[1], w[1]}}
			y := []int{s[0], s[1], (s[2]-w[0])/w[1] + 1, (s[3]-w[0])/w[1] + 1}
			all = append(
				all,
				operation{op: plan.OpMaxPool, attr: attr, in: [][]int{s}, out: [][]int{y}, fill: coarse},
				operation{op: plan.OpMaxPoolBackward, attr: attr, in: [][]int{s, y, y}, out: [][]int{s}, bound: t.errorBoundWithoutTensorCores(1), fill: func(i int, v []float32, before [][]float32) {
					switch i {
					case 0:
						coarse(i, v, before)
					case 1: // operand 1 is the maxima of operand 0
						writeMaxima(before[0], v, s, y, w[0], w[1])
					}
				}},
			)
		}
	}
	return all
}

// writeMaxima writes the maximum of each window of x to out. s is the shape of x, and y is the
// shape of out.
func writeMaxima(x, out []float32, s, y []int, window, stride int) {
	for i := range out {
		plane, r, c := i/(y[2]*y[3]), i/y[3]%y[2]*stride, i%y[3]*stride
		out[i] = x[(plane*s[2]+r)*s[3]+c]
		for a := range window {
			for b := range window {
				out[i] = max(out[i], x[(plane*s[2]+r+a)*s[3]+c+b])
			}
		}
	}
}
