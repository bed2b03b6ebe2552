package data

import (
	"fmt"
	"slices"

	"lockstep/pkg/data/internal/augment"
	"lockstep/pkg/data/internal/window"
)

// Augment configures random augmentation of training samples. It depends only on the seed, the epoch and
// the sample's index, never on the rank or the goroutine that loads the sample. The zero value disables
// it. Masks and fields are cropped, mirrored and rotated like their images; class indices do not change.
type Augment struct {
	// Flip mirrors along each spatial axis (rows, columns, a volume's depth) with probability ½.
	Flip bool `yaml:"flip" json:"flip"`
	// Rotate rotates a picture by a random multiple of 90° (of 180° if height and width differ),
	// and a volume by one of the cube's 24 rotations (one of 4 if its sides differ).
	Rotate bool `yaml:"rotate" json:"rotate"`
	// Crop is the edge, in pixels, of a square or cube cropped at a random position. 0 disables cropping.
	Crop int `yaml:"crop" json:"crop"`
	// Brightness and Contrast change the values v of a picture to (v − ½)·contrast + ½ + brightness,
	// clamped to [0, 1]. brightness is uniform in ±Brightness, and contrast in 1 ± Contrast. Targets
	// do not change.
	Brightness float64 `yaml:"brightness,omitempty" json:"brightness,omitempty"`
	Contrast   float64 `yaml:"contrast,omitempty" json:"contrast,omitempty"` // at most 1

	// The options below are for pictures only, and a GPU cannot apply them.

	// RotateDegrees and Scale rotate a picture about its center by an angle uniform in
	// ±RotateDegrees, and enlarge it by a factor between 1/(1+Scale) and 1+Scale whose logarithm is
	// uniform. They are applied after Flip, Rotate and Crop. Images are interpolated linearly; masks
	// take the nearest pixel. Pixels from outside the sample become black. In the mask they become
	// Ignored, or background if LoaderOptions.IgnoreOutside is false.
	RotateDegrees float64 `yaml:"rotate_degrees,omitempty" json:"rotate_degrees,omitempty"` // at most 180
	Scale         float64 `yaml:"scale,omitempty" json:"scale,omitempty"`                   // at most 1
	// Gamma changes the values of a picture, after Brightness and Contrast: v becomes v^gamma.
	// The logarithm of gamma is uniform, and gamma is between 1/(1+Gamma) and 1+Gamma.
	Gamma float64 `yaml:"gamma,omitempty" json:"gamma,omitempty"` // at most 1
}

// CPUOption returns the name and value of the first enabled option that a GPU cannot apply, such as
// gamma. The name is empty if there is none.
func (a Augment) CPUOption() (name string, value float64) {
	switch {
	case a.RotateDegrees != 0:
		return "rotate_degrees", a.RotateDegrees
	case a.Scale != 0:
		return "scale", a.Scale
	case a.Gamma != 0:
		return "gamma", a.Gamma
	}
	return "", 0
}

// Validate returns an error for the first invalid field.
func (a Augment) Validate() error {
	switch {
	case a.Crop < 0:
		return fmt.Errorf("validate augmentation: crop is %d pixels: use a positive number, or 0 for complete samples", a.Crop)
	case !(a.Brightness >= 0 && a.Brightness <= 1):
		return fmt.Errorf("validate augmentation: brightness is %g: use 0 (no change) to 1", a.Brightness)
	case !(a.Contrast >= 0 && a.Contrast <= 1):
		return fmt.Errorf("validate augmentation: contrast is %g: use 0 (no change) to 1", a.Contrast)
	case !(a.RotateDegrees >= 0 && a.RotateDegrees <= 180):
		return fmt.Errorf("validate augmentation: rotate_degrees is %g: use 0 (no change) to 180", a.RotateDegrees)
	case !(a.Scale >= 0 && a.Scale <= 1):
		return fmt.Errorf("validate augmentation: scale is %g: use 0 (no change) to 1 (half to twice the size)", a.Scale)
	case !(a.Gamma >= 0 && a.Gamma <= 1):
		return fmt.Errorf("validate augmentation: gamma is %g: use 0 (no change) to 1 (an exponent of 0.5 to 2)", a.Gamma)
	}
	return nil
}

// checkShapes returns an error if a cannot augment images and targets of the given shapes.
func (a Augment) checkShapes(image, target []int) error {
	size, ok := window.SpatialSize(image)
	if !ok {
		if a != (Augment{}) {
			return fmt.Errorf("augment samples of shape %v: want images [C,H,W] or volumes [C,D,H,W]: leave augment out", image)
		}
		return nil
	}
	if name, value := a.CPUOption(); name != "" && len(image) != 3 {
		return fmt.Errorf("augment samples of shape %v: augment.%s is %g, but applies only to pictures [C,H,W]: leave it out", image, name, value)
	}
	if len(image) == len(target) && !window.AreShapesAligned(image, target) {
		return fmt.Errorf("images have size %s, but masks have size %s: make them equal", window.FormatSize(image[1:]), window.FormatSize(target[1:]))
	}
	if a.Crop == 0 {
		return nil
	}
	if !window.AreShapesAligned(image, target) && len(target) != 1 {
		return fmt.Errorf("crop images of shape %v with targets of shape %v: want targets with a value for each pixel, or one class: leave augment.crop out", image, target)
	}
	for k := 4 - len(image); k < 3; k++ {
		if a.Crop > size[k] {
			edge := slices.Repeat([]int{a.Crop}, len(image)-1)
			return fmt.Errorf("crop size %s is larger than the sample size %s: use a smaller augment.crop", window.FormatSize(edge), window.FormatSize(image[1:]))
		}
	}
	return nil
}

// outputShape returns the shape of a sample after augmentation, given its shape before.
func (a Augment) outputShape(shape []int) []int {
	out := slices.Clone(shape)
	if a.Crop > 0 {
		for k := range out[1:] {
			out[1+k] = a.Crop
		}
	}
	return out
}

// drawChoices makes the random choices for a sample of shape [C,H,W] or [C,D,H,W].
func (a Augment) drawChoices(seed int64, epoch, sample int, shape []int) augment.Choices {
	return augment.Options{
		Flip: a.Flip, Rotate: a.Rotate, Brightness: a.Brightness, Contrast: a.Contrast,
		RotateDegrees: a.RotateDegrees, Scale: a.Scale, Gamma: a.Gamma,
	}.DrawChoices(seed, epoch, sample, shape, a.outputShape(shape))
}
