package cpu

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

// pool prepares the maximum over windows, and its gradient.
func (x *executable) pool(c call) ([]task, error) {
	in, y := c.in[0], c.out[0]
	if c.Op == plan.OpMaxPoolBackward {
		y = c.in[1]
	}
	kh, kw, ok1 := pair(c.Attr.Kernel, 1)
	sh, sw, ok2 := pair(c.Attr.Stride, 1)
	if !ok1 || !ok2 {
		return nil, c.errorf("kernel is %v and stride %v: give two numbers of at least 1 each", c.Attr.Kernel, c.Attr.Stride)
	}
	s := in.Shape
	if in.layout != activationLayout || s[2] < kh || s[3] < kw ||
		!y.is(s[0], s[1], (s[2]-kh)/sh+1, (s[3]-kw)/sw+1) {
		return nil, c.errorf("the shapes do not fit together with kernel %v and stride %v", c.Attr.Kernel, c.Attr.Stride)
	}
	if len(c.Attr.Pad) > 0 {
		if ph, pw, ok := pair(c.Attr.Pad, 0); !ok || ph != 0 || pw != 0 {
			return nil, c.errorf("pad is %v: pooling takes no padding", c.Attr.Pad)
		}
	}
	if kh*kw > 256 {
		return nil, c.errorf("the window has %d elements: this engine takes at most 256, for it keeps which is the greatest in a byte", kh*kw)
	}
	p := pooling{x: x, in: in, y: y, kh: kh, kw: kw, sh: sh, sw: sw, index: x.index[x.pooling[c.at]]}
	if c.Op == plan.OpMaxPool {
		return []task{{p.planes() * y.Shape[2], func(_ *worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				plane, row := i/y.Shape[2], i%y.Shape[2]
				to, _ := y.block(plane/blocks(s[1]), plane%blocks(s[1]))
				p.maxima(plane, row, to[row*y.Shape[3]*lanes:])
			}
		}}}, nil
	}
	p.dy, p.dx = c.in[2], c.out[0]
	if !p.dy.is(y.Shape[0], y.Shape[1], y.Shape[2], y.Shape[3]) || !p.dx.is(s[0], s[1], s[2], s[3]) {
		return nil, c.errorf("dy must have the shape of y, and dx that of x")
	}
	p.add = x.inPlace[c.at]
	run := task{p.planes(), func(_ *worker, lo, hi int) {
		for plane := lo; plane < hi; plane++ {
			p.gradient(plane)
		}
	}}
	if x.pooling[c.at] != c.at {
		return []task{run}, nil
	}
	// No kernel of the program has found the maxima.
	x.needScratch(y.Shape[3] * lanes)
	return []task{{p.planes() * y.Shape[2], func(w *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			p.maxima(i/y.Shape[2], i%y.Shape[2], w.scratch)
		}
	}}, run}, nil
}

// pooling is a prepared maximum over windows, or its gradient.
type pooling struct {
	x              *executable
	in, y, dy, dx  operand
	kh, kw, sh, sw int
	index          []byte // which element of its window each maximum is
	add            bool   // dx holds something that the gradient is added to
}

// planes is the number of channel blocks of all images.
func (p *pooling) planes() int { return p.in.Shape[0] * blocks(p.in.Shape[1]) }

// maxima writes a row of maxima to y, and to the index.
func (p *pooling) maxima(plane, row int, y []float32) {
	channels, inRow, cols := blocks(p.in.Shape[1]), p.in.Shape[3]*lanes, p.y.Shape[3]
	x, norm := p.in.block(plane/channels, plane%channels)
	if norm == nil {
		norm = p.x.same
	}
	p.x.engine.kernels.maxPool(&x[row*p.sh*inRow], &y[0], &norm[0], &p.index[(plane*p.y.Shape[2]+row)*cols*lanes], cols, p.kh, p.kw, inRow*4, p.sw*lanes*4)
}

// gradient writes a plane of dx, or adds to it.
func (p *pooling) gradient(plane int) {
	channels, inRow, rows, cols := blocks(p.in.Shape[1]), p.in.Shape[3]*lanes, p.y.Shape[2], p.y.Shape[3]
	dx, _ := p.dx.block(plane/channels, plane%channels)
	dy, _ := p.dy.block(plane/channels, plane%channels)
	height, cleared := p.in.Shape[2], 0 // rows of dx, cleared just before they are written, while they are in the cache
	if p.add {
		cleared = height
	}
	for r := range rows {
		if end := min(height, r*p.sh+p.kh); end > cleared {
			clear(dx[cleared*inRow : end*inRow])
			cleared = end
		}
		p.x.engine.kernels.maxPoolGrad(&p.index[(plane*rows+r)*cols*lanes], &dy[r*cols*lanes], &dx[r*p.sh*inRow], cols, p.kh, p.kw, inRow*4, p.sw*lanes*4)
	}
	clear(dx[cleared*inRow : height*inRow])
}

// pairPools finds, for each gradient of a pooling, the pooling that computes
// the maxima, and with them the index that the gradient needs.
func (x *executable) pairPools() {
	kernels := x.program.Kernels
	x.pooling = make([]int, len(kernels))
	for at, k := range kernels {
		x.pooling[at] = at
		if k.Op != plan.OpMaxPoolBackward {
			continue
		}
		for i, f := range kernels[:at] {
			if f.Op == plan.OpMaxPool && f.In[0] == k.In[0] && f.Out[0] == k.In[1] &&
				slices.Equal(f.Attr.Kernel, k.Attr.Kernel) && slices.Equal(f.Attr.Stride, k.Attr.Stride) {
				x.pooling[at] = i
			}
		}
	}
}

// indexes lists the kernels that find maxima, and how long their indexes live.
func (x *executable) indexes() (kernels []int, lives []interval) {
	place := map[int]int{} // kernel → position in the lists
	for at, k := range x.program.Kernels {
		if k.Op != plan.OpMaxPool && k.Op != plan.OpMaxPoolBackward {
			continue
		}
		from := x.pooling[at]
		i, ok := place[from]
		if !ok {
			y := k.Out[0]
			if k.Op == plan.OpMaxPoolBackward {
				y = k.In[1]
			}
			i = len(kernels)
			place[from] = i
			size := x.layouts[y].size(x.program.Tensors[y].Shape) / 4 // bytes
			kernels, lives = append(kernels, at), append(lives, interval{size: roundUp(size, regionAlign), first: at})
		}
		lives[i].last = at
	}
	return kernels, lives
}
