package data

import (
	"fmt"
	"math"
	"slices"
	"strings"
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
			w.applyToImage(image, src, c.height, c.width)
			w.applyToMask(mask, src, c.height, c.width, outside)
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
	newWarp(90, 1).applyToImage(dst, src, 3, 3)
	if want := []float32{2, 5, 8, 1, 4, 7, 0, 3, 6}; !slices.Equal(dst, want) {
		t.Errorf("a quarter turn gives %v, want %v", dst, want)
	}
}

// TestDrawWarp: the options of earlier versions draw the same numbers as before (computed by
// the version without warp), also with the new options, whose values are uniform in their range.
func TestDrawWarp(t *testing.T) {
	old := Augment{Flip: true, Rotate: true, Crop: 16, Brightness: 0.2, Contrast: 0.3}
	all := old
	all.RotateDegrees, all.Scale, all.Gamma = 10, 0.5, 1
	shape := []int{1, 24, 24}
	const drawn = "16×16 at row 5, column 2 [0 1 2] [false true true] -0.17706184 0.93626124"
	got := old.drawAugmentation(3, 1, 5, shape)
	if text := fmt.Sprint(got.window, got.axis, got.mirror, got.brightness, got.contrast); text != drawn {
		t.Errorf("seed 3, epoch 1, sample 5: got %s, want %s", text, drawn)
	}
	const n = 2000
	var above [3]int // values above the middle of their range
	var lo, hi [3]float64
	for i := range n {
		c, without := all.drawAugmentation(3, 0, i, shape), old.drawAugmentation(3, 0, i, shape)
		factor := (1 << warpBits) / math.Hypot(float64(c.warp.along), float64(c.warp.across))
		parts := [3]float64{math.Atan2(float64(c.warp.across), float64(c.warp.along)) * 180 / math.Pi / 10, math.Log(factor) / math.Log(1.5), math.Log2(c.gamma)}
		for k, v := range parts {
			if v > 0 {
				above[k]++
			}
			lo[k], hi[k] = min(lo[k], v), max(hi[k], v)
		}
		if c.warp, c.gamma = without.warp, without.gamma; c != without || !c.warp.isIdentity() || c.gamma != 1 {
			t.Fatalf("sample %d: the new options change the old ones: %+v, %+v", i, c, without)
		}
	}
	for k, name := range []string{"angle", "scale", "gamma"} {
		if above[k] < n/2-100 || above[k] > n/2+100 || lo[k] < -1.0001 || lo[k] > -0.99 || hi[k] > 1.0001 || hi[k] < 0.99 { // deviation 22
			t.Errorf("%s: %d of %d are above the middle, from %g to %g of the range", name, above[k], n, lo[k], hi[k])
		}
	}
}

// patterned is a data set of pictures whose images and masks are 1, or, if values is set, have
// different values. If classes is set, targets are the index of a class, 3.
type patterned struct {
	shape           []int
	classes, values bool
}

func (p patterned) Len() int              { return 8 }
func (p patterned) ImageShape() []int     { return p.shape }
func (p patterned) SampleName(int) string { return "white" }
func (p patterned) TargetShape() []int {
	if p.classes {
		return []int{1}
	}
	return append([]int{1}, p.shape[1:]...)
}

func (p patterned) Get(_ int, image, target []float32) error {
	for i := range image {
		image[i] = 1
	}
	for i := range target {
		target[i] = 1
		if p.classes {
			target[i] = 3
		}
	}
	if p.values {
		copy(target, newPattern(copy(image, newPattern(len(image)))))
	}
	return nil
}

// openWarped returns a loader of one batch of p.
func openWarped(p patterned, o LoaderOptions) (*Loader, error) {
	s, err := NewSampler(SamplerOptions{Samples: p.Len(), World: 1, BatchPerWorker: p.Len()})
	if err != nil {
		return nil, err
	}
	return NewLoader(p, s, o)
}

// TestLoadWarped: pixels from outside are black, and background or ignored in the mask; class
// indices are not changed.
func TestLoadWarped(t *testing.T) {
	for _, augment := range []Augment{{RotateDegrees: 30}, {Scale: 0.5, Gamma: 0.5}, {RotateDegrees: 30, Scale: 0.5, Rotate: true, Crop: 10}, {RotateDegrees: 20, Flip: true, Rotate: true}} {
		for _, ignore := range []bool{false, true} {
			for _, classes := range []bool{false, true} {
				l, err := openWarped(patterned{shape: []int{2, 12, 12}, classes: classes}, LoaderOptions{Augment: augment, Seed: 4, IgnoreOutside: ignore})
				if err != nil {
					t.Fatal(err)
				}
				it := l.Epoch(t.Context(), 0)
				if !it.Next() {
					t.Fatal(it.Err())
				}
				b := it.Batch()
				outsideTarget, n, black := float32(0), l.ImageShape()[1]*l.ImageShape()[2], 0
				if ignore {
					outsideTarget = Ignored
				}
				for i, v := range b.Image {
					sample, k := i/(2*n), i%n
					target, want := b.Target[min(sample*n+k, len(b.Target)-1)], float32(1)
					if v == 0 {
						want, black = outsideTarget, black+1
					}
					if classes {
						target, want = b.Target[sample], 3
					}
					if v != 0 && v != 1 || target != want {
						t.Fatalf("%+v: value %d of the image is %g, and the target is %g, want %g", augment, i, v, target, want)
					}
				}
				if black == 0 || black > len(b.Image)/2 {
					t.Errorf("%+v: %d of %d values are from outside", augment, black, len(b.Image))
				}
				it.Close()
				l.Close()
			}
		}
	}
}

