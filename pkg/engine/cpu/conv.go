package cpu

// flatChannels is the greatest number of input channels for which steps are
// taken channel by channel, so that a first layer or the gradient of a head
// does not multiply seven channels of padding.
const flatChannels = 4

// weightBudget is the number of bytes of weights that a pass over a block's
// pixels uses again and again; with a row of inputs they fit the first-level
// cache.
const weightBudget = 18 * 1024

// convolution computes y = Σ taps of x with weights (+ bias): cross-correlations
// and their transposes alike, over two or three spatial dimensions.
type convolution struct {
	x                *executable
	in, weights, out operand
	bias             []float32 // nil without bias
	transposed       bool      // weights are [in,out,…], not [out,in,…]
	flat             bool      // a step is one channel, not eight
	once             bool      // a transposed one's weights are laid out anew for all phases at once
	packed           int       // float of a worker's scratch where weights are laid out anew, −1 where they serve as they are
	window           window
	taps             int // of the window
	phases           []convPhase
	groups           int    // parts that the output channels are cut in
	tally            *tally // of the output, nil where none is asked for
}

// convPhase is the outputs of one combination of the axes' phases.
type convPhase struct {
	first              int // float of the first output in its plane
	slices, rows, cols int
	taps               []tap3
	table              []int32 // rows of a full block, in tiles
	steps              []int32 // of gemmFunc
	chunk              int     // steps of one pass
}

// tap3 is a tap in three dimensions.
type tap3 struct{ slice, row, col, index int }

// newConvolution prepares the convolution of in with weights into out. bias may
// be nil. The axes say whether it is a cross-correlation or a transpose.
func newConvolution(x *executable, in, weights, out operand, bias []float32, s space, transposed bool) *convolution {
	c := &convolution{x: x, in: in, weights: weights, out: out, bias: bias, transposed: transposed, flat: in.Shape[1] <= flatChannels, taps: s.taps()}
	s = s.cutting(in)
	c.window = newWindow(x.engine.kernels, in, s, blockPixels, !transposed)
	c.once = transposed && !c.flat && s.isCut()
	scratch, chunk := c.window.scratch(), 0
	s.eachPhase(func(d, h, w axisPhase) {
		p := c.phase(d, h, w)
		chunk = max(chunk, p.chunk)
		c.phases = append(c.phases, p)
	})
	c.packed = -1
	switch {
	case c.once:
		c.packed = scratch
		scratch += 2 * blocks(in.Shape[1]) * c.taps * lanes * lanes
	case c.flat || transposed:
		c.packed = scratch
		scratch += 2 * chunk * c.depth() * lanes
	}
	x.needScratch(scratch)
	parts := c.window.blocks()
	c.groups = 1
	if threads := x.engine.pool.threads; parts < 4*threads && parts%threads != 0 {
		c.groups = min(threads, ceilDiv(blocks(out.Shape[1]), 2))
	}
	return c
}

// depth is the number of channels of a step.
func (c *convolution) depth() int {
	if c.flat {
		return 1
	}
	return lanes
}

// phase builds the tables of one phase.
func (c *convolution) phase(pd, ph, pw axisPhase) convPhase {
	v := &c.window
	rowOut := c.out.space[2]
	sliceOut := c.out.space[1] * rowOut
	p := convPhase{first: (pd.first*sliceOut + ph.first*rowOut + pw.first) * lanes, slices: pd.count, rows: ph.count, cols: pw.count}
	p.taps = joinTaps(pd.taps, ph.taps, pw.taps, c.weights.space)
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
		p.chunk = ceilDiv(n, ceilDiv(n, weightBudget/(2*tile)))
		for k := range v.channels {
			for _, t := range p.taps {
				weights := (k*c.taps + t.index) * tile
				if c.transposed && !c.once {
					weights = len(p.steps) / 2 % p.chunk * tile
				}
				p.steps = append(p.steps, int32(k*v.plane*4+v.offset(t.slice, t.row, t.col)), int32(weights))
			}
		}
	}
	slices, rows := min(v.slices, p.slices), min(v.rows, p.rows)
	outImage := blocks(c.out.Shape[1]) * c.out.plane()
	p.table = tileTable(v.images*slices*rows*p.cols, func(i int) (in, out int) {
		n, z, q, col := i/(slices*rows*p.cols), i/(rows*p.cols)%slices, i/p.cols%rows, i%p.cols
		in = n*v.image*4 + ((z*v.d.stepIn*v.height+q*v.h.stepIn)*v.width+col*v.w.stepIn)*lanes*4
		out = n*outImage*4 + (z*v.d.stepOut*sliceOut+q*v.h.stepOut*rowOut+col*v.w.stepOut)*lanes*4
		return in, out
	})
	return p
}

