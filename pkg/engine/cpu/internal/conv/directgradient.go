package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// maxBlockOutputs is the greatest number of outputs per block.
const maxBlockOutputs = 2048

// weightBytes is the greatest size of the gradients of a group of input channels.
// They stay in the second-level cache from block to block.
const weightBytes = 512 * 1024

// DirectGradient computes the gradient of a convolution's weights product by product,
//
//	dw[k,c,r,s] = Σ over n, i, j of dy[n,k,i,j] · x[n,c,i·stride−pad+r,j·stride−pad+s],
//
// and the same with three spatial dimensions. In the matrix kernel the weights (c,r,s)
// are the rows, the pixels are the steps, and dy takes the place of the weights.
type DirectGradient struct {
	ws        *workspace.Workspace
	dy, dw    tensor.Operand
	channels  int // of the input
	taps      int // of the window
	window    window
	flat      bool // there are few input channels: padding is no row of the matrix kernel
	dead      bool // some taps never reach the input: their gradient is zero
	classes   []weightClass
	group     int // channel blocks of a group
	groups    int
	parts     int // number of parts of a group's rows
	dyScratch int // index in scratch memory of a copy of dy, −1 if dy is read in place
	joinedAt  int // index in scratch memory of joined blocks of dy, see kernel.GEMM.Joined
}

// weightClass is the taps that are inside the input for the same outputs. If the
// axes are not cut, there is one class, and windows have a halo.
type weightClass struct {
	taps  []tap3
	box   [3]axisPhase // the outputs: count of them, beginning with first
	table []int32      // rows of a group of channel blocks, see kernel.TileTable
	steps []int32      // one step per output of a block
}

// NewDirectGradient prepares the gradient dw of a convolution from in to an
// output with gradient dy.
func NewDirectGradient(ws *workspace.Workspace, in, dy, dw tensor.Operand, s space) *DirectGradient {
	channels := tensor.Blocks(in.Shape[1])
	g := &DirectGradient{ws: ws, dy: dy, dw: dw, channels: in.Shape[1], taps: s.taps(), flat: in.Shape[1] <= flatChannels, dyScratch: -1}
	set := &ws.Set.GEMM
	axes := s.cutting(in, set.Rows)
	g.window = newWindow(ws.Set, in, axes, maxBlockOutputs, true)
	g.groups = 1
	units := g.units()
	threads, bytes := ws.Threads, 4*dw.Layout.Size(dw.Shape)
	large := g.window.blocks() > 1 && bytes > weightBytes // a block's sums do not stay in the cache
	for g.groups < channels && (g.groups*units%threads != 0 || large && bytes/g.groups > weightBytes) {
		g.groups++
	}
	g.group = tensor.CeilDiv(channels, g.groups)
	g.groups = tensor.CeilDiv(channels, g.group)
	g.classify(s, axes.isCut())
	if g.parts = 1; g.groups*units < threads {
		g.parts = max(1, min(tensor.CeilDiv(threads, g.groups*units), tensor.CeilDiv(g.rows(&g.classes[0], g.group), set.Rows)))
	}
	v := &g.window
	scratch := v.scratch()
	most := v.images * max(v.slices*v.rows*v.w.count, s.count()/(v.slabs()*v.bands())) * lanes // floats of a block of dy
	if v.images > 1 || !dy.Whole() || axes.isCut() {
		g.dyScratch = scratch
		scratch += set.Blocks * most
	}
	if set.Joined {
		g.joinedAt = tensor.RoundUp(scratch, tensor.RegionAlign)
		scratch = g.joinedAt + set.Blocks*most
	}
	ws.NeedScratch(scratch)
	for i := range g.classes {
		g.tabulate(&g.classes[i])
	}
	return g
}

