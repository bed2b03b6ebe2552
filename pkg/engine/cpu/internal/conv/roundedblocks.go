package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// bf16Blocks divides the images of an activation into blocks for DirectBF16 and
// DirectBF16Gradient. The inputs of a block are numbered by position, in one of two orders:
//
//   - Image by image, row by row, with a halo of zeros. A tap is then a shift of positions. The
//     outputs of a block are numbered like the inputs of its first tap, so a few positions at
//     the end of each row and image are computed but not used.
//   - If imagesLast is set, pixel by pixel, and within each pixel 32 images, without a halo.
//     Taps outside the map are left out. On small maps this is less work than the first order.
type bf16Blocks struct {
	inputBlocks
	imagesLast bool
	taps       []volumeTap
}

// Limits of a block's size, for a second-level cache of 2 MiB. They do not change outputs,
// but determine where the sums of a gradient are divided.
const (
	maxBF16BlockPositions = 2048    // most positions of a block
	maxBF16BlockBytes     = 1 << 20 // most bytes of a block's rounded inputs
)

// newBF16Blocks divides the images of in. groups is the number of groups of 32 channels that
// each position stores.
func newBF16Blocks(k *kernel.Set, in tensor.Operand, s geometry, groups int) bf16Blocks {
	d, h, w := s[0], s[1], s[2]
	b := bf16Blocks{inputBlocks: inputBlocks{in: in, kernels: k, d: d, h: h, w: w, channels: tensor.ChannelBlockCount(in.Shape[1]), images: 1, slices: 1, rows: 1}}
	b.taps = combineTaps(d.phases[0].taps, h.phases[0].taps, w.phases[0].taps, [3]int{d.kernel, h.kernel, w.kernel})
	b.width = w.inputExtent(w.count)
	most := max(4*tileChannels, min(maxBF16BlockPositions, maxBF16BlockBytes/(2*tileChannels*groups)))
	fits := func(images, slices, rows int) bool {
		return images*d.inputExtent(slices)*h.inputExtent(rows)*b.width <= most
	}
	images, outputs := in.Shape[0], d.count*h.count*w.count
	if work := 0; max(d.in*h.in*w.in, outputs)*tileChannels <= most {
		b.slices, b.rows = d.count, h.count
		b.forEachOutputPixel(func(_ int, taps, _ []int) { work += len(taps) })
		padded := tensor.RoundUp(images, tileChannels)
		positions := images * d.inputExtent(d.count) * h.inputExtent(h.count) * b.width
		b.imagesLast = outputs > 1 && 9*positions*len(b.taps) > 10*padded*work
	}
	if b.imagesLast {
		b.images = tileChannels
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

// positionCount returns the number of positions of a block, including room for a tile that
// begins at the last position.
func (b *bf16Blocks) positionCount() int {
	return tensor.RoundUp(b.images*b.size/lanes+tileChannels-1, tileChannels)
}

func (b *bf16Blocks) isFull(p blockRange) bool {
	return p.images == b.images && p.slices == b.slices && p.rows == b.rows
}

// outputPositionCount returns the number of output positions of a block. It differs from
// positionCount only if imagesLast is set and the output maps and input maps differ in size.
func (b *bf16Blocks) outputPositionCount() int {
	if b.imagesLast {
		return b.d.count * b.h.count * b.w.count * tileChannels
	}
	return b.positionCount()
}

func (b *bf16Blocks) planeFloats() int {
	return max(b.positionCount(), b.outputPositionCount()) * lanes
}

// tapShift returns the position that a tap reads for output 0. imagesLast must not be set.
func (b *bf16Blocks) tapShift(t volumeTap) int {
	return ((t.slice-b.d.low)*b.height+t.row-b.h.low)*b.width + t.col - b.w.low
}

// outputSpan counts from the first to the last output in p. imagesLast must not be set.
func (b *bf16Blocks) outputSpan(p blockRange) int {
	return (p.images-1)*b.size/lanes + ((p.slices-1)*b.height+p.rows-1)*b.width + b.w.count
}

// forEachOutputPixel calls f for each output pixel of an image with the indexes of the taps that are
// inside the map, and the input pixels that they read.
func (b *bf16Blocks) forEachOutputPixel(f func(pixel int, taps, pixels []int)) {
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

// channelPlanes are four channel blocks of the inputs of a block, in the order of positions.
type channelPlanes [tileChannels / lanes][]float32

func (b *bf16Blocks) newPlanes(scratch []float32) (all channelPlanes) {
	n := b.planeFloats()
	for i := range all {
		all[i] = scratch[i*n:][:n]
	}
	return all
}

// loadWholePlanes copies the inputs in p of channel blocks [c, c+4), or fewer if c+4 is past the
// last block, and normalizes them if necessary. Positions that no output in p depends on have
// undefined values afterwards. Planes beyond the last channel block are not changed.
func (b *bf16Blocks) loadChannelPlanes(to *channelPlanes, p blockRange, c int) {
	loaded := to[:min(tileChannels/lanes, b.channels-c)]
	count := b.size / lanes * p.images
	switch {
	case b.imagesLast:
		count = b.positionCount()
		if p.images < tileChannels {
			for _, dst := range loaded {
				clear(dst) // else, missing images are normalized again and again until they are infinite
			}
		}
		for n := range p.images {
			for i, dst := range loaded {
				from, _ := b.in.ChannelBlock(p.n0+n, c+i)
				b.kernels.Spread(&dst[n*lanes], &from[0], tileChannels*lanes*4, b.size/lanes)
			}
		}
	case b.images > 1 && b.holdsUnpaddedMaps():
		// The channel blocks of an image are adjacent. Images are often a power of two apart,
		// and the cache holds few lines at such distances.
		for n := range p.images {
			for i, dst := range loaded {
				from, _ := b.in.ChannelBlock(p.n0+n, c+i)
				copyImage(dst[n*b.size:], from, b.size/lanes)
			}
		}
	default:
		for i, dst := range loaded {
			b.loadBlock(dst, p, c+i, 1)
		}
		return
	}
	for i, dst := range loaded {
		if _, norm := b.in.ChannelBlock(p.n0, c+i); norm != nil { // all images at once
			b.kernels.Normalize(&dst[0], &dst[0], &norm[0], count)
		}
	}
}

func copyImage(dst, src []float32, pixels int) {
	const few = 4 // a call of copy would take longer
	if pixels <= few {
		copyBlocks(&dst[0], &src[0], pixels)
	} else {
		copy(dst[:pixels*lanes], src)
	}
}

// packRows rounds the inputs in p of all channel blocks and writes them to dst as rows: all
// positions of the first 32 channels, then of the next 32, and so on. scratch has room for four
// planes (see planeFloats).
func (b *bf16Blocks) packRows(dst []uint16, scratch []float32, p blockRange) {
	size := b.positionCount() * tileChannels
	if !b.imagesLast && !b.holdsUnpaddedMaps() {
		for c := 0; c < b.channels; c += tileChannels / lanes {
			b.packRowsOfMaps(dst[c/(tileChannels/lanes)*size:][:size], scratch, p, c)
		}
		return
	}
	image, step := b.size/lanes*tileChannels, 2*tileChannels // of dst, in words and in bytes
	if b.imagesLast {
		image, step = tileChannels, 2*tileChannels*tileChannels
	}
	for c := 0; c < b.channels; c += tileChannels / lanes {
		if b.findMemoryPiece(c) == nil {
			planes := b.newPlanes(scratch)
			for _, empty := range planes[min(tileChannels/lanes, b.channels-c):] {
				clear(empty)
			}
			b.loadChannelPlanes(&planes, p, c)
			b.kernels.BF16.PackRows(&dst[c/(tileChannels/lanes)*size], &planes[0][0], &planes[1][0], &planes[2][0], &planes[3][0], nil, b.positionCount(), 2*tileChannels)
		}
	}
	for n := range p.images { // in the order of memory
		for c := 0; c < b.channels; c += tileChannels / lanes {
			if piece := b.findMemoryPiece(c); piece != nil {
				to := dst[c/(tileChannels/lanes)*size+n*image:]
				b.packMemoryPiece(&to[0], piece, p.n0+n, c, 0, b.size/lanes, step)
			}
		}
	}
}

func (b *bf16Blocks) holdsUnpaddedMaps() bool {
	return [3]int{b.d.low, b.h.low, b.w.low} == [3]int{} && [3]int{b.depth, b.height, b.width} == b.in.Space
}

// findMemoryPiece returns the piece that contains channel blocks [c, c+4), or nil.
func (b *bf16Blocks) findMemoryPiece(c int) *tensor.MemoryPiece {
	for i := range b.in.Pieces {
		if p := &b.in.Pieces[i]; c < p.First+p.Count {
			if c+tileChannels/lanes > p.First+p.Count {
				return nil
			}
			return p
		}
	}
	return nil
}

// packMemoryPiece rounds n pixels of channel blocks [c, c+4) of piece. step is the distance in
// bytes between the pixels of dst.
func (b *bf16Blocks) packMemoryPiece(dst *uint16, piece *tensor.MemoryPiece, image, c, pixel, n, step int) {
	plane, at := b.in.PlaneFloats(), c-piece.First
	from := piece.Data[image*piece.Image+at*plane+pixel*lanes:]
	var norm *float32
	if piece.Norm != nil {
		norm = &piece.Norm[at*kernel.NormConstantFloats]
	}
	b.kernels.BF16.PackRows(dst, &from[0], &from[plane], &from[2*plane], &from[3*plane], norm, n, step)
}

// packRowsOfMaps rounds the inputs in p of channel blocks [c, c+4), of maps with a halo or of
// some rows of a map.
func (b *bf16Blocks) packRowsOfMaps(dst []uint16, scratch []float32, p blockRange, c int) {
	planes := b.newPlanes(scratch)
	for _, empty := range planes[min(tileChannels/lanes, b.channels-c):] {
		clear(empty)
	}
	const minRow = 16 // pixels; shorter rows are copied first, because a call for each row would take longer
	if b.w.in < minRow {
		b.loadChannelPlanes(&planes, p, c)
		b.kernels.BF16.PackRows(&dst[0], &planes[0][0], &planes[1][0], &planes[2][0], &planes[3][0], nil, b.positionCount(), 2*tileChannels)
		return
	}
	left, width := -b.w.low, b.w.in // input columns [0, width) are in the row, from position left
	first := 0                      // column of the input
	if left < 0 {
		first, left = -left, 0
		width -= first
	}
	width = min(width, b.width-left)
	piece := b.findMemoryPiece(c)
	for n := range p.images {
		var from [tileChannels / lanes][]float32
		var norm [tileChannels / lanes][]float32
		for i := range min(tileChannels/lanes, b.channels-c) {
			from[i], norm[i] = b.in.ChannelBlock(p.n0+n, c+i)
		}
		for z := range b.d.inputExtent(p.slices) {
			for r := range b.h.inputExtent(p.rows) {
				to := dst[(n*b.size/lanes+(z*b.height+r)*b.width)*tileChannels:][:b.width*tileChannels]
				slice, row := p.z0+b.d.low+z, p.q0+b.h.low+r
				if slice < 0 || slice >= b.d.in || row < 0 || row >= b.h.in {
					clear(to)
					continue
				}
				clear(to[:left*tileChannels])
				clear(to[(left+width)*tileChannels:])
				if piece != nil {
					b.packMemoryPiece(&to[left*tileChannels], piece, p.n0+n, c, (slice*b.h.in+row)*b.w.in+first, width, 2*tileChannels)
					continue
				}
				var source [tileChannels / lanes]*float32
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
				b.kernels.BF16.PackRows(&to[left*tileChannels], source[0], source[1], source[2], source[3], nil, width, 2*tileChannels)
			}
		}
	}
}