// joinTaps are the taps of a window of three dimensions.
func joinTaps(d, h, w []tap, kernel [3]int) (list []tap3) {
	for _, a := range d {
		for _, b := range h {
			for _, c := range w {
				list = append(list, tap3{a.shift, b.shift, c.shift, (a.index*kernel[1]+b.index)*kernel[2] + c.index})
			}
		}
	}
	return list
}

// tileTable lists the byte offsets of n rows in tiles, as gemmFunc reads them.
func tileTable(n int, at func(i int) (in, out int)) []int32 {
	table := make([]int32, ceilDiv(n, maxRows)*2*maxRows)
	for i := range n {
		in, out := at(i)
		tile := table[i/maxRows*2*maxRows:]
		tile[i%maxRows], tile[maxRows+i%maxRows] = int32(in), int32(out)
	}
	return table
}

// tasks are the convolution's parts: blocks of pixels by groups of output channels.
func (c *convolution) tasks() []task {
	return []task{{c.window.blocks() * c.groups, c.run}}
}

// takeTally asks for the statistics of the output, a part of which is a block.
// Where a block's outputs are not next to each other there are none.
func (c *convolution) takeTally() *tally {
	if len(c.phases) != 1 && !c.window.whole() {
		return nil
	}
	c.tally = &tally{channels: blocks(c.out.Shape[1])}
	for b := range c.window.blocks() {
		p := c.window.part(b)
		_, pixels := c.outputs(p)
		c.tally.pixels = append(c.tally.pixels, p.images*pixels)
	}
	c.x.needTallies(c.tally.floats())
	return c.tally
}

// outputs are a block's outputs in a plane: the first, and how many.
func (c *convolution) outputs(p part) (first, pixels int) {
	if c.window.whole() {
		return 0, c.out.plane() / lanes
	}
	rows, cols := c.out.space[1], c.out.space[2]
	return (p.z0*rows + p.q0) * cols, p.slices * p.rows * cols
}

// count takes the statistics of block b's output blocks [k0, k1), which have
// just been written and are in the cache.
func (c *convolution) count(b int, p part, k0, k1 int) {
	at, pixels := c.outputs(p)
	for k := k0; k < k1; k++ {
		for i := range p.images {
			y, _ := c.out.block(p.n0+i, k)
			y = y[at*lanes:]
			to := c.x.tallies[c.tally.at(b, k):]
			if i == 0 {
				to = c.tally.begin(c.x.tallies, b, k, y)
			}
			c.x.engine.kernels.deviations(&y[0], pixels, &to[0])
		}
	}
}

// run computes items [lo, hi), an item being a group of output channels of a block.
func (c *convolution) run(w *worker, lo, hi int) {
	var x []float32
	var p part
	outC := blocks(c.out.Shape[1])
	pairs := ceilDiv(outC, 2)
	for item, loaded := lo, -1; item < hi; item++ {
		b, g := item/c.groups, item%c.groups
		if b != loaded {
			p = c.window.part(b)
			x = c.window.load(w.scratch, p, 0, c.window.channels)
			loaded = b
		}
		k0, k1 := g*pairs/c.groups*2, min(outC, (g+1)*pairs/c.groups*2)
		for k := k0; k < k1; k += 2 {
			vectors := min(2, k1-k)
			if c.once {
				c.packAll(w.scratch[c.packed:], k, vectors)
			}
			for i := range c.phases {
				c.runPhase(w, &c.phases[i], x, p, k, vectors)
			}
		}
		if c.tally != nil {
			c.count(b, p, k0, k1)
		}
	}
}

