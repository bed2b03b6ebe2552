package train

import (
	"fmt"
	"image"
	"image/color"
	"math"

	"lockstep/pkg/data"
)

// Picture draws the image and the mask of training sample i side by side. It returns an
// error unless the samples are images with masks.
func (s Samples) Picture(i int) (image.Image, error) {
	img, mask, err := readSample(s.Train, i, 1)
	if err != nil {
		return nil, err
	}
	shape := s.Train.ImageShape()
	if target := s.Train.TargetShape(); len(shape) != 3 || len(target) != 3 {
		return nil, fmt.Errorf("draw sample %d: got an image of shape %v and a target of shape %v, want an image with a mask", i, shape, target)
	}
	return drawSideBySide(shape[1], shape[2], img, mask), nil
}

// readSample reads sample i of ds into the beginning of buffers for batch samples.
func readSample(ds data.Dataset, i, batch int) (img, mask []float32, err error) {
	if i < 0 || i >= ds.Len() {
		return nil, nil, fmt.Errorf("draw sample %d: the data set has samples 0 to %d", i, ds.Len()-1)
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	n, m := numElements(is), numElements(ts)
	img, mask = make([]float32, batch*n), make([]float32, batch*m)
	return img, mask, ds.Get(i, img[:n], mask[:m])
}

// minPictureHeight is the height in pixels to which smaller pictures are enlarged, by a
// whole factor.
const minPictureHeight = 256

// drawSideBySide draws planes of height×width values from 0 (black) to 1 (white) side by
// side. It enlarges small planes; see minPictureHeight.
func drawSideBySide(height, width int, planes ...[]float32) image.Image {
	const gap = 4
	scale := max(1, minPictureHeight/height)
	out := image.NewGray(image.Rect(0, 0, len(planes)*(width*scale+gap)-gap, height*scale))
	for i := range out.Pix {
		out.Pix[i] = 255
	}
	for k, p := range planes {
		left := k * (width*scale + gap)
		for y := range height * scale {
			for x := range width * scale {
				v := min(max(float64(p[y/scale*width+x/scale]), 0), 1)
				out.SetGray(left+x, y, color.Gray{Y: uint8(math.Round(255 * v))})
			}
		}
	}
	return out
}
