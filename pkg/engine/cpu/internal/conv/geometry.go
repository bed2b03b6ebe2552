package conv

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// axis describes a convolution along one spatial dimension as a sum over taps.
// Outputs fall into phases: output first + q·stepOut, 0 ≤ q < count, of a phase
// is the sum over the phase's taps of weight[index] · input[q·stepIn + shift],
// with zeros where that is outside the input.
//
// A cross-correlation has one phase. Its transpose (backward data, transposed
// convolution) with stride s has s of them, each with the taps that reach it,
// so that no work is spent on the zeros between strides. Cut (see cut), each has
// more, none of which reaches outside.
type axis struct {
	in, out         int // lengths
	kernel          int // length of the window, taps that reach nothing included
	stepIn, stepOut int
	phases          []axisPhase
	low, high       int // least and greatest shift of any tap
	count           int // greatest count of any phase
	reach           int // inputs from 0 on that the outputs take
	isCut           bool
}

type axisPhase struct {
	first, count int
	taps         []tap
}

// tap is one weight along a dimension.
type tap struct{ shift, index int }

// space is the axes of depth, height and width. A map of two dimensions has a
// depth of 1.
type space [3]axis

// gatherAxis is a cross-correlation: output o takes input o·stride − pad + r.
func gatherAxis(in, out, kernel, stride, pad int) axis {
	p := axisPhase{count: out}
	for r := range kernel {
		p.taps = append(p.taps, tap{r - pad, r})
	}
	return axis{in: in, out: out, kernel: kernel, stepIn: stride, stepOut: 1, phases: []axisPhase{p}}.bounded()
}

// scatterAxis is the transpose of a cross-correlation: input i goes to output
// i·stride − pad + r, which is to say that output o takes input (o + pad − r)/stride
// for those r that leave no remainder.
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

// valid are the outputs q, lo ≤ q < hi, of a phase for which a tap is inside the input.
func (a axis) valid(p axisPhase, t tap) (lo, hi int) {
	if t.shift < 0 {
		lo = tensor.CeilDiv(-t.shift, a.stepIn)
	}
	if t.shift >= a.in {
		return lo, lo
	}
	return lo, max(lo, min(p.count, (a.in-1-t.shift)/a.stepIn+1))
}

// bounded leaves out the taps that never reach the input, and fills in what
// follows from the phases.
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

// cut parts the phases so that each has the taps alone that are inside the input
// for all of its outputs: neither a halo nor products with its zeros are needed.
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

// inside says whether no tap of any output falls outside the input.
func (a axis) inside() bool { return a.low >= 0 && a.reach <= a.in }

// extent is the number of inputs that count successive q of every phase reach.
func (a axis) extent(count int) int {
	if a.isCut {
		return max(1, a.reach-a.low) // all of them: blocks are whole images
	}
	return (count-1)*a.stepIn + a.high - a.low + 1
}

// cut is the space with every axis cut.
func (s space) cut() space { return space{s[0].cut(), s[1].cut(), s[2].cut()} }

// inside says whether no tap of any output falls outside the input.
func (s space) inside() bool { return s[0].inside() && s[1].inside() && s[2].inside() }

// isCut says whether the axes are cut.
func (s space) isCut() bool { return s[0].isCut }

// count is the number of outputs of the largest phase.
func (s space) count() int { return s[0].count * s[1].count * s[2].count }

// outputs is the number of outputs of all phases.
func (s space) outputs() int { return s[0].out * s[1].out * s[2].out }

// taps is the number of weights of the window.
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

// cost is what a channel of so many images takes, in rows of the matrix kernel:
// a tile of few rows takes as long as one of leastRows, and full ones have so many.
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

// cutting returns the space, cut where that is less work for tiles of so many
// rows: where images are small, so that much of a window lies outside of them.
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

// window is a block of an activation with a zero halo around it where the taps
// reach outside, in a worker's scratch memory; without a halo it is the
// activation itself.
type window struct {
	in       tensor.Operand
	kernels  *kernel.Set
	d, h, w  axis
	channels int  // blocks of eight
	direct   bool // the activation itself: nothing is copied
	images   int  // of a block
	slices   int  // q slices of a block
	rows     int  // q rows of a block
	depth    int  // slices of inputs in a block
	height   int  // rows of inputs in a block
	width    int  // pixels of a row
	size     int  // floats of a channel block of an image
	plane    int  // floats from a channel block to the next
	image    int  // floats from an image to the next
}

// Sizes of a block, found by measurement on a processor with 32 KiB and 1 MiB
// of first and second level cache; they affect speed alone.
const (
	blockPixels  = 2048      // outputs of a phase; rows are added up to this number
	blockFloats  = 64 * 1024 // of the inputs with halo
	imagesPixels = 256       // whole images are joined up to this number of outputs
	cutPixels    = 512       // the same where the axes are cut
)

// newWindow chooses blocks for the images of in: some rows of one, some slices
// of one, or several small images whole. maxPixels bounds the number of outputs
// of a block.
//
// With gather, where images are joined, those of a channel block are laid next
// to each other in scratch memory: from image to image there often is a power of
// two of bytes, for which a cache has few places.
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

// scratch is the number of floats that a worker needs for a block.
func (v *window) scratch() int {
	if v.direct {
		return 0
	}
	return (v.images-1)*v.image + (v.channels-1)*v.plane + v.size
}

// blocks is the number of blocks of all images.
func (v *window) blocks() int { return tensor.CeilDiv(v.in.Shape[0], v.images) * v.slabs() * v.bands() }

// slabs is the number of blocks that an image's slices are cut in.
func (v *window) slabs() int { return tensor.CeilDiv(v.d.count, v.slices) }

// bands is the number of blocks that a slice's rows are cut in.
func (v *window) bands() int { return tensor.CeilDiv(v.h.count, v.rows) }

// whole says whether blocks are whole images.
func (v *window) whole() bool { return v.slabs() == 1 && v.bands() == 1 }

// part is a block's place: images [n0, n0+images), q slices [z0, z0+slices), q
// rows [q0, q0+rows).
type part struct{ n0, images, z0, slices, q0, rows int }

// part is block b.
func (v *window) part(b int) part {
	band, slab := b%v.bands(), b/v.bands()%v.slabs()
	n0, z0, q0 := b/(v.bands()*v.slabs())*v.images, slab*v.slices, band*v.rows
	return part{n0, min(v.images, v.in.Shape[0]-n0), z0, min(v.slices, v.d.count-z0), q0, min(v.rows, v.h.count-q0)}
}

// offset is where input (q·stepIn + shift) of slice, row and column lies in a
// block, in bytes.
func (v *window) offset(slice, row, col int) int {
	return (((slice-v.d.low)*v.height+row-v.h.low)*v.width + col - v.w.low) * lanes * 4
}

// load returns the block p of the input, an activation of all channels, from
// channel block c0 on for count of them: a view, or a copy with halo in scratch,
// normalised where the input is yet to be.
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

// loadSlice is load for the rows from top on of one slice of a channel block.
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

// move copies pixels, normalised where there are constants to do so.
func (v *window) move(to, from, norm []float32, pixels int) {
	if norm == nil {
		copy(to[:pixels*lanes], from)
	} else {
		v.kernels.Normalize(&from[0], &to[0], &norm[0], pixels)
	}
}
