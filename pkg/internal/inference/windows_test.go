package inference

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/plan"
)

// TestSpans: kept parts cover the image once, begin and end at multiples of the step, and are a
// halo away from the border of their window unless that is the border of the image.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := 1 << rapid.IntRange(0, 4).Draw(t, "depth")
		size := step * rapid.IntRange(1, 100).Draw(t, "size")
		halo := step * rapid.IntRange(0, 6).Draw(t, "halo")
		window := 2*halo + step*rapid.IntRange(1, 100).Draw(t, "window")
		f := plan.ReceptiveField{Step: step, Reach: halo}
		for _, window := range []int{window, shrinkWindow(size, window, f)} {
			all := divideIntoWindows(size, window, halo)
			if len(all) != len(divideIntoWindows(size, shrinkWindow(size, window, f), halo)) {
				t.Errorf("shrinking the window changes the number of windows")
			}
			next := 0
			for _, s := range all {
				end := min(s.start+window, size)
				if s.keep != next || s.end <= s.keep || s.start < 0 || end-s.start != min(window, size) {
					t.Fatalf("window %d+%d of %d keeps %d to %d, want from %d", s.start, window, size, s.keep, s.end, next)
				}
				if s.start%step+s.keep%step+s.end%step != 0 {
					t.Fatalf("%+v is not at multiples of %d", s, step)
				}
				if s.start > 0 && s.keep-s.start < halo || end < size && end-s.end < halo {
					t.Fatalf("window %d to %d keeps %d to %d, nearer to its border than %d", s.start, end, s.keep, s.end, halo)
				}
				next = s.end
			}
			if next != size {
				t.Fatalf("the windows end at %d of %d", next, size)
			}
		}
	})
}

func TestPadImage(t *testing.T) {
	got := padImage([]float32{1, 2, 3, 4, 5, 6}, 1, 2, 3, 3, 5)
	if want := []float32{1, 2, 3, 2, 1, 4, 5, 6, 5, 4, 1, 2, 3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestChooseWindow(t *testing.T) {
	f := plan.ReceptiveField{Step: 8, Reach: 46}
	pixels := func(w [2]int) (int64, error) { return int64(w[0] * w[1]), nil }
	for _, c := range []struct {
		size, want [2]int
		limit      int64
	}{
		{[2]int{512, 512}, [2]int{512, 512}, 512 * 512},
		{[2]int{512, 512}, [2]int{304, 304}, 512*512 - 1}, // two windows of 256+48
		{[2]int{128, 4096}, [2]int{128, 352}, 128 * 400},  // 16 windows; the tried sides fall by a tenth
		{[2]int{512, 512}, [2]int{104, 104}, 104 * 104},
	} {
		if got, err := chooseWindowSize(c.size, f, c.limit, pixels); err != nil || got != c.want {
			t.Errorf("size %v, limit %d: got %v, %v, want %v", c.size, c.limit, got, err, c.want)
		}
	}
	if _, err := chooseWindowSize([2]int{512, 96}, f, 104*96-1, pixels); err == nil || !strings.Contains(err.Error(), "window of 104×96 pixels, the smallest for this network, needs 9.75 KiB of memory, but the limit is 9.749 KiB: raise MemoryBytes") {
		t.Errorf("got %v", err)
	}
	failed := errors.New("failed")
	if _, err := chooseWindowSize([2]int{8, 8}, f, 1, func([2]int) (int64, error) { return 0, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want the error of the plan", err)
	}
}
