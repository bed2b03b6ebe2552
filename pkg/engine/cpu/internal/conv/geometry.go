package conv

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// axis describes a convolution along one spatial dimension. The outputs are divided
// into phases. Output first + q·stepOut of a phase, 0 ≤ q < count, is the sum over the
// phase's taps of weight[index] · input[q·stepIn + shift], where inputs outside of
// the map are 0.
//
// A cross-correlation has one phase. Its transpose (backward data, transposed
// convolution) with stride s has s phases, each with the taps that reach its outputs,
// so that no zeros between strides are multiplied. After cut there are more phases,
// whose taps are all inside the input.
type axis struct {
	in, out         int // lengths
	kernel          int // length of the window
	stepIn, stepOut int
	phases          []axisPhase
	low, high       int // least and greatest shift of any tap
	count           int // greatest count of all phases
	reach           int // end of the inputs that the outputs depend on
	isCut           bool
}

// axisPhase is the outputs of an axis that have the same taps.
type axisPhase struct {
	first, count int
	taps         []tap
}

// tap is one weight along a dimension; see axis.
type tap struct{ shift, index int }

// Space is the axes of depth, height and width. A map of two dimensions has a depth
// of 1.
type space [3]axis

// gatherAxis returns the axis of a cross-correlation: output o depends on the inputs
// o·stride − pad + r.
func gatherAxis(in, out, kernel, stride, pad int) axis {
	p := axisPhase{count: out}
	for r := range kernel {
		p.taps = append(p.taps, tap{r - pad, r})
	}
	return axis{in: in, out: out, kernel: kernel, stepIn: stride, stepOut: 1, phases: []axisPhase{p}}.bounded()
}

// scatterAxis returns the axis of a transposed cross-correlation: input i is added to
// the outputs i·stride − pad + r. Output o depends on the inputs (o + pad − r)/stride
// for all r for which the quotient is an integer.
func scatterAxis(in, out, kernel, stride, pad int) axis {
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
	return a.bounded()
}

// valid returns the outputs of a phase, lo ≤ q < hi, for which tap t is inside the
// input.
func (a axis) valid(p axisPhase, t tap) (lo, hi int) {
	if t.shift < 0 {
		lo = tensor.CeilDiv(-t.shift, a.stepIn)
	}
	if t.shift >= a.in {
		return lo, lo
	}
	return lo, max(lo, min(p.count, (a.in-1-t.shift)/a.stepIn+1))
}

