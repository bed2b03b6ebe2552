package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lockstep/pkg/engine/internal/enginetest"
	"lockstep/pkg/internal/plan"
)

// shapes are activations that fill no block, no vector and no chunk.
func shapes() [][]int {
	return [][]int{{1, 1, 1, 1}, {2, 3, 5, 7}, {3, 8, 4, 4}, {1, 17, 9, 6}, {2, 16, 40, 33}, {1, 9, 23, 50}}
}

// TestBatchNorm uses two shapes with more than one chunk. The tolerance allows a few roundings,
// because the backward pass divides by σ and subtracts numbers that are nearly equal.
func TestBatchNorm(t *testing.T) {
	on := someEngines(t)
	for _, s := range shapes() {
		c := []int{s[1]}
		if s[0]*s[2]*s[3] == 1 {
			continue // one pixel has no variance: the reference divides by 0
		}
		for _, relu := range []bool{false, true} {
			for _, training := range []bool{false, true} {
				n := node{
					op: plan.OpBatchNorm, attr: plan.KernelAttr{Training: training, ReLU: relu, Epsilon: 1e-5, Momentum: 0.1},
					in: [][]int{s, c, c, c, c}, out: [][]int{s, c, c}, state: []int{3, 4},
					fill: func(_ *rand.Rand, i int, v []float32) {
						for j := range v {
							if i == 0 {
								v[j] = 3*v[j] + 100 // a mean far from 0 shows cancellation
							}
						}
					},
				}
				if !training {
					n.out = n.out[:1]
				}
				t.Run(fmt.Sprintf("%v/relu-%v/training-%v", s, relu, training), func(t *testing.T) { n.agrees(t, on, 2) })
			}
			n := node{
				op: plan.OpBatchNormBackward, attr: plan.KernelAttr{Training: true, ReLU: relu, Epsilon: 1e-5},
				in: [][]int{s, c, c, c, s}, out: [][]int{s, c, c},
			}
			if relu {
				n.in = append(n.in, s)
			}
			t.Run(fmt.Sprintf("backward/%v/relu-%v", s, relu), func(t *testing.T) { n.agrees(t, on, 2) })
		}
	}
}

// TestPointwise covers what works on each element alone, and sums of them.
func TestPointwise(t *testing.T) {
	on := someEngines(t)
	for _, s := range shapes() {
		for _, n := range []node{
			{op: plan.OpAdd, in: [][]int{s, s}, out: [][]int{s}},
			{op: plan.OpReLU, in: [][]int{s}, out: [][]int{s}},
			{op: plan.OpReLUBackward, in: [][]int{s, s}, out: [][]int{s}},
			{op: plan.OpBiasBackward, in: [][]int{s}, out: [][]int{{s[1]}}},
			{op: plan.OpBCEWithLogits, in: [][]int{s, s}, out: [][]int{{1}}},
			{op: plan.OpBCEWithLogitsBackward, in: [][]int{s, s, {1}}, out: [][]int{s}},
		} {
			t.Run(fmt.Sprintf("%s/%v", n.op, s), func(t *testing.T) { n.agrees(t, on, 1) })
		}
	}
	for _, n := range []node{
		{op: plan.OpAdd, in: [][]int{{11}, {11}}, out: [][]int{{11}}},
		{op: plan.OpReLU, in: [][]int{{7}}, out: [][]int{{7}}},
	} {
		t.Run(fmt.Sprintf("%s/vector", n.op), func(t *testing.T) { n.agrees(t, on, 1) })
	}
}

// TestChannels moves channels between blocks: exact.
func TestChannels(t *testing.T) {
	on := someEngines(t)
	for _, c := range [][2]int{{8, 16}, {3, 5}, {16, 3}, {5, 24}, {1, 1}, {7, 9}} {
		a, b, y := []int{2, c[0], 3, 5}, []int{2, c[1], 3, 5}, []int{2, c[0] + c[1], 3, 5}
		for _, n := range []node{
			{op: plan.OpConcat, in: [][]int{a, b}, out: [][]int{y}},
			{op: plan.OpSlice, in: [][]int{y}, out: [][]int{a}},
			{op: plan.OpSlice, attr: plan.KernelAttr{Offset: c[0]}, in: [][]int{y}, out: [][]int{b}},
		} {
			t.Run(fmt.Sprintf("%s/%d/%v", n.op, n.attr.Offset, c), func(t *testing.T) { n.agrees(t, on, 1) })
		}
	}
}

// TestMaxPool has windows that touch, overlap and leave gaps, and equal maxima.
func TestMaxPool(t *testing.T) {
	on := someEngines(t)
	for _, s := range [][]int{{2, 3, 8, 6}, {1, 17, 9, 11}, {3, 8, 5, 5}} {
		for _, w := range [][2]int{{2, 2}, {3, 2}, {2, 3}, {3, 1}, {1, 1}} {
			attr := plan.KernelAttr{Kernel: []int{w[0], w[0]}, Stride: []int{w[1], w[1]}}
			y := []int{s[0], s[1], (s[2]-w[0])/w[1] + 1, (s[3]-w[0])/w[1] + 1}
			coarse := func(_ *rand.Rand, _ int, v []float32) {
				for j := range v {
					v[j] = float32(int(2 * v[j]))
				}
			}
			t.Run(fmt.Sprintf("%v/%v", s, w), func(t *testing.T) {
				node{op: plan.OpMaxPool, attr: attr, in: [][]int{s}, out: [][]int{y}, fill: coarse}.agrees(t, on, 1)
			})
			var values []float32
			back := node{op: plan.OpMaxPoolBackward, attr: attr, in: [][]int{s, y, y}, out: [][]int{s}}
			back.fill = func(rng *rand.Rand, i int, v []float32) {
				switch i {
				case 0:
					coarse(rng, i, v)
					values = v
				case 1: // y, the maxima of x
					enginetest.ReferenceMaxPool(values, v, s, y, w[0], w[1])
				}
			}
			t.Run(fmt.Sprintf("backward/%v/%v", s, w), func(t *testing.T) { back.agrees(t, on, 1) })
		}
	}
}
