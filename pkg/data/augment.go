package data

import (
	"fmt"
	"slices"

	"lockstep/pkg/data/internal/stream"
)

// Augment describes the random changes of training samples. The change of a sample
// depends only on the seed, the epoch and the sample's index, never on the rank or the
// goroutine that loads it. The zero value changes nothing. A target that has a value for
// each place of the image is cropped, mirrored and rotated with the image; a class stays
// as it is.
type Augment struct {
	// Flip mirrors each sample along each spatial axis (rows and columns, and for a
	// volume also depth) with probability ½ per axis.
	Flip bool `yaml:"flip" json:"flip"`
	// Rotate turns a picture by 0, 90, 180 or 270 degrees (0 or 180 if height and width
	// differ), and a volume by one of the cube's 24 rotations (one of 4 if its sides
	// differ).
	Rotate bool `yaml:"rotate" json:"rotate"`
	// Crop is the edge, in pixels, of a square or cube that is cut out of each sample at
	// a random place. 0: the complete sample.
	Crop int `yaml:"crop" json:"crop"`
	// Brightness and Contrast change a picture's values, but not the target's: v becomes
	// (v − ½)·contrast + ½ + brightness, limited to 0 to 1. brightness is drawn from
	// ±Brightness and contrast from 1 ± Contrast. If both are 0, nothing changes.
	Brightness float64 `yaml:"brightness,omitempty" json:"brightness,omitempty"`
	Contrast   float64 `yaml:"contrast,omitempty" json:"contrast,omitempty"` // at most 1
}

// Validate returns an error for the first invalid field.
func (a Augment) Validate() error {
	switch {
	case a.Crop < 0:
		return fmt.Errorf("validate augmentation: crop is %d pixels: use 0 for whole samples", a.Crop)
	case !(a.Brightness >= 0 && a.Brightness <= 1):
		return fmt.Errorf("validate augmentation: brightness is %g: use 0 (no change) to 1", a.Brightness)
	case !(a.Contrast >= 0 && a.Contrast <= 1):
		return fmt.Errorf("validate augmentation: contrast is %g: use 0 (no change) to 1", a.Contrast)
	}
	return nil
}

// fits returns an error if samples of these shapes cannot be augmented as a demands.
func (a Augment) fits(image, target []int) error {
	size, ok := spatial(image)
	if !ok {
		if a != (Augment{}) {
			return fmt.Errorf("samples of shape %v cannot be augmented: only images [C,H,W] and volumes [C,D,H,W] can: leave augment out", image)
		}
		return nil
	}
	if len(image) == len(target) && !aligned(image, target) {
		return fmt.Errorf("images are %s and masks %s: they must be equal", formatSize(image[1:]), formatSize(target[1:]))
	}
	if a.Crop == 0 {
		return nil
	}
	if !aligned(image, target) && len(target) != 1 {
		return fmt.Errorf("images of shape %v with targets of shape %v cannot be cropped: leave augment.crop out", image, target)
	}
	for k := 4 - len(image); k < 3; k++ {
		if a.Crop > size[k] {
			edge := slices.Repeat([]int{a.Crop}, len(image)-1)
			return fmt.Errorf("a crop of %s does not fit in samples of %s: use a smaller augment.crop", formatSize(edge), formatSize(image[1:]))
		}
	}
	return nil
}

// delivered returns the shape that a sample of the given shape has after augmentation.
func (a Augment) delivered(shape []int) []int {
	out := slices.Clone(shape)
	if a.Crop > 0 {
		for k := range out[1:] {
			out[1+k] = a.Crop
		}
	}
	return out
}

// change is the augmentation of one sample: axis k of the result runs along axis[k] of
// the window, in reverse if mirror[k]. Then brightness and contrast are applied.
type change struct {
	window               window
	axis                 [3]int
	mirror               [3]bool
	brightness, contrast float32 // no change if 0 and 1
}

// identity reports whether every value keeps its place.
func (c change) identity() bool { return c.axis == [3]int{0, 1, 2} && c.mirror == [3]bool{} }

// draw draws the augmentation of a sample of shape [C,H,W] or [C,D,H,W]. It always draws
// the same number of random numbers, whichever changes are enabled, so that enabling one
// change does not alter another. The GPU engine draws the same numbers.
func (a Augment) draw(seed int64, epoch, sample int, shape []int) change {
	r := stream.New(seed, stream.Augment, uint64(epoch), uint64(sample))
	from, _ := spatial(shape)
	to, _ := spatial(a.delivered(shape))
	c := change{window: window{size: to}, axis: [3]int{0, 1, 2}, contrast: 1}
	first := 4 - len(shape)
	for k := first; k < 3; k++ {
		c.window.at[k] = int(r.Float64() * float64(from[k]-to[k]+1))
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
	return c
}

// rotatePicture adds mirroring (one bit of flips per axis) and a rotation by
// quarters·90° to c.
func (a Augment) rotatePicture(c *change, flips, quarters int) {
	if a.Flip {
		c.mirror[1], c.mirror[2] = flips&1 != 0, flips&2 != 0
	}
	if !a.Rotate {
		return
	}
	// A rotation by 180° equals both flips; one by 90° is a transposition and one flip.
	if quarters >= 2 {
		c.mirror[1], c.mirror[2] = !c.mirror[1], !c.mirror[2]
	}
	if quarters&1 != 0 && c.window.size[1] == c.window.size[2] {
		c.axis = [3]int{0, 2, 1}
		c.mirror[2] = !c.mirror[2]
	}
}

// rotateVolume adds mirroring (one bit of flips per axis) and rotation r of the cube to
// c.
func (a Augment) rotateVolume(c *change, flips, r int) {
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

// cubeRotation returns rotation r of the cube's 24 rotations: axis k of the result runs
// along axis[k] of the sample, in reverse if mirror[k]. The first four do not permute
// the axes.
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

// apply writes src to dst, rotated and mirrored. src has the given number of channels,
// each of the window's size.
func (c change) apply(dst, src []float32, channels int) {
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
				at := ch*c.window.volume() + start + z*step[0] + y*step[1]
				line := dst[((ch*out[0]+z)*out[1]+y)*out[2]:][:out[2]]
				for x := range line {
					line[x] = src[at]
					at += step[2]
				}
			}
		}
	}
}

// jitter changes a picture's brightness and contrast. The product is rounded before the
// sum on every processor, as a GPU does it, so that the bits are equal.
func (c change) jitter(v []float32) {
	if c.brightness == 0 && c.contrast == 1 {
		return
	}
	for i, x := range v {
		v[i] = min(max(float32((x-0.5)*c.contrast)+0.5+c.brightness, 0), 1)
	}
}
