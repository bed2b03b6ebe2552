package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"lockstep/pkg/data/internal/cifar"
	"lockstep/pkg/data/internal/generate"
	"lockstep/pkg/data/internal/memory"
	"lockstep/pkg/data/internal/pairfiles"
	"lockstep/pkg/data/internal/picture"
)

// CellsOptions configures generated cell images.
type CellsOptions struct {
	Count  int   `yaml:"count" json:"count"`   // images
	Height int   `yaml:"height" json:"height"` // pixels
	Width  int   `yaml:"width" json:"width"`   // pixels
	Seed   int64 `yaml:"seed" json:"seed"`
}

// Validate returns an error for the first invalid field.
func (c CellsOptions) Validate() error {
	switch {
	case c.Count < 1:
		return fmt.Errorf("validate cells: count is %d: generate at least 1 image", c.Count)
	case c.Height < 8 || c.Width < 8:
		return fmt.Errorf("validate cells: size %d×%d: each side must be at least 8 pixels", c.Height, c.Width)
	case c.Height > picture.MaxPixels/c.Width:
		return fmt.Errorf("validate cells: size %d×%d: use at most %d pixels", c.Height, c.Width, picture.MaxPixels)
	}
	return nil
}

// Cells generates 8-bit images that look like cells under a microscope, with their masks, and keeps
// them in memory (two bytes per pixel). Each image shows an unevenly lit, textured background, cells,
// and blurred specks that are not part of the mask. A cell is an ellipse with an uneven outline, a
// membrane, and an interior that is brighter or darker than the background. Blur and noise are added.
// No gray threshold finds the cells, because their values also occur in the background.
//
// Image i depends only on the seed, i and the image size, not on the number of images.
func Cells(ctx context.Context, c CellsOptions) (Dataset, error) {
	return openCells(ctx, c, false)
}

