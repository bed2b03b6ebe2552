package data_test

import (
	"context"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// TestOpen opens every kind of data from files and generators, and gets a sample
// of both parts.
func TestOpen(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	cellSet := cells(t, data.CellsOptions{Count: 4, Height: 16, Width: 24, Seed: 1})
	small, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		data.Write(ctx, at("pairs"), cellSet), data.WriteTIFF(ctx, at("tiff"), cellSet),
		data.WriteCIFAR10(ctx, at("cifar"), small, small), data.WriteFolders(ctx, at("folders"), small, "png"), data.WriteFolders(ctx, at("jpegs"), small, "jpeg"),
		data.WriteVolumes(ctx, at("train"), fields(t, 2, 12), data.VolumeFormat{Chunk: 6, Gzip: true}), data.WriteVolumes(ctx, at("val"), fields(t, 1, 10), data.VolumeFormat{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, at("folders/train_data.pkl"), []byte("(dp0\nVdisc/000000.png\np1\nI0\nsVring/000001.png\np2\nI1\ns."))
	for _, name := range []string{"f32-strips.tif", "f32.tif"} {
		for _, folder := range []string{"image", "label"} {
			write(t, at("stacks/"+folder+"/"+name), readFile(t, "internal/tiff/testdata/"+name))
		}
	}
	for _, c := range []struct {
		c           data.Config
		train, test int
		image       []int
		task        string
		classes     int
	}{
		{data.Config{Kind: "cells", Count: 5, Height: 16, Width: 16, TestImages: 1, Tile: 8}, 16, 4, []int{1, 8, 8}, "segmentation", 0},
		{data.Config{Kind: "pairs", Path: at("pairs"), TestImages: 1}, 3, 1, []int{1, 16, 24}, "segmentation", 0},
		{data.Config{Kind: "pairs", Path: at("tiff"), TestImages: 1}, 3, 1, []int{1, 16, 24}, "segmentation", 0},
		{data.Config{Kind: "stacks", Path: at("stacks"), TestImages: 1}, 1, 1, []int{1, 3, 5, 7}, "segmentation", 0},
		{data.Config{Kind: "shapes", Count: 12, TestImages: 2}, 10, 2, []int{3, 32, 32}, "classification", 10},
		{data.Config{Kind: "cifar10", Path: at("cifar"), Resize: 48}, 20, 20, []int{3, 48, 48}, "classification", 10},
		{data.Config{Kind: "folders", Path: at("jpegs"), TestImages: 5}, 15, 5, []int{3, 32, 32}, "classification", 10},
		{data.Config{Kind: "folders", Path: at("jpegs"), TestPath: at("folders")}, 20, 20, []int{3, 32, 32}, "classification", 10},
		{data.Config{Kind: "imagenet", Path: at("folders"), TestImages: 1, Resize: 16}, 1, 1, []int{3, 16, 16}, "classification", 2},
		{data.Config{Kind: "fields", Count: 3, Edge: 12, TestImages: 1, Samples: 8, TestSamples: 4, Augment: data.Augment{Crop: 8, Rotate: true}}, 8, 4, []int{4, 12, 12, 12}, "regression", 0},
		{data.Config{Kind: "volumes", Path: at("train"), TestPath: at("val"), Samples: 8, TestSamples: 4, Augment: data.Augment{Crop: 8}}, 8, 4, []int{4, 12, 12, 12}, "regression", 0},
	} {
		t.Run(c.c.Kind+" "+filepath.Base(c.c.Path), func(t *testing.T) {
			if err := c.c.Validate(); err != nil {
				t.Fatal(err)
			}
			o, err := data.Open(t.Context(), c.c)
			if err != nil {
				t.Fatal(err)
			}
			if o.Train.Len() != c.train || o.Test.Len() != c.test || !slices.Equal(o.Train.ImageShape(), c.image) || c.c.Task() != c.task || len(o.ClassNames) != c.classes || len(o.TestImages) == 0 {
				t.Errorf("%d and %d samples of %v for %s, %d classes, %d names", o.Train.Len(), o.Test.Len(), o.Train.ImageShape(), c.c.Task(), len(o.ClassNames), len(o.TestImages))
			}
			get(t, o.Train, o.Train.Len()-1)
			get(t, o.Test, 0)
		})
	}
}

func TestConfigErrors(t *testing.T) {
	crop := data.Augment{Crop: 8}
	for want, c := range map[string]data.Config{
		`unknown data.kind "mnist": use cells, pairs, stacks, shapes, cifar10, folders, imagenet, fields, volumes`: {Kind: "mnist"},
		"data.path is empty: set it (or --data DIR) to a folder with image/ and label/":                            {Kind: "pairs"},
		"data.path is empty: set it (or --data DIR) to the folder of CIFAR-10's batches":                           {Kind: "cifar10"},
		`unknown data.foreground "red": use white or black`:                                                        {Kind: "cells", Foreground: "red"},
		"data.count, height and width are 0, 8, 8":                                                                 {Kind: "cells", Height: 8, Width: 8},
		"data.test_images is 0: use at least 1":                                                                    {Kind: "shapes", Count: 5},
		"not supported for kind pairs: use data.test_images":                                                       {Kind: "pairs", Path: "x", TestPath: "y"},
		"are both set: set only one of them":                                                                       {Kind: "folders", Path: "x", TestPath: "y", TestImages: 1},
		"data.tile is -1":                                                                                          {Kind: "cells", Count: 1, Height: 8, Width: 8, TestImages: 1, Tile: -1},
		"only kinds cells and pairs are cut into tiles":                                                            {Kind: "shapes", Count: 5, TestImages: 1, Tile: 8},
		"applies only to crops of stacks, fields and volumes":                                                      {Kind: "shapes", Count: 5, TestImages: 1, Samples: 8, Augment: crop},
		"data.test_samples is 0: set the number of test crops":                                                     {Kind: "fields", Count: 5, Edge: 16, TestImages: 1, Augment: crop},
		"validate fields: edge is 0":                                                                               {Kind: "fields", Count: 5, TestImages: 1},
		"validate shapes: classes is 99":                                                                           {Kind: "shapes", Count: 5, TestImages: 1, Classes: 99},
		"resize is -3 pixels":                                                                                      {Kind: "cifar10", Path: "x", Resize: -3},
		"data.input_channels and target_channels are -1 and 0":                                                     {Kind: "volumes", Path: "x", TestPath: "y", InputChannels: -1},
		"they apply only to pictures":                                                                              {Kind: "fields", Count: 5, Edge: 16, TestImages: 1, Augment: data.Augment{Contrast: 0.1}},
		"validate augmentation: brightness is 2":                                                                   {Kind: "cifar10", Path: "x", Augment: data.Augment{Brightness: 2}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := data.Open(t.Context(), c); err == nil {
			t.Errorf("%+v is opened", c)
		}
	}
	if _, err := data.Open(t.Context(), data.Config{Kind: "shapes", Count: 5, TestImages: 5}); err == nil || !strings.Contains(err.Error(), "test_images is 5 of 5 images: leave at least one image for training") {
		t.Error(err)
	}
}

// swapped is volumes with the targets as images.
type swapped struct{ data.Dataset }

func (s swapped) ImageShape() []int  { return s.Dataset.TargetShape() }
func (s swapped) TargetShape() []int { return s.Dataset.ImageShape() }

func (s swapped) Get(i int, image, target []float32) error {
	return s.Dataset.Get(i, target, image)
}

// TestChannels: volumes of other channels than those that are asked for, or than
// those trained on, are refused, with the way out.
func TestChannels(t *testing.T) {
	dir := t.TempDir()
	train, other := filepath.Join(dir, "train"), filepath.Join(dir, "other")
	for path, ds := range map[string]data.Dataset{train: fields(t, 2, 12), other: swapped{fields(t, 1, 12)}} {
		if err := data.WriteVolumes(context.Background(), path, ds, data.VolumeFormat{}); err != nil {
			t.Fatal(err)
		}
	}
	c := data.Config{Kind: "volumes", Path: train, TestPath: other, Samples: 8, TestSamples: 4, Augment: data.Augment{Crop: 8}}
	if _, err := data.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "images of test data "+other+" have shape [5 12 12 12], but images of training data "+train+" have shape [4 12 12 12] (channels first): make the numbers of channels equal") {
		t.Error(err)
	}
	c.TestPath, c.InputChannels, c.TargetChannels = train, 4, 5
	if _, err := data.Open(t.Context(), c); err != nil {
		t.Error(err)
	}
	c.Path = other
	if _, err := data.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "Nbody has 5 channels, want 4 (its shape is [5 12 12 12]): choose other data (data.input, data.target), or set the number of channels (data.input_channels, data.target_channels)") {
		t.Error(err)
	}
	c.Path, c.Input = train, "gas"
	if _, err := data.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "gas does not exist; its group contains: Hydro, Nbody (data.input and data.target select the data sets)") {
		t.Error(err)
	}
}

