package data_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

func fields(t *testing.T, count, edge int) data.Dataset {
	ds, err := data.Fields(t.Context(), data.FieldsOptions{Count: count, Edge: edge, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// TestVolumes: files of every form give crops that are parts of what was
// written, turned alike.
func TestVolumes(t *testing.T) {
	want := fields(t, 2, 16)
	for name, f := range map[string]data.VolumeFormat{
		"in one piece": {}, "chunks": {Chunk: 5}, "packed": {Chunk: 8, Gzip: true}, "npy": {NPY: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := data.WriteVolumes(context.Background(), dir, want, f); err != nil {
				t.Fatal(err)
			}
			got, err := data.OpenVolumes(t.Context(), dir, data.VolumeOptions{InputChannels: 4, TargetChannels: 5})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := got.Close(); err != nil {
					t.Error(err)
				}
			}()
			if got.Len() != 2 || !slices.Equal(got.ImageShape(), []int{4, 16, 16, 16}) || !slices.Equal(got.TargetShape(), []int{5, 16, 16, 16}) {
				t.Fatalf("%d boxes of %v and %v", got.Len(), got.ImageShape(), got.TargetShape())
			}
			image, target := get(t, got, 1)
			if wantImage, wantTarget := get(t, want, 1); !slices.Equal(image, wantImage) || !slices.Equal(target, wantTarget) {
				t.Error("a whole box differs")
			}
			var both [2][]string
			for k, ds := range []data.Dataset{got, want} {
				many, err := data.Repeat(ds, 12)
				if err != nil {
					t.Fatal(err)
				}
				l := loader(t, many, data.SamplerOptions{World: 1, BatchPerWorker: 3, Shuffle: true}, data.LoaderOptions{Workers: 2, Augment: data.Augment{Flip: true, Rotate: true, Crop: 6}, Seed: 4})
				defer l.Close()
				for _, b := range read(t, l, 1) {
					both[k] = append(both[k], fmt.Sprint(b.Indices, b.Image, b.Target))
				}
			}
			if !slices.Equal(both[0], both[1]) {
				t.Error("crops differ from those of what was written")
			}
		})
	}
}

// TestVolumesStayOnDisk: crops of a box of 9.4 MB need no memory of that size.
func TestVolumesStayOnDisk(t *testing.T) {
	dir := t.TempDir()
	edge := 64
	if err := data.WriteVolumes(context.Background(), dir, fields(t, 1, edge), data.VolumeFormat{Chunk: 16}); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v, err := data.OpenVolumes(t.Context(), dir, data.VolumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	ds, err := data.Crops(v, 8, 20, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ds.Len() {
		get(t, ds, i)
	}
	runtime.ReadMemStats(&after)
	box := uint64(9 * 4 * edge * edge * edge)
	if used := after.TotalAlloc - before.TotalAlloc; used > box/10 {
		t.Errorf("%d bytes are allocated for 20 crops of a box of %d", used, box)
	}
}

func TestVolumesErrors(t *testing.T) {
	dir := t.TempDir()
	if err := data.WriteVolumes(context.Background(), dir, fields(t, 1, 8), data.VolumeFormat{}); err != nil {
		t.Fatal(err)
	}
	h5 := filepath.Join(dir, "box-0.h5")
	text, err := os.ReadFile(h5)
	if err != nil {
		t.Fatal(err)
	}
	half, other := filepath.Join(t.TempDir(), "half.h5"), filepath.Join(t.TempDir(), "other.h5")
	write(t, half, text[:len(text)/2])
	write(t, other, []byte("this is no HDF5 file"))
	lonely := t.TempDir()
	if err := data.WriteVolumes(context.Background(), lonely, fields(t, 1, 8), data.VolumeFormat{NPY: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(lonely, "box-0_Hydro.npy")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		o    data.VolumeOptions
		want string
	}{
		{filepath.Join(dir, "none.h5"), data.VolumeOptions{}, filepath.Join(dir, "none.h5") + " does not exist: set data.path (or --data DIR) to an HDF5 file"},
		{other, data.VolumeOptions{}, "open " + other + ": not an HDF5 file"},
		{half, data.VolumeOptions{}, "the end of the file"},
		{dir, data.VolumeOptions{InputChannels: 3}, h5 + ": Nbody has 4 channels, want 3 (its shape is [4 8 8 8])"},
		{h5, data.VolumeOptions{TargetChannels: 1}, h5 + ": Hydro has 5 channels, want 1"},
		{dir, data.VolumeOptions{Target: "Gas"}, "Gas does not exist; its group contains: Hydro, Nbody"},
		{t.TempDir(), data.VolumeOptions{}, "contains no volumes: want"},
		{lonely, data.VolumeOptions{}, "file " + filepath.Join(lonely, "box-0_Hydro.npy") + " does not exist"},
	} {
		if _, err := data.OpenVolumes(t.Context(), c.path, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	// A crop that is larger than the box.
	v, err := data.OpenVolumes(t.Context(), h5, data.VolumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	s, err := data.NewSampler(data.SamplerOptions{Samples: 1, World: 1, BatchPerWorker: 1})
	if err != nil {
		t.Fatal(err)
	}
	const want = "crop size 64×64×64 is larger than the sample size 8×8×8: use a smaller augment.crop"
	if _, err := data.NewLoader(v, s, data.LoaderOptions{Augment: data.Augment{Crop: 64}}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if _, err := data.Crops(v, 64, 1, 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestAugmentVolumes: all 48 symmetries of the cube come with rotations and
// flips, 24 with rotations alone; image and target are turned alike; epochs
// differ.
func TestAugmentVolumes(t *testing.T) {
	cube := cubes{n: 600, edge: 3}
	for want, a := range map[int]data.Augment{24: {Rotate: true}, 48: {Rotate: true, Flip: true}, 8: {Flip: true}} {
		l := loader(t, cube, data.SamplerOptions{World: 1, BatchPerWorker: 600}, data.LoaderOptions{Augment: a, Seed: 1})
		defer l.Close()
		seen := map[string]int{}
		first := read(t, l, 0)[0]
		for i := range cube.n {
			image := first.Image[i*27:][:27]
			if !slices.Equal(image, first.Target[i*27:][:27]) {
				t.Fatalf("box %d: image and target are turned differently", i)
			}
			seen[fmt.Sprint(image)]++
			if sorted := slices.Sorted(slices.Values(image)); sorted[0] != 0 || sorted[26] != 26 {
				t.Fatalf("values are not only moved: %v", image)
			}
		}
		if len(seen) != want {
			t.Errorf("%+v: %d ways to turn, want %d", a, len(seen), want)
		}
		if second := read(t, l, 1)[0]; slices.Equal(first.Image, second.Image) {
			t.Errorf("%+v: epochs are equal", a)
		}
	}
}

// cubes is boxes of places 0, 1, …, all the same.
type cubes struct{ n, edge int }

func (c cubes) Len() int              { return c.n }
func (c cubes) ImageShape() []int     { return []int{1, c.edge, c.edge, c.edge} }
func (c cubes) TargetShape() []int    { return c.ImageShape() }
func (c cubes) SampleName(int) string { return "cube" }
func (c cubes) Get(_ int, image, target []float32) error {
	for i := range image {
		image[i], target[i] = float32(i), float32(i)
	}
	return nil
}

// TestFields: periodic, of the stated relation and range, independent of how
// many there are.
func TestFields(t *testing.T) {
	one, two := fields(t, 1, 24), fields(t, 2, 24)
	image, target := get(t, two, 0)
	again, _ := get(t, one, 0)
	if !slices.Equal(image, again) {
		t.Error("box 0 depends on how many there are")
	}
	if slices.Min(target) < -1 || slices.Max(target) > 1 {
		t.Error("targets leave −1 to 1")
	}
	// Input and target are related: the correlation of δ with tanh(δs), and of v
	// with tanh(v)·drag, both by channel.
	n := 24 * 24 * 24
	for _, c := range [][2]int{{0, 0}, {1, 2}, {2, 3}, {3, 4}} {
		x, y := image[c[0]*n:][:n], target[c[1]*n:][:n]
		var sxy, sxx, syy float64
		for i := range x {
			sxy += float64(x[i]) * float64(y[i])
			sxx += float64(x[i]) * float64(x[i])
			syy += float64(y[i]) * float64(y[i])
		}
		if r := sxy * sxy / (sxx * syy); r < 0.6 {
			t.Errorf("input %d and target %d correlate by r² = %.2f", c[0], c[1], r)
		}
	}
}

// TestCrops: held-out crops stay where they are, whatever else is asked for.
func TestCrops(t *testing.T) {
	v := fields(t, 2, 12)
	a, err := data.Crops(v, 5, 9, 3)
	if err != nil {
		t.Fatal(err)
	}
	b, err := data.Crops(v, 5, 4, 3)
	if err != nil {
		t.Fatal(err)
	}
	if a.Len() != 9 || !slices.Equal(a.ImageShape(), []int{4, 5, 5, 5}) || a.SampleName(3) != "fields-1-1[crop 3]" {
		t.Errorf("%d crops of %v, %s", a.Len(), a.ImageShape(), a.SampleName(3))
	}
	places := map[string]bool{}
	for i := range b.Len() {
		x, _ := get(t, a, i)
		y, _ := get(t, b, i)
		if !slices.Equal(x, y) {
			t.Errorf("crop %d depends on how many there are", i)
		}
		places[fmt.Sprint(x)] = true
	}
	if len(places) != 4 {
		t.Errorf("%d of 4 crops differ", len(places))
	}
	for _, c := range []struct {
		edge, n int
		want    string
	}{{5, 0, "0 crops"}, {0, 1, "edge is 0"}} {
		if _, err := data.Crops(v, c.edge, c.n, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := data.Repeat(v, 0); err == nil {
		t.Error("no samples at all")
	}
}
