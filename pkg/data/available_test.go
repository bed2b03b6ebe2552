package data_test

import (
	"bytes"
	"fmt"
	"image"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/image/tiff"

	"lockstep/pkg/data"
)

// TestGeneratorsCheckMemory: a count that no machine can hold is refused before
// memory is taken, with what it needs and what there is.
func TestGeneratorsCheckMemory(t *testing.T) {
	for _, c := range []struct {
		config data.Config
		needs  string
	}{
		// 2·1024·1024 bytes and 128 each: 39,065 GiB.
		{data.Config{Kind: data.KindCells, Count: 20_000_000, Height: 1024, Width: 1024, TestImages: 1}, "data.count is 20000000 of 1024×1024 pixels, which needs 39064.9 GiB"},
		// 3·1024·1024 bytes and 32 each.
		{data.Config{Kind: data.KindShapes, Count: 20_000_000, Edge: 1024, TestImages: 1}, "data.count is 20000000 of 1024×1024 pixels, which needs 58594.3 GiB"},
		// 36·512³ bytes each.
		{data.Config{Kind: data.KindFields, Count: 20_000_000, Edge: 512, TestImages: 1}, "data.count is 20000000 of 512³ cells, which needs 90000000.0 GiB"},
		// More bytes than an int64 counts.
		{data.Config{Kind: data.KindFields, Count: math.MaxInt, Edge: 512, TestImages: 1}, "GiB of memory"},
	} {
		_, err := data.Open(t.Context(), c.config)
		if err == nil || !strings.Contains(err.Error(), c.needs) || !strings.Contains(err.Error(), " GiB are available") {
			t.Errorf("%s: got error %v, want %q", c.config.Kind, err, c.needs)
		}
	}
}

// TestReadersCheckMemory: a data set whose files are each small enough, but that
// no machine can hold as a whole, is refused before it is decoded.
func TestReadersCheckMemory(t *testing.T) {
	const pairs, edge = 20_000, 8192
	dir := t.TempDir()
	folders := []string{filepath.Join(dir, "image"), filepath.Join(dir, "label")}
	var text bytes.Buffer // 69 kB
	if err := tiff.Encode(&text, image.NewGray(image.Rect(0, 0, edge, edge)), &tiff.Options{Compression: tiff.Deflate}); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "first.tif")
	write(t, first, text.Bytes())
	for _, folder := range folders {
		if err := os.Mkdir(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		for i := range pairs {
			if err := os.Link(first, filepath.Join(folder, fmt.Sprint(i, ".tif"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	batches := t.TempDir()
	for _, name := range []string{"data_batch_1.bin", "data_batch_2.bin"} {
		write(t, filepath.Join(batches, name), nil)
		if err := os.Truncate(filepath.Join(batches, name), 1<<43); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		open func() error
		want string
	}{
		// 2·8192·8192 bytes each.
		{func() error {
			_, err := data.OpenPairs(t.Context(), dir, data.Config{})
			return err
		}, "open pairs: " + dir + " has 20000 pairs of 8192×8192 pixels, which needs 2500.0 GiB of memory"},
		// 8·8192·8192 bytes each.
		{func() error {
			_, err := data.OpenStacks(t.Context(), dir, data.Config{})
			return err
		}, "open stacks: " + dir + " has 20000 pairs of stacks of 1×8192×8192 pixels, which needs 10000.0 GiB of memory"},
		{func() error {
			_, err := data.OpenCIFAR10(t.Context(), batches, data.CIFAROptions{})
			return err
		}, "open CIFAR-10: " + batches + " has 16384.0 GiB of batches, which needs 16384.0 GiB of memory"},
	} {
		if err := c.open(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), " GiB are available") {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
}

// sized is a set of a given size whose samples have the value v.
type sized struct {
	samples, edge int
	v             float32
}

func (s sized) Len() int              { return s.samples }
func (s sized) ImageShape() []int     { return []int{1, s.edge, s.edge} }
func (s sized) TargetShape() []int    { return []int{1} }
func (s sized) SampleName(int) string { return "sample" }
func (s sized) Get(_ int, image, _ []float32) error {
	for i := range image {
		image[i] = s.v
	}
	return nil
}

// TestInMemoryLoaderChecksMemory: a loader that keeps samples is refused if all that it
// would keep do not fit into memory, even at a byte per value.
func TestInMemoryLoaderChecksMemory(t *testing.T) {
	const large, edge = 50_000, 1 << 15 // a GiB each, at a byte per value
	for _, c := range []struct {
		name  string
		set   data.Dataset
		order []string
		world int
		want  string // empty: no error
	}{
		{"all", sized{large, edge, 0}, nil, 1, "loader.kind inmem keeps 50000 samples of 1×32768×32768 values, which needs 50000.0 GiB"},
		{"a share", sized{large, edge, 0}, []string{data.StageShard, data.StageShuffle, data.StageBatch}, 10, "loader.kind inmem keeps 5000 samples of 1×32768×32768 values, which needs 5000.0 GiB"},
		{"a small part", data.Subset(sized{large, edge, 0}, []int{0, 1, 1}), nil, 1, ""},
		{"fits", sized{3, 8, 0.3}, nil, 1, ""},
	} {
		s, err := data.NewSampler(data.SamplerOptions{Samples: c.set.Len(), World: c.world, BatchPerWorker: 1, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		l, err := data.NewLoader(c.set, s, data.LoaderOptions{Kind: data.LoaderInMem, Order: c.order})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.HasSuffix(err.Error(), "use fewer or smaller samples, or set loader.kind to lowmem")) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.want)
		}
		if err == nil {
			l.Close()
		}
	}
}
