package data_test

import (
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// loaderOf is a loader of one worker.
func loaderOf(t *testing.T, ds data.Dataset, c data.LoaderOptions) *data.Loader {
	t.Helper()
	s, err := data.NewSampler(data.SamplerOptions{Samples: ds.Len(), World: 1, BatchPerWorker: 2, Shuffle: true, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	l, err := data.NewLoader(ds, s, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestBytes: what a device gets, looked up where it says that a sample lies, is what
// the data set gives; samples that are left out or come several times take no memory.
func TestBytes(t *testing.T) {
	cells, err := data.Cells(t.Context(), data.CellsOptions{Count: 5, Height: 16, Width: 24, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	tiles, err := data.Tiles(data.Subset(cells, []int{4, 1, 2}), 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	repeated, err := data.Repeat(data.Subset(cells, []int{3, 0}), 5)
	if err != nil {
		t.Fatal(err)
	}
	shapes, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 7, Edge: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		ds     data.Dataset
		stored int
		kind   string
	}{{"cells", cells, 5, ""}, {"tiles", tiles, 18, ""}, {"repeated", repeated, 2, data.LoaderInMem}, {"classes", shapes, 7, ""}} {
		t.Run(c.name, func(t *testing.T) {
			l := loaderOf(t, c.ds, data.LoaderOptions{Kind: c.kind, Seed: 9, Augment: data.Augment{Flip: true}})
			ni, nt := 1, 1
			for _, n := range c.ds.ImageShape() {
				ni *= n
			}
			for _, n := range c.ds.TargetShape() {
				nt *= n
			}
			need := int64(c.stored * (ni + nt))
			if nt == 1 {
				need = int64(c.stored * (ni + 4))
			}
			b, err := l.Bytes(t.Context(), need)
			if err != nil {
				t.Fatal(err)
			}
			if b.Size() != need || len(b.Stored) != c.ds.Len() || b.Seed != 9 || !b.Augment.Flip || !slices.Equal(b.ImageShape, c.ds.ImageShape()) {
				t.Fatalf("%d bytes, want %d; %d samples; seed %d, %+v, shape %v", b.Size(), need, len(b.Stored), b.Seed, b.Augment, b.ImageShape)
			}
			image, target := make([]float32, ni), make([]float32, nt)
			for i, at := range b.Stored {
				if err := c.ds.Get(i, image, target); err != nil {
					t.Fatal(err)
				}
				for k, v := range image {
					if float32(b.Image[at*ni+k])/255 != v {
						t.Fatalf("value %d of sample %d is %d of 255, want %g", k, i, b.Image[at*ni+k], v)
					}
				}
				for k, v := range target {
					if b.Values != nil && b.Values[at*nt+k] != v || b.Values == nil && float32(b.Target[at*nt+k]) != v {
						t.Fatalf("target %d of sample %d is not %g", k, i, v)
					}
				}
			}
			if _, err := l.Bytes(t.Context(), need-1); err == nil || !strings.Contains(err.Error(), "are allowed") {
				t.Errorf("a byte less: %v", err)
			}
			batches := l.BatchIndices(1)
			it := l.Epoch(t.Context(), 1)
			defer it.Close()
			for step := 0; it.Next(); step++ {
				if !slices.Equal(batches[step], it.Batch().Indices) {
					t.Errorf("batch %d is %v, the iterator has %v", step, batches[step], it.Batch().Indices)
				}
			}
		})
	}
}

// TestNotBytes: what a device cannot hold is refused with the reason.
func TestNotBytes(t *testing.T) {
	cells, err := data.Cells(t.Context(), data.CellsOptions{Count: 4, Height: 8, Width: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	fields, err := data.Fields(t.Context(), data.FieldsOptions{Count: 2, Edge: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for want, l := range map[string]*data.Loader{
		"not integers divided by 255":            loaderOf(t, fields, data.LoaderOptions{}),
		"repeats one batch":                      loaderOf(t, cells, data.LoaderOptions{Kind: data.LoaderSynthetic}),
		"caches samples as augmented in epoch 0": loaderOf(t, cells, data.LoaderOptions{Order: []string{data.StageShuffle, data.StageShard, data.StageMap, data.StageCache, data.StageBatch}}),
	} {
		if _, err := l.Bytes(t.Context(), 1<<20); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}
