// Package augment mirrors, rotates, scales and recolors training samples at random.
package augment

import (
	"math"

	"lockstep/pkg/data/internal/stream"
	"lockstep/pkg/data/internal/window"
)

// Options contains the fields of data.Augment that apply after the crop.
type Options struct {
	Flip, Rotate                                      bool
	Brightness, Contrast, RotateDegrees, Scale, Gamma float64
}

// Choices contains the random choices for one sample. The sample is cropped to Window. Axis k
// of the result is axis[k] of the window, reversed if mirror[k] is set. Then brightness, contrast,
// gamma and warp are applied.
type Choices struct {
	Window               window.Window
	axis                 [3]int
	mirror               [3]bool
	brightness, contrast float32 // 0 and 1 leave the values unchanged
	gamma                float64 // 1 leaves the values unchanged
	warp                 warp
}

// IsMirroredOrRotated reports whether the sample is mirrored or rotated by quarter turns.
func (c Choices) IsMirroredOrRotated() bool {
	return c.axis != [3]int{0, 1, 2} || c.mirror != [3]bool{}
}

// IsWarped reports whether the picture is rotated by an angle or scaled.
func (c Choices) IsWarped() bool { return !c.warp.isIdentity() }

// DrawChoices makes the random choices for a sample of the given shape, [C,H,W] or [C,D,H,W]. cropped is
// the shape after the crop. Draw always takes the same number of values from the random generator,
// so that enabling one option does not change the others. The GPU engine makes the same choices.
func (a Options) DrawChoices(seed int64, epoch, sample int, shape, cropped []int) Choices {
	r := stream.NewRand(seed, stream.Augment, uint64(epoch), uint64(sample))
	from, _ := window.SpatialSize(shape)
	to, _ := window.SpatialSize(cropped)
	c := Choices{Window: window.Window{Size: to}, axis: [3]int{0, 1, 2}, contrast: 1}
	first := 4 - len(shape)
	for k := first; k < 3; k++ {
		c.Window.Start[k] = int(r.Float64() * float64(from[k]-to[k]+1))
	}
	if first == 1 {
		a.setPictureOrientation(&c, r.IntN(4), r.IntN(4))
	} else {
		a.setVolumeOrientation(&c, r.IntN(8), r.IntN(24))
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

// setPictureOrientation sets the axes and mirroring of c: flips has one bit per axis, and quarters is in
// quarter turns. Options that are disabled in a are ignored.
func (a Options) setPictureOrientation(c *Choices, flips, quarters int) {
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
	if quarters&1 != 0 && c.Window.Size[1] == c.Window.Size[2] {
		c.axis = [3]int{0, 2, 1}
		c.mirror[2] = !c.mirror[2]
	}
}

// setVolumeOrientation sets the axes and mirroring of c: flips has one bit per axis, and r is the number of
// a cubeRotation. Options that are disabled in a are ignored.
func (a Options) setVolumeOrientation(c *Choices, flips, r int) {
	if a.Rotate {
		if s := c.Window.Size; s[0] != s[1] || s[1] != s[2] {
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

// MirrorAndRotate mirrors src, a window with the given number of channels, rotates it by quarter turns, and
// stores the result in dst.
func (c Choices) MirrorAndRotate(dst, src []float32, channels int) {
	size := c.Window.Size
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
				at := ch*c.Window.VoxelCount() + start + z*step[0] + y*step[1]
				line := dst[((ch*out[0]+z)*out[1]+y)*out[2]:][:out[2]]
				for x := range line {
					line[x] = src[at]
					at += step[2]
				}
			}
		}
	}
}

// Recolor changes the brightness, contrast and gamma of a picture in place.
func (c Choices) Recolor(v []float32) {
	c.adjustBrightnessContrast(v)
	applyGamma(v, c.gamma)
}

// WarpImage rotates and scales src, a cropped and turned picture, into dst.
func (c Choices) WarpImage(dst, src []float32) {
	c.warp.warpImage(dst, src, c.Window.Size[1], c.Window.Size[2])
}

// WarpMask is WarpImage for a mask. Pixels from outside the picture get the value outside.
func (c Choices) WarpMask(dst, src []float32, outside float32) {
	c.warp.warpMask(dst, src, c.Window.Size[1], c.Window.Size[2], outside)
}

// adjustBrightnessContrast changes a picture's brightness and contrast in place. The conversion to float32 prevents a
// fused multiply-add, so that all processors and the GPU compute the same bits.
func (c Choices) adjustBrightnessContrast(v []float32) {
	if c.brightness == 0 && c.contrast == 1 {
		return
	}
	for i, x := range v {
		v[i] = min(max(float32((x-0.5)*c.contrast)+0.5+c.brightness, 0), 1)
	}
}
