package augment

import "math"

// warp rotates and scales a picture about its center. Coordinates in the source, in pixels, are
// integers with warpFractionBits fractional bits, so that all processors compute the same bits.
type warp struct {
	along, across int64 // steps in the source per pixel of the result: scaled cosine and sine
}

// warpFractionBits is the number of fractional bits of coordinates. In a picture of 16,384 pixels per side,
// the rounding errors of the steps add up to less than 0.001 pixels.
const warpFractionBits = 24

// newWarp returns a counterclockwise rotation by an angle in degrees, with enlargement by a factor.
func newWarp(degrees, factor float64) warp {
	sin, cos := math.Sincos(degrees * math.Pi / 180)
	fixed := func(v float64) int64 { return int64(math.Round(v / factor * (1 << warpFractionBits))) }
	return warp{along: fixed(cos), across: fixed(sin)}
}

func (w warp) isIdentity() bool { return w == warp{along: 1 << warpFractionBits} }

// forEachPixel calls f for each pixel of the result. at is the pixel's index, and (y, x) is the position
// in the source picture from which it comes, relative to the center of the source's first pixel.
func (w warp) forEachPixel(height, width int, f func(at int, y, x int64)) {
	// The center of pixel 0 of n is (n−1)/2 pixels before the picture's center.
	for row := range height {
		dy, dx := int64(2*row+1-height), int64(1-width) // twice the distance from the center
		y := int64(height-1)<<warpFractionBits + w.along*dy + w.across*dx
		x := int64(width-1)<<warpFractionBits - w.across*dy + w.along*dx
		for column := range width {
			f(row*width+column, y>>1, x>>1)
			y, x = y+2*w.across, x+2*w.along
		}
	}
}

// nearestPixel returns the index of the pixel that contains (y, x), coordinates as in forEachPixel,
// or −1 if the point is outside the picture.
func nearestPixel(y, x int64, height, width int) int {
	const half = 1 << (warpFractionBits - 1)
	row, column := (y+half)>>warpFractionBits, (x+half)>>warpFractionBits
	if row < 0 || column < 0 || row >= int64(height) || column >= int64(width) {
		return -1
	}
	return int(row)*width + int(column)
}

// warpImage warps the channels of src into dst with bilinear interpolation. Pixels from outside src
// become 0 (black).
func (w warp) warpImage(dst, src []float32, height, width int) {
	const one = 1 << warpFractionBits
	plane := height * width
	w.forEachPixel(height, width, func(at int, y, x int64) {
		if nearestPixel(y, x, height, width) < 0 {
			for ; at < len(dst); at += plane {
				dst[at] = 0
			}
			return
		}
		// At the border, the centers of all pixels may be on one side: the pixel is repeated.
		y, x = min(max(y, 0), int64(height-1)<<warpFractionBits), min(max(x, 0), int64(width-1)<<warpFractionBits)
		fy, fx := float32(y&(one-1))/one, float32(x&(one-1))/one
		from := int(y>>warpFractionBits)*width + int(x>>warpFractionBits)
		right, down := 1, width
		if fx == 0 {
			right = 0
		}
		if fy == 0 {
			down = 0
		}
		for ; at < len(dst); at, from = at+plane, from+plane {
			// The conversions prevent fused multiply-adds, see jitter.
			top := src[from] + float32(fx*(src[from+right]-src[from]))
			bottom := src[from+down] + float32(fx*(src[from+down+right]-src[from+down]))
			dst[at] = top + float32(fy*(bottom-top))
		}
	})
}

// warpMask warps the channels of src into dst without interpolation. Pixels from outside src get the
// value of outside.
func (w warp) warpMask(dst, src []float32, height, width int, outside float32) {
	plane := height * width
	w.forEachPixel(height, width, func(at int, y, x int64) {
		from := nearestPixel(y, x, height, width)
		for k := 0; k < len(dst); k += plane {
			dst[k+at] = outside
			if from >= 0 {
				dst[k+at] = src[k+from]
			}
		}
	})
}

// applyGamma raises values in [0, 1] to the power gamma in place.
func applyGamma(v []float32, gamma float64) {
	if gamma == 1 {
		return
	}
	for i, x := range v {
		v[i] = float32(math.Pow(float64(x), gamma))
	}
}
