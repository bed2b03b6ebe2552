package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// flatChannels is the greatest number of input channels for which a step of the
// matrix kernel is one channel, not eight. A first layer, or the gradient of a last
// one, then does not multiply seven channels of padding.
const flatChannels = 4

// weightBudget is the number of bytes of weights per pass over a block's pixels.
// Together with a row of inputs they fit into the first-level cache.
const weightBudget = 18 * 1024

// Direct computes a convolution (a cross-correlation) or a transposed convolution
// product by product, over two or three spatial dimensions.
type Direct struct {
	ws               *workspace.Workspace
	in, weights, out tensor.Operand
	bias             []float32 // nil if there is none
	transposed       bool      // the weights are [in,out,…], not [out,in,…]
	flat             bool      // a step of the matrix kernel is one channel, not eight
	packOnce         bool      // the weights are copied to a new layout once for all phases
	packedAt         int       // index in scratch memory of the copied weights, −1 if they are read in place
	window           window
	taps             int // number of weights of the window
	phases           []convPhase
	groups           int                   // number of groups of output channels
	statistics       *workspace.Statistics // of the output, nil if nobody needs them
}

// convPhase is the outputs that one phase of each axis selects.
type convPhase struct {
	first              int // index of the first output in its plane, in floats
	slices, rows, cols int
	taps               []tap3
	table              []int32 // rows of a full block, see kernel.TileTable
	steps              []int32 // steps of the matrix kernel, see kernel.GEMMFunc
	chunk              int     // number of steps per pass
}

// tap3 is a tap in three dimensions.
type tap3 struct{ slice, row, col, index int }

// NewDirect prepares the convolution of in with weights, written to out. bias may be
// nil. The axes of s determine whether it is a cross-correlation or its transpose;
// transposed says that the weights are [in,out,…].
func NewDirect(ws *workspace.Workspace, in, weights, out tensor.Operand, bias []float32, s space, transposed bool) *Direct {
	c := &Direct{ws: ws, in: in, weights: weights, out: out, bias: bias, transposed: transposed, flat: in.Shape[1] <= flatChannels, taps: s.taps()}
	set := &ws.Set.GEMM
	s = s.cutting(in, set.Rows)
	c.window = newWindow(ws.Set, in, s, blockPixels, !transposed)
	c.packOnce = (transposed || set.Joined) && !c.flat && s.isCut()
	scratch, chunk := c.window.scratch(), 0
	s.eachPhase(func(d, h, w axisPhase) {
		p := c.phase(d, h, w)
		chunk = max(chunk, p.chunk)
		c.phases = append(c.phases, p)
	})
	c.packedAt = -1
	switch {
	case c.packOnce:
		c.packedAt = scratch
		scratch += set.Blocks * tensor.Blocks(in.Shape[1]) * c.taps * lanes * lanes
	case c.flat || transposed || set.Joined:
		c.packedAt = scratch
		scratch += set.Blocks * chunk * c.depth() * lanes
	}
	ws.NeedScratch(scratch)
	parts := c.window.blocks()
	c.groups = 1
	if threads := ws.Threads; parts < 4*threads && parts%threads != 0 {
		c.groups = min(threads, tensor.CeilDiv(tensor.Blocks(out.Shape[1]), 2))
	}
	return c
}

// depth returns the number of channels per step.
func (c *Direct) depth() int {
	if c.flat {
		return 1
	}
	return lanes
}

// phase builds the tables for a phase of each axis.
func (c *Direct) phase(pd, ph, pw axisPhase) convPhase {
	v, set := &c.window, &c.ws.Set.GEMM
	rowOut := c.out.Space[2]
	sliceOut := c.out.Space[1] * rowOut
	p := convPhase{first: (pd.first*sliceOut + ph.first*rowOut + pw.first) * lanes, slices: pd.count, rows: ph.count, cols: pw.count}
	p.taps = combineTaps(pd.taps, ph.taps, pw.taps, c.weights.Space)
	if c.flat {
		for _, t := range p.taps {
			for k := range c.in.Shape[1] {
				p.steps = append(p.steps, int32(v.offset(t.slice, t.row, t.col)+4*k))
			}
		}
		p.chunk = max(1, len(p.steps))
	} else {
		const tile = lanes * lanes * 4 // bytes
		n := max(1, v.channels*len(p.taps))
		p.chunk = tensor.CeilDiv(n, tensor.CeilDiv(n, weightBudget/(set.Blocks*tile)))
		for k := range v.channels {
			for _, t := range p.taps {
				weights := (k*c.taps + t.index) * tile
				if (c.transposed || set.Joined) && !c.packOnce {
					weights = len(p.steps) / 2 % p.chunk * tile
				}
				p.steps = append(p.steps, int32(k*v.plane*4+v.offset(t.slice, t.row, t.col)), int32(weights))
			}
		}
	}
	slices, rows := min(v.slices, p.slices), min(v.rows, p.rows)
	outImage := tensor.Blocks(c.out.Shape[1]) * c.out.Plane()
	p.table = kernel.TileTable(v.images*slices*rows*p.cols, set.Rows, func(i int) (in, out int) {
		n, z, q, col := i/(slices*rows*p.cols), i/(rows*p.cols)%slices, i/p.cols%rows, i%p.cols
		in = n*v.image*4 + ((z*v.d.stepIn*v.height+q*v.h.stepIn)*v.width+col*v.w.stepIn)*lanes*4
		out = n*outImage*4 + (z*v.d.stepOut*sliceOut+q*v.h.stepOut*rowOut+col*v.w.stepOut)*lanes*4
		return in, out
	})
	return p
}

