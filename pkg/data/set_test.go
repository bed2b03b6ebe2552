package data_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/data"
)

// get is a sample's image and mask.
func get(t interface{ Fatal(...any) }, ds data.Dataset, i int) (image, target []float32) {
	image, target = data.NewBuffers(ds)
	if err := ds.Get(i, image, target); err != nil {
		t.Fatal(err)
	}
	return image, target
}

func cells(t interface{ Fatal(...any) }, c data.CellsOptions) data.Dataset {
	ds, err := data.Cells(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(0, 50).Draw(t, "n"), rapid.Int64().Draw(t, "seed")
		count := rapid.IntRange(-2, 55).Draw(t, "count")
		train, test := data.Split(n, count, seed)
		if len(test) != min(max(count, 0), n) || !slices.IsSorted(train) || !slices.IsSorted(test) {
			t.Fatalf("test %v, train %v", test, train)
		}
		all := append(slices.Clone(train), test...)
		slices.Sort(all)
		for i, v := range all {
			if i != v {
				t.Fatalf("samples of both lists: %v", all)
			}
		}
		if len(all) != n {
			t.Fatalf("%d of %d samples", len(all), n)
		}
	})
	_, a := data.Split(30, 6, 1)
	_, b := data.Split(30, 6, 1)
	_, c := data.Split(30, 6, 2)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("seed 1 holds out %v and %v, seed 2 %v", a, b, c)
	}
}

func TestSubset(t *testing.T) {
	s := data.Subset(numbered{n: 5, channels: 1, height: 1, width: 2, bad: -1}, []int{3, 1})
	if s.Len() != 2 || s.SampleName(0) != "number-3" {
		t.Errorf("%d samples, the first is %s", s.Len(), s.SampleName(0))
	}
	if image, _ := get(t, s, 1); image[1] != 1001 {
		t.Errorf("sample 1 holds %v", image)
	}
	if err := s.Get(2, nil, nil); err == nil || !strings.Contains(err.Error(), "samples 0 to 1") {
		t.Errorf("got %v", err)
	}
}

// TestTiles: tiles put together are the image; the last ones overlap those before them.
func TestTiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, w := rapid.IntRange(1, 4).Draw(t, "h"), rapid.IntRange(1, 4).Draw(t, "w")
		rows, columns := rapid.IntRange(1, 3).Draw(t, "rows"), rapid.IntRange(1, 3).Draw(t, "columns")
		height, width := h*rows, w*columns
		if rows > 1 {
			height -= rapid.IntRange(0, h-1).Draw(t, "missing rows")
		}
		if columns > 1 {
			width -= rapid.IntRange(0, w-1).Draw(t, "missing columns")
		}
		whole := numbered{n: 3, channels: 2, height: height, width: width, bad: -1}
		tiles, err := data.Tiles(data.Subset(whole, []int{2, 0}), h, w)
		if err != nil {
			t.Fatal(err)
		}
		if tiles.Len() != 2*rows*columns || !slices.Equal(tiles.ImageShape(), []int{2, h, w}) {
			t.Fatalf("%d tiles of %v", tiles.Len(), tiles.ImageShape())
		}
		for i := range tiles.Len() {
			image, target := get(t, tiles, i)
			from := []int{2, 0}[i/(rows*columns)]
			row, column := i%(rows*columns)/columns, i%columns
			for c := range 2 {
				for y := range h {
					for x := range w {
						at := (min(row*h, height-h)+y)*width + min(column*w, width-w) + x
						want := float32(from*1000 + c*height*width + at)
						if got := image[(c*h+y)*w+x]; got != want {
							t.Fatalf("tile %d channel %d (%d, %d) is %g, want %g", i, c, y, x, got, want)
						}
						if got := target[y*w+x]; got != float32(from*1000+at) {
							t.Fatalf("tile %d mask (%d, %d) is %g", i, y, x, got)
						}
					}
				}
			}
		}
	})
	ds := numbered{n: 2, channels: 1, height: 12, width: 20, bad: -1}
	tiles, err := data.Tiles(ds, 6, 10)
	if err != nil {
		t.Fatal(err)
	}
	if got := tiles.SampleName(7); got != "number-1, tile row 1, column 1" {
		t.Errorf("tile 7 is named %s", got)
	}
	for _, c := range []struct {
		h, w int
		want string
	}{
		{0, 10, "at least 1"},
		{24, 10, "image number-0 of 12×20 is smaller than tiles of 24×10: set data.tile to at most 12"},
	} {
		if _, err := data.Tiles(ds, c.h, c.w); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestTilesInMemory covers the sets that read a part without the whole.
func TestTilesInMemory(t *testing.T) {
	whole := cells(t, data.CellsOptions{Count: 2, Height: 16, Width: 24, Seed: 1})
	tiles, err := data.Tiles(whole, 8, 12)
	if err != nil {
		t.Fatal(err)
	}
	image, target := get(t, whole, 1)
	for k := range 4 {
		ti, tt := get(t, tiles, 4+k)
		for i := range ti {
			at := (k/2*8+i/12)*24 + k%2*12 + i%12
			if ti[i] != image[at] || tt[i] != target[at] {
				t.Fatalf("tile %d pixel %d differs from the image's pixel %d", k, i, at)
			}
		}
	}
	if err := tiles.Get(8, image[:96], target[:96]); err == nil {
		t.Error("a tile beyond the last is read")
	}
	if err := tiles.Get(0, image[:95], target[:96]); err == nil || !strings.Contains(err.Error(), "buffers for image and target have 95 and 96 values, want 96 and 96") {
		t.Errorf("a short buffer: %v", err)
	}
}
