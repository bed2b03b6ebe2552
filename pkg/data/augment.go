package data

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/data/internal/stream"
)

// Augment configures random augmentation of training samples. It depends only on the seed, the
// epoch and the sample's index, never on the rank or the goroutine that loads the sample. The zero
// value disables it. A mask or field, which has values for each pixel or voxel of the image, is
// cropped, mirrored and rotated like the image; a class index is not changed.
type Augment struct {
	// Flip mirrors along each spatial axis (rows, columns, a volume's depth) with probability ½.
	Flip bool `yaml:"flip" json:"flip"`
	// Rotate rotates a picture by a random multiple of 90° (of 180° if height and width differ),
	// and a volume by one of the cube's 24 rotations (one of 4 if its sides differ).
	Rotate bool `yaml:"rotate" json:"rotate"`
	// Crop is the edge, in pixels, of the square or cube cropped at a random position. 0: none.
	Crop int `yaml:"crop" json:"crop"`
	// Brightness and Contrast change the values of a picture, but not of the target: v becomes
	// (v − ½)·contrast + ½ + brightness, clamped to [0, 1]. brightness is uniform in ±Brightness
	// and contrast in 1 ± Contrast.
	Brightness float64 `yaml:"brightness,omitempty" json:"brightness,omitempty"`
	Contrast   float64 `yaml:"contrast,omitempty" json:"contrast,omitempty"` // at most 1

	// The options below are for pictures only, and a GPU cannot apply them.

	// RotateDegrees and Scale rotate a picture about its center by an angle that is uniform in
	// ±RotateDegrees, and enlarge it by a factor between 1/(1+Scale) and 1+Scale whose logarithm is
	// uniform. They follow Flip, Rotate and Crop. Images are interpolated linearly; masks take the
	// nearest pixel. Pixels from outside the sample are black, like a convolution's padding. Their
	// class is Ignored, or in masks without classes (see LoaderOptions.IgnoreOutside) background.
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
	size, ok := spatialSize(image)
	if !ok {
		if a != (Augment{}) {
			return fmt.Errorf("augment samples of shape %v: want images [C,H,W] or volumes [C,D,H,W]: leave augment out", image)
		}
		return nil
	}
	if name, value := a.CPUOption(); name != "" && len(image) != 3 {
		return fmt.Errorf("augment samples of shape %v: augment.%s is %g, but applies only to pictures [C,H,W]: leave it out", image, name, value)
	}
	if len(image) == len(target) && !isAligned(image, target) {
		return fmt.Errorf("images have size %s, but masks have size %s: make them equal", formatSize(image[1:]), formatSize(target[1:]))
	}
	if a.Crop == 0 {
		return nil
	}
	if !isAligned(image, target) && len(target) != 1 {
		return fmt.Errorf("crop images of shape %v with targets of shape %v: want targets with a value for each pixel, or one class: leave augment.crop out", image, target)
	}
	for k := 4 - len(image); k < 3; k++ {
		if a.Crop > size[k] {
			edge := slices.Repeat([]int{a.Crop}, len(image)-1)
			return fmt.Errorf("crop size %s is larger than the sample size %s: use a smaller augment.crop", formatSize(edge), formatSize(image[1:]))
		}
	}
	return nil
}

// outputShape returns the shape after augmentation of a sample of the given shape.
func (a Augment) outputShape(shape []int) []int {
	out := slices.Clone(shape)
	if a.Crop > 0 {
		for k := range out[1:] {
			out[1+k] = a.Crop
		}
	}
	return out
}

// augmentation contains the random choices for one sample. The sample is cropped to window. Axis k
// of the result is axis[k] of the window, reversed if mirror[k] is set. Then brightness, contrast,
// gamma and warp are applied.
type augmentation struct {
	window               window
	axis                 [3]int
	mirror               [3]bool
	brightness, contrast float32 // 0 and 1 leave the values unchanged
	gamma                float64 // 1 leaves the values unchanged
	warp                 warp
}

func (c augmentation) isIdentity() bool { return c.axis == [3]int{0, 1, 2} && c.mirror == [3]bool{} }

