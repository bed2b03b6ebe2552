package selftest

import (
	"math"
	"slices"

	"lockstep/pkg/internal/plan"
)

// linearOperations returns fully connected layers and their gradients, such as the last layer
// of a ResNet.
func (t *tester) linearOperations() []operation {
	list := [][3]int{{1, 8, 8}, {5, 19, 10}, {3, 200, 37}} // samples, inputs, outputs
	if t.options.Large {
		list = append(list, [3]int{256, 2048, 1000})
	}
	var all []operation
	for _, s := range list {
		x, w, y := []int{s[0], s[1]}, []int{s[2], s[1]}, []int{s[0], s[2]}
		all = append(
			all,
			operation{op: plan.OpLinear, in: [][]int{x, w}, out: [][]int{y}, bound: t.sumErrorBound(s[1], 1), plans: true},
			operation{name: "linear with bias", op: plan.OpLinear, in: [][]int{x, w, {s[2]}}, out: [][]int{y}, bound: t.sumErrorBound(s[1], 2), plans: true},
			operation{op: plan.OpLinearBackwardData, in: [][]int{w, y}, out: [][]int{x}, bound: t.sumErrorBound(s[2], 1), plans: true},
			operation{op: plan.OpLinearBackwardWeights, in: [][]int{x, y}, out: [][]int{w}, bound: t.sumErrorBound(s[0], 1), plans: true},
			operation{name: "bias_backward of a linear layer", op: plan.OpBiasBackward, in: [][]int{y}, out: [][]int{{s[2]}}, bound: t.errorBoundWithoutTensorCores(1)},
		)
	}
	return all
}

func (t *tester) classificationOperations() []operation {
	one := t.errorBoundWithoutTensorCores(1)
	var all []operation
	maps := append(t.featureMapShapes(), []int{2, 9, 3, 5, 4})
	for _, s := range maps {
		small, points := s[:2], elementCount(s[2:])
		all = append(
			all,
			operation{op: plan.OpGlobalAvgPool, in: [][]int{s}, out: [][]int{small}, bound: t.sumErrorBound(points, 1)},
			operation{op: plan.OpGlobalAvgPoolBackward, in: [][]int{small}, out: [][]int{s}, bound: t.errorBound(2)},
			operation{op: plan.OpReshape, in: [][]int{s}, out: [][]int{{s[0], s[1] * points}}},
			operation{name: "reshape back", op: plan.OpReshape, in: [][]int{{s[0], s[1] * points}}, out: [][]int{s}},
			operation{op: plan.OpLeakyReLU, attr: plan.KernelAttr{Slope: 0.2}, in: [][]int{s}, out: [][]int{s}, bound: one},
			operation{op: plan.OpLeakyReLUBackward, attr: plan.KernelAttr{Slope: 0.2}, in: [][]int{s, s}, out: [][]int{s}, bound: one},
			operation{op: plan.OpTanh, in: [][]int{s}, out: [][]int{s}, bound: t.errorBound(2)},
			operation{op: plan.OpTanhBackward, in: [][]int{s, s}, out: [][]int{s}, bound: t.errorBound(2)},
			operation{op: plan.OpL1, in: [][]int{s, s}, out: [][]int{{1}}, bound: t.sumErrorBound(elementCount(s), 1)},
			operation{op: plan.OpL1Backward, in: [][]int{s, s, {1}}, out: [][]int{s}, bound: one},
			operation{name: "l1 with exponentials", op: plan.OpL1, attr: plan.KernelAttr{ExpWeight: 1e-4}, in: [][]int{s, s}, out: [][]int{{1}}, bound: t.sumErrorBound(elementCount(s), 1), fill: scaleDownLossOperands},
			operation{name: "l1_backward with exponentials", op: plan.OpL1Backward, attr: plan.KernelAttr{ExpWeight: 1e-4}, in: [][]int{s, s, {1}}, out: [][]int{s}, bound: t.errorBoundWithoutTensorCores(2), fill: scaleDownLossOperands},
			operation{op: plan.OpDiceBCE, attr: plan.KernelAttr{DiceWeight: 0.5}, in: [][]int{s, s}, out: [][]int{{1}}, bound: t.errorBoundWithoutTensorCores(2), fill: roundTargetsToMask},
			operation{op: plan.OpDiceBCEBackward, attr: plan.KernelAttr{DiceWeight: 0.5}, in: [][]int{s, s, {1}}, out: [][]int{s}, bound: t.errorBoundWithoutTensorCores(2), fill: roundTargetsToMask},
		)
		all = append(all, padOperations(s)...)
	}
	for _, s := range t.featureMapShapes() {
		for _, w := range [][2]int{{2, 2}, {3, 2}, {2, 3}} {
			attr := plan.KernelAttr{Kernel: []int{w[0], w[0]}, Stride: []int{w[1], w[1]}}
			y := []int{s[0], s[1], (s[2]-w[0])/w[1] + 1, (s[3]-w[0])/w[1] + 1}
			all = append(
				all,
				operation{op: plan.OpAvgPool, attr: attr, in: [][]int{s}, out: [][]int{y}, bound: t.errorBound(2)},
				operation{op: plan.OpAvgPoolBackward, attr: attr, in: [][]int{y}, out: [][]int{s}, bound: t.errorBound(2)},
			)
		}
		for _, zeros := range []bool{false, true} {
			all = append(all, paddedPoolOperation(s, zeros))
		}
	}
	for _, c := range [][2]int{{1, 2}, {33, 10}, {130, 100}} {
		z, target := []int{c[0], c[1]}, []int{c[0], 1}
		classes := func(i int, v []float32, _ [][]float32) {
			for j := range v {
				if i == 1 {
					v[j] = float32(int(math.Abs(float64(v[j]))*1000) % c[1])
				}
			}
		}
		for _, smoothing := range []float64{0, 0.125} {
			attr := plan.KernelAttr{Smoothing: smoothing}
			all = append(
				all,
				operation{op: plan.OpSoftmaxCrossEntropy, attr: attr, in: [][]int{z, target}, out: [][]int{{1}}, bound: t.errorBoundWithoutTensorCores(4), fill: classes},
				operation{op: plan.OpSoftmaxCrossEntropyBackward, attr: attr, in: [][]int{z, target, {1}}, out: [][]int{z}, bound: t.errorBound(4), fill: classes},
			)
		}
	}
	return all
}

