package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// roundedBlocks divides the images of an activation into blocks for Rounded and
// RoundedGradient. The inputs of a block are numbered by position, in one of two orders:
//
//   - Image by image, row by row, with a halo of zeros. A tap is then a shift of positions. The
//     outputs of a block are numbered like the inputs of its first tap, so that a few
//     positions at the end of each row and image are computed but not used.
//   - If imagesLast is set, pixel by pixel, and each pixel in 32 images, without a halo. Taps
//     outside of the map are left out. On small maps this is less work than the first order.
type roundedBlocks struct {
	inputBlocks
	imagesLast bool
	taps       []volumeTap
}

// Limits of a block's size, for a second-level cache of 2 MiB. They do not change outputs,
// but determine where the sums of a gradient are divided.
const (
	roundedPositions = 2048    // most positions of a block
	roundedBytes     = 1 << 20 // most bytes of a block's rounded inputs
)

// newRoundedBlocks chooses the blocks of in. groups is the number of groups of 32 channels
// that are stored for each position.
func newRoundedBlocks(k *kernel.Set, in tensor.Operand, s geometry, groups int) roundedBlocks {
	d, h, w := s[0], s[1], s[2]
	b := roundedBlocks{inputBlocks: inputBlocks{in: in, kernels: k, d: d, h: h, w: w, channels: tensor.ChannelBlocks(in.Shape[1]), images: 1, slices: 1, rows: 1}}
	b.taps = combineTaps(d.phases[0].taps, h.phases[0].taps, w.phases[0].taps, [3]int{d.kernel, h.kernel, w.kernel})
	b.width = w.inputExtent(w.count)
	most := max(4*group, min(roundedPositions, roundedBytes/(2*group*groups)))
	fits := func(images, slices, rows int) bool {
		return images*d.inputExtent(slices)*h.inputExtent(rows)*b.width <= most
	}
	images, outputs := in.Shape[0], d.count*h.count*w.count
	if work := 0; max(d.in*h.in*w.in, outputs)*group <= most {
		b.slices, b.rows = d.count, h.count
		b.forEachPixel(func(_ int, taps, _ []int) { work += len(taps) })
		padded := tensor.RoundUp(images, group)
		positions := images * d.inputExtent(d.count) * h.inputExtent(h.count) * b.width
		b.imagesLast = outputs > 1 && 9*positions*len(b.taps) > 10*padded*work
	}
	if b.imagesLast {
		b.images = group
		b.depth, b.height, b.width = d.in, h.in, w.in
	} else {
		b.slices, b.rows = 1, 1
		for b.rows < h.count && fits(1, 1, b.rows+1) {
			b.rows++
		}
		for b.rows == h.count && b.slices < d.count && fits(1, b.slices+1, b.rows) {
			b.slices++
		}
		for b.rows == h.count && b.slices == d.count && b.images < images && fits(b.images+1, b.slices, b.rows) {
			b.images++
		}
		// Blocks of equal size keep the workers equally busy.
		b.rows = tensor.CeilDiv(h.count, tensor.CeilDiv(h.count, b.rows))
		b.slices = tensor.CeilDiv(d.count, tensor.CeilDiv(d.count, b.slices))
		b.images = tensor.CeilDiv(images, tensor.CeilDiv(images, b.images))
		b.depth, b.height = d.inputExtent(b.slices), h.inputExtent(b.rows)
	}
	b.size = b.depth * b.height * b.width * lanes
	b.plane, b.image = b.images*b.size, b.size
	return b
}

// positions returns the number of positions of a block, with room for a tile of 32 rows that
// begins at the last one.
func (b *roundedBlocks) positions() int {
	return tensor.RoundUp(b.images*b.size/lanes+group-1, group)
}

// isFull reports whether the outputs in p depend on all positions of a block.
func (b *roundedBlocks) isFull(p blockRange) bool {
	return p.images == b.images && p.slices == b.slices && p.rows == b.rows
}

// outputPositions returns the number of positions of a block's outputs. If imagesLast is set,
// it may differ from positions, because maps of outputs and of inputs may differ in size.
func (b *roundedBlocks) outputPositions() int {
	if b.imagesLast {
		return b.d.count * b.h.count * b.w.count * group
	}
	return b.positions()
}

// planeFloats returns the number of floats of one channel block at all positions.
func (b *roundedBlocks) planeFloats() int { return max(b.positions(), b.outputPositions()) * lanes }

// shift returns the position that a tap reads for the output at position 0. imagesLast must
// not be set.
func (b *roundedBlocks) shift(t volumeTap) int {
	return ((t.slice-b.d.low)*b.height+t.row-b.h.low)*b.width + t.col - b.w.low
}

