package data_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// fingerprintOf opens the data of c and returns their fingerprint.
func fingerprintOf(t *testing.T, c data.Config) data.Fingerprint {
	t.Helper()
	o, err := data.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := o.Fingerprint(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// swap exchanges the contents of two files.
func swap(t *testing.T, a, b string) {
	t.Helper()
	first, second := readFile(t, a), readFile(t, b)
	write(t, a, second)
	write(t, b, first)
}

// changeByte changes one byte in the middle of a file.
func changeByte(t *testing.T, path string) {
	t.Helper()
	text := slices.Clone(readFile(t, path))
	text[len(text)/2] ^= 1
	write(t, path, text)
}

// rename renames a file of a folder.
func rename(t *testing.T, dir, before, after string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, before), filepath.Join(dir, after)); err != nil {
		t.Fatal(err)
	}
}

// TestFingerprintOfFiles changes data sets of each kind in one place at a time: the fingerprint
// differs if the samples do, and only then.
func TestFingerprintOfFiles(t *testing.T) {
	ctx := t.Context()
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	pictures, err := data.Shapes(ctx, data.ShapesOptions{Count: 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		data.WriteCells(ctx, at("pairs"), data.CellsOptions{Count: 4, Height: 16, Width: 16, Seed: 1}),
		data.WriteCIFAR10(ctx, at("cifar"), pictures, pictures),
		data.WriteFolders(ctx, at("folders"), pictures, "png"),
		data.WriteVolumes(ctx, at("h5"), fields(t, 3, 8), data.VolumeFormat{}),
		data.WriteVolumes(ctx, at("npy"), fields(t, 3, 8), data.VolumeFormat{NPY: true}),
	); err != nil {
		t.Fatal(err)
	}
	write(t, at("folders/train_data.pkl"), []byte("(dp0\nVdisc/000000.png\np1\nI0\nsVring/000001.png\np2\nI1\ns."))
	for _, name := range []string{"a.tif", "b.tif"} {
		write(t, at("stacks/image/"+name), readFile(t, "internal/tiff/testdata/f32.tif"))
		write(t, at("stacks/label/"+name), readFile(t, "internal/tiff/testdata/f32-strips.tif"))
	}
	remove := func(t *testing.T, dir string, names ...string) {
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	type change struct {
		name   string
		change func(t *testing.T, dir string)
	}
	swapped := func(a, b string) change {
		return change{"swap " + a, func(t *testing.T, dir string) { swap(t, filepath.Join(dir, a), filepath.Join(dir, b)) }}
	}
	byteOf := func(name string) change {
		return change{"byte of " + name, func(t *testing.T, dir string) { changeByte(t, filepath.Join(dir, name)) }}
	}
	for _, tt := range []struct {
		folder  string
		config  data.Config
		changes []change
	}{
		{"pairs", data.Config{Kind: data.KindPairs, TestImages: 1}, []change{
			swapped("image/0.png", "image/1.png"), swapped("label/0.png", "label/1.png"),
			{"a byte more", func(t *testing.T, dir string) {
				path := filepath.Join(dir, "label/2.png")
				write(t, path, append(slices.Clone(readFile(t, path)), 0))
			}},
			{"renamed pair", func(t *testing.T, dir string) {
				rename(t, dir, "image/3.png", "image/5.png")
				rename(t, dir, "label/3.png", "label/5.png")
			}},
			{"a pair less", func(t *testing.T, dir string) { remove(t, dir, "image/3.png", "label/3.png") }},
			{"a pair more", func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "image/4.png"), readFile(t, filepath.Join(dir, "image/0.png")))
				write(t, filepath.Join(dir, "label/4.png"), readFile(t, filepath.Join(dir, "label/0.png")))
			}},
		}},
		{"stacks", data.Config{Kind: data.KindStacks, TestImages: 1}, []change{
			{"image as label", func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "label/a.tif"), readFile(t, filepath.Join(dir, "image/a.tif")))
			}},
			byteOf("image/b.tif"),
		}},
		{"cifar/cifar-10-batches-bin", data.Config{Kind: data.KindCIFAR10}, []change{
			swapped("data_batch_1.bin", "data_batch_2.bin"), byteOf("test_batch.bin"), byteOf("data_batch_5.bin"),
			{"other class names", func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "batches.meta.txt"), []byte("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"))
			}},
		}},
		{"folders", data.Config{Kind: data.KindFolders, TestImages: 2}, []change{
			byteOf("ring/000001.png"), swapped("disc/000000.png", "ring/000001.png"),
			{"other class", func(t *testing.T, dir string) { rename(t, dir, "disc/000000.png", "ring/000000.png") }},
			{"other class name", func(t *testing.T, dir string) { rename(t, dir, "disc", "dizc") }},
		}},
		{"folders", data.Config{Kind: data.KindImageNet, TestImages: 1}, []change{
			byteOf("ring/000001.png"),
			{"swapped classes", func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "train_data.pkl"), []byte("(dp0\nVdisc/000000.png\np1\nI1\nsVring/000001.png\np2\nI0\ns."))
			}},
			{"other order", func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "train_data.pkl"), []byte("(dp0\nVring/000001.png\np1\nI1\nsVdisc/000000.png\np2\nI0\ns."))
			}},
		}},
		{"h5", data.Config{Kind: data.KindVolumes, TestImages: 1}, []change{byteOf("box-1.h5"), swapped("box-0.h5", "box-2.h5")}},
		{"npy", data.Config{Kind: data.KindVolumes, TestImages: 1}, []change{byteOf("box-1_Hydro.npy"), swapped("box-0_Nbody.npy", "box-1_Nbody.npy"), byteOf("box-2_Nbody.npy")}},
	} {
		t.Run(tt.config.Kind+" "+tt.folder, func(t *testing.T) {
			t.Parallel()
			copied := func() data.Config {
				c := tt.config
				c.Path = filepath.Join(t.TempDir(), "elsewhere")
				if err := os.CopyFS(c.Path, os.DirFS(at(tt.folder))); err != nil {
					t.Fatal(err)
				}
				return c
			}
			c := tt.config
			c.Path = at(tt.folder)
			want := fingerprintOf(t, c)
			if !strings.HasPrefix(want.Hash, "v1:") || want.IsSampled() || want.Files == 0 || want.Bytes == 0 {
				t.Errorf("got %+v", want)
			}
			moved := copied()
			for _, name := range []string{"README.md", ".hidden.png", "Thumbs.db"} {
				write(t, filepath.Join(moved.Path, name), []byte("x"))
			}
			if got := fingerprintOf(t, moved); got != want {
				t.Errorf("a copy with more files that are not read: got %+v, want %+v", got, want)
			}
			seen := map[string]string{want.Hash: "unchanged"}
			for _, change := range tt.changes {
				c := copied()
				change.change(t, c.Path)
				hash := fingerprintOf(t, c).Hash
				if other, ok := seen[hash]; ok {
					t.Errorf("%s: the fingerprint equals the one of: %s", change.name, other)
				}
				seen[hash] = change.name
			}
		})
	}
}

