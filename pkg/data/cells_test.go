package data_test

import (
	"math"
	"slices"
	"testing"

	"lockstep/pkg/data"
)

// TestCells: an image depends on seed, index and size alone; values and masks
// are in range, and there is foreground and background in each.
func TestCells(t *testing.T) {
	c := data.CellsOptions{Count: 6, Height: 96, Width: 128, Seed: 7}
	few, more := cells(t, c), cells(t, data.CellsOptions{Count: 9, Height: 96, Width: 128, Seed: 7})
	c.Seed = 8
	other := cells(t, c)
	for i := range few.Len() {
		image, target := get(t, few, i)
		again, mask := get(t, more, i)
		if !slices.Equal(image, again) || !slices.Equal(target, mask) {
			t.Errorf("image %d depends on how many are generated", i)
		}
		if unlike, _ := get(t, other, i); slices.Equal(image, unlike) {
			t.Errorf("image %d is the same for two seeds", i)
		}
		if next, _ := get(t, more, i+1); slices.Equal(image, next) {
			t.Errorf("images %d and %d are the same", i, i+1)
		}
		foreground := 0.0
		for k, v := range image {
			if v < 0 || v > 1 || target[k] != 0 && target[k] != 1 {
				t.Fatalf("image %d pixel %d is %g, mask %g", i, k, v, target[k])
			}
			foreground += float64(target[k])
		}
		if f := foreground / float64(len(image)); f < 0.03 || f > 0.5 {
			t.Errorf("image %d is %.0f %% foreground", i, 100*f)
		}
	}
	for _, c := range []data.CellsOptions{{Count: 0, Height: 64, Width: 64}, {Count: 1, Height: 7, Width: 64}, {Count: 1, Height: 1 << 20, Width: 1 << 20}} {
		if _, err := data.Cells(t.Context(), c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestCellsNeedContext: no grey threshold, in either direction, comes near the
// masks, but the absolute difference from the local mean, which a small
// network can compute, tells more than grey does.
func TestCellsNeedContext(t *testing.T) {
	ds := cells(t, data.CellsOptions{Count: 8, Height: 128, Width: 128, Seed: 1})
	var grey, local, constant float64
	for i := range ds.Len() {
		image, target := get(t, ds, i)
		negative := make([]float32, len(image))
		ones := make([]float32, len(image))
		for k, v := range image {
			negative[k], ones[k] = -v, 1
		}
		grey += max(bestIoU(image, target), bestIoU(negative, target)) / float64(ds.Len())
		constant += bestIoU(ones, target) / float64(ds.Len())
		small, large := boxMean(image, 128, 128, 2), boxMean(image, 128, 128, 12)
		for k := range small {
			small[k] = float32(math.Abs(float64(small[k] - large[k])))
		}
		local += bestIoU(boxMean(small, 128, 128, 2), target) / float64(ds.Len())
	}
	t.Logf("best IoU: constant %.2f, grey threshold %.2f, local contrast %.2f", constant, grey, local)
	if grey > 0.5 {
		t.Errorf("a grey threshold chosen for each image has an IoU of %.2f: the task is trivial", grey)
	}
	if local < grey+0.05 || local < constant+0.1 {
		t.Errorf("local contrast has an IoU of %.2f, a grey threshold %.2f, a constant %.2f: there is nothing to learn", local, grey, constant)
	}
}

// bestIoU is the IoU of the best of 64 thresholds on v.
func bestIoU(v, target []float32) float64 {
	lo, hi := slices.Min(v), slices.Max(v)
	best := 0.0
	for k := range 64 {
		at := lo + (hi-lo)*float32(k)/64
		var both, either float64
		for i, x := range v {
			p := x >= at
			if p && target[i] == 1 {
				both++
			}
			if p || target[i] == 1 {
				either++
			}
		}
		best = max(best, both/either)
	}
	return best
}

// boxMean is the mean over the (2r+1)² window around each pixel.
func boxMean(v []float32, h, w, r int) []float32 {
	out := make([]float32, len(v))
	for y := range h {
		for x := range w {
			sum, n := float32(0), float32(0)
			for j := max(0, y-r); j <= min(h-1, y+r); j++ {
				for i := max(0, x-r); i <= min(w-1, x+r); i++ {
					sum += v[j*w+i]
					n++
				}
			}
			out[y*w+x] = sum / n
		}
	}
	return out
}