// scaleDownLossOperands divides v by 8 if operand i is the logits or the targets, so that fp16 can
// represent their exponentials and the scaled gradients of the exponentials.
func scaleDownLossOperands(i int, v []float32, _ [][]float32) {
	for j := range v {
		if i < 2 {
			v[j] /= 8
		}
	}
}

// padOperations returns paddings of a map of shape s, with different sizes before and after the
// map. Their expected results are exact.
func padOperations(s []int) []operation {
	n := len(s) - 2
	attr := plan.KernelAttr{Pad: []int{1, 0, 2}[:n], PadEnd: []int{0, 2, 1}[:n]}
	y := slices.Clone(s)
	for i := range n {
		y[2+i] += attr.Pad[i] + attr.PadEnd[i]
	}
	return []operation{
		{op: plan.OpPad, attr: attr, in: [][]int{s}, out: [][]int{y}},
		{op: plan.OpPadBackward, attr: attr, in: [][]int{y}, out: [][]int{s}},
	}
}

// paddedPoolOperation returns the first max pooling of a ResNet: overlapping windows of 3
// with padding 1. If zeros is set, the padding counts as zeros, which may be maxima.
func paddedPoolOperation(s []int, zeros bool) operation {
	attr := plan.KernelAttr{Kernel: []int{3, 3}, Stride: []int{2, 2}, Pad: []int{1, 1}, PadZeros: zeros}
	name := "max_pool with padding"
	if zeros {
		name = "max_pool with zeros around"
	}
	y := []int{s[0], s[1], (s[2]-1)/2 + 1, (s[3]-1)/2 + 1}
	return operation{name: name, op: plan.OpMaxPool, attr: attr, in: [][]int{s}, out: [][]int{y}}
}
