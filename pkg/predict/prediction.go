package predict

import (
	"errors"
	"image"
	"image/color"
	"math"
	"path/filepath"
	"slices"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// Prediction is the result of a network for one image.
type Prediction struct {
	Name          string // path of the file; empty if the image is not from a file
	Height, Width int    // of the image, in pixels
	// Logits contains, depending on the task, the logit of the foreground at each pixel, row by row;
	// for masks with more than two classes, the logits [classes,H,W]; for classification, the logit
	// of each class.
	Logits []float32

	image   []float32 // [C,H,W]
	config  data.Config
	classes []string // nil unless the task is classification
}

// ClassNames returns the names of the classes by index. For segmentation, these are classes of
// pixels; for classification, classes of images.
func (r *Prediction) ClassNames() []string {
	if r.classes != nil {
		return r.classes
	}
	return maskClassNames(r.config)
}

func maskClassNames(c data.Config) []string {
	if names := c.MaskClasses(); names != nil {
		return names
	}
	return []string{data.ClassBackground, "foreground"}
}

func (r *Prediction) logitPlaneCount() int { return len(r.Logits) / (r.Height * r.Width) }

// Probabilities returns the probabilities (0 to 1) for the values in Logits, in the same shape.
func (r *Prediction) Probabilities() []float32 {
	v := make([]float32, len(r.Logits))
	if r.classes == nil && r.logitPlaneCount() == 1 {
		for i, z := range r.Logits {
			v[i] = float32(1 / (1 + math.Exp(-float64(z))))
		}
		return v
	}
	pixels := r.Height * r.Width
	if r.classes != nil {
		pixels = 1
	}
	for first := range pixels {
		top, sum := math.Inf(-1), 0.0
		for i := first; i < len(r.Logits); i += pixels {
			top = max(top, float64(r.Logits[i]))
		}
		for i := first; i < len(r.Logits); i += pixels {
			sum += math.Exp(float64(r.Logits[i]) - top)
		}
		for i := first; i < len(r.Logits); i += pixels {
			v[i] = float32(math.Exp(float64(r.Logits[i])-top) / sum)
		}
	}
	return v
}

// PixelClasses returns the index of the most probable class at each pixel, row by row; 1 is the
// foreground. The task must be segmentation.
func (r *Prediction) PixelClasses() []uint8 {
	pixels, planes := r.Height*r.Width, r.logitPlaneCount()
	classes := make([]uint8, pixels)
	for i := range classes {
		if planes == 1 && r.Logits[i] > 0 {
			classes[i] = 1
		}
		for k := 1; k < planes; k++ {
			if r.Logits[k*pixels+i] > r.Logits[int(classes[i])*pixels+i] {
				classes[i] = uint8(k)
			}
		}
	}
	return classes
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

// Mask returns the predicted mask in the values of the run's masks (data.mask_values). Without such
// values, it is 255 where the foreground's probability is above one half, else 0; if data.foreground
// is black, it is the other way round.
func (r *Prediction) Mask() *image.Gray {
	m := image.NewGray(image.Rect(0, 0, r.Width, r.Height))
	levels := r.config.MaskLevels()
	for i, class := range r.PixelClasses() {
		m.Pix[i] = levels[class]
	}
	return m
}

// Overlay draws the predicted classes, except the background, on the image in train.ClassColor.
// Without classes, the foreground is vermilion.
func (r *Prediction) Overlay() *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, r.Width, r.Height))
	n := r.Height * r.Width
	for i, class := range r.PixelClasses() {
		c := color.RGBA{A: 255}
		for k, v := range []*uint8{&c.R, &c.G, &c.B} {
			*v = uint8(255*r.image[min(k, len(r.image)/n-1)*n+i] + 0.5)
		}
		if class > 0 {
			over := color.RGBA{213, 94, 0, 255}
			if r.config.MaskClasses() != nil {
				over = train.ClassColor(int(class))
			}
			c = color.RGBA{c.R/2 + over.R/2, c.G/2 + over.G/2, c.B/2 + over.B/2, 255}
		}
		m.SetRGBA(i%r.Width, i/r.Width, c)
	}
	return m
}

// probabilityImages returns an image of the probabilities, as 0 to 65535, for the foreground or for
// each class.
func (r *Prediction) probabilityImages() []*image.Gray16 {
	var list []*image.Gray16
	for plane := range slices.Chunk(r.Probabilities(), r.Height*r.Width) {
		m := image.NewGray16(image.Rect(0, 0, r.Width, r.Height))
		for i, v := range plane {
			m.SetGray16(i%r.Width, i/r.Width, color.Gray16{Y: uint16(math.Round(math.MaxUint16 * float64(v)))})
		}
		list = append(list, m)
	}
	return list
}

// Picture draws two pictures side by side, for a notebook's cell: the image with the predicted
// classes on it, and the probability of the foreground or, with several classes, of the predicted
// class. The task must be segmentation.
func (r *Prediction) Picture() (image.Image, error) {
	if r.classes != nil {
		return nil, errors.New("draw prediction: the network learned classification, want segmentation")
	}
	label, probability := "predicted probability", r.probabilityImages()[0]
	if r.logitPlaneCount() > 1 {
		label = "probability of the predicted class"
		all := r.probabilityImages()
		for i, class := range r.PixelClasses() {
			probability.SetGray16(i%r.Width, i/r.Width, all[class].Gray16At(i%r.Width, i/r.Width))
		}
	}
	overlay := "image and predicted foreground"
	if names := r.config.MaskClasses(); names != nil {
		overlay = "image, predicted: " + train.DescribeClassColors(names)
	}
	name := r.Name
	if name != "" {
		name = filepath.Base(name)
	}
	return train.SideBySide(name, train.Panel{Label: overlay, Image: r.Overlay()}, train.Panel{Label: label, Image: probability})
}

// Object is a connected part of a predicted class other than the background. Pixels that touch at a
// side or a corner are connected.
type Object struct {
	Class            int     // index in ClassNames
	Area             int     // number of pixels
	CenterX, CenterY float64 // mean column and row of its pixels, from 0
}

// Objects returns the objects in the order of their first pixels, row by row. The task must be
// segmentation.
func (r *Prediction) Objects() []Object {
	var list []Object
	classes := r.PixelClasses() // 0 also where an object was found
	var open []int
	for first := range classes {
		class := classes[first]
		if class == 0 {
			continue
		}
		o, x, y := Object{Class: int(class)}, 0, 0
		classes[first], open = 0, append(open, first)
		for len(open) > 0 {
			i := open[len(open)-1]
			open = open[:len(open)-1]
			row, column := i/r.Width, i%r.Width
			o.Area, x, y = o.Area+1, x+column, y+row
			for v := max(0, row-1); v <= min(row+1, r.Height-1); v++ {
				for u := max(0, column-1); u <= min(column+1, r.Width-1); u++ {
					if k := v*r.Width + u; classes[k] == class {
						classes[k], open = 0, append(open, k)
					}
				}
			}
		}
		o.CenterX, o.CenterY = float64(x)/float64(o.Area), float64(y)/float64(o.Area)
		list = append(list, o)
	}
	return list
}