// loadPattern loads the batch of patterned values with the given augmentation.
func loadPattern(t *testing.T, a Augment) (image, target []float32) {
	t.Helper()
	l, err := openWarped(patterned{shape: []int{1, 12, 12}, values: true}, LoaderOptions{Augment: a, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	it := l.Epoch(t.Context(), 0)
	defer it.Close()
	if !it.Next() {
		t.Fatal(it.Err())
	}
	return slices.Clone(it.Batch().Image), slices.Clone(it.Batch().Target)
}

// TestWarpKeepsOtherOptions: a rotation by almost nothing changes almost nothing, whether or not
// the sample is also mirrored.
func TestWarpKeepsOtherOptions(t *testing.T) {
	for _, a := range []Augment{{Crop: 9}, {Flip: true, Rotate: true, Crop: 10, Brightness: 0.2, Contrast: 0.1}} {
		image, target := loadPattern(t, a)
		a.RotateDegrees, a.Gamma = 1e-3, 1e-6
		warped, mask := loadPattern(t, a)
		if slices.Equal(image, warped) || !slices.Equal(target, mask) {
			t.Errorf("%+v: the image is not rotated, or the mask is changed", a)
		}
		for i := range image {
			if math.Abs(float64(image[i]-warped[i])) > 1e-3 {
				t.Fatalf("%+v: value %d is %g, want %g", a, i, warped[i], image[i])
			}
		}
	}
}

// TestGamma: the values of each picture, but not of its mask, are raised to one power, after
// the change of brightness.
func TestGamma(t *testing.T) {
	image, target := loadPattern(t, Augment{Brightness: 0.2})
	bent, mask := loadPattern(t, Augment{Brightness: 0.2, Gamma: 0.5})
	if !slices.Equal(target, mask) {
		t.Error("the masks are changed")
	}
	exponents := map[string]bool{}
	for sample := range 8 {
		exponent := 0.0
		for k := range 144 {
			v, got := float64(image[sample*144+k]), float64(bent[sample*144+k])
			if exponent == 0 && v > 0.1 && v < 0.9 {
				exponent = math.Log(got) / math.Log(v)
			}
			if exponent != 0 && math.Abs(got-math.Pow(v, exponent)) > 1e-5 {
				t.Fatalf("sample %d: %g becomes %g, want %g", sample, v, got, math.Pow(v, exponent))
			}
		}
		if exponent < 0.666 || exponent > 1.501 || exponent == 1 {
			t.Errorf("sample %d has exponent %g, want 1/1.5 to 1.5", sample, exponent)
		}
		exponents[fmt.Sprintf("%.3f", exponent)] = true
	}
	if len(exponents) < 5 {
		t.Errorf("the exponents of 8 samples are %v", exponents)
	}
}

func TestUnsupportedWarp(t *testing.T) {
	for want, a := range map[string]Augment{"augment.rotate_degrees is 3": {RotateDegrees: 3}, "augment.scale is 0.5": {Scale: 0.5}, "augment.gamma is 0.25": {Gamma: 0.25}} {
		_, err := openWarped(patterned{shape: []int{1, 4, 4, 4}}, LoaderOptions{Augment: a})
		if err == nil || !strings.Contains(err.Error(), want+", but applies only to pictures [C,H,W]: leave it out") {
			t.Errorf("volumes: %v, want %q", err, want)
		}
		l, err := openWarped(patterned{shape: []int{1, 4, 4}}, LoaderOptions{Augment: a})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Bytes(t.Context(), 1<<20); err == nil || !strings.Contains(err.Error(), want+", which a GPU cannot apply: leave it out") {
			t.Errorf("bytes: %v, want %q", err, want)
		}
		l.Close()
	}
	for want, a := range map[string]Augment{
		"rotate_degrees is 181: use 0 (no change) to 180": {RotateDegrees: 181},
		"scale is -1: use 0":                              {Scale: -1},
		"gamma is NaN: use 0":                             {Gamma: math.NaN()},
	} {
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", a, err, want)
		}
	}
}

// BenchmarkWarp loads tiles of 128×128 pixels and their masks with all options; ns/op is the
// time per tile on one core.
func BenchmarkWarp(b *testing.B) {
	l, err := openWarped(patterned{shape: []int{1, 160, 160}}, LoaderOptions{IgnoreOutside: true, Augment: Augment{Flip: true, Rotate: true, Crop: 128, Brightness: 0.1, Contrast: 0.1, RotateDegrees: 15, Scale: 0.2, Gamma: 0.2}})
	if err != nil {
		b.Fatal(err)
	}
	s := sampleScratch{make([]float32, 128*128), make([]float32, 128*128)}
	image, target := slices.Clone(s.image), slices.Clone(s.target)
	for i := 0; b.Loop(); i++ {
		if err := l.loadSample(b.Context(), &s, i, i%8, image, target); err != nil {
			b.Fatal(err)
		}
	}
}
