package data_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// box is n equal volumes [1,D,H,W] whose values are their places; targets are the
// negative of them.
type box struct {
	n    int
	size [3]int
}

func (b box) Len() int              { return b.n }
func (b box) ImageShape() []int     { return []int{1, b.size[0], b.size[1], b.size[2]} }
func (b box) TargetShape() []int    { return b.ImageShape() }
func (b box) SampleName(int) string { return "box" }
func (b box) Get(_ int, image, target []float32) error {
	for k := range image {
		image[k], target[k] = float32(k), -float32(k)
	}
	return nil
}

// turnOf is the matrix of a turned box: row k is the step in the box, along depth,
// row and column, that a step along axis k of v is.
func turnOf(t *testing.T, v []float32, size [3]int) (m [3][3]int) {
	place := func(k float32) [3]int {
		i := int(k)
		return [3]int{i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]}
	}
	along := [3]int{size[1] * size[2], size[2], 1}
	for k := range v { // the same everywhere, or it is no turn
		at := place(float32(k))
		for axis := range 3 {
			if at[axis]+1 == size[axis] {
				continue
			}
			from, to := place(v[k]), place(v[k+along[axis]])
			step := [3]int{to[0] - from[0], to[1] - from[1], to[2] - from[2]}
			if k > 0 && m[axis] != [3]int{} && m[axis] != step {
				t.Fatalf("%v is no box that was turned", v)
			}
			m[axis] = step
		}
	}
	return m
}

func determinant(m [3][3]int) int {
	return m[0][0]*(m[1][1]*m[2][2]-m[1][2]*m[2][1]) - m[0][1]*(m[1][0]*m[2][2]-m[1][2]*m[2][0]) + m[0][2]*(m[1][0]*m[2][1]-m[1][1]*m[2][0])
}

// TestTurnsOfVolumes: a cube comes in its 24 rotations and none mirrored, each as
// often; with flips in all 48; a box of unequal sides in the 4 half turns that keep
// its shape. The target is turned as the image is.
func TestTurnsOfVolumes(t *testing.T) {
	for _, c := range []struct {
		name           string
		size           [3]int
		augment        data.Augment
		turns          int
		mirrored, half bool
	}{
		{"cube, rotated", [3]int{3, 3, 3}, data.Augment{Rotate: true}, 24, false, false},
		{"cube, rotated and flipped", [3]int{3, 3, 3}, data.Augment{Rotate: true, Flip: true}, 48, true, false},
		{"cube, flipped", [3]int{3, 3, 3}, data.Augment{Flip: true}, 8, true, true},
		{"box, rotated", [3]int{2, 3, 4}, data.Augment{Rotate: true}, 4, false, true},
		{"slab, rotated", [3]int{2, 3, 3}, data.Augment{Rotate: true}, 4, false, true},
	} {
		n := 50 * c.turns
		l := loader(t, box{n, c.size}, data.SamplerOptions{World: 1, BatchPerWorker: n}, data.LoaderOptions{Augment: c.augment, Seed: 3})
		b := read(t, l, 0)[0]
		l.Close()
		volume := c.size[0] * c.size[1] * c.size[2]
		seen := map[[3][3]int]int{}
		for i := range n {
			image, target := b.Image[i*volume:][:volume], b.Target[i*volume:][:volume]
			for k := range image {
				if target[k] != -image[k] {
					t.Fatalf("%s: the target of sample %d is not turned as its image", c.name, i)
				}
			}
			sorted := slices.Clone(image)
			slices.Sort(sorted)
			if sorted[0] != 0 || sorted[volume-1] != float32(volume-1) {
				t.Fatalf("%s: sample %d lost values: %v", c.name, i, image)
			}
			m := turnOf(t, image, c.size)
			switch d := determinant(m); {
			case d != 1 && d != -1, d == -1 && !c.mirrored:
				t.Fatalf("%s: sample %d is turned by %v of determinant %d", c.name, i, m, d)
			case c.half && (m[0][0] == 0 || m[1][1] == 0 || m[2][2] == 0):
				t.Fatalf("%s: sample %d is turned by %v, which changes its axes", c.name, i, m)
			}
			seen[m]++
		}
		if len(seen) != c.turns {
			t.Errorf("%s: %d turns came, want %d", c.name, len(seen), c.turns)
		}
		for m, times := range seen { // 50 expected, deviation 7
			if times < 15 || times > 90 {
				t.Errorf("%s: %v came %d times of %d", c.name, m, times, n)
			}
		}
	}
}