// drawAugmentation makes the random choices for a sample of shape [C,H,W] or [C,D,H,W]. It draws
// the same number of random numbers whichever options are enabled, so that enabling one does not
// alter another. The GPU engine draws the same numbers.
func (a Augment) drawAugmentation(seed int64, epoch, sample int, shape []int) augmentation {
	r := stream.New(seed, stream.Augment, uint64(epoch), uint64(sample))
	from, _ := spatialSize(shape)
	to, _ := spatialSize(a.outputShape(shape))
	c := augmentation{window: window{size: to}, axis: [3]int{0, 1, 2}, contrast: 1}
	first := 4 - len(shape)
	for k := first; k < 3; k++ {
		c.window.start[k] = int(r.Float64() * float64(from[k]-to[k]+1))
	}
	if first == 1 {
		a.rotatePicture(&c, r.IntN(4), r.IntN(4))
	} else {
		a.rotateVolume(&c, r.IntN(8), r.IntN(24))
	}
	brightness, contrast := 2*r.Float64()-1, 2*r.Float64()-1
	if a.Brightness > 0 || a.Contrast > 0 {
		c.brightness, c.contrast = float32(a.Brightness*brightness), float32(1+float64(a.Contrast*contrast))
	}
	// New numbers follow those of earlier versions, so that a seed keeps its meaning.
	angle, scale, gamma := 2*r.Float64()-1, 2*r.Float64()-1, 2*r.Float64()-1
	c.warp = newWarp(a.RotateDegrees*angle, math.Pow(1+a.Scale, scale))
	c.gamma = math.Pow(1+a.Gamma, gamma)
	return c
}

// rotatePicture sets the axes and mirroring of c: flips has one bit per axis, and quarters is in
// quarter turns. Options that are disabled in a are ignored.
func (a Augment) rotatePicture(c *augmentation, flips, quarters int) {
	if a.Flip {
		c.mirror[1], c.mirror[2] = flips&1 != 0, flips&2 != 0
	}
	if !a.Rotate {
		return
	}
	// A rotation by 180° mirrors both axes; one by 90° transposes and mirrors one axis.
	if quarters >= 2 {
		c.mirror[1], c.mirror[2] = !c.mirror[1], !c.mirror[2]
	}
	if quarters&1 != 0 && c.window.size[1] == c.window.size[2] {
		c.axis = [3]int{0, 2, 1}
		c.mirror[2] = !c.mirror[2]
	}
}

// rotateVolume sets the axes and mirroring of c: flips has one bit per axis, and r is the number of
// a cubeRotation. Options that are disabled in a are ignored.
func (a Augment) rotateVolume(c *augmentation, flips, r int) {
	if a.Rotate {
		if s := c.window.size; s[0] != s[1] || s[1] != s[2] {
			r %= 4
		}
		c.axis, c.mirror = cubeRotation(r)
	}
	for k := range 3 {
		c.mirror[k] = c.mirror[k] != (a.Flip && flips>>k&1 != 0)
	}
}

// cubeRotation returns rotation r (0 to 23) of a cube: axis k of the result is axis[k] of
// the sample, reversed if mirror[k] is set. Rotations 0 to 3 do not permute the axes.
func cubeRotation(r int) (axis [3]int, mirror [3]bool) {
	axis = [6][3]int{{0, 1, 2}, {0, 2, 1}, {1, 2, 0}, {1, 0, 2}, {2, 0, 1}, {2, 1, 0}}[r/4]
	mirror[0], mirror[1] = r&1 != 0, r&2 != 0
	// A rotation has determinant 1, the product of the permutation's sign (here every
	// other permutation is odd) and the signs of the mirrored axes.
	odd := r/4%2 == 1
	for _, m := range mirror[:2] {
		odd = odd != m
	}
	mirror[2] = odd
	return axis, mirror
}

// apply rotates and mirrors src, a window with the given number of channels, into dst.
func (c augmentation) apply(dst, src []float32, channels int) {
	size := c.window.size
	along := [3]int{size[1] * size[2], size[2], 1} // strides of src's axes
	var out, step [3]int                           // sizes of dst's axes, and their strides in src
	start := 0
	for k := range 3 {
		out[k], step[k] = size[c.axis[k]], along[c.axis[k]]
		if c.mirror[k] {
			start += (out[k] - 1) * step[k]
			step[k] = -step[k]
		}
	}
	for ch := range channels {
		for z := range out[0] {
			for y := range out[1] {
				at := ch*c.window.voxelCount() + start + z*step[0] + y*step[1]
				line := dst[((ch*out[0]+z)*out[1]+y)*out[2]:][:out[2]]
				for x := range line {
					line[x] = src[at]
					at += step[2]
				}
			}
		}
	}
}

// jitter changes a picture's brightness and contrast in place. The conversion to float32 prevents a
// fused multiply-add, so that all processors and the GPU compute the same bits.
func (c augmentation) jitter(v []float32) {
	if c.brightness == 0 && c.contrast == 1 {
		return
	}
	for i, x := range v {
		v[i] = min(max(float32((x-0.5)*c.contrast)+0.5+c.brightness, 0), 1)
	}
}
