package data_test

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/data"
)

// side is the edge of the pictures in these tests.
const side = 16

// paint draws a picture whose pixels are of the given colors, in columns of equal width.
func paint(m draw.Image, colors ...color.Color) draw.Image {
	b := m.Bounds()
	for y := range b.Dy() {
		for x := range b.Dx() {
			m.Set(x, y, colors[x*len(colors)/b.Dx()])
		}
	}
	return m
}

func square() image.Rectangle { return image.Rect(0, 0, side, side) }

// pairsOf writes images and masks to a new folder, as 0.png, 1.png and so on.
func pairsOf(t *testing.T, images, masks []image.Image) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, m := range images {
		encode(t, filepath.Join(dir, "image", fmt.Sprint(i, ".png")), png.Encode, m)
	}
	for i, m := range masks {
		encode(t, filepath.Join(dir, "label", fmt.Sprint(i, ".png")), png.Encode, m)
	}
	return dir
}

func gray(v uint8) color.Color { return color.Gray{Y: v} }

// TestReading opens one or two images with the same mask, and one image with a mask, by the rules of
// ReadingValues.
func TestReading(t *testing.T) {
	red, blue, orange := color.NRGBA{R: 200, A: 255}, color.NRGBA{B: 100, A: 255}, color.NRGBA{R: 250, G: 128, A: 255}
	grayImage := paint(image.NewGray(square()), gray(10), gray(200))
	colored := paint(image.NewNRGBA(square()), red, blue)
	equal := paint(image.NewNRGBA(square()), gray(10), gray(200))
	wide := paint(image.NewGray16(square()), color.Gray16{Y: 1000}, color.Gray16{Y: 3000})
	mask := paint(image.NewGray(square()), gray(0), gray(255))
	levels := paint(image.NewGray(square()), gray(0), gray(3), gray(7), gray(255))
	palette := paint(image.NewPaletted(square(), color.Palette{color.Black, red, blue, orange}), color.Black, red, blue, orange)
	named := map[int]string{0: "background", 3: "cell", 7: "nucleus", 255: "ignore"}
	two := func(m image.Image) []image.Image { return []image.Image{m, m} }
	for _, c := range []struct {
		name   string
		images []image.Image
		mask   image.Image
		config data.Config
		// want has the values of the pixels 0, 4, 8 and 12 of the first row: of the channels, and of
		// the target. Or an error, or a note.
		channels int
		first    [4]float32 // of the first channel, times 255
		target   [4]float32
		note     string
		err      string
	}{
		{name: "gray", images: two(grayImage), mask: mask, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 0, 1, 1}},
		{name: "colors", images: two(colored), mask: mask, channels: 3, first: [4]float32{200, 200, 0, 0}, target: [4]float32{0, 0, 1, 1}},
		{name: "colors as asked", images: two(colored), mask: mask, config: data.Config{InputChannels: 3}, channels: 3, first: [4]float32{200, 200, 0, 0}, target: [4]float32{0, 0, 1, 1}},
		{
			name: "equal colors", images: []image.Image{equal, grayImage}, mask: mask, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 0, 1, 1},
			note: "red, green and blue are equal at every pixel of the images of DIR, although files have colors or a palette: they are read as gray images",
		},
		{name: "one image without color", images: []image.Image{colored, equal}, mask: mask, channels: 3, first: [4]float32{200, 200, 0, 0}, target: [4]float32{0, 0, 1, 1}},
		{name: "colors and gray", images: []image.Image{grayImage, colored}, mask: mask, err: "image DIR/image/1.png has colors, but DIR/image/0.png is gray: save all images as RGB, or set data.to_gray to true"},
		{name: "colors to gray", images: two(colored), mask: mask, config: data.Config{ToGray: true}, channels: 1, first: [4]float32{60, 60, 11, 11}, target: [4]float32{0, 0, 1, 1}, note: "2 of the 2 images of DIR have colors, which are converted to gray, as data.to_gray says"},
		{name: "colors and gray to gray", images: []image.Image{grayImage, colored}, mask: mask, config: data.Config{ToGray: true}, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 0, 1, 1}, note: "1 of the 2 images of DIR have colors"},
		{name: "colors into one channel", images: two(colored), mask: mask, config: data.Config{InputChannels: 1}, err: "data.input_channels is 1, but image DIR/image/0.png has colors: set it to 3, or set data.to_gray to true"},
		{name: "gray into three channels", images: two(grayImage), mask: mask, config: data.Config{InputChannels: 3}, err: "data.input_channels is 3, but image DIR/image/0.png is gray: set it to 1"},
		{name: "transparency", images: two(paint(image.NewNRGBA(square()), red, color.NRGBA{R: 9, A: 9})), mask: mask, err: "image DIR/image/0.png has transparent pixels"},
		{name: "transparent mask", images: two(grayImage), mask: paint(image.NewNRGBA(square()), gray(0), color.NRGBA{A: 7}), err: "mask DIR/label/0.png has transparent pixels"},
		{name: "16 bits", images: two(wide), mask: mask, err: "images of DIR have 16 bits per value, from 1000 to 3000: set data.range to the values that shall become black and white, such as [1000, 3000]"},
		{name: "16 bits with a range", images: two(wide), mask: mask, config: data.Config{Range: []float64{1000, 5000}}, channels: 1, first: [4]float32{0, 0, 128, 128}, target: [4]float32{0, 0, 1, 1}},
		{name: "outside of the range", images: two(wide), mask: mask, config: data.Config{Range: []float64{1500, 2500}}, channels: 1, first: [4]float32{0, 0, 255, 255}, target: [4]float32{0, 0, 1, 1}},
		{name: "a range for 8 bits", images: two(grayImage), mask: mask, config: data.Config{Range: []float64{0, 100}}, err: "images of DIR have 8 bits per value: leave data.range out"},
		{name: "8 and 16 bits", images: []image.Image{grayImage, wide}, mask: mask, err: "image DIR/image/1.png has 16 bits per value, but DIR/image/0.png has 8"},
		{name: "classes", images: two(grayImage), mask: levels, config: data.Config{MaskValues: named}, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 1, 2, data.Ignored}},
		{name: "classes by name", images: two(grayImage), mask: levels, config: data.Config{MaskValues: map[int]string{255: "background", 3: "cell", 0: "ring", 7: "cell"}}, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{1, 2, 2, 0}},
		{name: "classes of a palette", images: two(grayImage), mask: palette, config: data.Config{MaskValues: map[int]string{0: "background", 1: "cell", 2: "ignore", 3: "nucleus"}}, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 1, data.Ignored, 2}},
		{name: "classes in RGB", images: two(grayImage), mask: paint(image.NewNRGBA(square()), gray(0), gray(3), gray(7), gray(255)), config: data.Config{MaskValues: named}, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 1, 2, data.Ignored}},
		{name: "classes in 16 bits", images: two(grayImage), mask: paint(image.NewGray16(square()), color.Gray16{Y: 0}, color.Gray16{Y: 3}, color.Gray16{Y: 7}, color.Gray16{Y: 255}), config: data.Config{MaskValues: named}, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 1, 2, data.Ignored}},
		{name: "a value of 16 bits", images: two(grayImage), mask: paint(image.NewGray16(square()), color.Gray16{Y: 0}, color.Gray16{Y: 259}), config: data.Config{MaskValues: named}, err: "mask DIR/label/0.png has the value 259 in 128 pixels, which data.mask_values ({0: background, 3: cell, 7: nucleus, 255: ignore}) does not name"},
		{name: "an unknown value", images: two(grayImage), mask: levels, config: data.Config{MaskValues: map[int]string{0: "background", 3: "cell"}}, err: "mask DIR/label/0.png has the values 7 and 255 in 128 pixels, which data.mask_values ({0: background, 3: cell}) does not name"},
		{name: "a palette without names", images: two(grayImage), mask: palette, err: "mask DIR/label/0.png has a palette and the values 0, 1, 2 and 3: name them in data.mask_values, for example {0: background, 1: class1, 2: class2, 3: class3}"},
		{name: "class numbers and ignored pixels without names", images: two(grayImage), mask: paint(image.NewGray(square()), gray(0), gray(1), gray(255)), err: "masks of DIR have the values 0, 1 and 255: name them in data.mask_values, for example {0: background, 1: class1, 255: ignore}"},
		{
			name: "three values without names", images: two(grayImage), mask: paint(image.NewGray(square()), gray(0), gray(100), gray(255), gray(255)), channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 0, 1, 1},
			note: "the masks of DIR have the values 0, 100 and 255, which are read by brightness, as foreground from 128 on: if they are classes, name them in data.mask_values",
		},
		{name: "a mask in color", images: two(grayImage), mask: colored, err: "mask DIR/label/0.png has colors: save it in gray"},
		{name: "only background", images: two(grayImage), mask: paint(image.NewGray(square()), gray(0), gray(255)), config: data.Config{MaskValues: map[int]string{0: "background", 255: "background", 1: "cell"}}, err: "have no pixel of a class other than background"},
		{name: "a class in no mask", images: two(grayImage), mask: mask, config: data.Config{MaskValues: map[int]string{0: "background", 255: "cell", 1: "nucleus"}}, channels: 1, first: [4]float32{10, 10, 200, 200}, target: [4]float32{0, 0, 2, 2}, note: "no mask of DIR has a pixel of the class nucleus"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := pairsOf(t, c.images, []image.Image{c.mask, c.mask})
			c.config.Kind, c.config.Path, c.config.TestImages = data.KindPairs, dir, 1
			p, err := data.OpenPairs(t.Context(), dir, c.config)
			if err == nil {
				err = p.CheckMasks()
			}
			if c.err != "" {
				if want := strings.ReplaceAll(c.err, "DIR", dir); err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("got %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if shape := p.ImageShape(); !slices.Equal(shape, []int{c.channels, side, side}) {
				t.Fatalf("images have shape %v", shape)
			}
			pixels, target := get(t, p, 0)
			for k := range 4 {
				if x := k * side / 4; math.Abs(float64(255*pixels[x]-c.first[k])) > 1e-3 || target[x] != c.target[k] {
					t.Errorf("pixel %d is %g of class %g, want %g of %g", x, 255*pixels[x], target[x], c.first[k], c.target[k])
				}
			}
			if notes := strings.Join(p.Notes(), "\n"); c.note == "" && notes != "" || !strings.Contains(notes, strings.ReplaceAll(c.note, "DIR", dir)) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			// A prediction reads the same values.
			c.config.InputChannels = c.channels
			path := filepath.Join(dir, "image", "0.png")
			m, err := data.ReadPicture(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			input, shape, err := c.config.NetworkInput(t.Context(), m)
			if err != nil || !slices.Equal(shape, p.ImageShape()) || !slices.Equal(input, pixels) {
				t.Errorf("the network's input has shape %v, error %v: want the values of the training", shape, err)
			}
			read, _, _, err := c.config.ReadMask(t.Context(), filepath.Join(dir, "label", "0.png"))
			if err != nil || !slices.Equal(read, target) {
				t.Errorf("the mask is read otherwise than in training: %v", err)
			}
		})
	}
}