// combineTaps returns the taps of a window in three dimensions from those of its
// axes.
func combineTaps(d, h, w []tap, kernel [3]int) (list []tap3) {
	for _, a := range d {
		for _, b := range h {
			for _, c := range w {
				list = append(list, tap3{a.shift, b.shift, c.shift, (a.index*kernel[1]+b.index)*kernel[2] + c.index})
			}
		}
	}
	return list
}

// Tasks returns the task that computes the convolution. An item is a group of output
// channels of a block of pixels.
func (c *Direct) Tasks() []threads.Task {
	return []threads.Task{{Items: c.window.blocks() * c.groups, Run: c.run}}
}

// TakeStatistics makes the convolution take the statistics of its output while this
// is in the cache, with one part per block. It returns nil if it cannot, because a
// block's outputs are not adjacent.
func (c *Direct) TakeStatistics() *workspace.Statistics {
	if len(c.phases) != 1 && !c.window.whole() {
		return nil
	}
	c.statistics = &workspace.Statistics{Channels: tensor.Blocks(c.out.Shape[1])}
	for b := range c.window.blocks() {
		p := c.window.part(b)
		_, pixels := c.outputs(p)
		c.statistics.Pixels = append(c.statistics.Pixels, p.images*pixels)
	}
	c.ws.NeedStatistics(c.statistics.Size())
	return c.statistics
}

// outputs returns the first output of a block in a plane, and their number.
func (c *Direct) outputs(p part) (first, pixels int) {
	if c.window.whole() {
		return 0, c.out.Plane() / lanes
	}
	rows, cols := c.out.Space[1], c.out.Space[2]
	return (p.z0*rows + p.q0) * cols, p.slices * p.rows * cols
}

// measure takes the statistics of block b's output blocks [k0, k1), which have just
// been written and are in the cache.
func (c *Direct) measure(b int, p part, k0, k1 int) {
	at, pixels := c.outputs(p)
	for k := k0; k < k1; k++ {
		for i := range p.images {
			y, _ := c.out.Block(p.n0+i, k)
			y = y[at*lanes:]
			to := c.ws.Partial[c.statistics.At(b, k):]
			if i == 0 {
				to = c.statistics.Begin(c.ws.Partial, b, k, y)
			}
			c.ws.Set.Deviations(&y[0], pixels, &to[0])
		}
	}
}

// run computes items [lo, hi), an item being a group of output channels of a block.
func (c *Direct) run(w *threads.Worker, lo, hi int) {
	var x []float32
	var p part
	outC := tensor.Blocks(c.out.Shape[1])
	pairs := tensor.CeilDiv(outC, 2)
	for item, loaded := lo, -1; item < hi; item++ {
		b, g := item/c.groups, item%c.groups
		if b != loaded {
			p = c.window.part(b)
			x = c.window.load(w.Scratch, p, 0, c.window.channels)
			loaded = b
		}
		k0, k1 := g*pairs/c.groups*2, min(outC, (g+1)*pairs/c.groups*2)
		for k := k0; k < k1; {
			wide := c.ws.Set.GEMM.Wide(k1 - k)
			if c.packOnce {
				c.packAll(w.Scratch[c.packedAt:], k, wide)
			}
			for i := range c.phases {
				c.runPhase(w, &c.phases[i], x, p, k, wide)
			}
			k += wide
		}
		if c.statistics != nil {
			c.measure(b, p, k0, k1)
		}
	}
}