// classify divides the taps into classes.
func (g *DirectGradient) classify(s space, cut bool) {
	var lists [3][]axisPhase
	for i, a := range s {
		p := a.phases[0]
		if !cut {
			lists[i] = []axisPhase{p}
			continue
		}
		for _, t := range p.taps {
			lo, hi := a.valid(p, t)
			at := 0
			for at < len(lists[i]) && (lists[i][at].first != lo || lists[i][at].count != hi-lo) {
				at++
			}
			if at == len(lists[i]) {
				lists[i] = append(lists[i], axisPhase{first: lo, count: hi - lo})
			}
			lists[i][at].taps = append(lists[i][at].taps, tap{t.shift + lo*a.stepIn, t.index})
		}
	}
	live := 0
	for _, d := range lists[0] {
		for _, h := range lists[1] {
			for _, w := range lists[2] {
				c := weightClass{box: [3]axisPhase{d, h, w}, taps: combineTaps(d.taps, h.taps, w.taps, g.dw.Space)}
				live += len(c.taps)
				g.classes = append(g.classes, c)
			}
		}
	}
	g.dead = live < g.taps
	if len(g.classes) == 0 { // no tap reaches the input
		g.classes = []weightClass{{}}
	}
}

// tabulate builds the tables of a class: for each weight the offsets of its first
// input and of its gradient, and for each output the offset of its input.
func (g *DirectGradient) tabulate(c *weightClass) {
	v, taps := &g.window, len(c.taps)
	perTap := lanes
	if g.flat {
		perTap = g.channels
	}
	c.table = kernel.TileTable(g.rows(c, g.group), g.ws.Set.GEMM.Rows, func(i int) (in, out int) {
		b, t, l := i/(taps*perTap), c.taps[i/perTap%taps], i%perTap
		return b*v.plane*4 + v.offset(t.slice, t.row, t.col) + 4*l, ((b*g.taps+t.index)*lanes + l) * lanes * 4
	})
	slices, rows, cols := g.clipped(c, v.slices, v.rows)
	c.steps = make([]int32, v.images*slices*rows*cols)
	for i := range c.steps {
		n, z, q, col := i/(slices*rows*cols), i/(rows*cols)%slices, i/cols%rows, i%cols
		c.steps[i] = int32(n*v.image*4 + ((z*v.d.stepIn*v.height+q*v.h.stepIn)*v.width+col*v.w.stepIn)*lanes*4)
	}
}

// clipped returns the depth, height and width of the outputs to which the weights of class c
// contribute, in a block of so many slices and rows.
func (g *DirectGradient) clipped(c *weightClass, slices, rows int) (d, h, w int) {
	if g.window.d.isCut { // blocks are whole images
		return c.box[0].count, c.box[1].count, c.box[2].count
	}
	return min(slices, c.box[0].count), min(rows, c.box[1].count), c.box[2].count
}

// rows returns the number of rows of the matrix kernel for a class and the given
// number of channel blocks.
func (g *DirectGradient) rows(c *weightClass, channels int) int {
	if g.flat {
		return len(c.taps) * g.channels
	}
	return channels * len(c.taps) * lanes
}

// Tasks returns the tasks that compute the gradient. An item is a part of the rows of
// a group of input channels, for one unit of output blocks.
func (g *DirectGradient) Tasks() []threads.Task {
	run := threads.Task{Items: g.groups * g.parts * g.units(), Run: g.run}
	if !g.cleared() {
		return []threads.Task{run}
	}
	// Rows of padding, and of taps that never reach the input, are not computed but
	// cleared.
	dw := g.dw.Data
	return []threads.Task{{Items: tensor.CeilDiv(len(dw), workspace.PieceFloats), Run: func(_ *threads.Worker, lo, hi int) {
		clear(dw[lo*workspace.PieceFloats : min(len(dw), hi*workspace.PieceFloats)])
	}}, run}
}

// cleared reports whether dw is cleared first and every block is added to it.
func (g *DirectGradient) cleared() bool { return g.flat || g.dead }

// units returns the number of units of output blocks. A unit is the greatest number
// of blocks that a tile of the matrix kernel computes.
func (g *DirectGradient) units() int {
	return tensor.CeilDiv(tensor.Blocks(g.dy.Shape[1]), g.ws.Set.GEMM.Blocks)
}

