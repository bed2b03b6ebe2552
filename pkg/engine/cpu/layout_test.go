package cpu

import (
	"slices"
	"testing"
)

// TestLayouts: packing and unpacking gives back every element, and touches
// each place once.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		layout layout
		shape  []int
		size   int // by hand: blocks of eight channels
	}{
		{vectorLayout, []int{1}, 8},
		{vectorLayout, []int{17}, 24},
		{activationLayout, []int{2, 3, 4, 5}, 2 * 1 * 4 * 5 * 8},
		{activationLayout, []int{1, 9, 2, 3}, 1 * 2 * 2 * 3 * 8},
		{activationLayout, []int{3, 9}, 3 * 2 * 8},
		{activationLayout, []int{2, 9, 2, 3, 4}, 2 * 2 * 2 * 3 * 4 * 8},
		{weightLayout, []int{9, 3, 3, 2}, 2 * 1 * 3 * 2 * 64},
		{weightLayout, []int{10, 17}, 2 * 3 * 64},
		{weightLayout, []int{5, 9, 1, 2, 3}, 1 * 2 * 6 * 64},
	} {
		if got := c.layout.size(c.shape); got != c.size {
			t.Errorf("%s %v has %d floats, not %d", c.layout, c.shape, got, c.size)
		}
		want := make([]float64, elements(c.shape))
		for i := range want {
			want[i] = float64(i + 1)
		}
		memory := make([]float32, c.size)
		pack(c.layout, c.shape, memory, want)
		got := make([]float64, len(want))
		unpack(c.layout, c.shape, got, memory)
		if !slices.Equal(got, want) {
			t.Errorf("%s %v comes back as %v", c.layout, c.shape, got)
		}
	}
}
