package train

import (
	"fmt"
	"image"
	"image/color"
	"math"

	"lockstep/pkg/data"
)

// Picture draws training sample i: its image and its mask, side by side. It works for
// segmentation only.
func (s Samples) Picture(i int) (image.Image, error) {
	img, mask, err := sample(s.Train, i, 1)
	if err != nil {
		return nil, err
	}
	shape := s.Train.ImageShape()
	if target := s.Train.TargetShape(); len(shape) != 3 || len(target) != 3 {
		return nil, fmt.Errorf("show sample %d: pictures are of images with a mask, these samples are %v with a target %v", i, shape, target)
	}
	return sideBySide(shape[1], shape[2], img, mask), nil
}

// sample reads sample i of ds into buffers that hold batch samples.
func sample(ds data.Dataset, i, batch int) (img, mask []float32, err error) {
	if i < 0 || i >= ds.Len() {
		return nil, nil, fmt.Errorf("show sample %d: there are samples 0 to %d", i, ds.Len()-1)
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	n, m := elements(is), elements(ts)
	img, mask = make([]float32, batch*n), make([]float32, batch*m)
	return img, mask, ds.Get(i, img[:n], mask[:m])
}

// leastHeight is the height in pixels that small pictures are enlarged to.
const leastHeight = 256

// sideBySide draws planes of height×width values from 0 (black) to 1 (white) side by side.
// It enlarges small planes.
func sideBySide(height, width int, planes ...[]float32) image.Image {
	const gap = 4
	scale := max(1, leastHeight/height)
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