// TestFingerprintOfTestData: separate test data are a part of the data, and a single file of
// volumes may have any name. The folder of CIFAR-10's batches or its parent are the same data,
// and so is a staged copy.
func TestFingerprintOfTestData(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	small, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		data.WriteVolumes(t.Context(), at("all"), fields(t, 3, 8), data.VolumeFormat{}),
		data.WriteCIFAR10(t.Context(), at("parent"), small, small),
		os.Mkdir(at("stage"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	c := data.Config{Kind: data.KindVolumes, Path: at("all/box-0.h5"), TestPath: at("all/box-1.h5")}
	want := fingerprintOf(t, c)
	write(t, at("copy.hdf5"), readFile(t, c.Path))
	moved := c
	moved.Path = at("copy.hdf5")
	if got := fingerprintOf(t, moved); got != want {
		t.Errorf("another name of the file: got %+v, want %+v", got, want)
	}
	other := c
	other.TestPath = at("all/box-2.h5")
	exchanged := c
	exchanged.Path, exchanged.TestPath = c.TestPath, c.Path
	for _, c := range []data.Config{other, exchanged} {
		if got := fingerprintOf(t, c); got.Hash == want.Hash {
			t.Errorf("%+v has the fingerprint of other test data", c)
		}
	}
	c.Stage = at("stage")
	staged, err := data.Stage(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	o, err := data.Open(t.Context(), staged.Config)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := o.Fingerprint(t.Context(), c); err != nil || got != want {
		t.Errorf("staged: %v, got %+v, want %+v", err, got, want)
	}
	if err := staged.Close(); err != nil {
		t.Error(err)
	}
	cifar := data.Config{Kind: data.KindCIFAR10, Path: at("parent")}
	want = fingerprintOf(t, cifar)
	cifar.Path = at("parent/cifar-10-batches-bin")
	if got := fingerprintOf(t, cifar); got != want {
		t.Errorf("the folder of the batches: got %+v, want %+v", got, want)
	}
}

// TestFingerprintCoversSettings changes each field of a config: the fingerprint differs, unless
// the field is the place of the data or belongs to the training.
func TestFingerprintCoversSettings(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	small, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		data.WriteCells(t.Context(), filepath.Join(place, "pairs"), data.CellsOptions{Count: 4, Height: 16, Width: 16, Seed: 1}),
		data.WriteVolumes(t.Context(), filepath.Join(place, "volumes"), fields(t, 3, 12), data.VolumeFormat{}),
		data.WriteFolders(t.Context(), filepath.Join(place, "folders"), small, "png"),
	); err != nil {
		t.Fatal(err)
	}
	configs := []data.Config{
		{Kind: data.KindCells, Count: 8, Height: 16, Width: 16, TestImages: 2, Tile: 8},
		{Kind: data.KindPairs, Path: filepath.Join(place, "pairs"), TestImages: 1},
		{Kind: data.KindShapes, Count: 12, TestImages: 2},
		{Kind: data.KindFields, Count: 3, Edge: 12, TestImages: 1, Samples: 8, TestSamples: 4, Augment: data.Augment{Crop: 8}},
		{Kind: data.KindVolumes, Path: filepath.Join(place, "volumes"), Input: "Nbody", Target: "Hydro", TestImages: 1},
		{Kind: data.KindFolders, Path: filepath.Join(place, "folders"), TestImages: 1},
	}
	// Values that leave each of the configs valid in which the field is set to them.
	changes := map[string]any{
		"Foreground": "black", "Count": 9, "Height": 24, "Width": 24, "Edge": 16, "Classes": 5, "DataSeed": int64(3), "TestImages": 2,
		"Tile": 4, "Samples": 9, "TestSamples": 5, "Input": "Hydro", "Target": "Nbody", "Resize": 8,
		"ValidationImages": 1, "ToGray": true, "MaskValues": map[int]string{0: "background", 255: "cell"}, "Group": "[0-9]",
	}
	noPart := []string{
		"Kind", "Path", "TestPath", "InputChannels", "TargetChannels", "Augment", "DropLast", "Stage",
		"Reading", "MaskSuffix", "SideMultiple", // do not change the samples that they can be used for
		"Range",
	} // see TestRange, whose files have 16 bits
	for i := range reflect.TypeFor[data.Config]().NumField() {
		name := reflect.TypeFor[data.Config]().Field(i).Name
		if slices.Contains(noPart, name) {
			continue
		}
		value, ok := changes[name]
		if !ok {
			t.Errorf("field %s of data.Config: add it to sampleSettings and to this test, unless it does not change the samples", name)
			continue
		}
		noticed := false
		for _, c := range configs {
			before := fingerprintOf(t, c)
			reflect.ValueOf(&c).Elem().Field(i).Set(reflect.ValueOf(value))
			if o, err := data.Open(t.Context(), c); err == nil {
				f, err := o.Fingerprint(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				noticed = noticed || f.Hash != before.Hash
			}
		}
		if !noticed {
			t.Errorf("another %s does not change the fingerprint of any config", name)
		}
	}
	// Defaults, and settings of other kinds, make no difference.
	for _, c := range [][2]data.Config{
		{configs[1], {Kind: data.KindPairs, Path: configs[1].Path, TestImages: 1, Foreground: "white", Count: 7, Height: 3, DropLast: true, Augment: data.Augment{Flip: true}}},
		{configs[2], {Kind: data.KindShapes, Count: 12, TestImages: 2, Classes: 10, Edge: 32}},
		{configs[4], {Kind: data.KindVolumes, Path: configs[4].Path, TestImages: 1, InputChannels: 4}},
	} {
		if a, b := fingerprintOf(t, c[0]), fingerprintOf(t, c[1]); a != b {
			t.Errorf("%+v: got %+v, want %+v", c[1], b, a)
		}
	}
}

// ownSamples is a data set that no function of package data has made.
type ownSamples struct{ data.Dataset }

// largeSamples is a data set of 100 samples of 64 MiB that cannot be read.
type largeSamples struct {
	data.Dataset
	read int
}

func (s *largeSamples) Len() int           { return 100 }
func (s *largeSamples) ImageShape() []int  { return []int{1, 1 << 12, 1<<12 - 1} }
func (s *largeSamples) TargetShape() []int { return []int{1} }
func (s *largeSamples) Get(int, []float32, []float32) error {
	s.read++
	return errors.New("not readable")
}

// TestFingerprintSamples: the values of samples that a program has made count, not their names.
func TestFingerprintSamples(t *testing.T) {
	t.Parallel()
	of := func(seed int64, count int) data.Dataset {
		return ownSamples{cells(t, data.CellsOptions{Count: count, Height: 16, Width: 16, Seed: seed})}
	}
	hash := func(sets ...data.Dataset) string {
		f, err := data.FingerprintSamples(t.Context(), sets...)
		if err != nil {
			t.Fatal(err)
		}
		return f.Hash
	}
	want := hash(of(1, 12), of(2, 3))
	if got := hash(of(1, 12), of(2, 3)); got != want || !strings.HasPrefix(got, "v1:") {
		t.Errorf("got %s, want %s", got, want)
	}
	others := []string{hash(of(1, 12)), hash(of(1, 11), of(2, 3)), hash(of(2, 12), of(2, 3)), hash(of(1, 12), of(3, 3))}
	for i := range 12 {
		order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
		order[i] = (i + 1) % len(order)
		others = append(others, hash(data.Subset(of(1, 12), order), of(2, 3)))
	}
	for _, got := range others {
		if got == want {
			t.Error("other samples have the same fingerprint")
		}
	}
	large := &largeSamples{Dataset: of(1, 1)}
	if f, err := data.FingerprintSamples(t.Context(), large); err != nil || !f.IsSampled() || !strings.HasPrefix(f.Hash, "v1-sampled:") || large.read != 4 {
		t.Errorf("large samples: %v, got %+v after %d samples, want 4 of 64 MiB", err, f, large.read)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := data.FingerprintSamples(ctx, of(1, 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want a canceled context", err)
	}
}