// grey is n pictures of two values, with a mask.
type grey struct{ n int }

func (g grey) Len() int              { return g.n }
func (g grey) ImageShape() []int     { return []int{1, 1, 2} }
func (g grey) TargetShape() []int    { return []int{1, 1, 2} }
func (g grey) SampleName(int) string { return "grey" }
func (g grey) Get(_ int, image, target []float32) error {
	copy(image, []float32{0.4, 0.6})
	copy(target, []float32{0, 1})
	return nil
}

// TestJitter: what became of 0.4 and 0.6 tells brightness and contrast of each
// sample: they fill their ranges, each is drawn by itself, one switched off does
// nothing, and masks stay.
func TestJitter(t *testing.T) {
	const n = 400
	for _, c := range []data.Augment{{Brightness: 0.2}, {Contrast: 0.5}, {Brightness: 0.1, Contrast: 0.9}, {}} {
		t.Run(fmt.Sprintf("%g %g", c.Brightness, c.Contrast), func(t *testing.T) {
			l := loader(t, grey{n}, data.SamplerOptions{World: 1, BatchPerWorker: n}, data.LoaderOptions{Augment: c, Seed: 2})
			defer l.Close()
			b := read(t, l, 0)[0]
			least, most := [2]float64{9, 9}, [2]float64{-9, -9}
			var together float64
			for i := range n {
				if b.Target[2*i] != 0 || b.Target[2*i+1] != 1 {
					t.Fatalf("the mask of sample %d is %v", i, b.Target[2*i:][:2])
				}
				low, high := float64(b.Image[2*i]), float64(b.Image[2*i+1])
				// (0.4−½)·c + ½ + b and (0.6−½)·c + ½ + b
				brightness, contrast := (low+high)/2-0.5, (high-low)/0.2-1
				for k, v := range []float64{brightness, contrast} {
					least[k], most[k] = min(least[k], v), max(most[k], v)
				}
				together += brightness * contrast
			}
			for k, limit := range []float64{c.Brightness, c.Contrast} {
				if most[k] > limit+1e-5 || least[k] < -limit-1e-5 || most[k] < 0.97*limit-1e-5 || least[k] > -0.97*limit+1e-5 {
					t.Errorf("number %d is %g to %g, want ±%g", k, least[k], most[k], limit)
				}
			}
			// Of independent numbers the mean product has a deviation of limits/3/√400.
			if d := math.Abs(together / n); d > c.Brightness*c.Contrast/3/20*4+1e-6 {
				t.Errorf("brightness and contrast go together: %g", d)
			}
		})
	}
	l := loader(t, grey{4}, data.SamplerOptions{World: 1, BatchPerWorker: 4}, data.LoaderOptions{Augment: data.Augment{Brightness: 1}, Seed: 2})
	defer l.Close()
	if a, b := read(t, l, 0)[0], read(t, l, 1)[0]; slices.Equal(a.Image, b.Image) {
		t.Error("two epochs are equally bright")
	}
}

// TestCropsReachEverything: held-out crops are cut at every place of their box,
// its two ends among them.
func TestCropsReachEverything(t *testing.T) {
	ds, err := data.Crops(box{1, [3]int{3, 4, 5}}, 2, 600, 1)
	if err != nil {
		t.Fatal(err)
	}
	places := map[float32]int{}
	for i := range ds.Len() {
		image, target := get(t, ds, i)
		for k, v := range []float32{0, 1, 5, 6, 20, 21, 25, 26} {
			if image[k] != image[0]+v || target[k] != -image[k] {
				t.Fatalf("crop %d is %v, its target %v", i, image, target)
			}
		}
		places[image[0]]++
	}
	for z := range 2 {
		for y := range 3 {
			for x := range 4 {
				if n := places[float32(20*z+5*y+x)]; n < 5 || n > 60 { // 25 expected, deviation 5
					t.Errorf("%d of 600 crops begin at %d, %d, %d", n, z, y, x)
				}
			}
		}
	}
}

// fine is a picture of values that are not integers divided by 255.
type fine struct{ grey }

func (f fine) Get(i int, image, target []float32) error {
	copy(image, []float32{0.3, float32(i) / 7})
	copy(target, []float32{0.1, 0.9})
	return nil
}

