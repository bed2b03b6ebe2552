package inference

import (
	"fmt"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
)

// windowSpan is a window along one dimension, in pixels. The window begins at start. Its output
// is kept from pixel keep to pixel end, excluding end.
type windowSpan struct{ start, keep, end int }

// divideIntoWindows divides size pixels into overlapping windows of the given length. Except at
// the border of the image, a window extends halo pixels beyond the part that is kept. A window
// that would extend beyond the image is shifted inwards. If all arguments are multiples of the
// network's step, so are the results.
func divideIntoWindows(size, window, halo int) []windowSpan {
	if window >= size {
		return []windowSpan{{0, 0, size}}
	}
	var list []windowSpan
	for keep := 0; keep < size; {
		start := min(max(0, keep-halo), size-window)
		end := start + window - halo
		if start+window == size {
			end = size
		}
		list = append(list, windowSpan{start, keep, end})
		keep = end
	}
	return list
}

func roundUp(n, step int) int { return (n + step - 1) / step * step }

// padImage enlarges a [C,h,w] image to [C,height,width] by reflection at the bottom and right
// borders. The last row and column are not repeated. An image must have more pixels in each
// dimension than are added.
func padImage(v []float32, channels, h, w, height, width int) []float32 {
	if h == height && w == width {
		return v
	}
	out := make([]float32, channels*height*width)
	reflect := func(i, n int) int {
		if i < n {
			return i
		}
		return 2*(n-1) - i
	}
	for c := range channels {
		for y := range height {
			from := v[(c*h+reflect(y, h))*w:][:w]
			to := out[(c*height+y)*width:][:width]
			copy(to, from)
			for x := w; x < width; x++ {
				to[x] = from[reflect(x, w)]
			}
		}
	}
	return out
}

// copyRegion copies a region of the given size from each plane of src to dst. from and to are the
// row and column of the region's first pixel in src and in dst.
func copyRegion(dst []float32, dstSize, to [2]int, src []float32, srcSize, from [2]int, size [2]int) {
	for c := range len(src) / (srcSize[0] * srcSize[1]) {
		for y := range size[0] {
			copy(dst[(c*dstSize[0]+to[0]+y)*dstSize[1]+to[1]:][:size[1]], src[(c*srcSize[0]+from[0]+y)*srcSize[1]+from[1]:])
		}
	}
}

// shrinkWindow returns the smallest window with which size pixels need no more windows than
// with window.
func shrinkWindow(size, window int, f plan.ReceptiveField) int {
	n := len(divideIntoWindows(size, window, f.Halo()))
	return roundUp((size+2*f.Halo()*(n-1)+n-1)/n, f.Step)
}

// chooseWindowSize returns the rows and columns of a window whose program needs at most limit bytes.
// The window is the whole image if possible, otherwise about as large as limit allows. memory
// returns the bytes that the program for a window needs. size, the size of the image, is a
// multiple of f.Step.
func chooseWindowSize(size [2]int, f plan.ReceptiveField, limit int64, memory func(window [2]int) (int64, error)) ([2]int, error) {
	least := 2*f.Halo() + f.Step
	window := size
	for {
		need, err := memory(window)
		if err != nil {
			return window, err
		}
		if need <= limit {
			return [2]int{shrinkWindow(size[0], window[0], f), shrinkWindow(size[1], window[1], f)}, nil
		}
		smallest := [2]int{min(least, size[0]), min(least, size[1])}
		if window == smallest {
			return window, fmt.Errorf("a window of %d×%d pixels, the smallest for this network, needs %s of memory, but the limit is %s: raise MemoryBytes (--memory)",
				window[0], window[1], english.FormatBytes(need), english.FormatBytes(limit))
		}
		// Windows become square before they become smaller on both sides.
		side := max(window[0], window[1])
		side = min(side-f.Step, side*9/10)
		side = max(least, side/f.Step*f.Step)
		window = [2]int{min(side, window[0]), min(side, window[1])}
	}
}