// run computes the work items [lo, hi). An item is a group of output blocks within one part
// of the batch.
func (g *DirectGradient) run(w *threads.Worker, lo, hi int) {
	units := g.units()
	for item := lo; item < hi; {
		part := item / units
		end := min(hi, (part+1)*units)
		g.runPart(w, part/g.parts, part%g.parts, item%units, end-part*units)
		item = end
	}
}

// runPart computes units [from, to) of output blocks for a part of the rows of a
// group of input channels. It proceeds block by block, so that a block's inputs and
// gradients are read while they are in the cache.
func (g *DirectGradient) runPart(w *threads.Worker, group, part, from, to int) {
	v, set := &g.window, &g.ws.Set.GEMM
	kBlocks := tensor.Blocks(g.dy.Shape[1])
	perChannel := g.taps * lanes * lanes // floats of a channel block's weights
	perBlock := v.channels * perChannel
	c0 := group * g.group
	count := min(g.group, v.channels-c0)
	for b := range v.blocks() {
		p := v.part(b)
		x := v.load(w.Scratch, p, c0, count)
		for k := from * set.Blocks; k < min(to*set.Blocks, kBlocks); {
			wide := set.Wide(kBlocks - k)
			dw := g.dw.Data[k*perBlock+c0*perChannel:]
			for i := range g.classes {
				c := &g.classes[i]
				tiles := tensor.CeilDiv(g.rows(c, count), set.Rows)
				first, last := part*tiles/g.parts, (part+1)*tiles/g.parts
				if rows := min(last*set.Rows, g.rows(c, count)) - first*set.Rows; rows > 0 {
					dy, next, n := g.gradients(w, c, p, k, wide)
					kernel.MultiplyRows(&set.Flat[wide], set.Rows, x, dy, dw, g.ws.Zeros, c.table[first*2*set.Rows:], c.steps, next*4, perBlock*4, n, rows, b > 0 || g.cleared())
				}
			}
			k += wide
		}
	}
}

// gradients returns dy of a class's outputs in block p for output blocks [k, k+wide),
// pixel after pixel, the parameter wNext of kernel.GEMMFunc in floats, and the number
// of pixels.
func (g *DirectGradient) gradients(w *threads.Worker, c *weightClass, p part, k, wide int) (dy []float32, next, pixels int) {
	dy, next, pixels = g.blockGradients(w, c, p, k, wide)
	switch {
	case !g.ws.Set.GEMM.Joined:
		return dy, next, pixels
	case wide == 1:
		return dy, lanes, pixels
	}
	to := w.Scratch[g.joinedAt:]
	for b := range wide {
		g.ws.Set.Spread(&to[b*lanes], &dy[b*next], wide*lanes*4, pixels)
	}
	return to, wide * lanes, pixels
}

// blockGradients returns dy of a class's outputs in block p for output blocks
// [k, k+wide), pixel after pixel, the distance of output blocks in floats, and the
// number of pixels.
func (g *DirectGradient) blockGradients(w *threads.Worker, c *weightClass, p part, k, wide int) (dy []float32, next, pixels int) {
	rows, cols := g.dy.Space[1], g.dy.Space[2]
	at := ((p.z0+c.box[0].first)*rows+p.q0+c.box[1].first)*cols + c.box[2].first
	// The outputs in a plane are runs of adjacent pixels.
	slices, height, run := g.clipped(c, p.slices, p.rows)
	if run == cols {
		run, height = run*height, 1
		if run == rows*cols {
			run, slices = run*slices, 1
		}
	}
	pixels = p.images * slices * height * run
	if g.dyScratch < 0 {
		dy, _ = g.dy.Block(p.n0, k)
		return dy[at*lanes:], g.dy.Plane(), pixels
	}
	dy = w.Scratch[g.dyScratch:]
	to := dy
	for j := range wide {
		for i := range p.images {
			from, norm := g.dy.Block(p.n0+i, k+j)
			for z := range slices {
				for r := range height {
					g.window.move(to, from[(at+(z*rows+r)*cols)*lanes:], norm, run)
					to = to[run*lanes:]
				}
			}
		}
	}
	return dy, pixels * lanes, pixels
}
