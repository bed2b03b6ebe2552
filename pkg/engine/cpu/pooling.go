package cpu

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// poolAxes reads the attributes of a pooling of x to y, and checks the shapes.
func poolAxes(c call, x, y operand) (window, stride, pad [3]int, err error) {
	window, ok1 := triple(c.Attr.Kernel, x.logical, 1, 1)
	stride, ok2 := triple(c.Attr.Stride, x.logical, 1, 1)
	ok3 := true
	if len(c.Attr.Pad) > 0 {
		pad, ok3 = triple(c.Attr.Pad, x.logical, 0, 0)
	}
	if !ok1 || !ok2 || !ok3 {
		return window, stride, pad, c.errorf("kernel is %v, stride %v and pad %v: give a number for each spatial dimension, the first two at least 1, the last at least 0", c.Attr.Kernel, c.Attr.Stride, c.Attr.Pad)
	}
	fits := x.layout == activationLayout && y.layout == activationLayout && len(x.logical) == len(y.logical) && slices.Equal(x.Shape[:2], y.Shape[:2])
	for i := range window {
		full := x.space[i] + 2*pad[i] - window[i]
		fits = fits && full >= 0 && pad[i] < window[i] && y.space[i] == full/stride[i]+1
	}
	if !fits {
		return window, stride, pad, c.errorf("the shapes do not fit together with kernel %v, stride %v and pad %v", c.Attr.Kernel, c.Attr.Stride, c.Attr.Pad)
	}
	return window, stride, pad, nil
}

// maxPool prepares the maximum over windows, and its gradient.
func (x *builder) maxPool(c call) ([]task, error) {
	in, y := c.in[0], c.out[0]
	if c.Op == plan.OpMaxPoolBackward {
		y = c.in[1]
	}
	window, stride, pad, err := poolAxes(c, in, y)
	if err != nil {
		return nil, err
	}
	if n := window[0] * window[1] * window[2]; n > 256 {
		return nil, c.errorf("the window has %d elements: this engine takes at most 256, for it keeps which is the greatest in a byte", n)
	}
	p := &pooling{ws: x.workspace, in: in, y: y, window: window, stride: stride, pad: pad, index: c.index}
	if !c.Attr.PadZeros {
		p.outside = float32(math.Inf(-1))
	}
	p.direct = window[0] == 1 && pad == [3]int{}
	if !p.direct {
		p.width = (y.space[2]-1)*stride[2] + window[2]
		x.needScratch(window[0]*window[1]*p.width*kernel.Lanes + y.space[2]*kernel.Lanes)
	}
	rows := y.space[0] * y.space[1] // of a plane of y
	if c.Op == plan.OpMaxPool {
		return []task{{p.planes() * rows, func(w *worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				plane, row := i/rows, i%rows
				to, _ := y.block(plane/blocks(in.Shape[1]), plane%blocks(in.Shape[1]))
				p.maxima(w, plane, row, to[row*y.space[2]*kernel.Lanes:])
			}
		}}}, nil
	}
	p.dy, p.dx = c.in[2], c.out[0]
	if !slices.Equal(p.dy.logical, y.logical) || !slices.Equal(p.dx.logical, in.logical) || p.dx.layout != activationLayout {
		return nil, c.errorf("dy must have the shape of y, and dx that of x")
	}
	p.add = c.fused
	run := task{p.planes(), func(w *worker, lo, hi int) {
		for plane := lo; plane < hi; plane++ {
			if p.direct {
				p.gradient(plane)
			} else {
				p.spread(w, plane)
			}
		}
	}}
	if c.indexed {
		return []task{run}, nil
	}
	// No kernel of the program has found the maxima.
	at := 0
	if !p.direct {
		at = window[0] * window[1] * p.width * kernel.Lanes
	}
	x.needScratch(at + y.space[2]*kernel.Lanes)
	return []task{{p.planes() * rows, func(w *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			p.maxima(w, i/rows, i%rows, w.scratch[at:])
		}
	}}, run}, nil
}

// pooling is a prepared maximum over windows, or its gradient.
type pooling struct {
	ws                  *workspace
	in, y, dy, dx       operand
	window, stride, pad [3]int
	outside             float32 // what stands in the padding
	direct              bool    // windows are read where they lie: they are flat, and reach nowhere outside
	width               int     // pixels of a row of windows
	index               []byte  // which element of its window each maximum is
	add                 bool    // dx holds something that the gradient is added to
}

// planes is the number of channel blocks of all images.
func (p *pooling) planes() int { return p.in.Shape[0] * blocks(p.in.Shape[1]) }