// TestInMemoryKeepsPrecision: what does not fit in bytes is kept as it is.
func TestInMemoryKeepsPrecision(t *testing.T) {
	for _, ds := range []data.Dataset{fine{grey{5}}, grey{5}, box{2, [3]int{2, 2, 2}}} {
		kept := data.InMemory(ds)
		for i := range ds.Len() {
			wantImage, wantTarget := get(t, ds, i)
			for range 2 { // as it is read, and as it is kept
				if image, target := get(t, kept, i); !slices.Equal(image, wantImage) || !slices.Equal(target, wantTarget) {
					t.Errorf("%T: sample %d is %v, want %v", ds, i, image, wantImage)
				}
			}
		}
	}
}

// TestUnequalSides: boxes whose sides differ come back from both formats as they
// were written, whole and cut.
func TestUnequalSides(t *testing.T) {
	for _, format := range []data.VolumeFormat{{NPY: true}, {}, {Chunk: 2, Gzip: true}} {
		want := box{2, [3]int{3, 4, 5}}
		dir := t.TempDir()
		if err := data.WriteVolumes(t.Context(), dir, want, format); err != nil {
			t.Fatal(err)
		}
		v, err := data.OpenVolumes(t.Context(), dir, data.VolumeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.ImageShape(), want.ImageShape()) || !slices.Equal(v.TargetShape(), want.TargetShape()) {
			t.Fatalf("%+v: %v and %v, want %v", format, v.ImageShape(), v.TargetShape(), want.ImageShape())
		}
		cut, err := data.Crops(v, 2, 8, 1)
		if err != nil {
			t.Fatal(err)
		}
		cutOfWant, err := data.Crops(want, 2, 8, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range [][2]data.Dataset{{v, want}, {cut, cutOfWant}} {
			for i := range pair[1].Len() {
				image, target := get(t, pair[0], i)
				wantImage, wantTarget := get(t, pair[1], i)
				if !slices.Equal(image, wantImage) || !slices.Equal(target, wantTarget) {
					t.Errorf("%+v: sample %d is %v, want %v", format, i, image, wantImage)
				}
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBoxesOfOneShape: all boxes of a folder must be alike, in the targets too.
func TestBoxesOfOneShape(t *testing.T) {
	for name, other := range map[string]data.Dataset{"size": fields(t, 1, 8), "channels": swapped{fields(t, 1, 12)}} {
		dir := t.TempDir()
		first := filepath.Join(dir, "other")
		for path, ds := range map[string]data.Dataset{dir: fields(t, 1, 12), first: other} {
			if err := data.WriteVolumes(t.Context(), path, ds, data.VolumeFormat{}); err != nil {
				t.Fatal(err)
			}
		}
		second := filepath.Join(dir, "box-1.h5")
		if err := os.Rename(filepath.Join(first, "box-0.h5"), second); err != nil {
			t.Fatal(err)
		}
		if _, err := data.OpenVolumes(t.Context(), dir, data.VolumeOptions{}); err == nil || !strings.Contains(err.Error(), second+": input and target have shapes [") || !strings.Contains(err.Error(), "all volumes must have the same shapes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A target of other channels alone.
	dir := t.TempDir()
	for i, channels := range []int{5, 3} {
		if err := data.WriteVolumes(t.Context(), filepath.Join(dir, "a"), narrowed{fields(t, 1, 8), channels}, data.VolumeFormat{NPY: true}); err != nil {
			t.Fatal(err)
		}
		for _, end := range []string{"_Nbody.npy", "_Hydro.npy"} {
			if err := os.Rename(filepath.Join(dir, "a", "box-0"+end), filepath.Join(dir, fmt.Sprint(i)+end)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := data.OpenVolumes(t.Context(), dir, data.VolumeOptions{}); err == nil || !strings.Contains(err.Error(), "input and target have shapes [4 8 8 8] and [3 8 8 8], but the shapes in") {
		t.Error(err)
	}
}

// narrowed is volumes with the first channels of the targets.
type narrowed struct {
	data.Dataset
	channels int
}

func (n narrowed) TargetShape() []int {
	return append([]int{n.channels}, n.Dataset.TargetShape()[1:]...)
}

func (n narrowed) Get(i int, image, target []float32) error {
	whole := make([]float32, 5*8*8*8)
	if err := n.Dataset.Get(i, image, whole); err != nil {
		return err
	}
	copy(target, whole)
	return nil
}
