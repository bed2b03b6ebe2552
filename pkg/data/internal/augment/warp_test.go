package augment

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// newPattern returns values from 0 to 1 without symmetry.
func newPattern(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i*7919%251) / 250
	}
	return v
}

// TestWarp compares images and masks with loops over the definition, in float64.
func TestWarp(t *testing.T) {
	for _, c := range []struct {
		height, width   int
		degrees, factor float64
	}{{9, 9, 0, 1}, {9, 9, 17, 1}, {8, 12, -33, 1.4}, {13, 6, 140, 0.7}, {1, 7, 20, 0.5}, {40, 41, 3, 2}} {
		t.Run(fmt.Sprintf("%d×%d by %g°, ×%g", c.height, c.width, c.degrees, c.factor), func(t *testing.T) {
			const channels, outside = 2, 9
			plane := c.height * c.width
			src := newPattern(channels * plane)
			image, mask := newPattern(len(src)), newPattern(len(src)) // the old content of a buffer
			w := newWarp(c.degrees, c.factor)
			w.warpImage(image, src, c.height, c.width)
			w.warpMask(mask, src, c.height, c.width, outside)
			at := func(channel int, y, x float64) float64 { // the nearest pixel of src
				row, column := min(max(int(y), 0), c.height-1), min(max(int(x), 0), c.width-1)
				return float64(src[channel*plane+row*c.width+column])
			}
			sin, cos := math.Sincos(c.degrees * math.Pi / 180)
			for i := range src {
				channel, k := i/plane, i%plane
				cy, cx := float64(c.height-1)/2, float64(c.width-1)/2
				dy, dx := (float64(k/c.width)-cy)/c.factor, (float64(k%c.width)-cx)/c.factor
				y, x := cy+cos*dy+sin*dx, cx+cos*dx-sin*dy
				row, column := math.Floor(y+0.5), math.Floor(x+0.5)
				wantImage, wantMask := 0.0, float64(outside)
				if row >= 0 && column >= 0 && row < float64(c.height) && column < float64(c.width) {
					y0, x0 := math.Floor(y), math.Floor(x)
					fy, fx := y-y0, x-x0
					wantMask = at(channel, row, column)
					wantImage = (1-fy)*((1-fx)*at(channel, y0, x0)+fx*at(channel, y0, x0+1)) + fy*((1-fx)*at(channel, y0+1, x0)+fx*at(channel, y0+1, x0+1))
				}
				if math.Abs(float64(image[i])-wantImage) > 1e-5 || float64(mask[i]) != wantMask {
					t.Fatalf("value %d is %g in the image and %g in the mask, want %g and %g", i, image[i], mask[i], wantImage, wantMask)
				}
			}
		})
	}
	// A quarter turn moves each pixel of a square: the right column becomes the top row.
	src, dst := []float32{0, 1, 2, 3, 4, 5, 6, 7, 8}, make([]float32, 9)
	newWarp(90, 1).warpImage(dst, src, 3, 3)
	if want := []float32{2, 5, 8, 1, 4, 7, 0, 3, 6}; !slices.Equal(dst, want) {
		t.Errorf("a quarter turn gives %v, want %v", dst, want)
	}
}

// TestDrawWarp: the options of earlier versions draw the same numbers as before (computed by
// the version without warp), also with the new options, whose values are uniform in their range.
func TestDrawWarp(t *testing.T) {
	old := Options{Flip: true, Rotate: true, Brightness: 0.2, Contrast: 0.3}
	all := old
	all.RotateDegrees, all.Scale, all.Gamma = 10, 0.5, 1
	shape, cropped := []int{1, 24, 24}, []int{1, 16, 16}
	const drawn = "16×16 at row 5, column 2 [0 1 2] [false true true] -0.17706184 0.93626124"
	got := old.DrawChoices(3, 1, 5, shape, cropped)
	if text := fmt.Sprint(got.Window, got.axis, got.mirror, got.brightness, got.contrast); text != drawn {
		t.Errorf("seed 3, epoch 1, sample 5: got %s, want %s", text, drawn)
	}
	const n = 2000
	var above [3]int // values above the middle of their range
	var lo, hi [3]float64
	for i := range n {
		c, without := all.DrawChoices(3, 0, i, shape, cropped), old.DrawChoices(3, 0, i, shape, cropped)
		factor := (1 << warpFractionBits) / math.Hypot(float64(c.warp.along), float64(c.warp.across))
		parts := [3]float64{math.Atan2(float64(c.warp.across), float64(c.warp.along)) * 180 / math.Pi / 10, math.Log(factor) / math.Log(1.5), math.Log2(c.gamma)}
		for k, v := range parts {
			if v > 0 {
				above[k]++
			}
			lo[k], hi[k] = min(lo[k], v), max(hi[k], v)
		}
		if c.warp, c.gamma = without.warp, without.gamma; c != without || c.IsWarped() || c.gamma != 1 {
			t.Fatalf("sample %d: the new options change the old ones: %+v, %+v", i, c, without)
		}
	}
	for k, name := range []string{"angle", "scale", "gamma"} {
		if above[k] < n/2-100 || above[k] > n/2+100 || lo[k] < -1.0001 || lo[k] > -0.99 || hi[k] > 1.0001 || hi[k] < 0.99 { // deviation 22
			t.Errorf("%s: %d of %d are above the middle, from %g to %g of the range", name, above[k], n, lo[k], hi[k])
		}
	}
}
