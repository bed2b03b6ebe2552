package data

import (
	"context"
	"fmt"
	"image"

	"golang.org/x/image/draw"
)

// ClassOptions configures the reading of pictures for classification.
type ClassOptions struct {
	// Resize is the edge, in pixels, to which every picture is scaled by bilinear interpolation,
	// without keeping its aspect ratio. 0: pictures are not scaled and must have equal sizes.
	Resize int `yaml:"resize" json:"resize"`
}

// Validate returns an error if Resize is out of range.
func (o ClassOptions) Validate() error {
	if o.Resize < 0 || o.Resize > 1<<14 {
		return fmt.Errorf("validate pictures: resize is %d pixels: use 0 (no scaling) to %d", o.Resize, 1<<14)
	}
	return nil
}

// Classes is a data set for classification. Images are color pictures [3,H,W] (red, green,
// blue) with values in [0,1]. A target [1] is the index of the picture's class, from 0.
type Classes struct {
	source  pictureSource
	names   []string
	labels  []int32
	size    [2]int // height and width after scaling
	resized *resizer
}

type pictureSource interface {
	name(i int) string
	// picture returns picture i before scaling.
	picture(ctx context.Context, i int) (image.Image, error)
}

// planarSource keeps pictures in memory as bytes. planes returns the red plane of picture i, then
// the green and the blue one.
type planarSource interface{ planes(i int) []uint8 }

func newClasses(source pictureSource, names []string, labels []int32, height, width int, o ClassOptions) *Classes {
	c := &Classes{source: source, names: names, labels: labels, size: [2]int{height, width}}
	if o.Resize > 0 {
		c.size = [2]int{o.Resize, o.Resize}
		if o.Resize != height || o.Resize != width {
			c.resized = newResizer(o.Resize, height, width)
		}
	}
	return c
}

// Len returns the number of pictures.
func (c *Classes) Len() int { return len(c.labels) }

// ClassNames returns the class names by index. The caller must not modify the slice.
func (c *Classes) ClassNames() []string { return c.names }

// Class returns the class index of sample i.
func (c *Classes) Class(i int) int { return int(c.labels[i]) }

// ImageShape returns [3,H,W].
func (c *Classes) ImageShape() []int { return []int{3, c.size[0], c.size[1]} }

// TargetShape returns [1]: a target is the index of a class.
func (c *Classes) TargetShape() []int { return []int{1} }

// SampleName returns the path of picture i, and its index in the file if that contains several.
// Generated pictures are named by seed and index.
func (c *Classes) SampleName(i int) string { return c.source.name(i) }

// Get copies picture i to image and its class index to target.
func (c *Classes) Get(i int, image, target []float32) error {
	return c.getSample(context.Background(), i, image, target)
}

func (c *Classes) getSample(ctx context.Context, i int, image, target []float32) error {
	if i < 0 || i >= len(c.labels) {
		return fmt.Errorf("get sample %d: the data set has samples 0 to %d", i, len(c.labels)-1)
	}
	if err := checkBuffers(c.SampleName(i), image, target, 3*c.size[0]*c.size[1], 1); err != nil {
		return err
	}
	target[0] = float32(c.labels[i])
	if p, ok := c.source.(planarSource); ok && c.resized == nil {
		convertBytes(image, p.planes(i), &byteToUnit)
		return nil
	}
	m, err := c.source.picture(ctx, i)
	if err != nil {
		return err
	}
	b := m.Bounds()
	switch {
	case c.resized != nil:
		if m, err = c.resized.resize(ctx, m); err != nil {
			return err
		}
	case b.Dy() != c.size[0] || b.Dx() != c.size[1]:
		return fmt.Errorf("picture %s has size %d×%d, but the first picture has %d×%d (height×width): set resize to scale all pictures to one size", c.SampleName(i), b.Dy(), b.Dx(), c.size[0], c.size[1])
	}
	writePlanes(image, m)
	return nil
}

type resizer struct {
	edge   int
	from   image.Point
	scaler draw.Scaler // for pictures of size from; reused because it caches its weights
}

func newResizer(edge, height, width int) *resizer {
	return &resizer{edge: edge, from: image.Pt(width, height), scaler: draw.BiLinear.NewScaler(edge, edge, width, height)}
}

// largePicture is the number of pixels from which resize can be canceled. Fewer take less than
// about a tenth of a second.
const largePicture = 1 << 22

// resize scales m to the square. If ctx is canceled, it returns the cause. The scaling of a large
// picture then goes on in a goroutine, because it cannot be stopped.
func (r *resizer) resize(ctx context.Context, m image.Image) (image.Image, error) {
	scale := func() image.Image {
		to := image.NewRGBA(image.Rect(0, 0, r.edge, r.edge))
		var scaler draw.Scaler = draw.BiLinear
		if m.Bounds().Size() == r.from {
			scaler = r.scaler
		}
		scaler.Scale(to, to.Bounds(), m, m.Bounds(), draw.Src, nil)
		return to
	}
	if size := m.Bounds().Size(); size.X*size.Y < largePicture {
		return scale(), nil
	}
	scaled := make(chan image.Image, 1)
	go func() { scaled <- scale() }()
	select {
	case to := <-scaled:
		return to, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// writePlanes writes the red, green and blue planes of m to dst. 8-bit values are divided by 255.
// Transparent pixels become black.
func writePlanes(dst []float32, m image.Image) {
	b := m.Bounds()
	rgba, ok := m.(*image.RGBA)
	if !ok {
		rgba = image.NewRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
		draw.Draw(rgba, rgba.Bounds(), m, b.Min, draw.Src)
	}
	n := b.Dx() * b.Dy()
	red, green, blue := dst[:n], dst[n:][:n], dst[2*n:][:n]
	k := 0
	for y := range b.Dy() {
		line := rgba.Pix[y*rgba.Stride:][:4*b.Dx()]
		for ; len(line) >= 4; line = line[4:] {
			red[k], green[k], blue[k] = byteToUnit[line[0]], byteToUnit[line[1]], byteToUnit[line[2]]
			k++
		}
	}
}

// interleavePlanes converts red, green and blue planes to an image.RGBA.
func interleavePlanes(planes []uint8, height, width int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	n := height * width
	for k := range n {
		to := m.Pix[4*k:][:4]
		to[0], to[1], to[2], to[3] = planes[k], planes[n+k], planes[2*n+k], 255
	}
	return m
}
