package conv

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// axis describes a convolution along one spatial dimension. The outputs are divided into
// phases. In a phase, output first + q·stepOut for 0 ≤ q < count is the sum of
// weight[index] · input[q·stepIn + shift] over the taps of the phase; inputs outside of the
// map are 0.
//
// A cross-correlation has one phase. Its transpose (backward data, transposed convolution)
// with stride s has s phases. Each has only the taps that reach its outputs, so that zeros
// between strides are not multiplied. splitAtEdges divides the phases further, until all
// taps of a phase are inside the input.
type axis struct {
	in, out         int
	kernel          int // length of the window
	stepIn, stepOut int
	phases          []axisPhase
	low, high       int // least and greatest shift of any tap
	count           int // greatest count of all phases
	reach           int // end of the inputs that the outputs depend on
	isSplit         bool
}

// axisPhase is a set of outputs along an axis that have the same taps.
type axisPhase struct {
	first, count int
	taps         []tap
}

// tap is one weight along an axis: its shift (see axis), and its index in the window.
type tap struct{ shift, index int }

// geometry describes a convolution along depth (1 for images), height and width.
type geometry [3]axis

// newGatherAxis returns the axis of a cross-correlation: output o depends on the inputs
// o·stride − pad + r, where r is the index of the weight.
func newGatherAxis(in, out, kernel, stride, pad int) axis {
	p := axisPhase{count: out}
	for r := range kernel {
		p.taps = append(p.taps, tap{r - pad, r})
	}
	return axis{in: in, out: out, kernel: kernel, stepIn: stride, stepOut: 1, phases: []axisPhase{p}}.pruneTaps()
}

// newScatterAxis returns the axis of a transposed cross-correlation: input i is added to
// the outputs i·stride − pad + r for weight r, so that output o depends on the inputs (o +
// pad − r)/stride that are integers.
func newScatterAxis(in, out, kernel, stride, pad int) axis {
	a := axis{in: in, out: out, kernel: kernel, stepIn: 1, stepOut: stride}
	for f := range min(stride, out) {
		p := axisPhase{first: f, count: tensor.CeilDiv(out-f, stride)}
		for r := range kernel {
			if d := f + pad - r; d%stride == 0 {
				p.taps = append(p.taps, tap{d / stride, r})
			}
		}
		a.phases = append(a.phases, p)
	}
	return a.pruneTaps()
}

// validOutputs returns the range [lo, hi) of the outputs of phase p for which tap t is inside
// the input.
func (a axis) validOutputs(p axisPhase, t tap) (lo, hi int) {
	if t.shift < 0 {
		lo = tensor.CeilDiv(-t.shift, a.stepIn)
	}
	if t.shift >= a.in {
		return lo, lo
	}
	return lo, max(lo, min(p.count, (a.in-1-t.shift)/a.stepIn+1))
}

// pruneTaps removes taps that never reach the input, and computes the fields low, high,
// count and reach from the phases.
func (a axis) pruneTaps() axis {
	first := true
	a.count, a.reach = 0, 0
	for i := range a.phases {
		p := &a.phases[i]
		p.taps = slices.DeleteFunc(p.taps, func(t tap) bool { lo, hi := a.validOutputs(*p, t); return lo == hi })
		a.count = max(a.count, p.count)
		for _, t := range p.taps {
			if first {
				a.low, a.high, first = t.shift, t.shift, false
			}
			a.low, a.high = min(a.low, t.shift), max(a.high, t.shift)
			a.reach = max(a.reach, (p.count-1)*a.stepIn+t.shift+1)
		}
	}
	return a
}

// splitAtEdges divides the phases until each tap of a phase is inside the input for all outputs
// of the phase.
func (a axis) splitAtEdges() axis {
	var parts []axisPhase
	for _, p := range a.phases {
		edges := []int{0, p.count}
		for _, t := range p.taps {
			lo, hi := a.validOutputs(p, t)
			edges = append(edges, lo, hi)
		}
		slices.Sort(edges)
		edges = slices.Compact(edges)
		for i, from := range edges[:len(edges)-1] {
			part := axisPhase{first: p.first + from*a.stepOut, count: edges[i+1] - from}
			for _, t := range p.taps {
				if lo, hi := a.validOutputs(p, t); lo <= from && from < hi {
					part.taps = append(part.taps, tap{t.shift + from*a.stepIn, t.index})
				}
			}
			parts = append(parts, part)
		}
	}
	a.phases, a.isSplit = parts, true
	return a.pruneTaps()
}

