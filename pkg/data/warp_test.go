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