// maxima writes a row of maxima to y, and to the index.
func (p *pooling) maxima(w *worker, plane, row int, y []float32) {
	channels, inRow, cols := blocks(p.in.Shape[1]), p.in.space[2]*kernel.Lanes, p.y.space[2]
	x, norm := p.in.block(plane/channels, plane%channels)
	index := &p.index[(plane*p.y.space[0]*p.y.space[1]+row)*cols*kernel.Lanes]
	kh, kw, step := p.window[1], p.window[2], p.stride[2]*kernel.Lanes*4
	if p.direct {
		if norm == nil {
			norm = p.ws.same
		}
		from := (row/p.y.space[1]*p.stride[0]*p.in.space[1] + row%p.y.space[1]*p.stride[1]) * inRow
		p.ws.set.MaxPool(&x[from], &y[0], &norm[0], index, cols, kh, kw, inRow*4, step)
		return
	}
	p.eachRow(row, w.scratch, func(band []float32, at, first, pixels int) {
		for i := range band {
			band[i] = p.outside
		}
		if at < 0 {
			return
		}
		to := band[first*kernel.Lanes:]
		if norm == nil {
			copy(to[:pixels*kernel.Lanes], x[at:])
		} else {
			p.ws.set.Normalize(&x[at], &to[0], &norm[0], pixels)
		}
	})
	p.ws.set.MaxPool(&w.scratch[0], &y[0], &p.ws.same[0], index, cols, p.window[0]*kh, kw, p.width*kernel.Lanes*4, step)
}

// eachRow calls f for each row of the windows of a row of outputs: its place in
// scratch, and of the input that it covers the first float (−1 where it is
// padding alone), where in the row that begins, and its pixels.
func (p *pooling) eachRow(row int, scratch []float32, f func(band []float32, at, first, pixels int)) {
	d, h, w := p.in.space[0], p.in.space[1], p.in.space[2]
	z0, y0 := row/p.y.space[1]*p.stride[0]-p.pad[0], row%p.y.space[1]*p.stride[1]-p.pad[1]
	pixels := min(w, p.width-p.pad[2])
	for i := range p.window[0] * p.window[1] {
		z, y := z0+i/p.window[1], y0+i%p.window[1]
		at := (z*h + y) * w * kernel.Lanes
		if z < 0 || z >= d || y < 0 || y >= h {
			at = -1
		}
		f(scratch[i*p.width*kernel.Lanes:][:p.width*kernel.Lanes], at, p.pad[2], pixels)
	}
}

// gradient writes a plane of dx, or adds to it.
func (p *pooling) gradient(plane int) {
	channels, inRow, rows, cols := blocks(p.in.Shape[1]), p.in.space[2]*kernel.Lanes, p.y.space[1], p.y.space[2]
	dx, _ := p.dx.block(plane/channels, plane%channels)
	dy, _ := p.dy.block(plane/channels, plane%channels)
	height := p.in.space[0] * p.in.space[1]
	cleared := 0 // rows of dx, cleared just before they are written, while they are in the cache
	if p.add {
		cleared = height
	}
	for r := range p.y.space[0] * rows {
		from := r/rows*p.stride[0]*p.in.space[1] + r%rows*p.stride[1]
		if end := min(height, from+p.window[1]); end > cleared {
			clear(dx[cleared*inRow : end*inRow])
			cleared = end
		}
		p.ws.set.MaxPoolGrad(&p.index[(plane*p.y.space[0]*rows+r)*cols*kernel.Lanes], &dy[r*cols*kernel.Lanes], &dx[from*inRow], cols, p.window[1], p.window[2], inRow*4, p.stride[2]*kernel.Lanes*4)
	}
	clear(dx[cleared*inRow : height*inRow])
}

// spread is gradient for windows of three dimensions or with padding: a row of
// windows is taken apart in scratch memory.
func (p *pooling) spread(w *worker, plane int) {
	channels, rows, cols := blocks(p.in.Shape[1]), p.y.space[0]*p.y.space[1], p.y.space[2]
	dx, _ := p.dx.block(plane/channels, plane%channels)
	dy, _ := p.dy.block(plane/channels, plane%channels)
	if !p.add {
		clear(dx[:p.dx.plane()])
	}
	height := p.window[0] * p.window[1]
	for r := range rows {
		clear(w.scratch[:height*p.width*kernel.Lanes])
		p.ws.set.MaxPoolGrad(&p.index[(plane*rows+r)*cols*kernel.Lanes], &dy[r*cols*kernel.Lanes], &w.scratch[0], cols, height, p.window[2], p.width*kernel.Lanes*4, p.stride[2]*kernel.Lanes*4)
		p.eachRow(r, w.scratch, func(band []float32, at, first, pixels int) {
			if at >= 0 {
				p.ws.set.Add(&band[first*kernel.Lanes], &dx[at], &dx[at], pixels*kernel.Lanes)
			}
		})
	}
}