func (a axis) allTapsInsideInput() bool { return a.low >= 0 && a.reach <= a.in }

// inputExtent returns the number of inputs that count successive outputs depend on.
func (a axis) inputExtent(count int) int {
	if a.isSplit {
		return max(1, a.reach-a.low) // all of them: blocks are whole images
	}
	return (count-1)*a.stepIn + a.high - a.low + 1
}

func (s geometry) splitAtEdges() geometry {
	return geometry{s[0].splitAtEdges(), s[1].splitAtEdges(), s[2].splitAtEdges()}
}

func (s geometry) allTapsInsideInput() bool {
	return s[0].allTapsInsideInput() && s[1].allTapsInsideInput() && s[2].allTapsInsideInput()
}

func (s geometry) isSplitAtEdges() bool { return s[0].isSplit }

func (s geometry) maxPhaseOutputs() int { return s[0].count * s[1].count * s[2].count }

func (s geometry) outputCount() int { return s[0].out * s[1].out * s[2].out }

func (s geometry) tapCount() int { return s[0].kernel * s[1].kernel * s[2].kernel }

func (s geometry) forEachPhase(f func(d, h, w axisPhase)) {
	for _, d := range s[0].phases {
		for _, h := range s[1].phases {
			for _, w := range s[2].phases {
				f(d, h, w)
			}
		}
	}
}

// estimateCost estimates the work per channel: the rows that the matrix kernel computes, each
// times its number of taps. A full tile has maxRows rows. A tile with fewer than minRows rows
// takes as long as one with minRows.
func (s geometry) estimateCost(images, maxRows int) (sum int) {
	const minRows = 4
	s.forEachPhase(func(d, h, w axisPhase) {
		rows := images * d.count * h.count * w.count
		full := rows / maxRows * maxRows
		if rest := rows - full; rest > 0 {
			full += max(minRows, rest)
		}
		sum += full * max(1, len(d.taps)*len(h.taps)*len(w.taps))
	})
	return sum
}

// splitAtEdgesIfCheaper returns s.splitAtEdges() if that has a lower cost, else s. Splitting
// helps for small maps, where much of the window is outside the map. rows is the height of a
// full tile of the matrix kernel.
func (s geometry) splitAtEdgesIfCheaper(in tensor.Operand, rows int) geometry {
	const maxCostRatio = 0.92 // splitting must save at least 8 % of the work
	if s.allTapsInsideInput() || tensor.ChannelBlockCount(in.Shape[1])*in.PlaneFloats() > 4*blockFloats || s.outputCount() > splitPixels {
		return s
	}
	c, images := s.splitAtEdges(), min(in.Shape[0], splitPixels/s.outputCount())
	if float64(c.estimateCost(images, rows)) > maxCostRatio*float64(s.estimateCost(images, rows)) {
		return s
	}
	return c
}

// inputBlocks divides the images of an activation into blocks, which are loaded and convolved
// one by one. If taps reach outside the input, loadBlock copies a block to a worker's scratch
// memory and adds a halo of zeros. Otherwise blocks are read in place.
type inputBlocks struct {
	in       tensor.Operand
	kernels  *kernel.Set
	d, h, w  axis
	channels int  // in blocks
	direct   bool // blocks are read in place
	planes   bool // blocks are copies of whole planes, without a halo
	images   int  // images per block
	slices   int  // output slices per block and phase
	rows     int  // output rows per block and phase
	depth    int  // input slices per block
	height   int  // input rows per block
	width    int  // input pixels per row
	size     int  // floats per channel block of an image
	plane    int  // floats from a channel block to the next
	image    int  // floats from an image to the next
}

// Limits of a block's size, measured to be fast on a processor with 32 KiB of first-level
// and 1 MiB of second-level cache. They do not change results.
const (
	blockPixels  = 2048      // most outputs of a block, in each phase
	blockFloats  = 64 * 1024 // most floats of a block's inputs, with halo
	imagesPixels = 256       // most outputs of a block of several images
	splitPixels  = 512       // most outputs of a block of several images if the axes are split
)

