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
// and their transposes alike.
type convolution struct {
	x                *executable
	in, weights, out operand
	bias             []float32 // nil without bias
	transposed       bool      // weights are [in,out,r,s], not [out,in,r,s]
	flat             bool      // a step is one channel, not eight
	packed           int       // float of a worker's scratch where weights are laid out anew, −1 where they serve as they are
	window           window
	phases           []convPhase
	groups           int    // parts that the output channels are cut in
	tally            *tally // of the output, nil where none is asked for
}

// convPhase is the outputs of one pair of row and column phases.
type convPhase struct {
	first      int // float of the first output in its plane
	rows, cols int
	taps       []tap2
	table      []int32 // rows of a full block, in tiles
	steps      []int32
	chunk      int // steps of one pass
}

// tap2 is a tap in two dimensions.
type tap2 struct{ row, col, index int }

// newConvolution prepares the convolution of in with weights into out. bias may
// be nil. The axes say whether it is a cross-correlation or a transpose.
func newConvolution(x *executable, in, weights, out operand, bias []float32, h, w axis, transposed bool) *convolution {
	inC := in.Shape[1]
	c := &convolution{x: x, in: in, weights: weights, out: out, bias: bias, transposed: transposed, flat: inC <= flatChannels}
	c.window = newWindow(x.engine.kernels, in, h, w, blockPixels)
	scratch, chunk := c.window.scratch(), 0
	for _, ph := range h.phases {
		for _, pw := range w.phases {
			p := c.phase(ph, pw)
			chunk = max(chunk, p.chunk)
			c.phases = append(c.phases, p)
		}
	}
	c.packed = -1
	if c.flat || transposed {
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
func (c *convolution) phase(ph, pw axisPhase) convPhase {
	v := &c.window
	p := convPhase{first: (ph.first*c.out.Shape[3] + pw.first) * lanes, rows: ph.count, cols: pw.count}
	s := c.weights.Shape[3]
	for _, a := range ph.taps {
		for _, b := range pw.taps {
			p.taps = append(p.taps, tap2{a.shift, b.shift, a.index*s + b.index})
		}
	}
	if c.flat {
		for _, t := range p.taps {
			for k := range c.in.Shape[1] {
				p.steps = append(p.steps, int32(v.offset(t.row, t.col)+4*k))
			}
		}
		p.chunk = max(1, len(p.steps))
	} else {
		for k := range v.channels {
			for _, t := range p.taps {
				p.steps = append(p.steps, int32(k*v.plane*4+v.offset(t.row, t.col)))
			}
		}
		perChannel := max(1, len(p.taps))
		most := max(1, weightBudget/(perChannel*2*lanes*lanes*4))
		p.chunk = ceilDiv(v.channels, ceilDiv(v.channels, most)) * perChannel
	}
	rows := min(v.rows, p.rows)
	outImage := blocks(c.out.Shape[1]) * c.outPlane()
	p.table = tileTable(v.images*rows*p.cols, func(i int) (in, out int) {
		n, q, col := i/(rows*p.cols), i/p.cols%rows, i%p.cols
		in = n*v.image*4 + (q*v.h.stepIn*v.width+col*v.w.stepIn)*lanes*4
		out = n*outImage*4 + (q*v.h.stepOut*c.out.Shape[3]+col*v.w.stepOut)*lanes*4
		return in, out
	})
	return p
}

// outPlane is the number of floats of a channel block of the output.
func (c *convolution) outPlane() int { return c.out.Shape[2] * c.out.Shape[3] * lanes }

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
// Where outputs fall into phases there are none.
func (c *convolution) takeTally() *tally {
	if len(c.phases) != 1 {
		return nil
	}
	c.tally = &tally{channels: blocks(c.out.Shape[1])}
	for b := range c.window.blocks() {
		p := c.window.part(b)
		c.tally.pixels = append(c.tally.pixels, p.images*p.rows*c.out.Shape[3])
	}
	c.x.needTallies(c.tally.floats())
	return c.tally
}

// count takes the statistics of block b's output blocks [k0, k1), which have
// just been written and are in the cache.
func (c *convolution) count(b int, p part, k0, k1 int) {
	for k := k0; k < k1; k++ {
		for i := range p.images {
			y, _ := c.out.block(p.n0+i, k)
			y = y[p.q0*c.out.Shape[3]*lanes:]
			to := c.x.tallies[c.tally.at(b, k):]
			if i == 0 {
				to = c.tally.begin(c.x.tallies, b, k, y)
			}
			c.x.engine.kernels.deviations(&y[0], p.rows*c.out.Shape[3], &to[0])
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
		for i := range c.phases {
			c.runPhase(w, &c.phases[i], x, p, k0, k1)
		}
		if c.tally != nil {
			c.count(b, p, k0, k1)
		}
	}
}

// runPhase computes output blocks [k0, k1) of a phase in block p.
func (c *convolution) runPhase(w *worker, f *convPhase, x []float32, p part, k0, k1 int) {
	rows := min(p.rows, f.rows-p.q0)
	if rows <= 0 {
		return
	}
	kBlocks := blocks(c.out.Shape[1])
	outPlane := c.outPlane()
	set := &c.x.engine.kernels.gemm.deep
	if c.flat {
		set = &c.x.engine.kernels.gemm.flat
	}
	pixels := p.images * rows * f.cols
	y0 := p.n0*kBlocks*outPlane + f.first + p.q0*c.window.h.stepOut*c.out.Shape[3]*lanes
	for k := k0; k < min(k1, kBlocks); k += 2 {
		vectors, bias := min(2, kBlocks-k), c.x.zeros
		if c.bias != nil {
			bias = c.bias[k*lanes:]
		}
		for s := 0; s == 0 || s < len(f.steps); s += f.chunk {
			steps := f.steps[s:min(s+f.chunk, len(f.steps))]
			weights, next := c.chunk(w, f, k, vectors, s, len(steps))
			gemmRows(set[vectors][:], x, weights, c.out.data[y0+k*outPlane:],
				bias, f.table, steps, next*4, outPlane*4, pixels, s > 0)
		}
	}
}

// gemmRows calls the matrix kernel for the first n rows of a table.
func gemmRows(set []gemmFunc, x, w, y, bias []float32, table, steps []int32, wNext, yNext, n int, accumulate bool) {
	if tiles := n / maxRows; tiles > 0 {
		set[maxRows](first(x), first(w), first(y), first(bias), first(table), first(steps), wNext, yNext, len(steps), tiles, accumulate)
	}
	if rest := n % maxRows; rest > 0 {
		set[rest](first(x), first(w), first(y), first(bias), &table[n/maxRows*2*maxRows], first(steps), wNext, yNext, len(steps), 1, accumulate)
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
	if c.packed < 0 {
		next = len(f.steps) * lanes * lanes
		return c.weights.data[k*next+s*lanes*lanes:], next
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

// packTransposed lays out the steps from s on that fill to, for output block k.
func (c *convolution) packTransposed(to []float32, f *convPhase, k, s int) {
	const tile = lanes * lanes
	rs, outer := c.weights.Shape[2]*c.weights.Shape[3], blocks(c.weights.Shape[1])
	transpose := c.x.engine.kernels.transpose
	j, t := s/max(1, len(f.taps)), 0 // s begins a block of input channels
	for at := 0; at < len(to); at += tile {
		transpose(&to[at], &c.weights.data[((j*outer+k)*rs+f.taps[t].index)*tile])
		if t++; t == len(f.taps) {
			j, t = j+1, 0
		}
	}
}

// packFlat lays out all steps for output block k, without the padding of the
// few input channels.
func (c *convolution) packFlat(to []float32, f *convPhase, k int) {
	const tile = lanes * lanes
	rs, channels := c.weights.Shape[2]*c.weights.Shape[3], c.in.Shape[1]
	for t, tp := range f.taps {
		from := c.weights.data[(k*rs+tp.index)*tile:][:tile]
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
