package tensor

import (
	"slices"
	"testing"
)

// TestLayouts checks that unpacking returns every element that was packed.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		layout Layout
		shape  []int
		size   int // by hand: blocks of eight channels
	}{
		{VectorLayout, []int{1}, 8},
		{VectorLayout, []int{17}, 24},
		{ActivationLayout, []int{2, 3, 4, 5}, 2 * 1 * 4 * 5 * 8},
		{ActivationLayout, []int{1, 9, 2, 3}, 1 * 2 * 2 * 3 * 8},
		{ActivationLayout, []int{3, 9}, 3 * 2 * 8},
		{ActivationLayout, []int{2, 9, 2, 3, 4}, 2 * 2 * 2 * 3 * 4 * 8},
		{WeightLayout, []int{9, 3, 3, 2}, 2 * 1 * 3 * 2 * 64},
		{WeightLayout, []int{10, 17}, 2 * 3 * 64},
		{WeightLayout, []int{5, 9, 1, 2, 3}, 1 * 2 * 6 * 64},
	} {
		if got := c.layout.FloatCount(c.shape); got != c.size {
			t.Errorf("%s %v has %d floats, not %d", c.layout, c.shape, got, c.size)
		}
		want := make([]float64, ElementCount(c.shape))
		for i := range want {
			want[i] = float64(i + 1)
		}
		memory := make([]float32, c.size)
		Pack(c.layout, c.shape, memory, want)
		got := make([]float64, len(want))
		Unpack(c.layout, c.shape, got, memory)
		if !slices.Equal(got, want) {
			t.Errorf("%s %v comes back as %v", c.layout, c.shape, got)
		}
	}
}