// rowCount returns the number of positions from the first to the last output in p. imagesLast
// must not be set.
func (b *roundedBlocks) rowCount(p blockRange) int {
	return (p.images-1)*b.size/lanes + ((p.slices-1)*b.height+p.rows-1)*b.width + b.w.count
}

// forEachPixel calls f for each output pixel of an image with the indexes of the taps that are
// inside the map, and the input pixels that they read.
func (b *roundedBlocks) forEachPixel(f func(pixel int, taps, pixels []int)) {
	for z := range b.d.count {
		for y := range b.h.count {
			for x := range b.w.count {
				var taps, pixels []int
				for i, t := range b.taps {
					if r, s, c := z+t.slice, y+t.row, x+t.col; min(r, s, c) >= 0 && r < b.d.in && s < b.h.in && c < b.w.in {
						taps, pixels = append(taps, i), append(pixels, (r*b.h.in+s)*b.w.in+c)
					}
				}
				f((z*b.h.count+y)*b.w.count+x, taps, pixels)
			}
		}
	}
}

// loadPlane copies the inputs in p of channel block c to dst, in the order of positions, and
// normalizes them if necessary. Positions that no output in p depends on keep their values, or
// are normalized too.
func (b *roundedBlocks) loadPlane(dst []float32, p blockRange, c int) {
	count := b.size / lanes * p.images
	switch {
	case b.imagesLast:
		count = b.positions()
		for n := range p.images {
			from, _ := b.in.Block(p.n0+n, c)
			b.kernels.Spread(&dst[n*lanes], &from[0], group*lanes*4, b.size/lanes)
		}
	case b.images > 1 && [3]int{b.d.low, b.h.low, b.w.low} == [3]int{} && [3]int{b.depth, b.height, b.width} == b.in.Space: // neither halo nor crop
		for n := range p.images {
			from, _ := b.in.Block(p.n0+n, c)
			copy(dst[n*b.size:][:b.size], from)
		}
	default:
		b.load(dst, p, c, 1)
		return
	}
	if _, norm := b.in.Block(p.n0, c); norm != nil { // all images at once
		b.kernels.Normalize(&dst[0], &dst[0], &norm[0], count)
	}
}

// packRows rounds the inputs in p of channel blocks [c, c+4) to the layout of rows. scratch has
// room for four planes (see planeFloats).
func (b *roundedBlocks) packRows(dst []uint16, scratch []float32, p blockRange, c int) {
	plane := b.planeFloats()
	var planes [group / lanes][]float32
	for i := range planes {
		planes[i] = scratch[i*plane:][:plane]
		if c+i >= b.channels {
			clear(planes[i])
		}
	}
	const minRow = 16 // pixels; shorter rows are copied first, because a call for each row would take longer
	if b.imagesLast || b.w.in < minRow {
		for i := range min(group/lanes, b.channels-c) {
			b.loadPlane(planes[i], p, c+i)
		}
		b.kernels.BF16.PackRows(&dst[0], &planes[0][0], &planes[1][0], &planes[2][0], &planes[3][0], b.positions(), 2*group)
		return
	}
	left, width := -b.w.low, b.w.in // input columns [0, width) are in the row, from position left
	first := 0                      // column of the input
	if left < 0 {
		first, left = -left, 0
		width -= first
	}
	width = min(width, b.width-left)
	for n := range p.images {
		var from [group / lanes][]float32
		var norm [group / lanes][]float32
		for i := range min(group/lanes, b.channels-c) {
			from[i], norm[i] = b.in.Block(p.n0+n, c+i)
		}
		for z := range b.d.inputExtent(p.slices) {
			for r := range b.h.inputExtent(p.rows) {
				to := dst[(n*b.size/lanes+(z*b.height+r)*b.width)*group:][:b.width*group]
				slice, row := p.z0+b.d.low+z, p.q0+b.h.low+r
				if slice < 0 || slice >= b.d.in || row < 0 || row >= b.h.in {
					clear(to)
					continue
				}
				clear(to[:left*group])
				clear(to[(left+width)*group:])
				var source [group / lanes]*float32
				for i := range source {
					source[i] = &planes[i][0]
					if from[i] == nil {
						continue
					}
					pixels := &from[i][((slice*b.h.in+row)*b.w.in+first)*lanes]
					if norm[i] == nil {
						source[i] = pixels
					} else {
						b.kernels.Normalize(pixels, source[i], &norm[i][0], width)
					}
				}
				b.kernels.BF16.PackRows(&to[left*group], source[0], source[1], source[2], source[3], width, 2*group)
			}
		}
	}
}
