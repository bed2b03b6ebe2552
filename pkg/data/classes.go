package data

import (
	"context"
	"fmt"
	"image"

	"lockstep/pkg/data/internal/cifar"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/internal/scale"
	"lockstep/pkg/data/internal/window"
)

// ClassOptions configures the reading of pictures for classification.
type ClassOptions struct {
	// Resize is the edge, in pixels, of the square to which every picture is scaled by bilinear
	// interpolation, without keeping its aspect ratio. If it is 0, pictures are not scaled and must
	// have equal sizes.
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
	resized *picture.Resizer
}

type pictureSource interface {
	name(i int) string
	// picture returns picture i before scaling.
	picture(ctx context.Context, i int) (image.Image, error)
}

// planarSource keeps pictures in memory as bytes. planes returns the red, green and blue planes of
// picture i, one after the other.
type planarSource interface{ planes(i int) []uint8 }

func newClasses(source pictureSource, names []string, labels []int32, height, width int, o ClassOptions) *Classes {
	c := &Classes{source: source, names: names, labels: labels, size: [2]int{height, width}}
	if o.Resize > 0 {
		c.size = [2]int{o.Resize, o.Resize}
		if o.Resize != height || o.Resize != width {
			c.resized = picture.NewResizer(o.Resize, height, width)
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

// ImageShape returns the shape [3,H,W] of every picture.
func (c *Classes) ImageShape() []int { return []int{3, c.size[0], c.size[1]} }

// TargetShape returns [1]: a target is the index of a class.
func (c *Classes) TargetShape() []int { return []int{1} }

// SampleName returns the path of picture i. If the file contains several pictures, it adds the index
// in the file. Generated pictures are named by seed and index.
func (c *Classes) SampleName(i int) string { return c.source.name(i) }

// Get copies picture i to image and its class index to target.
func (c *Classes) Get(i int, image, target []float32) error {
	return c.getSample(context.Background(), i, image, target)
}

func (c *Classes) getSample(ctx context.Context, i int, image, target []float32) error {
	if i < 0 || i >= len(c.labels) {
		return fmt.Errorf("get sample %d: the data set has samples 0 to %d", i, len(c.labels)-1)
	}
	if err := window.CheckBuffers(c.SampleName(i), image, target, 3*c.size[0]*c.size[1], 1); err != nil {
		return err
	}
	target[0] = float32(c.labels[i])
	if p, ok := c.source.(planarSource); ok && c.resized == nil {
		scale.LookUp(image, p.planes(i), &scale.ByteToUnit)
		return nil
	}
	m, err := c.source.picture(ctx, i)
	if err != nil {
		return err
	}
	b := m.Bounds()
	switch {
	case c.resized != nil:
		if m, err = c.resized.Resize(ctx, m); err != nil {
			return err
		}
	case b.Dy() != c.size[0] || b.Dx() != c.size[1]:
		return fmt.Errorf("picture %s has size %d×%d, but the first picture has %d×%d (height×width): set resize to scale all pictures to one size", c.SampleName(i), b.Dy(), b.Dx(), c.size[0], c.size[1])
	}
	picture.WriteRGBPlanes(image, m)
	return nil
}

// CIFAROptions selects the part of CIFAR-10 to read.
type CIFAROptions struct {
	ClassOptions `yaml:",inline"`
	Test         bool `yaml:"test" json:"test"` // read the test batch instead of the training batches
}

// OpenCIFAR10 reads the training batches or the test batch of CIFAR-10 into memory (3 kB per
// picture). dir is the folder cifar-10-batches-bin (binary version) or cifar-10-batches-py (Python
// version), or its parent. Pickles of the Python version are parsed without running code. There may
// be fewer than five training batches, and fewer than the original 10,000 pictures per batch, but
// all batches must have the same number.
func OpenCIFAR10(ctx context.Context, dir string, o CIFAROptions) (*Classes, error) {
	return openCIFAR10(ctx, dir, o, false)
}

// openCIFAR10 implements OpenCIFAR10. If outline is true, it reads only the first batch.
func openCIFAR10(ctx context.Context, dir string, o CIFAROptions, outline bool) (_ *Classes, err error) {
	defer prefixError(&err, "open CIFAR-10")
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p, err := cifar.Read(ctx, dir, o.Test, outline)
	if err != nil {
		return nil, err
	}
	return newClasses(cifarPictures{p}, p.ClassNames, p.Labels, cifar.Edge, cifar.Edge, o.ClassOptions), nil
}

type cifarPictures struct{ *cifar.Pictures }

func (s cifarPictures) name(i int) string    { return s.Name(i) }
func (s cifarPictures) planes(i int) []uint8 { return s.Images[i] }
func (s cifarPictures) picture(_ context.Context, i int) (image.Image, error) {
	return picture.InterleaveRGB(s.Images[i], cifar.Edge, cifar.Edge), nil
}
