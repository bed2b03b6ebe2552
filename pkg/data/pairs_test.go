package data_test

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// TestWriteReads: generated cells come back from PNG files value for value.
func TestWriteReads(t *testing.T) {
	c := data.CellsOptions{Count: 12, Height: 16, Width: 24, Seed: 3}
	want := cells(t, c)
	ctx := context.Background()
	for name, write := range map[string]func(dir string) error{
		"Write":      func(dir string) error { return data.Write(ctx, dir, want) },
		"WriteCells": func(dir string) error { return data.WriteCells(ctx, dir, c) },
	} {
		dir := filepath.Join(t.TempDir(), "cells")
		for range 2 { // the second time over the first
			if err := write(dir); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		got, err := data.OpenPairs(t.Context(), dir, data.Config{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		inverted, err := data.OpenPairs(t.Context(), dir, data.Config{Foreground: "black"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Len() != 12 || got.Dir() != dir || got.GreyMaskPixels() != 0 || got.SampleName(3) != "03" {
			t.Errorf("%s: %d pairs in %s, %d grey, sample 3 is %s", name, got.Len(), got.Dir(), got.GreyMaskPixels(), got.SampleName(3))
		}
		for i := range got.Len() {
			image, target := get(t, want, i)
			gi, gt := get(t, got, i)
			_, it := get(t, inverted, i)
			if !slices.Equal(image, gi) || !slices.Equal(target, gt) {
				t.Fatalf("%s: pair %d is another one", name, i)
			}
			for k := range it {
				if it[k] != 1-gt[k] {
					t.Fatalf("%s: pair %d pixel %d is %g inverted, %g not", name, i, k, it[k], gt[k])
				}
			}
		}
		if err := data.WriteCells(ctx, dir, data.CellsOptions{Count: 3, Height: 16, Width: 24}); err == nil || !strings.Contains(err.Error(), "already contains other pictures") {
			t.Errorf("%s: a smaller set over a larger one: %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := data.Write(ended, t.TempDir(), want); err == nil || !strings.Contains(err.Error(), "write pair 1 of 12: context canceled") {
		t.Errorf("got %v", err)
	}
}

// writeImage saves an image of one grey value as PNG.
func writeImage(t *testing.T, path string, height, width int, value color.Color) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, value)
		}
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, m); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenPairsMatches: folder names, pairing, order, colours and mask values.
func TestOpenPairsMatches(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		image, mask string
		value       color.Color
		grey        uint8
		want        float32
	}{
		// The limits are 0.2·255 = 51 and 0.8·255 = 204; in between the nearer of the two.
		{"cell_2.png", "mask-02.PNG", color.Gray{Y: 51}, 50, 0},
		{"cell_10.png", "mask-10.PNG", color.Gray{Y: 102}, 51, 0},
		{"cell_11.png", "mask-11.PNG", color.Gray{Y: 153}, 127, 0},
		{"cell_12.png", "mask-12.PNG", color.Gray{Y: 204}, 128, 1},
		{"cell_13.png", "mask-13.PNG", color.Gray{Y: 255}, 204, 1},
		// A colour's grey is 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601): 0.299·255 = 76.
		{"cell_100.png", "mask-100.PNG", color.NRGBA{R: 255, A: 255}, 205, 1},
	} {
		writeImage(t, filepath.Join(dir, "images", c.image), 2, 3, c.value)
		writeImage(t, filepath.Join(dir, "masks", c.mask), 2, 3, color.Gray{Y: c.grey})
		p, err := data.OpenPairs(t.Context(), dir, data.Config{Reading: data.ReadingGray})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.SampleName(i); got+".png" != c.image {
			t.Errorf("sample %d is %s, want %s", i, got, c.image)
		}
		pixels, mask := get(t, p, i)
		if want := []float32{0.2, 0.4, 0.6, 0.8, 1, 76. / 255}[i]; math.Abs(float64(pixels[5]-want)) > 1e-6 {
			t.Errorf("%s is %g, want %g", c.image, pixels[5], want)
		}
		if mask[5] != c.want {
			t.Errorf("a mask of %d is %g, want %g", c.grey, mask[5], c.want)
		}
		if i == 5 && p.GreyMaskPixels() != 4*6 { // 51, 127, 128, 204
			t.Errorf("%d grey mask pixels, want 24", p.GreyMaskPixels())
		}
	}
}

// TestOpenPairsErrors reads the message of each kind of bad folder.
func TestOpenPairsErrors(t *testing.T) {
	black := color.Gray{}
	both := func(dir, name string, h, w int) {
		writeImage(t, filepath.Join(dir, "image", name), h, w, black)
		writeImage(t, filepath.Join(dir, "label", name), h, w, black)
	}
	remove := func(path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(dir string)
		want  []string // DIR stands for the folder
	}{
		{
			"a mask without its image", func(dir string) { remove(dir + "/image/2.png") },
			[]string{"mask DIR/label/2.png has no image DIR/image/2.png", "add the image or remove the mask"},
		},
		{
			"an image without its mask", func(dir string) { remove(dir + "/label/2.png") },
			[]string{"image DIR/image/2.png has no mask DIR/label/2.png", "add the mask or remove the image"},
		},
		{
			"a mask of another size", func(dir string) { writeImage(t, dir+"/label/2.png", 4, 6, black) },
			[]string{"mask DIR/label/2.png is 4×6", "its image DIR/image/2.png is 4×5 (height×width)"},
		},
		{
			"an image of another size", func(dir string) { both(dir, "3.png", 5, 5) },
			[]string{"image DIR/image/3.png is 5×5, but DIR/image/1.png is 4×5", "one size"},
		},
		{
			"a corrupt image", func(dir string) { write(dir+"/image/2.png", "not a picture at all") },
			[]string{"read image DIR/image/2.png: file is not a valid PNG"},
		},
		{"a corrupt mask", func(dir string) {
			b, err := os.ReadFile(dir + "/label/2.png")
			if err != nil {
				t.Fatal(err)
			}
			write(dir+"/label/2.png", string(b[:len(b)/2]))
		}, []string{"read mask DIR/label/2.png: file is not a valid PNG", "copy or save it again"}},
		{
			"an empty file", func(dir string) { write(dir+"/image/2.png", "") },
			[]string{"read image DIR/image/2.png: file is not a valid PNG", "unexpected EOF"},
		},
		{"a header that asks for all memory", func(dir string) {
			b, err := os.ReadFile(dir + "/image/2.png")
			if err != nil {
				t.Fatal(err)
			}
			write(dir+"/image/2.png", string(withSize(b, 1<<20, 1<<20)))
		}, []string{"read image DIR/image/2.png: picture size 1048576×1048576 is invalid"}},
		{"a header that asks for more than the file holds", func(dir string) {
			b, err := os.ReadFile(dir + "/image/2.png")
			if err != nil {
				t.Fatal(err)
			}
			write(dir+"/image/2.png", string(withSize(b, 1<<14, 1<<14)))
		}, []string{"read image DIR/image/2.png: file is not a valid PNG", "bytes is too short for 16384×16384 pixels"}},
		{"empty folders", func(dir string) {
			for _, f := range []string{"/image/1.png", "/image/2.png", "/label/1.png", "/label/2.png"} {
				remove(dir + f)
			}
		}, []string{"DIR/image is empty: want PNG, JPEG or TIFF files"}},
		{"other files", func(dir string) {
			remove(dir + "/image/1.png")
			remove(dir + "/image/2.png")
			write(dir+"/image/1.bmp", "")
			write(dir+"/image/.hidden.png", "")
		}, []string{"DIR/image contains no PNG, JPEG or TIFF files, only others such as 1.bmp: convert them to PNG"}},
		{"no mask folder", func(dir string) {
			if err := os.Rename(dir+"/label", dir+"/truth"); err != nil {
				t.Fatal(err)
			}
		}, []string{"DIR contains image/ but not label/", "want a folder with image/ and label/ (or images/ and masks/)"}},
		{"neither folder", func(dir string) {
			if err := os.RemoveAll(dir + "/label"); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(dir + "/image"); err != nil {
				t.Fatal(err)
			}
		}, []string{"DIR contains neither image/ nor label/"}},
		{"no folder at all", func(dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, []string{"folder DIR does not exist: want a folder with image/ and label/"}},
		{"a file in its place", func(dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			write(dir, "")
		}, []string{"DIR is a file"}},
		{"names that could mean two masks", func(dir string) {
			if err := os.Rename(dir+"/label/1.png", dir+"/label/m1.png"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(dir+"/label/2.png", dir+"/label/n1.png"); err != nil {
				t.Fatal(err)
			}
		}, []string{"masks m1.png and n1.png in DIR/label could belong to the same image"}},
	} {
		dir := filepath.Join(t.TempDir(), "pairs")
		both(dir, "1.png", 4, 5)
		both(dir, "2.png", 4, 5)
		if _, err := data.OpenPairs(t.Context(), dir, data.Config{}); err != nil {
			t.Fatalf("before it was spoilt: %v", err)
		}
		c.spoil(dir)
		_, err := data.OpenPairs(t.Context(), dir, data.Config{})
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range append(c.want, "open pairs: ") {
			if want = strings.ReplaceAll(want, "DIR", dir); !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q, want it to contain %q", c.name, err, want)
			}
		}
	}
}

func TestWriteErrors(t *testing.T) {
	for _, c := range []struct {
		ds   data.Dataset
		want string
	}{
		{numbered{n: 1, channels: 2, height: 2, width: 2, bad: -1}, "want [1,H,W]"},
		{numbered{n: 0, channels: 1, height: 2, width: 2, bad: -1}, "the data set is empty"},
		{numbered{n: 1, channels: 1, height: 2, width: 2, bad: 0}, "the disk is on fire"},
	} {
		if err := data.Write(context.Background(), t.TempDir(), c.ds); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := data.WriteCells(context.Background(), file, data.CellsOptions{Count: 1, Height: 8, Width: 8}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("write pairs: mkdir %s", file)) {
		t.Errorf("writing below a file: %v", err)
	}
}
