package data

import (
	"context"
	"errors"
	"fmt"
	"image"

	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/internal/reading"
	"lockstep/pkg/data/internal/scale"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/safeopen"
)

// ReadPicture reads the PNG, JPEG or TIFF file at path.
func ReadPicture(ctx context.Context, path string) (image.Image, error) {
	text, err := safeopen.ReadUserFile(ctx, path, picture.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	return picture.Decode(ctx, text)
}

// ErrColors is wrapped by the error of NetworkInput if a picture has colors but the network reads
// gray images.
var ErrColors = errors.New("the image has colors, but the network was trained on gray images")

// NetworkInput converts a picture to a network's input in the same way as Open converts the images
// of c. The values have the shape [C,H,W]. It returns an error if c has no pictures.
func (c Config) NetworkInput(ctx context.Context, m image.Image) (values []float32, shape []int, err error) {
	size := m.Bounds().Size()
	if size.X < 1 || size.Y < 1 {
		return nil, nil, errors.New("the image has no pixels")
	}
	switch {
	case c.hasVolumes():
		return nil, nil, fmt.Errorf("the network was trained on volumes (data kind %s), want one that was trained on images", c.Kind)
	case c.Task() == TaskClassification:
		if c.Resize > 0 {
			if m, err = picture.NewResizer(c.Resize, size.Y, size.X).Resize(ctx, m); err != nil {
				return nil, nil, err
			}
			size = m.Bounds().Size()
		}
		values = make([]float32, 3*size.X*size.Y)
		picture.WriteRGBPlanes(values, m)
		return values, []int{3, size.Y, size.X}, nil
	}
	if c.Reading == ReadingGray {
		gray, err := picture.ToGray(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		if gray.Colored {
			return nil, nil, fmt.Errorf("%w: save it as a gray image (for example, in ImageMagick, with convert -colorspace Gray)", ErrColors)
		}
		return scale.BytesToUnitFloats(gray.Pixels), []int{1, gray.Height, gray.Width}, nil
	}
	r, err := picture.ToRaw(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	channels := max(1, c.InputChannels)
	switch bits := r.Bits(); {
	case r.Transparent:
		return nil, nil, errors.New("the image has transparent pixels: save it without an alpha channel (for example, in ImageMagick, with convert -background white -alpha remove)")
	case bits == 16 && len(c.Range) == 0:
		return nil, nil, errors.New("the image has 16 bits per value, but the network was trained on images of 8: save it with 8 bits, scaled as those were")
	case bits == 8 && len(c.Range) > 0:
		return nil, nil, fmt.Errorf("the image has 8 bits per value, but the network was trained on images of 16, whose values from %g to %g were used: use such images", c.Range[0], c.Range[1])
	case r.Colored && channels == 1 && !c.ToGray:
		return nil, nil, fmt.Errorf("%w: save it as a gray image (for example, in ImageMagick, with convert -colorspace Gray)", ErrColors)
	case r.Channels < channels:
		return nil, nil, errors.New("the image is gray, but the network was trained on RGB images: use such images")
	}
	n := channels * r.Height * r.Width
	return scale.BytesToUnitFloats(c.readingRules().ImageBytes(r)[:n]), []int{channels, r.Height, r.Width}, nil
}

// ReadMask reads the mask at path in the same way as Open reads the masks of c. values contains a
// class index or Ignored for each pixel, row by row. Without classes, it contains 1 for the
// foreground and 0 for the background.
func (c Config) ReadMask(ctx context.Context, path string) (values []float32, height, width int, err error) {
	m, err := ReadPicture(ctx, path)
	if err != nil {
		return nil, 0, 0, err
	}
	r, err := picture.ToRaw(ctx, m)
	if err != nil {
		return nil, 0, 0, err
	}
	var classes []uint8
	if c.Reading == ReadingGray {
		gray, err := picture.ToGray(ctx, m)
		if err != nil {
			return nil, 0, 0, err
		}
		reading.Binarize(gray.Pixels, c.Foreground == "black")
		classes = gray.Pixels
	} else {
		if err := c.readingRules().CheckMask(path, survey.OfMask(r)); err != nil {
			return nil, 0, 0, err
		}
		classes, _ = c.readingRules().MaskClassIndices(r)
	}
	values = make([]float32, len(classes))
	scale.LookUp(values, classes, &scale.ByteToFloat)
	return values, r.Height, r.Width, nil
}
