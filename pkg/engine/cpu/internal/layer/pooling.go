package layer

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

func resolvePoolingGeometry(c Operation, x, y tensor.Operand) (window, stride, pad [3]int, err error) {
	window, ok1 := attributePerAxis(c.Attr.Kernel, x.Logical, 1, 1)
	stride, ok2 := attributePerAxis(c.Attr.Stride, x.Logical, 1, 1)
	ok3 := true
	if len(c.Attr.Pad) > 0 {
		pad, ok3 = attributePerAxis(c.Attr.Pad, x.Logical, 0, 0)
	}
	if !ok1 || !ok2 || !ok3 {
		return window, stride, pad, c.errorf("window is %v, stride is %v and pad is %v: want one number for each spatial dimension, windows and strides of at least 1 and pads of at least 0", c.Attr.Kernel, c.Attr.Stride, c.Attr.Pad)
	}
	fits := x.Layout == tensor.ActivationLayout && y.Layout == tensor.ActivationLayout && len(x.Logical) == len(y.Logical) && slices.Equal(x.Shape[:2], y.Shape[:2])
	for i := range window {
		full := x.Space[i] + 2*pad[i] - window[i]
		fits = fits && full >= 0 && pad[i] < window[i] && y.Space[i] == full/stride[i]+1
	}
	if !fits {
		return window, stride, pad, c.errorf("the shapes do not match window %v, stride %v and pad %v", c.Attr.Kernel, c.Attr.Stride, c.Attr.Pad)
	}
	return window, stride, pad, nil
}

func (x *Builder) buildMaxPool(c Operation) ([]threads.Task, error) {
	in, y := c.Inputs[0], c.Outputs[0]
	if c.Op == plan.OpMaxPoolBackward {
		y = c.Inputs[1]
	}
	window, stride, pad, err := resolvePoolingGeometry(c, in, y)
	if err != nil {
		return nil, err
	}
	if n := window[0] * window[1] * window[2]; n > 256 {
		return nil, c.errorf("the window has %d elements: this engine supports at most 256, because it stores the index of the maximum in one byte", n)
	}
	p := &maxPooling{ws: x.Workspace, in: in, y: y, window: window, stride: stride, pad: pad, index: c.Index}
	if !c.Attr.PadZeros {
		p.outside = float32(math.Inf(-1))
	}
	p.direct = window[0] == 1 && pad == [3]int{}
	if !p.direct {
		p.width = (y.Space[2]-1)*stride[2] + window[2]
		x.ReserveScratch(window[0]*window[1]*p.width*lanes + y.Space[2]*lanes)
	}
	rows := y.Space[0] * y.Space[1] // of a plane of y
	if c.Op == plan.OpMaxPool {
		return []threads.Task{{Items: p.planeCount() * rows, Run: func(w *threads.Worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				plane, row := i/rows, i%rows
				to, _ := y.ChannelBlock(plane/tensor.ChannelBlockCount(in.Shape[1]), plane%tensor.ChannelBlockCount(in.Shape[1]))
				p.computeMaxima(w, plane, row, to[row*y.Space[2]*lanes:])
			}
		}}}, nil
	}
	p.dy, p.dx = c.Inputs[2], c.Outputs[0]
	if !slices.Equal(p.dy.Logical, y.Logical) || !slices.Equal(p.dx.Logical, in.Logical) || p.dx.Layout != tensor.ActivationLayout {
		return nil, c.errorf("dy must have the shape of y, and dx that of x")
	}
	p.add = c.Fused
	run := threads.Task{Items: p.planeCount(), Run: func(w *threads.Worker, lo, hi int) {
		for plane := lo; plane < hi; plane++ {
			if p.direct {
				p.writeGradient(plane)
			} else {
				p.writeGradientInScratch(w, plane)
			}
		}
	}}
	if c.Indexed {
		return []threads.Task{run}, nil
	}
	// No earlier operation has found the maxima.
	at := 0
	if !p.direct {
		at = window[0] * window[1] * p.width * lanes
	}
	x.ReserveScratch(at + y.Space[2]*lanes)
	return []threads.Task{{Items: p.planeCount() * rows, Run: func(w *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			p.computeMaxima(w, i/rows, i%rows, w.Scratch[at:])
		}
	}}, run}, nil
}

type maxPooling struct {
	ws                  *workspace.Workspace
	in, y, dy, dx       tensor.Operand
	window, stride, pad [3]int
	outside             float32 // the value of padding
	direct              bool    // windows are read in place: they have a depth of 1 and no padding
	width               int     // pixels of a row of windows
	index               []byte  // see Operation.Index
	add                 bool    // the gradient is added to what dx holds
}

func (p *maxPooling) planeCount() int { return p.in.Shape[0] * tensor.ChannelBlockCount(p.in.Shape[1]) }

