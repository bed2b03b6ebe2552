package selftest

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

func (t *tester) conv3DOperations() []operation {
	var all []operation
	for _, r := range []conv3DGeometry{
		{n: 2, largeC: 5, smallC: 9, taps: 3, stride: 1, pad: 1, large: [3]int{4, 5, 7}},
		{n: 1, largeC: 16, smallC: 8, taps: 2, stride: 2, pad: 0, large: [3]int{4, 6, 8}}, // the transposed convolution of a U-Net: its forward pass is a data gradient
	} {
		for i, s := range r.large {
			r.small[i] = (s+2*r.pad-r.taps)/r.stride + 1
		}
		cube := r.taps * r.taps * r.taps
		x := append([]int{r.n, r.largeC}, r.large[:]...)
		w := []int{r.smallC, r.largeC, r.taps, r.taps, r.taps}
		y := append([]int{r.n, r.smallC}, r.small[:]...)
		attr := plan.KernelAttr{Stride: slices.Repeat([]int{r.stride}, 3), Pad: slices.Repeat([]int{r.pad}, 3)}
		all = append(
			all,
			operation{
				name: "conv in 3-D, forward", op: plan.OpConv, attr: attr, in: [][]int{x, w}, out: [][]int{y}, bound: t.sumErrorBound(r.largeC*cube, 1), plans: true,
				want: func(in [][]float64) [][]float64 { return [][]float64{r.computeConvOperand(0, nil, in[0], in[1])} },
			},
			operation{
				name: "conv in 3-D, backward data", op: plan.OpConvBackwardData, attr: attr, in: [][]int{w, y}, out: [][]int{x}, bound: t.sumErrorBound(r.smallC*cube, 1), plans: true,
				want: func(in [][]float64) [][]float64 { return [][]float64{r.computeConvOperand(1, in[1], nil, in[0])} },
			},
			operation{
				name: "conv in 3-D, backward weights", op: plan.OpConvBackwardWeights, attr: attr, in: [][]int{x, y}, out: [][]int{w}, bound: t.sumErrorBound(r.n*elementCount(r.small[:]), 1), plans: true,
				want: func(in [][]float64) [][]float64 { return [][]float64{r.computeConvOperand(2, in[1], in[0], nil)} },
			},
		)
	}
	return all
}

// conv3DGeometry is the geometry of a three-dimensional convolution. Its weight at position q
// of the window connects position p of the small map with position p·stride + q − pad of the
// large map.
type conv3DGeometry struct {
	n, smallC, largeC, taps, stride, pad int
	small, large                         [3]int
}

// computeConvOperand computes one operand from the other two. operand is 0 for the small map, 1 for the
// large map and 2 for the weights w.
func (r conv3DGeometry) computeConvOperand(operand int, small, large, w []float64) []float64 {
	volume := func(s [3]int) int { return s[0] * s[1] * s[2] }
	cube := r.taps * r.taps * r.taps
	out := make([]float64, [3]int{r.n * r.smallC * volume(r.small), r.n * r.largeC * volume(r.large), r.smallC * r.largeC * cube}[operand])
	for at := range r.n * r.smallC * volume(r.small) {
		p := at % volume(r.small)
		position := [3]int{p / (r.small[1] * r.small[2]), p / r.small[2] % r.small[1], p % r.small[2]}
		n, k := at/volume(r.small)/r.smallC, at/volume(r.small)%r.smallC
		for tap := range cube {
			to, inside := 0, true
			for axis, q := range [3]int{tap / (r.taps * r.taps), tap / r.taps % r.taps, tap % r.taps} {
				v := position[axis]*r.stride + q - r.pad
				inside = inside && v >= 0 && v < r.large[axis]
				to = to*r.large[axis] + v
			}
			for c := 0; inside && c < r.largeC; c++ {
				i, j := (n*r.largeC+c)*volume(r.large)+to, (k*r.largeC+c)*cube+tap
				switch operand {
				case 0:
					out[at] += large[i] * w[j]
				case 1:
					out[i] += small[at] * w[j]
				default:
					out[j] += small[at] * large[i]
				}
			}
		}
	}
	return out
}
