package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// disjointWindows describes a convolution whose windows divide its input, the large map,
// without overlap: the stride is the size of the window, and there is no padding. Each pixel of
// the small map belongs to one window. DirectBF16 and DirectBF16Gradient therefore compute each
// tap as a convolution of one pixel on the small map. For transposed convolutions of 2×2 with
// stride 2, as in a U-Net, this wastes no products.
type disjointWindows struct {
	large tensor.Operand
	size  [3]int // of a window; zero if the convolution is another one
}

// newDisjointWindows returns the windows of the convolution s (or of its transpose), whose
// larger map is large. The result's size is zero if the windows of s are not disjoint.
func newDisjointWindows(large tensor.Operand, s geometry) (v disjointWindows) {
	if s.hasDisjointWindows() {
		v.large = large
		for i, a := range s {
			v.size[i] = a.kernel
		}
	}
	return v
}

func (s geometry) hasDisjointWindows() bool {
	for _, a := range s {
		large, small := max(a.in, a.out), min(a.in, a.out)
		if a.stepIn*a.stepOut != a.kernel || large != small*a.kernel || a.low != 0 {
			return false
		}
		if len(a.phases) != a.stepOut { // the map is smaller than a window
			return false
		}
	}
	return s.tapCount() > 1
}

func (v *disjointWindows) exist() bool { return v.size != [3]int{} }

// tapGeometry returns the geometry that each tap has on the small map: a convolution of one
// pixel.
func (v *disjointWindows) tapGeometry() (s geometry) {
	for i := range s {
		n := v.large.Space[i] / v.size[i]
		s[i] = newGatherAxis(n, n, 1, 1, 0)
	}
	return s
}

// taps returns the taps of a window. The shift of a tap is its pixel in the window.
func (v *disjointWindows) taps() []volumeTap {
	var all [3][]tap
	for i, n := range v.size {
		for k := range n {
			all[i] = append(all[i], tap{k, k})
		}
	}
	return combineTaps(all[0], all[1], all[2], v.size)
}

// forEachRow calls f for each row of the small map in p. position is the position of the row's
// first pixel in the block. pixel is the index of the pixel that tap t reads for it, in a plane
// of the large map.
func (v *disjointWindows) forEachRow(b *inputBlocks, p blockRange, t volumeTap, f func(image, position, pixel int)) {
	for n := range p.images {
		for z := range p.slices {
			for r := range p.rows {
				slice, row := (p.z0+z)*v.size[0]+t.slice, (p.q0+r)*v.size[1]+t.row
				f(p.n0+n, n*b.size/lanes+(z*b.height+r)*b.width, (slice*v.large.Space[1]+row)*v.large.Space[2]+t.col)
			}
		}
	}
}

// loadTapPixels copies the pixels of tap t of the windows in p, in the order of positions, and
// normalizes them if necessary. It copies channel blocks [c, c+4), or fewer if c+4 is past the
// last block.
func (v *disjointWindows) loadTapPixels(b *bf16Blocks, to *channelPlanes, p blockRange, t volumeTap, c int) {
	step, loaded := v.size[2], to[:min(tileChannels/lanes, b.channels-c)]
	v.forEachRow(&b.inputBlocks, p, t, func(image, position, pixel int) {
		for i, plane := range loaded {
			src, norm := v.large.ChannelBlock(image, c+i)
			from, dst := kernel.FloatBlocksAt(&src[pixel*lanes], (b.width-1)*step+1), plane[position*lanes:]
			for j, x := 0, kernel.FloatBlocksAt(&dst[0], b.width); j < len(x); j++ {
				x[j] = from[j*step]
			}
			if norm != nil {
				b.kernels.Normalize(&dst[0], &dst[0], &norm[0], b.width)
			}
		}
	})
}

func (v *disjointWindows) packRows(b *bf16Blocks, dst []uint16, scratch []float32, p blockRange) {
	planes, size := b.newPlanes(scratch), b.positionCount()*tileChannels
	for c := 0; c < b.channels; c += tileChannels / lanes {
		for _, empty := range planes[min(tileChannels/lanes, b.channels-c):] {
			clear(empty)
		}
		for i, t := range b.taps {
			v.loadTapPixels(b, &planes, p, t, c)
			to := dst[(c/(tileChannels/lanes)*len(b.taps)+i)*size:]
			b.kernels.BF16.PackRows(&to[0], &planes[0][0], &planes[1][0], &planes[2][0], &planes[3][0], nil, b.positionCount(), 2*tileChannels)
		}
	}
}

func (v *disjointWindows) writeTapOutputs(b *bf16Blocks, sums, bias []float32, p blockRange, t volumeTap, k0, k1 int) {
	plane := v.large.PlaneFloats()
	v.forEachRow(&b.inputBlocks, p, t, func(image, position, pixel int) {
		to := v.large.Data[(image*tensor.ChannelBlockCount(v.large.Shape[1])+k0)*plane+pixel*lanes:]
		b.kernels.BF16.Unpack(&to[0], &sums[position*tileChannels], &bias[0], b.width, tileChannels*4, v.size[2]*lanes*4, plane*4, k1-k0)
	})
}
