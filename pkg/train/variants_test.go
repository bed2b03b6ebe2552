package train

import (
	"image"
	"image/color"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// TestVariants: each variant is above its mask, augmented as in its epoch of a run.
func TestVariants(t *testing.T) {
	c := DefaultConfig()
	c.Data = DataConfig{Kind: "cells", Count: 4, Height: 32, Width: 48, TestImages: 1, Augment: data.Augment{Flip: true, RotateDegrees: 30, Scale: 0.2, Gamma: 0.3}}
	samples, err := OpenSamples(t.Context(), c.Data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := samples.Variants(1, 6)
	if err != nil {
		t.Fatal(err)
	}
	const scale = 4 // to 128 rows
	stepX, stepY := 48*scale+pictureGap, 32*scale+pictureGap
	if want := image.Rect(0, 0, 4*stepX-pictureGap, 4*stepY-pictureGap+2*pictureTextRow); m.Bounds() != want {
		t.Fatalf("the picture is %v, want %v", m.Bounds(), want)
	}
	sampler, err := data.NewSampler(c.SamplerOptions(3, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	loader, err := data.NewLoader(samples.Train, sampler, c.LoaderOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer loader.Close()
	var planes [2][32 * 48]float32
	for epoch := range 6 {
		if err := loader.Sample(t.Context(), epoch, 1, planes[0][:], planes[1][:]); err != nil {
			t.Fatal(err)
		}
		for row, plane := range planes {
			for i, v := range plane {
				x, y := epoch%4*stepX+i%48*scale, pictureTextRow+(2*(epoch/4)+row)*stepY+i/48*scale
				want := uint32(255*v+0.5) * 0x101
				if r, g, b, _ := m.At(x+scale-1, y+scale-1).RGBA(); r != want || g != want || b != want {
					t.Fatalf("epoch %d, plane %d: pixel %d has red %d, want %d", epoch, row, i, r, want)
				}
			}
		}
	}
	for want, draw := range map[string]func() (image.Image, error){
		"got 0 variants, want at least 1":                               func() (image.Image, error) { return samples.Variants(0, 0) },
		"sample 3: the data set has samples 0 to 2":                     func() (image.Image, error) { return samples.Variants(3, 1) },
		"the config has no augmentation: set data.augment, for example": func() (image.Image, error) { return Samples{OpenedData: samples.OpenedData}.Variants(0, 1) },
		"targets of shape [1], want images with masks": func() (image.Image, error) {
			shapes, err := OpenSamples(t.Context(), DataConfig{Kind: "shapes", Count: 4, TestImages: 1, Augment: data.Augment{Flip: true}})
			if err != nil {
				return nil, err
			}
			return shapes.Variants(0, 1)
		},
	} {
		if _, err := draw(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// pixels is a data set of one picture of one row, with the colors and the class of each pixel.
type pixels struct{ image, target []float32 }

func (p pixels) Len() int              { return 1 }
func (p pixels) ImageShape() []int     { return []int{3, 1, len(p.target)} }
func (p pixels) TargetShape() []int    { return []int{1, 1, len(p.target)} }
func (p pixels) SampleName(int) string { return "pixels" }
func (p pixels) Get(_ int, image, target []float32) error {
	copy(image, p.image)
	copy(target, p.target)
	return nil
}

// TestPictureColors: images of three channels are in color, and classes have their own colors.
func TestPictureColors(t *testing.T) {
	samples := Samples{OpenedData: data.OpenedData{
		Train:      pixels{image: []float32{1, 0, 0.2, 0, 0, 1, 0.4, 0, 0, 0, 1, 0}, target: []float32{0, 1, 2, data.Ignored}},
		ClassNames: []string{"background", "cell", "nucleus"},
	}}
	m, err := samples.Picture(0)
	if err != nil {
		t.Fatal(err)
	}
	const scale = minPictureHeight
	for i, want := range []color.RGBA{
		{255, 0, 0, 255},
		{0, 255, 0, 255},
		{51, 102, 255, 255},
		{0, 0, 0, 255},
		{0, 0, 0, 255},
		{230, 159, 0, 255},
		{86, 180, 233, 255},
		{128, 128, 128, 255},
	} {
		if got := m.At(i/4*pictureGap+i*scale+1, pictureTextRow+1); got != want {
			t.Errorf("pixel %d is %v, want %v", i, got, want)
		}
	}
	mask := Samples{}.newMask([]float32{0, 1, data.Ignored}, []int{1, 1, 3}).(*image.Gray)
	if !slices.Equal(mask.Pix, []uint8{0, 255, 128}) {
		t.Errorf("a mask without classes has gray values %d", mask.Pix)
	}
	samples.config.MaskValues = map[int]string{0: "background", 1: "cell", 2: "nucleus"}
	if got, want := samples.pictureLabel(), "image, mask: cell orange, nucleus sky blue, ignored gray"; got != want {
		t.Errorf("got the label %q, want %q", got, want)
	}
	if ClassColor(8) != ClassColor(1) || ClassColor(7) == ClassColor(1) {
		t.Error("the colors do not repeat after seven classes")
	}
}

// TestPredictionPicture: with classes, the prediction is drawn in their colors beside the mask,
// whose pixels that an earlier tile counts are gray.
func TestPredictionPicture(t *testing.T) {
	dir := t.TempDir()
	c := tiny()
	c.Epochs = 1
	c.Data = DataConfig{Kind: "pairs", Path: filepath.Join(dir, "data"), TestImages: 1, Tile: 16, MaskValues: map[int]string{0: "background", 1: "cell", 2: "nucleus"}}
	if err := data.WriteCellClasses(t.Context(), c.Data.Path, data.CellClassesOptions{Count: 4, Sizes: [][2]int{{24, 24}}, Classes: 3, RGB: true, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := trainAll(t, c, 1, WorkerOptions{Dir: filepath.Join(dir, "run")}); err != nil {
		t.Fatal(err)
	}
	p, err := OpenPredictor(t.Context(), filepath.Join(dir, "run"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	m, err := p.Picture(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	const scale = minPictureHeight / 16
	colors := [3]map[color.Color]int{{}, {}, {}}
	for i := range 3 * 16 * 16 {
		panel, x, y := i/256, i%16, i/16%16
		colors[panel][m.At(panel*(minPictureHeight+pictureGap)+x*scale, pictureTextRow+y*scale)]++
	}
	if len(colors[0]) < 20 {
		t.Errorf("the image has %d colors", len(colors[0]))
	}
	// Tiles begin at 0 and 8, so that the last one has 8×8 pixels of its own.
	if n := colors[1][ClassColor(data.Ignored)]; n != 256-64 {
		t.Errorf("%d pixels of the mask do not count, want %d", n, 256-64)
	}
	if n := colors[2][ClassColor(0)] + colors[2][ClassColor(1)] + colors[2][ClassColor(2)]; n != 256 {
		t.Errorf("the prediction has the colors %v", colors[2])
	}
	if got := argmaxClasses([]float32{1, 0, 3, 2, 0, 3, 0, 0, 4}, 3); !slices.Equal(got, []float32{1, 0, 2}) {
		t.Errorf("the largest logits are of classes %v, want [1 0 2]", got)
	}
}
