package data_test

import (
	"image"
	"image/color"
	"image/png"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/data"
)

// TestCheckPairs: the facts of folders, and the config that CheckPairs proposes opens them.
func TestCheckPairs(t *testing.T) {
	t.Parallel()
	sized := func(h, w int, colors ...color.Color) image.Image {
		return paint(image.NewGray(image.Rect(0, 0, w, h)), colors...)
	}
	wide := paint(image.NewGray16(square()), color.Gray16{Y: 300}, color.Gray16{Y: 4000})
	colored := paint(image.NewNRGBA(square()), color.NRGBA{R: 200, A: 255}, color.NRGBA{B: 100, A: 255})
	twoLevels := paint(image.NewGray(square()), gray(0), gray(0), gray(0), gray(255))
	palette := paint(image.NewPaletted(square(), color.Palette{color.Black, color.NRGBA{R: 128, A: 255}}), color.Black, color.NRGBA{R: 128, A: 255})
	grays := paint(image.NewPaletted(square(), color.Palette{color.White, color.Black}), color.White, color.Black)
	plain := sized(side, side, gray(10), gray(30))
	for _, c := range []struct {
		name          string
		images, masks []image.Image
		says          []string
		config        string
	}{
		{"gray", []image.Image{plain, sized(side, side, gray(20))}, []image.Image{twoLevels, twoLevels}, []string{
			"16×16 (height×width)", "8-bit gray, values 10 to 30, mean 20, deviation 7.071", "value 0: 75.00 % of the pixels, in 2 masks", "equal images  0",
		}, ""},
		{"sizes", []image.Image{sized(24, 40, gray(9)), sized(33, 21, gray(9))}, []image.Image{sized(24, 40, gray(0), gray(255)), sized(33, 21, gray(0))}, []string{
			"24×40 (1) and 33×21 (1)", "1 mask with only one value: 1.png",
		}, "tile: 16"},
		{"large", []image.Image{sized(264, 400, gray(9)), sized(264, 400, gray(9))}, []image.Image{sized(264, 400, gray(0), gray(255)), sized(264, 400, gray(0), gray(255))}, nil, ""},
		{"larger", []image.Image{sized(272, 400, gray(9)), sized(272, 400, gray(9))}, []image.Image{sized(272, 400, gray(0), gray(255)), sized(272, 400, gray(0), gray(255))}, nil, "tile: 256"},
		{"16 bits", []image.Image{wide, wide}, []image.Image{twoLevels, twoLevels}, []string{
			"16-bit gray, values 300 to 4000", "these images have the same bytes, so that a test with one of them may not be a test: 0.png and 1.png",
		}, "range: [300, 4000]"},
		{"a mixture", []image.Image{plain, colored}, []image.Image{twoLevels, twoLevels}, []string{"8-bit RGB (1) and 8-bit gray (1)", "1 of the 2 images of DIR have colors"}, "to_gray: true"},
		{"classes", []image.Image{plain, plain}, []image.Image{sized(side, side, gray(0), gray(2), gray(255)), twoLevels}, []string{"value 2: "}, "mask_values: {0: background, 2: class1, 255: ignore}"},
		{"a palette", []image.Image{plain, plain}, []image.Image{palette, palette}, nil, "mask_values: {0: background, 1: class1}"},
		{"a palette of grays", []image.Image{plain, plain}, []image.Image{grays, grays}, []string{"value 1: 50.00 %"}, ""},
		{"bright", []image.Image{plain, plain}, []image.Image{sized(side, side, gray(255), gray(255), gray(0)), sized(side, side, gray(255), gray(0))}, []string{"if it is the background, add foreground: black"}, ""},
	} {
		dir := pairsOf(t, c.images, c.masks)
		k, err := data.CheckPairs(t.Context(), dir, "")
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, want := range append(c.says, c.config) {
			if want = strings.ReplaceAll(want, "DIR", dir); !strings.Contains(k.String(), want) {
				t.Errorf("%s: want %q in\n%s", c.name, want, k)
			}
		}
		if c.config == "" && len(k.Config) != 4 {
			t.Errorf("%s: the config has settings that nothing needs:\n%s", c.name, k)
		}
		sum := 0.0
		for _, l := range k.Levels {
			sum += l.Share
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: the shares add up to %g", c.name, sum)
		}
		var doc struct{ Data data.Config }
		if err := yaml.Unmarshal([]byte(strings.Join(k.Config, "\n")), &doc); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if _, err := data.Open(t.Context(), doc.Data); err != nil {
			t.Errorf("%s: the config does not read the folder: %v\n%s", c.name, err, k)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		encode(t, filepath.Join(dir, "images", name+".png"), png.Encode, plain)
		encode(t, filepath.Join(dir, "masks", name+"_mask.png"), png.Encode, twoLevels)
	}
	if k, err := data.CheckPairs(t.Context(), dir, ""); err != nil || !strings.Contains(k.String(), "mask_suffix: _mask") {
		t.Errorf("%v\n%s", err, k)
	}
}
