package cpu

// weightPixels bounds the outputs whose products are summed in one pass.
const weightPixels = 2048

// weightBytes bounds the gradients of a group of input channels, so that they
// stay in the second-level cache from block to block.
const weightBytes = 512 * 1024

// weightGradient computes dw[k,c,r,s] = Σ over n, i, j of dy[n,k,i,j] ·
// x[n,c,i·stride−pad+r,j·stride−pad+s]. To the matrix kernel the weights' (c,r,s)
// are the rows, the pixels the steps, and dy the weights.
type weightGradient struct {
	x         *executable
	dy, dw    operand
	channels  int // of the input
	window    window
	flat      bool    // few input channels: only the real ones are rows
	table     []int32 // rows of a group of channel blocks, in tiles
	steps     []int32 // pixels of a block
	group     int     // channel blocks of a group
	groups    int
	parts     int // that a group's rows are cut in
	dyScratch int // where a worker's copy of dy begins, −1 when dy is read in place
}

// newWeightGradient prepares the gradient dw of a convolution from in to an
// output with gradient dy.
func newWeightGradient(x *executable, in, dy, dw operand, h, w axis) *weightGradient {
	channels := blocks(in.Shape[1])
	g := &weightGradient{x: x, dy: dy, dw: dw, channels: in.Shape[1], flat: in.Shape[1] <= flatChannels, dyScratch: -1}
	g.window = newWindow(x.engine.kernels, in, h, w, weightPixels)
	g.groups = 1
	pairs := g.pairs()
	threads, bytes := x.engine.pool.threads, 4*dw.layout.size(dw.Shape)
	for g.groups < channels && (g.groups*pairs%threads != 0 || bytes/g.groups > weightBytes) {
		g.groups++
	}
	g.group = ceilDiv(channels, g.groups)
	g.groups = ceilDiv(channels, g.group)
	if g.parts = 1; g.groups*pairs < threads {
		g.parts = min(ceilDiv(threads, g.groups*pairs), ceilDiv(g.rows(g.group), maxRows))
	}
	v := &g.window
	scratch := v.scratch()
	if v.images > 1 || !dy.whole() {
		g.dyScratch = scratch
		scratch += 2 * v.images * v.rows * w.count * lanes
	}
	x.needScratch(scratch)
	rows, cols := v.rows, w.count
	g.steps = make([]int32, v.images*rows*cols)
	for i := range g.steps {
		n, q, col := i/(rows*cols), i/cols%rows, i%cols
		g.steps[i] = int32(n*v.image*4 + (q*h.stepIn*v.width+col*w.stepIn)*lanes*4)
	}
	g.table = g.rowTable()
	return g
}

// rows is the number of rows of so many channel blocks.
func (g *weightGradient) rows(channels int) int {
	rs := g.dw.Shape[2] * g.dw.Shape[3]
	if g.flat {
		return rs * g.channels
	}
	return channels * rs * lanes
}

// rowTable lists the rows of a group: where a weight's inputs begin in the
// window, and where its gradient lies.
func (g *weightGradient) rowTable() []int32 {
	v := &g.window
	s, rs, perTap := g.dw.Shape[3], g.dw.Shape[2]*g.dw.Shape[3], lanes
	if g.flat {
		perTap = g.channels
	}
	return tileTable(g.rows(g.group), func(i int) (in, out int) {
		c, t, l := i/(rs*perTap), i/perTap%rs, i%perTap
		return c*v.plane*4 + (t/s*v.width+t%s)*lanes*4 + 4*l, ((c*rs+t)*lanes + l) * lanes * 4
	})
}

// tasks are the gradient's parts: rows of a group of input channels, by pairs
// of output blocks.
func (g *weightGradient) tasks() []task {
	run := task{g.groups * g.parts * g.pairs(), g.run}
	if !g.flat {
		return []task{run}
	}
	// Rows of padding are not computed, so what they hold must be cleared.
	return []task{{1, func(*worker, int, int) { clear(g.dw.data) }}, run}
}

// pairs is the number of pairs of output blocks.
func (g *weightGradient) pairs() int { return ceilDiv(blocks(g.dy.Shape[1]), 2) }

// run computes items [lo, hi), an item being a pair of output blocks of a part.
func (g *weightGradient) run(w *worker, lo, hi int) {
	pairs := g.pairs()
	for item := lo; item < hi; {
		part := item / pairs
		end := min(hi, (part+1)*pairs)
		g.runPart(w, part/g.parts, part%g.parts, item%pairs, end-part*pairs)
		item = end
	}
}

// runPart computes pairs [from, to) of output blocks for a part of the rows of
// a group of input channels, block after block, so that a block's inputs and
// gradients are read while they are in the cache.
func (g *weightGradient) runPart(w *worker, group, part, from, to int) {
	v := &g.window
	kBlocks := blocks(g.dy.Shape[1])
	perChannel := g.dw.Shape[2] * g.dw.Shape[3] * lanes * lanes // floats of a pair of blocks' weights
	perBlock := v.channels * perChannel
	c0 := group * g.group
	count := min(g.group, v.channels-c0)
	tiles := ceilDiv(g.rows(count), maxRows)
	first, last := part*tiles/g.parts, (part+1)*tiles/g.parts
	rows := min(last*maxRows, g.rows(count)) - first*maxRows
	if rows <= 0 {
		return
	}
	for b := range v.blocks() {
		p := v.part(b)
		x := v.load(w.scratch, p, c0, count)
		steps := g.steps[:p.images*p.rows*v.w.count]
		for k := from * 2; k < min(to*2, kBlocks); k += 2 {
			dy, next := g.gradients(w, p, k)
			gemmRows(g.x.engine.kernels.gemm.flat[min(2, kBlocks-k)][:], x, dy, g.dw.data[k*perBlock+c0*perChannel:], g.x.zeros,
				g.table[first*2*maxRows:], steps, next*4, perBlock*4, rows, b > 0 || g.flat)
		}
	}
}

// gradients returns the block's dy of output blocks k and k+1, pixel after
// pixel, and the number of floats from the one to the other.
func (g *weightGradient) gradients(w *worker, p part, k int) (dy []float32, next int) {
	kBlocks, row := blocks(g.dy.Shape[1]), g.dy.Shape[3]*lanes
	if g.dyScratch < 0 {
		dy, _ = g.dy.block(p.n0, k)
		return dy[p.q0*row:], g.dy.plane()
	}
	size := p.rows * row
	next = p.images * size
	dy = w.scratch[g.dyScratch:]
	for j := range min(2, kBlocks-k) {
		for i := range p.images {
			from, norm := g.dy.block(p.n0+i, k+j)
			to := dy[j*next+i*size:][:size]
			if norm == nil {
				copy(to, from[p.q0*row:])
			} else {
				g.x.engine.kernels.normalize(&from[p.q0*row], &to[0], &norm[0], size/lanes)
			}
		}
	}
	return dy, next
}