func (p *maxPooling) computeMaxima(w *threads.Worker, plane, row int, y []float32) {
	channels, inRow, cols := tensor.ChannelBlockCount(p.in.Shape[1]), p.in.Space[2]*lanes, p.y.Space[2]
	x, norm := p.in.ChannelBlock(plane/channels, plane%channels)
	index := &p.index[(plane*p.y.Space[0]*p.y.Space[1]+row)*cols*lanes]
	kh, kw, step := p.window[1], p.window[2], p.stride[2]*lanes*4
	if p.direct {
		if norm == nil {
			norm = p.ws.Identity
		}
		from := (row/p.y.Space[1]*p.stride[0]*p.in.Space[1] + row%p.y.Space[1]*p.stride[1]) * inRow
		p.ws.Set.MaxPool(&x[from], &y[0], &norm[0], index, cols, kh, kw, inRow*4, step)
		return
	}
	p.forEachInputRow(row, w.Scratch, func(band []float32, offset, first, pixels int) {
		for i := range band {
			band[i] = p.outside
		}
		if offset < 0 {
			return
		}
		to := band[first*lanes:]
		if norm == nil {
			copy(to[:pixels*lanes], x[offset:])
		} else {
			p.ws.Set.Normalize(&x[offset], &to[0], &norm[0], pixels)
		}
	})
	p.ws.Set.MaxPool(&w.Scratch[0], &y[0], &p.ws.Identity[0], index, cols, p.window[0]*kh, kw, p.width*lanes*4, step)
}

// forEachInputRow calls f for each row of inputs that the windows of an output row cover. band
// is the part of scratch for that input row. offset is the index of the row's first float in
// the input's plane, or −1 if the row is padding. Pixels [first, first+pixels) of band are for
// the pixels of the row; the others are padding.
func (p *maxPooling) forEachInputRow(row int, scratch []float32, f func(band []float32, offset, first, pixels int)) {
	d, h, w := p.in.Space[0], p.in.Space[1], p.in.Space[2]
	z0, y0 := row/p.y.Space[1]*p.stride[0]-p.pad[0], row%p.y.Space[1]*p.stride[1]-p.pad[1]
	pixels := min(w, p.width-p.pad[2])
	for i := range p.window[0] * p.window[1] {
		z, y := z0+i/p.window[1], y0+i%p.window[1]
		offset := (z*h + y) * w * lanes
		if z < 0 || z >= d || y < 0 || y >= h {
			offset = -1
		}
		f(scratch[i*p.width*lanes:][:p.width*lanes], offset, p.pad[2], pixels)
	}
}

// writeGradient computes a plane of dx if windows are read in place.
func (p *maxPooling) writeGradient(plane int) {
	channels, inRow, rows, cols := tensor.ChannelBlockCount(p.in.Shape[1]), p.in.Space[2]*lanes, p.y.Space[1], p.y.Space[2]
	dx, _ := p.dx.ChannelBlock(plane/channels, plane%channels)
	dy, _ := p.dy.ChannelBlock(plane/channels, plane%channels)
	height := p.in.Space[0] * p.in.Space[1]
	cleared := 0 // number of rows of dx that are cleared; each is cleared just before it is written
	if p.add {
		cleared = height
	}
	for r := range p.y.Space[0] * rows {
		from := r/rows*p.stride[0]*p.in.Space[1] + r%rows*p.stride[1]
		if end := min(height, from+p.window[1]); end > cleared {
			clear(dx[cleared*inRow : end*inRow])
			cleared = end
		}
		p.ws.Set.MaxPoolGrad(&p.index[(plane*p.y.Space[0]*rows+r)*cols*lanes], &dy[r*cols*lanes], &dx[from*inRow], cols, p.window[1], p.window[2], inRow*4, p.stride[2]*lanes*4)
	}
	clear(dx[cleared*inRow : height*inRow])
}

// writeGradientInScratch computes one plane of dx, for windows with three dimensions or
// padding. It computes each row of windows in scratch memory and adds it to dx.
func (p *maxPooling) writeGradientInScratch(w *threads.Worker, plane int) {
	channels, rows, cols := tensor.ChannelBlockCount(p.in.Shape[1]), p.y.Space[0]*p.y.Space[1], p.y.Space[2]
	dx, _ := p.dx.ChannelBlock(plane/channels, plane%channels)
	dy, _ := p.dy.ChannelBlock(plane/channels, plane%channels)
	if !p.add {
		clear(dx[:p.dx.PlaneFloats()])
	}
	height := p.window[0] * p.window[1]
	for r := range rows {
		clear(w.Scratch[:height*p.width*lanes])
		p.ws.Set.MaxPoolGrad(&p.index[(plane*rows+r)*cols*lanes], &dy[r*cols*lanes], &w.Scratch[0], cols, height, p.window[2], p.width*lanes*4, p.stride[2]*lanes*4)
		p.forEachInputRow(r, w.Scratch, func(band []float32, offset, first, pixels int) {
			if offset >= 0 {
				p.ws.Set.Add(&band[first*lanes], &dx[offset], &dx[offset], pixels*lanes)
			}
		})
	}
}