// TestOutlineFindsErrors: headers tell some errors, and the facts that an earlier Open has kept tell
// the others.
func TestOutlineFindsErrors(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	mask := paint(image.NewGray(square()), gray(0), gray(255))
	wide := paint(image.NewGray16(square()), color.Gray16{Y: 1000}, color.Gray16{Y: 3000})
	dir := pairsOf(t, []image.Image{wide, wide}, []image.Image{mask, mask})
	c := data.Config{Kind: data.KindPairs, Path: dir, TestImages: 1}
	if _, err := data.Outline(t.Context(), c); err == nil || !strings.Contains(err.Error(), "have 16 bits per value: set data.range to the values that shall become black and white; lockstep data check "+dir) {
		t.Errorf("got %v", err)
	}
	c.Range = []float64{1000, 3000}
	o, err := data.Outline(t.Context(), c)
	if err != nil || o.Train.ImageShape()[0] != 1 {
		t.Errorf("%v: shape %v", err, o.Train)
	}
	// The facts are kept as soon as the files are old enough to be told from later versions.
	want := "images of " + dir + " have 16 bits per value, from 1000 to 3000"
	for begin := time.Now(); ; {
		if time.Since(begin) > time.Minute {
			t.Fatal("the facts are not kept")
		}
		if _, err := data.Open(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		narrow := c
		narrow.Range = nil
		_, err := data.Outline(t.Context(), narrow)
		if err == nil {
			t.Fatal("no error without a range")
		}
		if strings.Contains(err.Error(), want) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestSizes opens images of different sizes, with the network's multiple 8.
func TestSizes(t *testing.T) {
	of := func(h, w int) (image.Image, image.Image) {
		r := image.Rect(0, 0, w, h)
		return paint(image.NewGray(r), gray(10), gray(200)), paint(image.NewGray(r), gray(0), gray(255))
	}
	a, am := of(24, 40)
	b, bm := of(33, 21)
	for _, c := range []struct {
		images, masks  []image.Image
		tile, multiple int
		want           string
	}{
		{[]image.Image{a, b}, []image.Image{am, bm}, 0, 8, "1.png is 33×21, but DIR/image/0.png is 24×40 (height×width): set data.tile (such as 16)"},
		{[]image.Image{a, b}, []image.Image{am, bm}, 20, 8, "data.tile is 20, but the network needs a multiple of 8: set data.tile to 16, which fits into all images"},
		{[]image.Image{a, b}, []image.Image{am, bm}, 24, 8, "data.tile is 24, but image 1 has a side of 21 pixels: set data.tile to at most 16"},
		{[]image.Image{a, b}, []image.Image{am, bm}, 24, 0, "image 1 of 33×21 is smaller than tiles of 24×24: set data.tile to at most 21"},
		{[]image.Image{b, b}, []image.Image{bm, bm}, 0, 8, "is 33×21 (height×width), but the network needs multiples of 8: crop or enlarge the images (nearest: 32×24), or set data.tile to 16, which fits into all images"},
		{[]image.Image{b, b}, []image.Image{bm, bm}, 0, 32, "has a side of 21 pixels, but the network needs at least 32"},
		{[]image.Image{a, b}, []image.Image{bm, am}, 16, 8, "mask DIR/label/0.png is 33×21, but its image DIR/image/0.png is 24×40"},
	} {
		dir := pairsOf(t, c.images, c.masks)
		config := data.Config{Kind: data.KindPairs, Path: dir, TestImages: 1, Tile: c.tile, SideMultiple: c.multiple}
		for name, open := range map[string]func() error{
			"Open":    func() error { _, err := data.Open(t.Context(), config); return err },
			"Outline": func() error { _, err := data.Outline(t.Context(), config); return err },
		} {
			if err := open(); err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(c.want, "DIR", dir)) {
				t.Errorf("%s with tile %d: got %v, want %s", name, c.tile, err, c.want)
			}
		}
	}

	dir := pairsOf(t, []image.Image{a, b}, []image.Image{am, bm})
	for seed := range int64(4) {
		o, err := data.Open(t.Context(), data.Config{Kind: data.KindPairs, Path: dir, TestImages: 1, Tile: 16, SideMultiple: 8, DataSeed: seed})
		if err != nil {
			t.Fatal(err)
		}
		want, pixels := 2*3, 24*40 // tiles and pixels of image 0
		if o.TestImages[0] == "1" {
			want, pixels = 3*2, 33*21
		}
		if o.Test.Len() != want || data.ImageOf(o.Test, want-1) != 0 {
			t.Errorf("image %s has %d tiles, want %d", o.TestImages[0], o.Test.Len(), want)
		}
		counted := 0
		for i := range o.Test.Len() {
			_, target := get(t, o.Test, i)
			for _, v := range target {
				if v != data.Ignored {
					counted++
				}
			}
		}
		if counted != pixels {
			t.Errorf("image %s: %d of its %d pixels are counted", o.TestImages[0], counted, pixels)
		}
		for i := range o.Train.Len() {
			if _, target := get(t, o.Train, i); slices.Contains(target, data.Ignored) {
				t.Errorf("tile %d for training ignores pixels", i)
			}
		}
	}
}

// TestSuffix pairs alpha.png with alpha_mask.png, in two folders and in one.
func TestSuffix(t *testing.T) {
	m, mask := paint(image.NewGray(square()), gray(10)), paint(image.NewGray(square()), gray(0), gray(255))
	for _, folders := range [][2]string{{"images", "masks"}, {"", ""}} {
		dir := t.TempDir()
		for _, name := range []string{"alpha", "beta"} {
			encode(t, filepath.Join(dir, folders[0], name+".png"), png.Encode, m)
			encode(t, filepath.Join(dir, folders[1], name+"_mask.png"), png.Encode, mask)
		}
		p, err := data.OpenPairs(t.Context(), dir, data.Config{MaskSuffix: "_mask"})
		if err != nil || p.Len() != 2 || p.SampleName(1) != "beta" {
			t.Errorf("%v: %v", folders, err)
		}
		want := "set data.mask_suffix to _mask"
		if folders[0] == "" {
			want = "if images and masks are in one folder, set data.mask_suffix"
		}
		if _, err := data.OpenPairs(t.Context(), dir, data.Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without the suffix: got %v, want %s", err, want)
		}
		missing := filepath.Join(dir, folders[1], "beta_mask.png")
		if err := os.Remove(missing); err != nil {
			t.Fatal(err)
		}
		if _, err := data.OpenPairs(t.Context(), dir, data.Config{MaskSuffix: "_mask"}); err == nil || !strings.Contains(err.Error(), "has no mask "+missing) {
			t.Errorf("got %v, want it to name %s", err, missing)
		}
		encode(t, missing, png.Encode, mask)
		encode(t, filepath.Join(dir, folders[1], "gamma_mask.png"), png.Encode, mask)
		if _, err := data.OpenPairs(t.Context(), dir, data.Config{MaskSuffix: "_mask"}); err == nil || !strings.Contains(err.Error(), "gamma_mask.png has no image "+filepath.Join(dir, folders[0], "gamma.png")) {
			t.Errorf("a mask without image: got %v", err)
		}
	}
}

// TestGroups splits images of five patients.
func TestGroups(t *testing.T) {
	dir := t.TempDir()
	m, mask := paint(image.NewGray(square()), gray(100)), paint(image.NewGray(square()), gray(0), gray(255))
	for i := range 15 {
		name := fmt.Sprintf("p%d_slice%d.png", i/3, i)
		encode(t, filepath.Join(dir, "image", name), png.Encode, m)
		encode(t, filepath.Join(dir, "label", name), png.Encode, mask)
	}
	c := data.Config{Kind: data.KindPairs, Path: dir, TestImages: 4, ValidationImages: 3, Group: "^(p[0-9])_"}
	patients := func(ds data.Dataset) map[string]bool {
		set := map[string]bool{}
		for i := range ds.Len() {
			set[ds.SampleName(i)[:2]] = true
		}
		return set
	}
	for seed := range int64(5) {
		c.DataSeed = seed
		o, err := data.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if o.Train.Len() != 6 || o.Test.Len() != 3 || o.Final.Len() != 6 {
			t.Fatalf("%d, %d and %d images, want 6, 3 and 6", o.Train.Len(), o.Test.Len(), o.Final.Len())
		}
		seen := map[string]bool{}
		for _, ds := range []data.Dataset{o.Train, o.Test, o.Final} {
			for p := range patients(ds) {
				if seen[p] {
					t.Errorf("seed %d: patient %s is in two parts", seed, p)
				}
				seen[p] = true
			}
		}
		notes := strings.Join(o.Notes, "\n")
		for _, want := range []string{"5 groups by data.group, which are kept together: 6 are held out for tests, not 4", "6 images are left for training, fewer than the 9 that are held out"} {
			if !strings.Contains(notes, want) {
				t.Errorf("notes %q, want %q", notes, want)
			}
		}
	}
	for _, bad := range []struct {
		group string
		test  int
		want  string
	}{
		{"(", 1, "data.group is no regular expression"},
		{"^q", 1, "data.group (^q) does not match the image p0_slice0"},
		{"^p", 1, "leave no image for training"},
	} {
		c := data.Config{Kind: data.KindPairs, Path: dir, TestImages: bad.test, Group: bad.group}
		if _, err := data.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("group %s: got %v, want %s", bad.group, err, bad.want)
		}
	}
}

// TestClassOnlyHeldOut: a class in one image only is an error if that image is held out.
func TestClassOnlyHeldOut(t *testing.T) {
	m := paint(image.NewGray(square()), gray(100))
	plain, rare := paint(image.NewGray(square()), gray(0), gray(1)), paint(image.NewGray(square()), gray(0), gray(1), gray(2))
	dir := pairsOf(t, []image.Image{m, m, m}, []image.Image{plain, rare, plain})
	c := data.Config{Kind: data.KindPairs, Path: dir, TestImages: 1, MaskValues: map[int]string{0: "background", 1: "cell", 2: "nucleus"}}
	failed := 0
	for seed := range int64(8) {
		c.DataSeed = seed
		o, err := data.Open(t.Context(), c)
		if err != nil {
			failed++
			if want := "the held-out masks have the class nucleus, which no mask for training has"; !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			continue
		}
		if o.TestImages[0] == "1" {
			t.Error("no error")
		}
		if want := []string{"background", "cell", "nucleus"}; !slices.Equal(o.ClassNames, want) {
			t.Errorf("classes %q, want %q", o.ClassNames, want)
		}
	}
	if failed == 0 || failed == 8 {
		t.Errorf("%d of 8 splits failed", failed)
	}
}

// TestMaskValues checks configs and the levels of masks.
func TestMaskValues(t *testing.T) {
	for _, c := range []struct {
		config data.Config
		want   string
	}{
		{data.Config{MaskValues: map[int]string{0: "cell", 1: "nucleus"}}, "data.mask_values has no value named background (got cell and nucleus)"},
		{data.Config{MaskValues: map[int]string{0: "background", 1: "ignore"}}, "has only the class background"},
		{data.Config{MaskValues: map[int]string{0: "background", 300: "cell"}}, "has the value 300: use 0 to 255"},
		{data.Config{MaskValues: map[int]string{0: "background", 1: "cell"}, Foreground: "white"}, "data.foreground is white, but data.mask_values is set"},
		{data.Config{Reading: data.ReadingGray, ToGray: true}, "data.reading is 1, which knows only gray images and two classes"},
		{data.Config{Reading: 3}, "data.reading is 3"},
		{data.Config{InputChannels: 2}, "data.input_channels is 2: use 1 for gray images, 3 for RGB"},
		{data.Config{Range: []float64{5, 5}}, "data.range is [5 5]"},
	} {
		c.config.Kind, c.config.Path, c.config.TestImages = data.KindPairs, "d", 1
		if err := c.config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for _, c := range []struct {
		values   map[int]string
		classes  []string
		levels   []uint8
		networks int
	}{
		{nil, nil, []uint8{0, 255}, 0},
		{map[int]string{255: "background", 0: "cell"}, []string{"background", "cell"}, []uint8{255, 0}, 0},
		{map[int]string{0: "background", 1: "cell", 9: "ignore"}, []string{"background", "cell"}, []uint8{0, 1}, 2},
		{map[int]string{4: "b", 0: "background", 2: "a", 9: "a"}, []string{"background", "a", "b"}, []uint8{0, 2, 4}, 3},
	} {
		config := data.Config{MaskValues: c.values}
		if got := config.MaskClasses(); !slices.Equal(got, c.classes) || !slices.Equal(config.MaskLevels(), c.levels) || config.NetworkClasses() != c.networks {
			t.Errorf("%v: classes %q, levels %v, %d outputs", c.values, got, config.MaskLevels(), config.NetworkClasses())
		}
	}
}

// TestRange: another range is another fingerprint.
func TestRange(t *testing.T) {
	wide := paint(image.NewGray16(square()), color.Gray16{Y: 1000}, color.Gray16{Y: 3000})
	mask := paint(image.NewGray(square()), gray(0), gray(255))
	dir := pairsOf(t, []image.Image{wide, wide}, []image.Image{mask, mask})
	c := data.Config{Kind: data.KindPairs, Path: dir, TestImages: 1, Range: []float64{0, 4000}}
	one := fingerprintOf(t, c)
	c.Range = []float64{0, 5000}
	if fingerprintOf(t, c) == one {
		t.Error("another range has the same fingerprint")
	}
}