// TestHeldOutClasses: held-out pictures are of the classes that are trained on.
func TestHeldOutClasses(t *testing.T) {
	train, other := t.TempDir(), t.TempDir()
	writeClasses(t, train)
	writeClasses(t, other)
	if err := os.Rename(filepath.Join(other, "dog"), filepath.Join(other, "fish")); err != nil {
		t.Fatal(err)
	}
	_, err := data.Open(t.Context(), data.Config{Kind: "folders", Path: train, TestPath: other})
	if want := "test data " + other + " and training data " + train + " have different classes (2 and 2 classes)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if _, err := data.Open(t.Context(), data.Config{Kind: "folders", Path: train, TestPath: train}); err != nil {
		t.Error(err)
	}
}

// TestStacks: masks are cut at a half, and sizes must agree.
func TestStacks(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"image", "label"} {
		write(t, filepath.Join(dir, folder, "a.tif"), readFile(t, "internal/tiff/testdata/f32.tif"))
	}
	ds, err := data.OpenStacks(t.Context(), dir, data.Config{})
	if err != nil {
		t.Fatal(err)
	}
	image1, mask := get(t, ds, 0)
	for i, v := range image1 { // value i/128 at place i, as make.py wrote
		if v != float32(i)/128 || mask[i] != map[bool]float32{true: 1}[i >= 64] {
			t.Fatalf("value %d is %g, its mask %g", i, v, mask[i])
		}
	}
	// Of several pages, they are no pair of pictures.
	if _, err := data.OpenPairs(t.Context(), dir, data.Config{}); err == nil || !strings.Contains(err.Error(), "TIFF file has 3 pages, want 1: save each page as a separate file, or read the file as a volume (data kind stacks)") {
		t.Error(err)
	}
	encode(t, filepath.Join(dir, "image", "b.png"), png.Encode, image.NewGray(image.Rect(0, 0, 7, 5)))
	encode(t, filepath.Join(dir, "label", "b.png"), png.Encode, image.NewGray(image.Rect(0, 0, 7, 5)))
	if _, err := data.OpenStacks(t.Context(), dir, data.Config{}); err == nil || !strings.Contains(err.Error(), "b.png: want a TIFF file (.tif, .tiff) with one page per slice") {
		t.Error(err)
	}
	other := t.TempDir()
	write(t, filepath.Join(other, "image", "a.tif"), readFile(t, "internal/tiff/testdata/f32.tif"))
	asOnePage := asTIFF(0)
	encode(t, filepath.Join(other, "label", "a.tif"), asOnePage, image.NewGray(image.Rect(0, 0, 7, 5)))
	if _, err := data.OpenStacks(t.Context(), other, data.Config{}); err == nil || !strings.Contains(err.Error(), "has size 3×5×7 and its mask 1×5×7") {
		t.Error(err)
	}
}

