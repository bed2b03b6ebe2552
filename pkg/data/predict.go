package data

import (
	"context"
	"errors"
	"fmt"
	"image"

	"lockstep/pkg/data/internal/picture"
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

// ErrColors is the error that NetworkInput wraps if a picture has colors that the network does not read.
var ErrColors = errors.New("the image has colors, but the network was trained on gray images")

// NetworkInput converts a picture, as Open does for the images of c, to the values and the shape [C,H,W]
// of the input of a network that was trained on c. It returns an error if c has no pictures.
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
			if m, err = newResizer(c.Resize, size.Y, size.X).resize(ctx, m); err != nil {
				return nil, nil, err
			}
			size = m.Bounds().Size()
		}
		values = make([]float32, 3*size.X*size.Y)
		writePlanes(values, m)
		return values, []int{3, size.Y, size.X}, nil
	}
	gray, err := picture.ToGray(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	if gray.Colored {
		return nil, nil, fmt.Errorf("%w: save it as a gray image (for example, in ImageMagick, with convert -colorspace Gray)", ErrColors)
	}
	values = make([]float32, len(gray.Pixels))
	convertBytes(values, gray.Pixels, &byteToUnit)
	return values, []int{1, gray.Height, gray.Width}, nil
}

// ReadMask reads the mask at path, as Open does for the masks of c. The values, row by row, are 1
// for the foreground and 0 for the background.
func (c Config) ReadMask(ctx context.Context, path string) (values []float32, height, width int, err error) {
	m, err := ReadPicture(ctx, path)
	if err != nil {
		return nil, 0, 0, err
	}
	gray, err := picture.ToGray(ctx, m)
	if err != nil {
		return nil, 0, 0, err
	}
	binarize(gray.Pixels, c.maskOptions().ForegroundInverted)
	values = make([]float32, len(gray.Pixels))
	convertBytes(values, gray.Pixels, &byteToFloat)
	return values, gray.Height, gray.Width, nil
}

// MaskLevels returns the gray values of the background and the foreground in masks of c.
func (c Config) MaskLevels() (background, foreground uint8) {
	if c.maskOptions().ForegroundInverted {
		return 255, 0
	}
	return 0, 255
}
