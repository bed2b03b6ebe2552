package data_test

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// writeStained writes images of stained cells and returns their pictures and masks.
func writeStained(t *testing.T, c data.CellClassesOptions) (images []image.Image, masks []*image.Gray) {
	t.Helper()
	dir := t.TempDir()
	if err := data.WriteCellClasses(t.Context(), dir, c); err != nil {
		t.Fatal(err)
	}
	read := func(folder string, i int) image.Image {
		f, err := os.Open(filepath.Join(dir, folder, fmt.Sprintf("%d.png", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		m, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for i := range c.Count {
		images, masks = append(images, read("image", i)), append(masks, read("label", i).(*image.Gray))
	}
	return images, masks
}

// TestCellClasses: the masks contain every class, mostly background, and fewer classes, or
// gray images, show the same cells.
func TestCellClasses(t *testing.T) {
	c := data.CellClassesOptions{Count: 9, Sizes: [][2]int{{128, 128}, {160, 200}, {96, 96}}, Classes: 4, RGB: true, Seed: 7}
	images, masks := writeStained(t, c)
	var pixels, background int
	for i, mask := range masks {
		if size := c.Sizes[i%3]; mask.Bounds() != image.Rect(0, 0, size[1], size[0]) || images[i].Bounds() != mask.Bounds() || images[i].ColorModel() != color.RGBAModel {
			t.Errorf("image %d is a %T of size %v and its mask has size %v, want %d×%d", i, images[i], images[i].Bounds(), mask.Bounds(), size[0], size[1])
		}
		var count [256]int
		for _, v := range mask.Pix {
			count[v]++
		}
		if n := len(mask.Pix); count[0]+count[1]+count[2]+count[3] != n || min(count[1], count[2], count[3]) < n/100 {
			t.Errorf("the mask of image %d has levels %v", i, count[:5])
		}
		pixels, background = pixels+len(mask.Pix), background+count[0]
	}
	if f := float64(background) / float64(pixels); f < 0.7 || f > 0.8 {
		t.Errorf("%.0f %% of the pixels are background, want 70 to 80", 100*f)
	}
	c.Count, c.RGB = 2, false
	for classes, want := range map[int][4]uint8{4: {0, 1, 2, 3}, 3: {0, 1, 2, 0}, 2: {0, 1, 1, 0}, 0: {0, 255, 255, 0}} {
		c.Classes = classes
		gray, folded := writeStained(t, c)
		for i := range gray {
			for k, level := range masks[i].Pix {
				if folded[i].Pix[k] != want[level] {
					t.Fatalf("image %d, %d classes: pixel %d has level %d, want %d", i, classes, k, folded[i].Pix[k], want[level])
				}
				x, y := k%masks[i].Stride, k/masks[i].Stride
				if got := gray[i].(*image.Gray).GrayAt(x, y); got != color.GrayModel.Convert(images[i].At(x, y)) {
					t.Fatalf("image %d: pixel %d is %v in gray and %v in color", i, k, got, images[i].At(x, y))
				}
			}
		}
	}
}

// TestCellClassesAreReproducible: an image depends on seed, index and its size alone.
func TestCellClassesAreReproducible(t *testing.T) {
	c := data.CellClassesOptions{Count: 3, Sizes: [][2]int{{32, 48}, {64, 40}}, RGB: true, Seed: 7}
	want, wantMasks := writeStained(t, c)
	c.Count, c.Sizes = 2, [][2]int{{64, 40}}
	if got, masks := writeStained(t, c); !reflect.DeepEqual(got[1], want[1]) || !reflect.DeepEqual(masks[1], wantMasks[1]) {
		t.Error("image 1 depends on the number of images, or on the sizes of others")
	}
	c.Seed = 8
	if got, _ := writeStained(t, c); reflect.DeepEqual(got[1], want[1]) {
		t.Error("image 1 is the same for two seeds")
	}
}

func TestInvalidCellClasses(t *testing.T) {
	for want, c := range map[string]data.CellClassesOptions{
		"classes is 5: use 2 to 4 (background, cell, nucleus, bacterium)": {Count: 1, Sizes: [][2]int{{16, 16}}, Classes: 5},
		"no size: add the height and width":                               {Count: 1},
		"size 7×16: each side must be at least 8":                         {Count: 1, Sizes: [][2]int{{16, 16}, {7, 16}}},
		"count is 0": {Sizes: [][2]int{{16, 16}}},
	} {
		if err := data.WriteCellClasses(t.Context(), t.TempDir(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