// bounded returns the axis without taps that never reach the input, with the fields
// that follow from the phases.
func (a axis) bounded() axis {
	first := true
	a.count, a.reach = 0, 0
	for i := range a.phases {
		p := &a.phases[i]
		p.taps = slices.DeleteFunc(p.taps, func(t tap) bool { lo, hi := a.valid(*p, t); return lo == hi })
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

// cut divides the phases further, so that the taps of a phase are inside the input
// for all of its outputs. Then no halo is needed and no zeros are multiplied.
func (a axis) cut() axis {
	var parts []axisPhase
	for _, p := range a.phases {
		edges := []int{0, p.count}
		for _, t := range p.taps {
			lo, hi := a.valid(p, t)
			edges = append(edges, lo, hi)
		}
		slices.Sort(edges)
		edges = slices.Compact(edges)
		for i, from := range edges[:len(edges)-1] {
			part := axisPhase{first: p.first + from*a.stepOut, count: edges[i+1] - from}
			for _, t := range p.taps {
				if lo, hi := a.valid(p, t); lo <= from && from < hi {
					part.taps = append(part.taps, tap{t.shift + from*a.stepIn, t.index})
				}
			}
			parts = append(parts, part)
		}
	}
	a.phases, a.isCut = parts, true
	return a.bounded()
}

// inside reports whether all taps of all outputs are inside the input.
func (a axis) inside() bool { return a.low >= 0 && a.reach <= a.in }

// extent returns the number of inputs that count successive outputs of every phase
// depend on.
func (a axis) extent(count int) int {
	if a.isCut {
		return max(1, a.reach-a.low) // all of them: blocks are whole images
	}
	return (count-1)*a.stepIn + a.high - a.low + 1
}

// cut returns the space with every axis cut.
func (s space) cut() space { return space{s[0].cut(), s[1].cut(), s[2].cut()} }

// inside reports whether all taps of all outputs are inside the input.
func (s space) inside() bool { return s[0].inside() && s[1].inside() && s[2].inside() }

// isCut reports whether the axes are cut.
func (s space) isCut() bool { return s[0].isCut }

// count returns the number of outputs of the largest phase.
func (s space) count() int { return s[0].count * s[1].count * s[2].count }

// outputs returns the number of outputs of all phases.
func (s space) outputs() int { return s[0].out * s[1].out * s[2].out }

// taps returns the number of weights of the window.
func (s space) taps() int { return s[0].kernel * s[1].kernel * s[2].kernel }

// eachPhase calls f for every combination of the axes' phases.
func (s space) eachPhase(f func(d, h, w axisPhase)) {
	for _, d := range s[0].phases {
		for _, h := range s[1].phases {
			for _, w := range s[2].phases {
				f(d, h, w)
			}
		}
	}
}

// cost estimates the work for a channel of the given number of images, in rows of the
// matrix kernel. A full tile has most rows; a tile with few rows takes as long as one
// with leastRows.
func (s space) cost(images, most int) (sum int) {
	const leastRows = 4
	s.eachPhase(func(d, h, w axisPhase) {
		rows := images * d.count * h.count * w.count
		full := rows / most * most
		if rest := rows - full; rest > 0 {
			full += max(leastRows, rest)
		}
		sum += full * max(1, len(d.taps)*len(h.taps)*len(w.taps))
	})
	return sum
}

// cutting returns the space, cut if that is less work for tiles of the given number
// of rows. It is for small images, since a large part of a window is outside of them.
func (s space) cutting(in tensor.Operand, rows int) space {
	const worth = 0.92
	if s.inside() || tensor.Blocks(in.Shape[1])*in.Plane() > 4*blockFloats || s.outputs() > cutPixels {
		return s
	}
	c, images := s.cut(), min(in.Shape[0], cutPixels/s.outputs())
	if float64(c.cost(images, rows)) > worth*float64(s.cost(images, rows)) {
		return s
	}
	return c
}

// window divides an activation into blocks and loads them. A block is copied to a
// worker's scratch memory with a halo of zeros where taps reach outside of the input;
// if there is no halo, it is read in place.
type window struct {
	in       tensor.Operand
	kernels  *kernel.Set
	d, h, w  axis
	channels int  // in blocks
	direct   bool // blocks are read in place
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

// Sizes of a block, measured to be fast on a processor with 32 KiB of first-level and
// 1 MiB of second-level cache. They do not change results.
const (
	blockPixels  = 2048      // most outputs of a phase
	blockFloats  = 64 * 1024 // most floats of inputs, with halo
	imagesPixels = 256       // most outputs of a block of several whole images
	cutPixels    = 512       // the same if the axes are cut
)

// newWindow chooses the blocks of in: some rows of an image, some slices of an image,
// or several small images. A block has at most maxPixels outputs.
//
// With gather, a block of several images is copied, with the images of a channel
// block next to each other. In place, the distance of images is often a power of two,
// and a cache holds few lines at such a distance.
func newWindow(k *kernel.Set, in tensor.Operand, s space, maxPixels int, gather bool) window {
	n, channels := in.Shape[0], tensor.Blocks(in.Shape[1])
	d, h, w := s[0], s[1], s[2]
	v := window{in: in, kernels: k, d: d, h: h, w: w, channels: channels, direct: s.inside() && in.Whole(), images: 1, slices: 1, rows: 1}
	v.width = w.extent(w.count)
	fits := func(slices, rows int) bool {
		return slices*rows*w.count <= maxPixels && channels*d.extent(slices)*h.extent(rows)*v.width*lanes <= blockFloats
	}
	pixels, joined := s.count(), imagesPixels
	if s.isCut() {
		v.slices, v.rows = d.count, h.count
		pixels, joined = s.outputs(), cutPixels
	}
	for v.rows < h.count && fits(1, v.rows+1) {
		v.rows++
	}
	for v.rows == h.count && v.slices < d.count && fits(v.slices+1, v.rows) {
		v.slices++
	}
	if v.rows == h.count && v.slices == d.count {
		one := channels * d.extent(v.slices) * h.extent(v.rows) * v.width * lanes
		for v.images < n && (v.images+1)*pixels <= min(maxPixels, joined) && (v.images+1)*one <= 4*blockFloats {
			v.images++
		}
	}
	// Blocks of equal size keep the workers equally busy.
	v.rows = tensor.CeilDiv(h.count, tensor.CeilDiv(h.count, v.rows))
	v.slices = tensor.CeilDiv(d.count, tensor.CeilDiv(d.count, v.slices))
	v.images = tensor.CeilDiv(n, tensor.CeilDiv(n, v.images))
	v.depth, v.height = d.extent(v.slices), h.extent(v.rows)
	if v.images > 1 && gather {
		v.direct = false
	}
	if v.direct {
		v.depth, v.height, v.width = d.in, h.in, w.in
	}
	v.size = v.depth * v.height * v.width * lanes
	v.plane, v.image = v.size, channels*v.size
	switch {
	case v.direct:
		v.image = in.Pieces[0].Image
	case v.images > 1 && gather:
		v.plane, v.image = v.images*v.size+pointGap, v.size
	}
	return v
}

// scratch returns the number of floats that a worker needs for a block.
func (v *window) scratch() int {
	if v.direct {
		return 0
	}
	return (v.images-1)*v.image + (v.channels-1)*v.plane + v.size
}

// blocks returns the number of blocks of all images.
func (v *window) blocks() int { return tensor.CeilDiv(v.in.Shape[0], v.images) * v.slabs() * v.bands() }

// slabs returns the number of blocks that the slices of an image are divided into.
func (v *window) slabs() int { return tensor.CeilDiv(v.d.count, v.slices) }

// bands returns the number of blocks that the rows of a slice are divided into.
func (v *window) bands() int { return tensor.CeilDiv(v.h.count, v.rows) }

// whole reports whether blocks are whole images.
func (v *window) whole() bool { return v.slabs() == 1 && v.bands() == 1 }

// part is the place of a block: images [n0, n0+images), output slices
// [z0, z0+slices) and output rows [q0, q0+rows) of a phase.
type part struct{ n0, images, z0, slices, q0, rows int }

// part returns the range of the window that block b covers.
func (v *window) part(b int) part {
	band, slab := b%v.bands(), b/v.bands()%v.slabs()
	n0, z0, q0 := b/(v.bands()*v.slabs())*v.images, slab*v.slices, band*v.rows
	return part{n0, min(v.images, v.in.Shape[0]-n0), z0, min(v.slices, v.d.count-z0), q0, min(v.rows, v.h.count-q0)}
}

// offset returns the distance in bytes, in a block, from the input of output 0 to
// the input shifted by slice, row and col.
func (v *window) offset(slice, row, col int) int {
	return (((slice-v.d.low)*v.height+row-v.h.low)*v.width + col - v.w.low) * lanes * 4
}

// load returns the inputs of block p, count channel blocks beginning with c0: in place,
// or as a copy with halo in scratch. The copy is normalized if the input is not stored
// but is a batch norm's output.
func (v *window) load(scratch []float32, p part, c0, count int) []float32 {
	inRow := v.w.in * lanes
	front, top := p.z0*v.d.stepIn+v.d.low, p.q0*v.h.stepIn+v.h.low
	if v.direct {
		x, _ := v.in.Block(p.n0, c0)
		return x[(front*v.h.in+top)*inRow+v.w.low*lanes:]
	}
	slice := v.height * v.width * lanes
	for i := range p.images {
		for c := range count {
			src, norm := v.in.Block(p.n0+i, c0+c)
			dst := scratch[i*v.image+c*v.plane:][:v.size]
			for z := range v.d.extent(p.slices) {
				to := dst[z*slice:][:slice]
				if front+z < 0 || front+z >= v.d.in {
					clear(to)
					continue
				}
				v.loadSlice(to, src[(front+z)*v.h.in*inRow:], norm, top, v.h.extent(p.rows))
			}
		}
	}
	return scratch
}

// loadSlice loads the given number of rows, beginning with row top, of one slice of a
// channel block.
func (v *window) loadSlice(dst, src, norm []float32, top, rows int) {
	row, inRow := v.width*lanes, v.w.in*lanes
	if v.w.low == 0 && v.width == v.w.in && top >= 0 && top+rows <= v.h.in {
		v.move(dst, src[top*inRow:], norm, rows*v.width)
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
		v.move(d[left:right], src[y*inRow+from*lanes:], norm, to-from)
		clear(d[right:])
	}
}

// move copies pixels, and normalizes them if there are constants norm.
func (v *window) move(to, from, norm []float32, pixels int) {
	if norm == nil {
		copy(to[:pixels*lanes], from)
	} else {
		v.kernels.Normalize(&from[0], &to[0], &norm[0], pixels)
	}
}