// openCells implements Cells. If outline is true, it draws no images.
func openCells(ctx context.Context, c CellsOptions, outline bool) (Dataset, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	const perImage = 128 // bytes of names and slice headers
	if err := memory.CheckFits(fmt.Sprintf("generate cells: data.count is %d of %d×%d pixels", c.Count, c.Height, c.Width), c.Count, perImage+2*float64(c.Height)*float64(c.Width)); err != nil {
		return nil, err
	}
	s := &byteImageDataset{
		channels: 1, height: c.Height, width: c.Width,
		names: make([]string, c.Count), images: make([][]uint8, c.Count), masks: make([][]uint8, c.Count),
	}
	for i := range s.names {
		s.names[i] = fmt.Sprintf("cells-%d-%d", c.Seed, i)
	}
	if outline {
		return s, ctx.Err()
	}
	err := forEachInParallel(ctx, c.Count, func(i int) (err error) {
		s.images[i], s.masks[i], err = generate.DrawCellImage(ctx, c.Seed, i, c.Height, c.Width)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("generate cells: %w", err)
	}
	return s, nil
}

// forEachInParallel calls f(0) to f(n−1) on as many goroutines as there are processors. It stops at
// the first error, or if ctx is canceled, and returns the error.
func forEachInParallel(ctx context.Context, n int, f func(i int) error) error {
	g, running := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := 0; i < n && ctx.Err() == nil && running.Err() == nil; i++ {
		g.Go(func() error { return f(i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// WriteCells saves the images and masks of Cells as PNG files for OpenPairs (see Write). It keeps
// one image in memory at a time.
func WriteCells(ctx context.Context, dir string, c CellsOptions) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return pairfiles.Write(ctx, dir, c.Count, func(i int) (image.Image, image.Image, error) {
		pixels, mask, err := generate.DrawCellImage(ctx, c.Seed, i, c.Height, c.Width)
		if err != nil {
			return nil, nil, err
		}
		for k := range mask {
			mask[k] *= 255
		}
		r := image.Rect(0, 0, c.Width, c.Height)
		return &image.Gray{Pix: pixels, Stride: c.Width, Rect: r}, &image.Gray{Pix: mask, Stride: c.Width, Rect: r}, nil
	})
}

// CellClassesOptions configures generated images of stained cells, with masks of classes.
type CellClassesOptions struct {
	Count int      // images
	Sizes [][2]int // height and width in pixels; image i has size i mod len(Sizes)
	// Classes is the number of classes in the masks, 2 to 4, in this order: background (0), cell
	// (1), nucleus (2), bacterium (3). If it is less than 3, nuclei count as cell; if less than 4,
	// bacteria count as background. 0 means 2 classes, as black and white.
	Classes int
	RGB     bool // in color; false: in gray
	Seed    int64
}

// Validate returns an error for the first invalid field.
func (c CellClassesOptions) Validate() error {
	if c.Classes != 0 && (c.Classes < 2 || c.Classes > len(generate.StainedCellClasses)) {
		return fmt.Errorf("validate cells: classes is %d: use 2 to %d (%s)", c.Classes, len(generate.StainedCellClasses), strings.Join(generate.StainedCellClasses, ", "))
	}
	if len(c.Sizes) == 0 {
		return errors.New("validate cells: no size: add the height and width of an image")
	}
	for _, s := range c.Sizes {
		if err := (CellsOptions{Count: c.Count, Height: s[0], Width: s[1]}).Validate(); err != nil {
			return err
		}
	}
	return nil
}

// MaskValues returns the class names of the masks' values, for Config.MaskValues. It returns nil if
// the masks are black and white.
func (c CellClassesOptions) MaskValues() map[int]string {
	if c.Classes == 0 {
		return nil
	}
	names := map[int]string{}
	for level, name := range generate.StainedCellClasses[:c.Classes] {
		names[level] = name
	}
	return names
}

// WriteCellClasses generates images and saves them with their masks as PNG files (see Write). An
// image shows unevenly lit, stained cells with nuclei, bacteria, and blurred specks that are part
// of the background. Image i depends only on the seed, i and its size; the same cells are drawn for
// all numbers of classes, in color and in gray. One image is in memory at a time.
func WriteCellClasses(ctx context.Context, dir string, c CellClassesOptions) error {
	if err := c.Validate(); err != nil {
		return err
	}
	level := [...]uint8{0, 1, 2, 3} // in the mask, by level of generate.StainedCellClasses
	if c.Classes < 4 {
		level[3] = 0
	}
	if c.Classes < 3 {
		level[2] = 1
	}
	if c.Classes == 0 {
		level[1], level[2] = 255, 255
	}
	return pairfiles.Write(ctx, dir, c.Count, func(i int) (img, mask image.Image, err error) {
		size := c.Sizes[i%len(c.Sizes)]
		colors, levels, err := generate.DrawStainedCells(ctx, c.Seed, i, size[0], size[1])
		if err != nil {
			return nil, nil, err
		}
		r := image.Rect(0, 0, size[1], size[0])
		rgb, gray := image.NewRGBA(r), image.NewGray(r)
		for k := range levels {
			levels[k] = level[levels[k]]
			pixel := color.RGBA{colors[3*k], colors[3*k+1], colors[3*k+2], 255}
			copy(rgb.Pix[4*k:], []uint8{pixel.R, pixel.G, pixel.B, pixel.A})
			gray.Pix[k] = color.GrayModel.Convert(pixel).(color.Gray).Y
		}
		img = gray
		if c.RGB {
			img = rgb
		}
		return img, &image.Gray{Pix: levels, Stride: size[1], Rect: r}, nil
	})
}

// ShapesOptions configures generated pictures of shapes.
type ShapesOptions struct {
	Count   int   `yaml:"count" json:"count"`     // pictures; picture i is of class i mod Classes
	Classes int   `yaml:"classes" json:"classes"` // 2 to 10; 0: 10
	Edge    int   `yaml:"edge" json:"edge"`       // height and width in pixels; 0: 32
	Seed    int64 `yaml:"seed" json:"seed"`
}

// Validate returns an error for the first invalid field.
func (c ShapesOptions) Validate() error {
	switch {
	case c.Count < 1:
		return fmt.Errorf("validate shapes: count is %d: generate at least 1 picture", c.Count)
	case c.Classes != 0 && (c.Classes < 2 || c.Classes > len(generate.ShapeNames)):
		return fmt.Errorf("validate shapes: classes is %d: use 2 to %d", c.Classes, len(generate.ShapeNames))
	case c.Edge != 0 && (c.Edge < 8 || c.Edge > 1024):
		return fmt.Errorf("validate shapes: edge is %d pixels: use 8 to 1024", c.Edge)
	}
	return nil
}

func (c ShapesOptions) withDefaults() ShapesOptions {
	c.Classes = cmp.Or(c.Classes, len(generate.ShapeNames))
	c.Edge = cmp.Or(c.Edge, cifar.Edge)
	return c
}

// Shapes generates color pictures for classification, by default in the size and number of classes
// of CIFAR-10. Each picture shows one shape: a disc, a ring, a square, … (see ClassNames). Size,
// position, orientation, colors, shading and noise are random, so that no single pixel or mean
// color reveals the class. The pictures are kept in memory, three bytes per pixel.
//
// Picture i is of class i mod Classes and depends only on the seed, i and the edge.
func Shapes(ctx context.Context, c ShapesOptions) (*Classes, error) {
	return openShapes(ctx, c, false)
}

// openShapes implements Shapes. If outline is true, it draws no pictures.
func openShapes(ctx context.Context, c ShapesOptions, outline bool) (*Classes, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	const perPicture = 32 // bytes of slice headers
	if err := memory.CheckFits(fmt.Sprintf("generate shapes: data.count is %d of %d×%d pixels", c.Count, c.Edge, c.Edge), c.Count, perPicture+3*float64(c.Edge)*float64(c.Edge)); err != nil {
		return nil, err
	}
	s := &generatedShapes{seed: c.Seed, edge: c.Edge, images: make([][]uint8, c.Count)}
	labels := make([]int32, c.Count)
	drawn := c.Count
	if outline {
		drawn = 0
	}
	err := forEachInParallel(ctx, drawn, func(i int) error {
		labels[i] = int32(i % c.Classes)
		s.images[i] = generate.DrawShapePicture(c.Seed, i, i%c.Classes, c.Edge)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("generate shapes: %w", err)
	}
	return newClasses(s, append([]string(nil), generate.ShapeNames[:c.Classes]...), labels, c.Edge, c.Edge, ClassOptions{}), nil
}

type generatedShapes struct {
	seed   int64
	edge   int
	images [][]uint8
}

func (s *generatedShapes) name(i int) string    { return fmt.Sprintf("shapes-%d-%d", s.seed, i) }
func (s *generatedShapes) planes(i int) []uint8 { return s.images[i] }
func (s *generatedShapes) picture(_ context.Context, i int) (image.Image, error) {
	return picture.InterleaveRGB(s.images[i], s.edge, s.edge), nil
}

// FieldsOptions configures the boxes that Fields generates.
type FieldsOptions struct {
	Count int   `yaml:"count" json:"count"` // number of boxes
	Edge  int   `yaml:"edge" json:"edge"`   // edge of a box, in cells
	Seed  int64 `yaml:"seed" json:"seed"`
}

// Validate returns an error for the first invalid field.
func (c FieldsOptions) Validate() error {
	switch {
	case c.Count < 1:
		return fmt.Errorf("validate fields: count is %d: generate at least 1 box", c.Count)
	case c.Edge < 8 || c.Edge > 512:
		return fmt.Errorf("validate fields: edge is %d: use 8 to 512 cells", c.Edge)
	}
	return nil
}

// Fields generates boxes of periodic fields and keeps them in memory (36 bytes per cell).
// The input [4,E,E,E] imitates an N-body simulation, the target [5,E,E,E] a hydrodynamic
// simulation. The fields are not physical, but the target can be learned from the input,
// because each target value depends only on nearby input values. φ is a random potential, a
// sum of plane waves. The input is the density contrast δ = −∇²φ and the velocity v = −∇φ,
// scaled. The target is the density tanh(δs), the temperature tanh(δs² − 1) and the
// velocity tanh(v)·(1 − ½·tanh²(δs)), where δs is δ smoothed by a Gaussian filter.
//
// Box i depends only on the seed, i and the edge.
func Fields(ctx context.Context, c FieldsOptions) (Dataset, error) {
	return openFields(ctx, c, false)
}

// openFields implements Fields. If outline is true, it computes no fields.
func openFields(ctx context.Context, c FieldsOptions, outline bool) (Dataset, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := memory.CheckFits(fmt.Sprintf("generate fields: data.count is %d of %d³ cells", c.Count, c.Edge), c.Count, 4*(generate.FieldInputs+generate.FieldTargets)*math.Pow(float64(c.Edge), 3)); err != nil {
		return nil, err
	}
	s := &floatDataset{
		image: []int{generate.FieldInputs, c.Edge, c.Edge, c.Edge}, target: []int{generate.FieldTargets, c.Edge, c.Edge, c.Edge},
		names: make([]string, c.Count), images: make([][]float32, c.Count), targets: make([][]float32, c.Count),
	}
	for i := range s.names {
		s.names[i] = fmt.Sprintf("fields-%d-%d", c.Seed, i)
	}
	if outline {
		return s, ctx.Err()
	}
	for i := range c.Count {
		var err error
		if s.images[i], s.targets[i], err = generate.FieldVolume(ctx, c.Seed, i, c.Edge); err != nil {
			return nil, fmt.Errorf("generate fields: %w", err)
		}
	}
	return s, nil
}