// runPhase computes output blocks k to k+vectors−1 of a phase in block p.
func (c *convolution) runPhase(w *worker, f *convPhase, x []float32, p part, k, vectors int) {
	slices, rows := min(p.slices, f.slices-p.z0), min(p.rows, f.rows-p.q0)
	if rows <= 0 || slices <= 0 {
		return
	}
	plane, rowOut := c.out.plane(), c.out.space[2]
	set, width := &c.x.engine.kernels.gemm.deep, 2
	if c.flat {
		set, width = &c.x.engine.kernels.gemm.flat, 1
	}
	y := c.out.data[(p.n0*blocks(c.out.Shape[1])+k)*plane+f.first+
		(p.z0*c.window.d.stepOut*c.out.space[1]+p.q0*c.window.h.stepOut)*rowOut*lanes:]
	bias := c.x.zeros
	if c.bias != nil {
		bias = c.bias[k*lanes:]
	}
	all := len(f.steps) / width
	for s := 0; s == 0 || s < all; s += f.chunk {
		n := min(f.chunk, all-s)
		weights, next := c.chunk(w, f, k, vectors, s, n)
		gemmRows(set[vectors][:], x, weights, y, bias, f.table, f.steps[s*width:], next*4, plane*4, n, p.images*slices*rows*f.cols, s > 0)
	}
}

// gemmRows calls the matrix kernel for the first n rows of a table.
func gemmRows(set []gemmFunc, x, w, y, bias []float32, table, steps []int32, wNext, yNext, nstep, n int, accumulate bool) {
	if tiles := n / maxRows; tiles > 0 {
		set[maxRows](first(x), first(w), first(y), first(bias), first(table), first(steps), wNext, yNext, nstep, tiles, accumulate)
	}
	if rest := n % maxRows; rest > 0 {
		set[rest](first(x), first(w), first(y), first(bias), &table[n/maxRows*2*maxRows], first(steps), wNext, yNext, nstep, 1, accumulate)
	}
}

// first is the address of s[0], nil where s is empty.
func first[T any](s []T) *T {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}

// chunk returns the weights of steps [s, s+n) of a phase for output blocks k to
// k+vectors−1, and the number of floats from one of these blocks to the next.
func (c *convolution) chunk(w *worker, f *convPhase, k, vectors, s, n int) (weights []float32, next int) {
	all := c.window.channels * c.taps * lanes * lanes
	switch {
	case c.packed < 0:
		return c.weights.data[k*all:], all
	case c.once:
		return w.scratch[c.packed:], all
	}
	next = n * c.depth() * lanes
	for v := range vectors {
		to := w.scratch[c.packed+v*next:][:next]
		if c.flat {
			c.packFlat(to, f, k+v)
		} else {
			c.packTransposed(to, f, k+v, s)
		}
	}
	return w.scratch[c.packed:], next
}

// packAll lays out all weights for output blocks k to k+vectors−1.
func (c *convolution) packAll(to []float32, k, vectors int) {
	const tile = lanes * lanes
	outer := blocks(c.weights.Shape[1])
	transpose := c.x.engine.kernels.transpose
	for v := range vectors {
		for j := range c.window.channels {
			from := c.weights.data[(j*outer+k+v)*c.taps*tile:]
			for t := range c.taps {
				transpose(&to[((v*c.window.channels+j)*c.taps+t)*tile], &from[t*tile])
			}
		}
	}
}

// packTransposed lays out the steps from s on that fill to, for output block k.
func (c *convolution) packTransposed(to []float32, f *convPhase, k, s int) {
	const tile = lanes * lanes
	outer := blocks(c.weights.Shape[1])
	transpose := c.x.engine.kernels.transpose
	n := max(1, len(f.taps))
	j, t := s/n, s%n
	for at := 0; at < len(to); at += tile {
		transpose(&to[at], &c.weights.data[((j*outer+k)*c.taps+f.taps[t].index)*tile])
		if t++; t == n {
			j, t = j+1, 0
		}
	}
}

// packFlat lays out all steps for output block k, without the padding of the
// few input channels.
func (c *convolution) packFlat(to []float32, f *convPhase, k int) {
	const tile = lanes * lanes
	channels := c.in.Shape[1]
	for t, tp := range f.taps {
		from := c.weights.data[(k*c.taps+tp.index)*tile:][:tile]
		dst := to[t*channels*lanes:][:channels*lanes]
		if !c.transposed {
			copy(dst, from)
			continue
		}
		for i := range dst {
			dst[i] = from[i%lanes*lanes+i/lanes]
		}
	}
}

// spaceOf is the axes of a convolution from its large side to its small one
// (see convolve), or of its transpose.
func spaceOf(large, small, weights operand, stride, pad [3]int, transposed bool) (s space) {
	for i := range s {
		l, m, k := large.space[i], small.space[i], weights.space[i]
		if transposed {
			s[i] = scatterAxis(m, l, k, stride[i], pad[i])
		} else {
			s[i] = gatherAxis(l, m, k, stride[i], pad[i])
		}
	}
	return s
}
