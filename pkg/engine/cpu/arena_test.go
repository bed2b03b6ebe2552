package cpu

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPackIntervals: buffers alive at once never overlap, and the arena is no
// smaller than what is alive at once and no larger than all of it.
func TestPackIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.Custom(func(t *rapid.T) interval {
			first := rapid.IntRange(0, 20).Draw(t, "first")
			return interval{rapid.IntRange(1, 100).Draw(t, "size"), first, first + rapid.IntRange(0, 10).Draw(t, "length")}
		})).Draw(t, "list")
		offsets, total := packIntervals(list)
		alive, sum := make([]int, 32), 0
		for i, a := range list {
			sum += a.size
			if offsets[i] < 0 || offsets[i]+a.size > total {
				t.Fatalf("buffer %d at %d leaves the arena of %d", i, offsets[i], total)
			}
			for s := a.first; s <= a.last; s++ {
				alive[s] += a.size
			}
			for j, b := range list[:i] {
				if a.first <= b.last && b.first <= a.last && offsets[i] < offsets[j]+b.size && offsets[j] < offsets[i]+a.size {
					t.Fatalf("buffers %d and %d overlap", j, i)
				}
			}
		}
		if least := slices.Max(alive); total < least || total > sum {
			t.Fatalf("the arena has %d floats: at least %d and at most %d make sense", total, least, sum)
		}
	})
}

// TestArenaReuses: a chain of equal buffers, each read by the next, needs two.
func TestArenaReuses(t *testing.T) {
	var list []interval
	for i := range 10 {
		list = append(list, interval{64, i, i + 1})
	}
	if _, total := packIntervals(list); total != 128 {
		t.Errorf("a chain of buffers of 64 takes %d, not 128", total)
	}
}

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
		{weightLayout, []int{9, 3, 3, 2}, 2 * 1 * 3 * 2 * 64},
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
