package data_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"lockstep/pkg/data"
)

// TestOutline: of each kind of data, Outline has the numbers, shapes and names of Open.
func TestOutline(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	classes, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 50, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		data.WriteCells(t.Context(), in("pairs"), data.CellsOptions{Count: 4, Height: 16, Width: 8, Seed: 1}),
		data.WriteCIFAR10(t.Context(), in("cifar10"), classes, classes),
		data.WriteFolders(t.Context(), in("folders"), classes, "png"),
		data.WriteVolumes(t.Context(), in("volumes"), fields(t, 4, 8), data.VolumeFormat{}),
	); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"image", "label"} {
		for _, name := range []string{"a.tif", "b.tif", "c.tif"} {
			write(t, filepath.Join(in("stacks"), folder, name), readFile(t, "internal/tiff/testdata/f32.tif"))
		}
	}
	for _, c := range []data.Config{
		{Kind: data.KindCells, Count: 5, Height: 16, Width: 8, DataSeed: 1, TestImages: 2},
		{Kind: data.KindCells, Count: 5, Height: 16, Width: 8, DataSeed: 1, TestImages: 2, Tile: 8},
		{Kind: data.KindShapes, Count: 20, Classes: 3, Edge: 8, TestImages: 4},
		{Kind: data.KindFields, Count: 3, Edge: 8, TestImages: 1, Samples: 7, TestSamples: 2, Augment: data.Augment{Crop: 4}},
		{Kind: data.KindPairs, Path: in("pairs"), TestImages: 1},
		{Kind: data.KindStacks, Path: in("stacks"), TestImages: 1},
		{Kind: data.KindCIFAR10, Path: in("cifar10")},
		{Kind: data.KindFolders, Path: in("folders"), TestImages: 5},
		{Kind: data.KindVolumes, Path: in("volumes"), TestImages: 1},
	} {
		t.Run(c.Kind, func(t *testing.T) {
			all, err := data.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			outline, err := data.Outline(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(outline.ClassNames, all.ClassNames) || !slices.Equal(outline.TestImages, all.TestImages) {
				t.Errorf("got classes %q and test images %q, want %q and %q", outline.ClassNames, outline.TestImages, all.ClassNames, all.TestImages)
			}
			for i, got := range []data.Dataset{outline.Train, outline.Test} {
				want := []data.Dataset{all.Train, all.Test}[i]
				if got.Len() != want.Len() || !slices.Equal(got.ImageShape(), want.ImageShape()) || !slices.Equal(got.TargetShape(), want.TargetShape()) {
					t.Errorf("got %d samples of %v and %v, want %d of %v and %v", got.Len(), got.ImageShape(), got.TargetShape(), want.Len(), want.ImageShape(), want.TargetShape())
				}
			}
		})
	}
}

// TestOutlineReadsLittle: neither the size of generated data nor what follows the header
// of a file matters.
func TestOutlineReadsLittle(t *testing.T) {
	for _, c := range []data.Config{
		{Kind: data.KindCells, Count: 20_000, Height: 128, Width: 128, TestImages: 1},
		{Kind: data.KindShapes, Count: 20_000, TestImages: 1},
		{Kind: data.KindFields, Count: 100, Edge: 32, TestImages: 1},
	} {
		ctx := &countedContext{Context: t.Context(), allowed: 5}
		if o, err := data.Outline(ctx, c); err != nil || o.Train.Len() != c.Count-1 {
			t.Errorf("%s: got error %v: the samples were generated", c.Kind, err)
		}
	}
	dir := t.TempDir()
	if err := data.WriteCells(t.Context(), dir, data.CellsOptions{Count: 3, Height: 8, Width: 8, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	// Damage after the header.
	path := filepath.Join(dir, "image", "1.png")
	text := readFile(t, path)
	write(t, path, text[:len(text)-20])
	c := data.Config{Kind: data.KindPairs, Path: dir, TestImages: 1}
	if _, err := data.Outline(t.Context(), c); err != nil {
		t.Error(err)
	}
	if _, err := data.Open(t.Context(), c); err == nil {
		t.Error("Open does not notice the damage, so that this shows nothing")
	}
}