// newInputBlocks chooses blocks of at most maxPixels outputs: some rows or slices of an
// image, or several small images.
//
// If contiguous is set, blocks of several images are copied, so that the images of a
// channel block are next to each other. In place, the distance between images is often a
// power of two, and a cache holds few lines at such distances.
func newInputBlocks(k *kernel.Set, in tensor.Operand, s geometry, maxPixels int, contiguous bool) inputBlocks {
	n, channels := in.Shape[0], tensor.ChannelBlockCount(in.Shape[1])
	d, h, w := s[0], s[1], s[2]
	v := inputBlocks{in: in, kernels: k, d: d, h: h, w: w, channels: channels, direct: s.allTapsInsideInput() && in.IsSinglePiece(), images: 1, slices: 1, rows: 1}
	v.width = w.inputExtent(w.count)
	fits := func(slices, rows int) bool {
		return slices*rows*w.count <= maxPixels && channels*d.inputExtent(slices)*h.inputExtent(rows)*v.width*lanes <= blockFloats
	}
	pixels, limit := s.maxPhaseOutputs(), imagesPixels
	if s.isSplitAtEdges() {
		v.slices, v.rows = d.count, h.count
		pixels, limit = s.outputCount(), splitPixels
	}
	for v.rows < h.count && fits(1, v.rows+1) {
		v.rows++
	}
	for v.rows == h.count && v.slices < d.count && fits(v.slices+1, v.rows) {
		v.slices++
	}
	if v.rows == h.count && v.slices == d.count {
		one := channels * d.inputExtent(v.slices) * h.inputExtent(v.rows) * v.width * lanes
		for v.images < n && (v.images+1)*pixels <= min(maxPixels, limit) && (v.images+1)*one <= 4*blockFloats {
			v.images++
		}
	}
	// Blocks of equal size keep the workers equally busy.
	v.rows = tensor.CeilDiv(h.count, tensor.CeilDiv(h.count, v.rows))
	v.slices = tensor.CeilDiv(d.count, tensor.CeilDiv(d.count, v.slices))
	v.images = tensor.CeilDiv(n, tensor.CeilDiv(n, v.images))
	v.depth, v.height = d.inputExtent(v.slices), h.inputExtent(v.rows)
	if v.images > 1 && contiguous {
		v.direct = false
	}
	if v.direct {
		v.depth, v.height, v.width = d.in, h.in, w.in
	}
	v.planes = !v.direct && v.holdWholeImages() && [3]int{d.low, h.low, w.low} == [3]int{} && [3]int{v.depth, v.height, v.width} == in.Space
	v.size = v.depth * v.height * v.width * lanes
	v.plane, v.image = v.size, channels*v.size
	switch {
	case v.direct:
		v.image = in.Pieces[0].Image
	case v.images > 1 && contiguous:
		v.plane, v.image = v.images*v.size+pointGapFloats, v.size
	}
	return v
}

// scratchFloats returns the number of floats that loadBlock needs for the copy of a block. It
// returns 0 if blocks are read in place.
func (v *inputBlocks) scratchFloats() int {
	if v.direct {
		return 0
	}
	return (v.images-1)*v.image + (v.channels-1)*v.plane + v.size
}

func (v *inputBlocks) count() int {
	return tensor.CeilDiv(v.in.Shape[0], v.images) * v.slabsPerImage() * v.bandsPerSlice()
}

// slabsPerImage returns the number of blocks along the slices of an image.
func (v *inputBlocks) slabsPerImage() int { return tensor.CeilDiv(v.d.count, v.slices) }

// bandsPerSlice returns the number of blocks along the rows of a slice.
func (v *inputBlocks) bandsPerSlice() int { return tensor.CeilDiv(v.h.count, v.rows) }

func (v *inputBlocks) holdWholeImages() bool { return v.slabsPerImage() == 1 && v.bandsPerSlice() == 1 }

// blockRange is the range of outputs that a block covers: images [n0, n0+images) and, in
// each phase, slices [z0, z0+slices) and rows [q0, q0+rows).
type blockRange struct{ n0, images, z0, slices, q0, rows int }

func (v *inputBlocks) blockRange(b int) blockRange {
	band, slab := b%v.bandsPerSlice(), b/v.bandsPerSlice()%v.slabsPerImage()
	n0, z0, q0 := b/(v.bandsPerSlice()*v.slabsPerImage())*v.images, slab*v.slices, band*v.rows
	return blockRange{n0, min(v.images, v.in.Shape[0]-n0), z0, min(v.slices, v.d.count-z0), q0, min(v.rows, v.h.count-q0)}
}