func readFile(t *testing.T, path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestWideTIFF: pictures of 32 bits are images of pairs, to 8 bits as all others; whole
// numbers only by the earlier rules. Value k/128 (of the whole numbers' range) at
// place k, by internal/tiff/testdata/make.py.
func TestWideTIFF(t *testing.T) {
	for _, c := range []struct {
		name    string
		reading int
	}{{"f32", data.ReadingGray}, {"u32", data.ReadingGray}, {"f32", data.ReadingValues}, {"u32", data.ReadingValues}} {
		dir, name := t.TempDir(), c.name
		for _, folder := range []string{"image", "label"} {
			write(t, filepath.Join(dir, folder, "a.tif"), readFile(t, "internal/tiff/testdata/one/"+name+".tif"))
		}
		pairs, err := data.OpenPairs(t.Context(), dir, data.Config{Reading: c.reading})
		if name == "u32" && c.reading == data.ReadingValues {
			if err == nil || !strings.Contains(err.Error(), "whole numbers of more than 16 bits: save it with 16 unsigned bits") {
				t.Errorf("whole numbers of 32 bits: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		values, _ := get(t, pairs, 0)
		for k, v := range values {
			if want := float32(k) / 128; v < want-1.0/255 || v > want+1.0/255 {
				t.Errorf("%s: value %d is %g, want %g", name, k, v, want)
			}
		}
	}
}
