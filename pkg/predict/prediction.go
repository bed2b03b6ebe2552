package predict

import (
	"errors"
	"image"
	"image/color"
	"math"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// Prediction is the result of a network for one image.
type Prediction struct {
	Name          string // path of the file; empty if the image is not from a file
	Height, Width int    // of the image, in pixels
	// Logits has the logit of the foreground at each pixel, row by row, or, if the run learned
	// classification, the logit of each class.
	Logits []float32

	image   []float32 // [C,H,W]
	config  data.Config
	classes []string // nil unless the task is classification
}

// Probabilities returns the probability (0 to 1) of the foreground at each pixel, or of each
// class.
func (r *Prediction) Probabilities() []float32 {
	v := make([]float32, len(r.Logits))
	if r.classes == nil {
		for i, z := range r.Logits {
			v[i] = float32(1 / (1 + math.Exp(-float64(z))))
		}
		return v
	}
	top, sum := math.Inf(-1), 0.0
	for _, z := range r.Logits {
		top = max(top, float64(z))
	}
	for _, z := range r.Logits {
		sum += math.Exp(float64(z) - top)
	}
	for i, z := range r.Logits {
		v[i] = float32(math.Exp(float64(z)-top) / sum)
	}
	return v
}

// Class returns the index of the class with the largest logit. The task must be classification.
func (r *Prediction) Class() int {
	best := 0
	for i, z := range r.Logits {
		if z > r.Logits[best] {
			best = i
		}
	}
	return best
}

// Mask returns the predicted mask: 255 where the foreground has a probability above one half, else
// 0. If the run's data have data.foreground black, it is the other way round, as in their masks.
func (r *Prediction) Mask() *image.Gray {
	m := image.NewGray(image.Rect(0, 0, r.Width, r.Height))
	levels := r.config.MaskLevels()
	for i, z := range r.Logits {
		m.Pix[i] = levels[0]
		if z > 0 {
			m.Pix[i] = levels[1]
		}
	}
	return m
}

// Overlay returns the image with the predicted foreground in orange.
func (r *Prediction) Overlay() *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, r.Width, r.Height))
	for i, z := range r.Logits {
		v := uint8(255*r.image[i] + 0.5)
		c := color.RGBA{v, v, v, 255}
		if z > 0 {
			c = color.RGBA{v/2 + 213/2, v/2 + 94/2, v / 2, 255} // half vermilion
		}
		m.SetRGBA(i%r.Width, i/r.Width, c)
	}
	return m
}

// probabilityImage returns the probability of the foreground at each pixel, 0 to 1, as 0 to 65535.
func (r *Prediction) probabilityImage() *image.Gray16 {
	m := image.NewGray16(image.Rect(0, 0, r.Width, r.Height))
	for i, v := range r.Probabilities() {
		m.SetGray16(i%r.Width, i/r.Width, color.Gray16{Y: uint16(math.Round(math.MaxUint16 * float64(v)))})
	}
	return m
}

// Picture draws the overlay and the probability of the foreground side by side. A cell displays it.
// The task must be segmentation.
func (r *Prediction) Picture() (image.Image, error) {
	if r.classes != nil {
		return nil, errors.New("draw prediction: the network learned classification, want segmentation")
	}
	return train.SideBySide(r.Name, train.Panel{Label: "image and predicted foreground", Image: r.Overlay()},
		train.Panel{Label: "predicted probability", Image: r.probabilityImage()})
}

// Object is a connected part of the predicted foreground: pixels that touch at a side or a corner.
type Object struct {
	Area             int     // number of pixels
	CenterX, CenterY float64 // mean column and row of its pixels, from 0
}

// Objects returns the connected parts of the foreground in the order of their first pixels, row by
// row. The task must be segmentation.
func (r *Prediction) Objects() []Object {
	var list []Object
	seen := make([]bool, len(r.Logits))
	var open []int
	for first, z := range r.Logits {
		if z <= 0 || seen[first] {
			continue
		}
		o, x, y := Object{}, 0, 0
		seen[first], open = true, append(open, first)
		for len(open) > 0 {
			i := open[len(open)-1]
			open = open[:len(open)-1]
			row, column := i/r.Width, i%r.Width
			o.Area, x, y = o.Area+1, x+column, y+row
			for v := max(0, row-1); v <= min(row+1, r.Height-1); v++ {
				for u := max(0, column-1); u <= min(column+1, r.Width-1); u++ {
					if k := v*r.Width + u; r.Logits[k] > 0 && !seen[k] {
						seen[k], open = true, append(open, k)
					}
				}
			}
		}
		o.CenterX, o.CenterY = float64(x)/float64(o.Area), float64(y)/float64(o.Area)
		list = append(list, o)
	}
	return list
}