// runPhase computes output blocks [k, k+wide) of a phase in block p.
func (c *Direct) runPhase(w *threads.Worker, f *convPhase, x []float32, p part, k, wide int) {
	slices, rows := min(p.slices, f.slices-p.z0), min(p.rows, f.rows-p.q0)
	if rows <= 0 || slices <= 0 {
		return
	}
	plane, rowOut := c.out.Plane(), c.out.Space[2]
	set := &c.ws.Set.GEMM
	tiles, width := &set.Deep[wide], 2
	if c.flat {
		tiles, width = &set.Flat[wide], 1
	}
	y := c.out.Data[(p.n0*tensor.Blocks(c.out.Shape[1])+k)*plane+f.first+
		(p.z0*c.window.d.stepOut*c.out.Space[1]+p.q0*c.window.h.stepOut)*rowOut*lanes:]
	bias := c.ws.Zeros
	if c.bias != nil {
		bias = c.bias[k*lanes:]
	}
	all := len(f.steps) / width
	for s := 0; s == 0 || s < all; s += f.chunk {
		n := min(f.chunk, all-s)
		weights, next := c.chunk(w, f, k, wide, s, n)
		kernel.MultiplyRows(tiles, set.Rows, x, weights, y, bias, f.table, f.steps[s*width:], next*4, plane*4, n, p.images*slices*rows*f.cols, s > 0)
	}
}

// chunk returns the weights of steps [s, s+n) of a phase for output blocks
// [k, k+wide), and the parameter wNext of kernel.GEMMFunc in floats.
func (c *Direct) chunk(w *threads.Worker, f *convPhase, k, wide, s, n int) (weights []float32, next int) {
	all := c.window.channels * c.taps * lanes * lanes
	switch {
	case c.packedAt < 0:
		return c.weights.Data[k*all:], all
	case c.packOnce:
		return w.Scratch[c.packedAt:], all
	}
	next = n * c.depth() * lanes
	to := w.Scratch[c.packedAt:][:wide*next]
	from, step := c.packing(next, wide)
	for v := range min(wide, len(to)) { // a phase may have no steps
		if c.flat {
			c.packFlat(to[v*from:], f, k+v, step)
		} else {
			c.packSteps(to[v*from:], f, k+v, s, n, step)
		}
	}
	if c.flat && from == lanes {
		next = step
	}
	return to, next
}

// packing returns the layout of copied weights, for wide output blocks of next floats
// each: the distance of blocks, and the distance of a block's vectors, in floats.
func (c *Direct) packing(next, wide int) (from, step int) {
	if c.ws.Set.GEMM.Joined {
		return lanes, wide * lanes
	}
	return next, lanes
}

// packAll copies all weights for output blocks [k, k+wide).
func (c *Direct) packAll(to []float32, k, wide int) {
	all := c.window.channels * c.taps
	from, step := c.packing(all*lanes*lanes, wide)
	for v := range wide {
		for j := range c.window.channels {
			for t := range c.taps {
				c.packTile(to[v*from+(j*c.taps+t)*lanes*step:], j, k+v, t, step)
			}
		}
	}
}

// packSteps copies the weights of steps [s, s+n) for output block k.
func (c *Direct) packSteps(to []float32, f *convPhase, k, s, n, step int) {
	taps := max(1, len(f.taps))
	j, t := s/taps, s%taps
	for i := range n {
		c.packTile(to[i*lanes*step:], j, k, f.taps[t].index, step)
		if t++; t == taps {
			j, t = j+1, 0
		}
	}
}

// packTile copies the tile of 8×8 weights from input block j to output block k at a
// tap; the copy's vectors are step floats apart.
func (c *Direct) packTile(to []float32, j, k, tap, step int) {
	const tile = lanes * lanes
	if c.transposed {
		outer := tensor.Blocks(c.weights.Shape[1])
		c.ws.Set.Transpose(&to[0], &c.weights.Data[((j*outer+k)*c.taps+tap)*tile], step*4)
	} else {
		c.ws.Set.Spread(&to[0], &c.weights.Data[((k*c.window.channels+j)*c.taps+tap)*tile], step*4, lanes)
	}
}

// packFlat copies the weights of all steps for output block k, without the padding
// of the input channels.
func (c *Direct) packFlat(to []float32, f *convPhase, k, step int) {
	const tile = lanes * lanes
	channels := c.in.Shape[1]
	for t, tp := range f.taps {
		from := c.weights.Data[(k*c.taps+tp.index)*tile:][:tile]
		for j := range channels {
			dst := to[(t*channels+j)*step:][:lanes]
			if !c.transposed {
				copy(dst, from[j*lanes:])
				continue
			}
			for i := range dst {
				dst[i] = from[i*lanes+j]
			}
		}
	}
}

// SpaceOf returns the axes of a convolution from its large side (the input of a
// convolution) to its small side, or those of its transpose.
func SpaceOf(large, small, weights tensor.Operand, stride, pad [3]int, transposed bool) (s space) {
	for i := range s {
		l, m, k := large.Space[i], small.Space[i], weights.Space[i]
		if transposed {
			s[i] = scatterAxis(m, l, k, stride[i], pad[i])
		} else {
			s[i] = gatherAxis(l, m, k, stride[i], pad[i])
		}
	}
	return s
}
