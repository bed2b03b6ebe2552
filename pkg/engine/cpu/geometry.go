package cpu

// axis describes a convolution along one spatial dimension as a sum over taps.
// Outputs fall into phases: output first + q·stepOut, 0 ≤ q < count, of a phase
// is the sum over the phase's taps of weight[index] · input[q·stepIn + shift],
// with zeros where that is outside the input.
//
// A cross-correlation has one phase. Its transpose (backward data, transposed
// convolution) with stride s has s of them, each with the taps that reach it,
// so that no work is spent on the zeros between strides.
type axis struct {
	in, out         int // lengths
	stepIn, stepOut int
	phases          []axisPhase
	low, high       int // least and greatest shift of any tap
	count           int // greatest count of any phase
}

type axisPhase struct {
	first, count int
	taps         []tap
}

// tap is one weight along a dimension.
type tap struct{ shift, index int }

// gatherAxis is a cross-correlation: output o takes input o·stride − pad + r.
func gatherAxis(in, out, kernel, stride, pad int) axis {
	p := axisPhase{count: out}
	for r := range kernel {
		p.taps = append(p.taps, tap{r - pad, r})
	}
	return axis{in: in, out: out, stepIn: stride, stepOut: 1, phases: []axisPhase{p}}.bounded()
}

// scatterAxis is the transpose of a cross-correlation: input i goes to output
// i·stride − pad + r, which is to say that output o takes input (o + pad − r)/stride
// for those r that leave no remainder.
func scatterAxis(in, out, kernel, stride, pad int) axis {
	a := axis{in: in, out: out, stepIn: 1, stepOut: stride}
	for f := range min(stride, out) {
		p := axisPhase{first: f, count: ceilDiv(out-f, stride)}
		for r := range kernel {
			if d := f + pad - r; d%stride == 0 {
				p.taps = append(p.taps, tap{d / stride, r})
			}
		}
		a.phases = append(a.phases, p)
	}
	return a.bounded()
}

// bounded fills in what follows from the phases.
func (a axis) bounded() axis {
	first := true
	for _, p := range a.phases {
		a.count = max(a.count, p.count)
		for _, t := range p.taps {
			if first {
				a.low, a.high, first = t.shift, t.shift, false
			}
			a.low, a.high = min(a.low, t.shift), max(a.high, t.shift)
		}
	}
	return a
}

// inside says whether no tap of any output falls outside the input.
func (a axis) inside() bool {
	return a.low >= 0 && (a.count-1)*a.stepIn+a.high < a.in
}

// extent is the number of inputs that count successive q of every phase reach.
func (a axis) extent(count int) int {
	return (count-1)*a.stepIn + a.high - a.low + 1
}

// window is a block of an activation with a zero halo around it where the taps
// reach outside, in a worker's scratch memory; without a halo it is the
// activation itself.
type window struct {
	in       operand
	kernels  *kernels
	h, w     axis
	channels int  // blocks of eight
	direct   bool // the activation itself: nothing is copied
	images   int  // of a block
	rows     int  // q rows of a block
	height   int  // rows of inputs in a block
	width    int  // pixels of a row
	plane    int  // floats of a channel block
	image    int  // floats of an image
}

// Sizes of a block, found by measurement on a processor with 32 KiB and 1 MiB
// of first and second level cache; they affect speed alone.
const (
	blockPixels  = 2048      // outputs of a phase; rows are added up to this number
	blockFloats  = 64 * 1024 // of the inputs with halo
	imagesPixels = 256       // whole images are joined up to this number of outputs
)

// newWindow chooses blocks for the images of in: some rows of one, or several
// small images whole. maxPixels bounds the number of outputs of a block.
func newWindow(k *kernels, in operand, h, w axis, maxPixels int) window {
	n, channels := in.Shape[0], blocks(in.Shape[1])
	v := window{in: in, kernels: k, h: h, w: w, channels: channels, direct: h.inside() && w.inside() && in.whole(), images: 1, rows: 1}
	v.width = w.extent(w.count)
	for v.rows < h.count && (v.rows+1)*w.count <= maxPixels &&
		channels*h.extent(v.rows+1)*v.width*lanes <= blockFloats {
		v.rows++
	}
	if v.rows == h.count {
		one := channels * h.extent(v.rows) * v.width * lanes
		for v.images < n && (v.images+1)*v.rows*w.count <= min(maxPixels, imagesPixels) && (v.images+1)*one <= 4*blockFloats {
			v.images++
		}
	}
	// Blocks of equal height keep the workers equally busy.
	v.rows = ceilDiv(h.count, ceilDiv(h.count, v.rows))
	v.height = h.extent(v.rows)
	if v.direct {
		v.height, v.width = h.in, w.in
	}
	v.plane = v.height * v.width * lanes
	v.image = channels * v.plane
	if v.direct {
		v.image = in.pieces[0].image
	}
	return v
}

// scratch is the number of floats that a worker needs for a block.
func (v *window) scratch() int {
	if v.direct {
		return 0
	}
	return v.images * v.image
}

// blocks is the number of blocks of all images.
func (v *window) blocks() int { return ceilDiv(v.in.Shape[0], v.images) * v.bands() }

// bands is the number of blocks that an image's rows are cut in.
func (v *window) bands() int { return ceilDiv(v.h.count, v.rows) }

// part is a block's place: images [n0, n0+images), q rows [q0, q0+rows).
type part struct{ n0, images, q0, rows int }

// part is block b.
func (v *window) part(b int) part {
	n0, q0 := b/v.bands()*v.images, b%v.bands()*v.rows
	return part{n0, min(v.images, v.in.Shape[0]-n0), q0, min(v.rows, v.h.count-q0)}
}

// offset is where input (q·stepIn + shift) of row and column lies in a block, in bytes.
func (v *window) offset(row, col int) int {
	return ((row-v.h.low)*v.width + col - v.w.low) * lanes * 4
}

// load returns the block p of the input, an activation of all channels, from
// channel block c0 on for count of them: a view, or a copy with halo in scratch,
// normalised where the input is yet to be.
func (v *window) load(scratch []float32, p part, c0, count int) []float32 {
	inRow := v.w.in * lanes
	top := p.q0*v.h.stepIn + v.h.low
	if v.direct {
		x, _ := v.in.block(p.n0, c0)
		return x[top*inRow+v.w.low*lanes:]
	}
	row := v.width * lanes
	// Input columns [from, to) fall inside a row of the window; the rest are zeros.
	from, to := max(0, v.w.low), min(v.w.in, v.w.low+v.width)
	left := (from - v.w.low) * lanes
	right := left + max(0, to-from)*lanes
	for i := range p.images {
		for c := range count {
			src, norm := v.in.block(p.n0+i, c0+c)
			dst := scratch[i*v.image+c*v.plane:][:v.plane]
			for r := range v.h.extent(p.rows) {
				d := dst[r*row:][:row]
				y := top + r
				if y < 0 || y >= v.h.in || from >= to {
					clear(d)
					continue
				}
				clear(d[:left])
				if norm == nil {
					copy(d[left:right], src[y*inRow+from*lanes:])
				} else {
					v.kernels.normalize(&src[y*inRow+from*lanes], &d[left], &norm[0], to-from)
				}
				clear(d[right:])
			}
		}
	}
	return scratch
}
