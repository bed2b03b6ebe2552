package train

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"strings"

	"golang.org/x/image/draw"

	"lockstep/pkg/data"
)

// Variants draws n augmented variants of training sample i, each above its mask. They are the
// variants that occur in the first n epochs of a run with the default seed. Images and masks are
// enlarged by an integer factor. It returns an error unless the samples are images with masks. A
// notebook cell displays the picture.
func (s Samples) Variants(i, n int) (image.Image, error) {
	c := DefaultConfig()
	c.Data = s.config
	switch {
	case n < 1:
		return nil, fmt.Errorf("draw variants of sample %d: got %d variants, want at least 1", i, n)
	case i < 0 || i >= s.Train.Len():
		return nil, fmt.Errorf("draw variants of sample %d: the data set has samples 0 to %d", i, s.Train.Len()-1)
	case c.Data.Augment == (data.Augment{}):
		return nil, errors.New("draw variants: the config has no augmentation: set data.augment, for example flip to true or rotate_degrees to 15")
	case len(s.Train.ImageShape()) != 3 || len(s.Train.TargetShape()) != 3:
		return nil, fmt.Errorf("draw variants: got images of shape %v and targets of shape %v, want images with masks", s.Train.ImageShape(), s.Train.TargetShape())
	}
	sampler, err := data.NewSampler(data.SamplerOptions{Samples: s.Train.Len(), World: 1, BatchPerWorker: 1})
	if err != nil {
		return nil, fmt.Errorf("draw variants: %w", err)
	}
	loader, err := data.NewLoader(s.Train, sampler, c.LoaderOptions())
	if err != nil {
		return nil, fmt.Errorf("draw variants: %w", err)
	}
	defer loader.Close()
	shape := loader.ImageShape()
	img, mask := make([]float32, numElements(shape)), make([]float32, numElements(loader.TargetShape()))
	const columns, minEdge = 4, 128 // lower planes are enlarged
	scale := (minEdge + shape[1] - 1) / shape[1]
	height, width := shape[1]*scale+pictureGap, shape[2]*scale+pictureGap
	grid := image.NewRGBA(image.Rect(0, 0, min(n, columns)*width-pictureGap, 2*((n+columns-1)/columns)*height-pictureGap))
	draw.Draw(grid, grid.Rect, image.White, image.Point{}, draw.Src)
	for k := range n {
		if err := loader.Sample(context.Background(), k, i, img, mask); err != nil {
			return nil, fmt.Errorf("draw variants: %w", err)
		}
		for row, m := range []image.Image{newImage(img, shape), s.newMask(mask, shape)} {
			corner := image.Pt(k%columns*width, (2*(k/columns)+row)*height)
			to := image.Rectangle{corner, corner.Add(image.Pt(shape[2]*scale, shape[1]*scale))}
			draw.NearestNeighbor.Scale(grid, to, m, m.Bounds(), draw.Src, nil)
		}
	}
	return SideBySide(s.Train.SampleName(i), Panel{Label: s.pictureLabel(), Image: grid})
}

// newImage returns an image of shape [C,H,W]. It is in color if it has three channels, else its
// first channel is shown in gray. values are from 0 (black) to 1.
func newImage(values []float32, shape []int) image.Image {
	gray := newGrayPanel("", values, shape[1], shape[2]).Image.(*image.Gray)
	if shape[0] != 3 {
		return gray
	}
	m := image.NewRGBA(gray.Rect)
	n := len(gray.Pix)
	for i := range n {
		for c := range 3 {
			m.Pix[4*i+c] = uint8(math.Round(255 * min(max(float64(values[c*n+i]), 0), 1)))
		}
		m.Pix[4*i+3] = 255
	}
	return m
}

// classColors contains the colors of the classes from 1 on; class 0 is black. The colors are those
// of Okabe and Ito ("Color Universal Design", 2008). They repeat if there are more classes.
var classColors = [...]struct {
	name  string
	color color.RGBA
}{
	{"orange", color.RGBA{230, 159, 0, 255}},
	{"sky blue", color.RGBA{86, 180, 233, 255}},
	{"green", color.RGBA{0, 158, 115, 255}},
	{"purple", color.RGBA{204, 121, 167, 255}},
	{"yellow", color.RGBA{240, 228, 66, 255}},
	{"blue", color.RGBA{0, 114, 178, 255}},
	{"vermilion", color.RGBA{213, 94, 0, 255}},
}

// ClassColor returns a class's color in masks: black for class 0, gray for data.Ignored.
func ClassColor(class int) color.RGBA {
	switch class {
	case 0:
		return color.RGBA{A: 255}
	case data.Ignored:
		return color.RGBA{128, 128, 128, 255}
	}
	return classColors[(class-1)%len(classColors)].color
}

// newMask draws a mask in black and white, or in the colors of the classes. Ignored pixels are
// gray.
func (s Samples) newMask(mask []float32, shape []int) image.Image {
	if len(s.ClassNames) == 0 {
		gray := newGrayPanel("", mask, shape[1], shape[2]).Image.(*image.Gray)
		for i, v := range mask {
			if v == data.Ignored {
				gray.Pix[i] = ClassColor(data.Ignored).R
			}
		}
		return gray
	}
	m := image.NewRGBA(image.Rect(0, 0, shape[2], shape[1]))
	for i, v := range mask {
		m.SetRGBA(i%shape[2], i/shape[2], ClassColor(int(v)))
	}
	return m
}

func (s Samples) pictureLabel() string {
	if len(s.ClassNames) == 0 {
		return "image, mask"
	}
	colors := DescribeClassColors(s.ClassNames)
	if s.config.NetworkClasses() > 0 {
		colors += ", ignored gray"
	}
	return "image, mask: " + colors
}

// DescribeClassColors lists the colors of all classes except the first, such as "cell orange,
// nucleus sky blue".
func DescribeClassColors(names []string) string {
	var list []string
	for class, name := range names[1:] {
		list = append(list, name+" "+classColors[class%len(classColors)].name)
	}
	return strings.Join(list, ", ")
}
