package train

import (
	"image"
	"reflect"
	"testing"
)

// darkPixels returns the number of dark pixels in a part of a gray picture.
func darkPixels(img image.Image, part image.Rectangle) int {
	n := 0
	for y := part.Min.Y; y < part.Max.Y; y++ {
		for x := part.Min.X; x < part.Max.X; x++ {
			if r, _, _, _ := img.At(x, y).RGBA(); r < 0x4000 {
				n++
			}
		}
	}
	return n
}

// TestPictureIsLabeled checks that a picture has a label above each plane and the sample's name below, and
// that a long name fits.
func TestPictureIsLabeled(t *testing.T) {
	samples, err := OpenSamples(t.Context(), DataConfig{Kind: "cells", Count: 2, Height: 64, Width: 64, TestImages: 1, Tile: 32})
	if err != nil {
		t.Fatal(err)
	}
	if got := samples.Train.SampleName(3); got != "cells-0-0, tile row 1, column 1" {
		t.Errorf("sample 3 is %q", got)
	}
	img, err := samples.Picture(3)
	if err != nil {
		t.Fatal(err)
	}
	size := img.Bounds()
	if want := image.Rect(0, 0, 2*256+pictureGap, 256+2*pictureTextRow); size != want {
		t.Fatalf("the picture is %v, want %v", size, want)
	}
	above, below := image.Rect(0, 0, size.Dx(), pictureTextRow), image.Rect(0, size.Dy()-pictureTextRow, size.Dx(), size.Dy())
	left, right := above, above
	left.Max.X, right.Min.X = 256, 256+pictureGap
	for name, part := range map[string]image.Rectangle{"image": left, "mask": right, "name": below} {
		if darkPixels(img, part) < 20 {
			t.Errorf("the %s has no label", name)
		}
	}
	// Names that differ only at their end, which is wider than the picture, are told apart.
	var pictures [2]image.Image
	for i, end := range []string{"3", "4"} {
		long := "/a/path/that/is/longer/than/the/picture/is/wide/and/ends/with/the/name/cells-0042.png, tile row 3, column 1" + end
		if pictures[i], err = SideBySide(long, newGrayPanel("image", make([]float32, 16), 4, 4)); err != nil {
			t.Fatal(err)
		}
	}
	if reflect.DeepEqual(pictures[0], pictures[1]) {
		t.Error("the end of a long name is not shown")
	}
}
