package conv

import (
	"testing"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// TestUseWinograd checks the automatic choice, and that options force one where the
// algorithm is possible.
func TestUseWinograd(t *testing.T) {
	shape := func(c int, space [3]int) tensor.Operand {
		return tensor.Operand{Tensor: plan.Tensor{Shape: []int{1, c, space[0] * space[1], space[2]}}, Space: space, Layout: tensor.ActivationLayout}
	}
	maps := func(side int) [3]int { return [3]int{1, side, side} }
	cube := func(side int) [3]int { return [3]int{side, side, side} }
	square, all := [3]int{1, 3, 3}, [3]int{3, 3, 3}
	one := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	ones := plan.KernelAttr{Stride: []int{1, 1, 1}, Pad: []int{1, 1, 1}}
	flat := plan.KernelAttr{Stride: []int{1, 1, 1}, Pad: []int{0, 1, 1}}
	for _, c := range []struct {
		Direct        string
		channels      int
		space, window [3]int
		attr          plan.KernelAttr
		want          bool
	}{
		{"auto", 64, maps(64), square, one, true},
		{"auto", 8, maps(64), square, one, true},
		{"auto", 64, maps(8), square, one, true},
		{"auto", 512, maps(8), square, one, false},
		{"auto", 64, maps(4), square, one, false}, // a tile does not pay for the weights
		{"auto", 1, maps(64), square, one, false},
		{"winograd", 1, maps(2), square, one, true},
		{"direct", 64, maps(64), square, one, false},
		{"winograd", 64, maps(64), square, plan.KernelAttr{Stride: []int{2, 2}, Pad: []int{1, 1}}, false},
		{"winograd", 64, maps(64), square, plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{0, 1}}, false},
		{"auto", 32, cube(32), all, ones, true},
		{"auto", 128, cube(8), all, ones, true},
		{"auto", 256, cube(4), all, ones, false},
		{"auto", 3, cube(32), all, ones, false},
		{"winograd", 256, cube(2), all, ones, true},
		{"direct", 32, cube(32), all, ones, false},
		{"winograd", 32, cube(32), all, flat, false},
		{"winograd", 32, cube(32), [3]int{3, 1, 3}, plan.KernelAttr{Stride: []int{1, 1, 1}, Pad: []int{1, 0, 1}}, false},
		{"winograd", 32, cube(32), all, plan.KernelAttr{Stride: []int{2, 1, 1}, Pad: []int{1, 1, 1}}, false},
		{"auto", 32, cube(32), square, flat, true},
	} {
		large := shape(c.channels, c.space)
		weights := tensor.Operand{Logical: append([]int{64, 64}, c.window[3-len(c.attr.Stride):]...), Space: c.window}
		stride, pad := [3]int{1, 1, 1}, [3]int{}
		copy(stride[3-len(c.attr.Stride):], c.attr.Stride)
		copy(pad[3-len(c.attr.Pad):], c.attr.Pad)
		if got := ShouldUseWinograd(c.Direct, large, large, weights, stride, pad); got != c.want {
			t.Errorf("%s with %d channels on %v, window %v and %+v: %v", c.Direct, c.channels, c.space, c.window, c.attr, got)
		}
	}
}

// TestPassesForAllThreads checks that passes have more than the weights that fit, if so many units are
// wanted: with one chunk, two threads share the join of 768 to 256 channels of a 3-D U-Net.
func TestPassesForAllThreads(t *testing.T) {
	for least, want := range map[int]int{1: 8, 2: 4, 8: 1, 100: 1} {
		if p := newOutputChannelPasses(768/lanes*3, 256/lanes, 4, least); p.count != want {
			t.Errorf("at least %d units: %d passes, want %d", least, p.count, want)
		}
	}
}