// byteOffset returns the offset in a loaded block, in bytes, of the input with the shifts
// slice, row and col (see axis) for the first output of the block.
func (v *inputBlocks) byteOffset(slice, row, col int) int {
	return (((slice-v.d.low)*v.height+row-v.h.low)*v.width + col - v.w.low) * lanes * 4
}

// loadBlock returns channel blocks [c0, c0+count) of the inputs for the outputs in p. The
// result is either the input's own memory or a copy in scratch with a halo. If the input is a
// batch norm's output that is not stored, the copy is normalized.
func (v *inputBlocks) loadBlock(scratch []float32, p blockRange, c0, count int) []float32 {
	inRow := v.w.in * lanes
	front, top := p.z0*v.d.stepIn+v.d.low, p.q0*v.h.stepIn+v.h.low
	if v.direct {
		x, _ := v.in.ChannelBlock(p.n0, c0)
		return x[(front*v.h.in+top)*inRow+v.w.low*lanes:]
	}
	if v.planes {
		v.loadWholePlanes(scratch, p, c0, count)
		return scratch
	}
	slice := v.height * v.width * lanes
	for i := range p.images {
		for c := range count {
			src, norm := v.in.ChannelBlock(p.n0+i, c0+c)
			dst := scratch[i*v.image+c*v.plane:][:v.size]
			for z := range v.d.inputExtent(p.slices) {
				to := dst[z*slice:][:slice]
				if front+z < 0 || front+z >= v.d.in {
					clear(to)
					continue
				}
				v.loadDepthSlice(to, src[(front+z)*v.h.in*inRow:], norm, top, v.h.inputExtent(p.rows))
			}
		}
	}
	return scratch
}

// loadWholePlanes does the work of loadBlock for blocks of whole planes. Planes are often as small
// as one pixel, so that looking up each plane would take longer than copying it.
func (v *inputBlocks) loadWholePlanes(scratch []float32, p blockRange, c0, count int) {
	for j := range v.in.Pieces {
		s := &v.in.Pieces[j]
		first, end := max(c0, s.First), min(c0+count, s.First+s.Count)
		if first >= end {
			continue
		}
		box := kernel.PixelBox{Pixels: v.size / lanes, Rows: 1, Planes: end - first, FromPlane: v.size * 4, ToPlane: v.plane * 4}
		for i := range p.images {
			from, to := &s.Data[(p.n0+i)*s.Image+(first-s.First)*v.size], &scratch[i*v.image+(first-c0)*v.plane]
			if s.Norm == nil {
				v.kernels.CopyBox(from, to, box)
			} else {
				v.kernels.NormalizeBox(from, to, &s.Norm[(first-s.First)*kernel.NormConstantFloats], box)
			}
		}
	}
}

// loadDepthSlice copies rows [top, top+rows) of one slice of a channel block from src to dst. It
// normalizes them unless norm is nil. Rows and columns outside of the map are zeros.
func (v *inputBlocks) loadDepthSlice(dst, src, norm []float32, top, rows int) {
	row, inRow := v.width*lanes, v.w.in*lanes
	if v.w.low == 0 && v.width == v.w.in && top >= 0 && top+rows <= v.h.in {
		v.copyPixels(dst, src[top*inRow:], norm, rows*v.width)
		return
	}
	// Input columns [from, to) fall inside a row of the window; the rest are zeros.
	from, to := max(0, v.w.low), min(v.w.in, v.w.low+v.width)
	left := (from - v.w.low) * lanes
	right := left + max(0, to-from)*lanes
	for r := range rows {
		d := dst[r*row:][:row]
		y := top + r
		if y < 0 || y >= v.h.in || from >= to {
			clear(d)
			continue
		}
		clear(d[:left])
		v.copyPixels(d[left:right], src[y*inRow+from*lanes:], norm, to-from)
		clear(d[right:])
	}
}

func (v *inputBlocks) copyPixels(dst, src, norm []float32, pixels int) {
	if norm == nil {
		copy(dst[:pixels*lanes], src)
	} else {
		v.kernels.Normalize(&src[0], &dst[0], &norm[0], pixels)
	}
}
