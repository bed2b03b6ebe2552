package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

const maxGradientBlockOutputs = 2048

// maxGradientBytesPerGroup is the greatest size of the weight gradients for a group of input channels.
// The gradients stay in the second-level cache while one block after another is added.
const maxGradientBytesPerGroup = 512 * 1024

// DirectGradient computes the gradient of a convolution's weights from its definition,
//
//	dw[k,c,r,s] = Σ over n, i, j of dy[n,k,i,j] · x[n,c,i·stride−pad+r,j·stride−pad+s],
//
// or its equivalent with three spatial dimensions. The rows of the matrix kernel are the
// weights (c,r,s), its steps are the pixels, and dy takes the place of the kernel's
// weights.
type DirectGradient struct {
	ws          *workspace.Workspace
	dy, dw      tensor.Operand
	channels    int // of the input
	taps        int // of the window
	blocks      inputBlocks
	flat        bool // there are few input channels: padding is no row of the matrix kernel
	hasDeadTaps bool // some taps never reach the input: their gradient is zero
	classes     []sameOutputTaps
	group       int // channel blocks of a group
	groups      int
	parts       int  // number of parts of a group's rows
	dyInPlace   bool // dy is read in place, unless its blocks must be interleaved
	dyScratch   int  // index in scratch memory of a copy of dy
	runScratch  int  // index in scratch memory of a normalized run of dy's pixels
}

// sameOutputTaps is a set of taps that are inside the input for the same outputs. If the axes are not
// split at the edges, one sameOutputTaps has all taps, and blocks have a halo of zeros.
type sameOutputTaps struct {
	taps  []volumeTap
	box   [3]axisPhase // the outputs
	table []int32      // rows of a group of channel blocks, see kernel.NewTileOffsetTable
	steps []int32      // one step per output of a block
}

// NewDirectGradient prepares the computation of dw, the gradient of the weights of convolution
// s. in is the convolution's input, and dy is the gradient of its output.
func NewDirectGradient(ws *workspace.Workspace, in, dy, dw tensor.Operand, s geometry) *DirectGradient {
	channels := tensor.ChannelBlockCount(in.Shape[1])
	g := &DirectGradient{ws: ws, dy: dy, dw: dw, channels: in.Shape[1], taps: s.tapCount(), flat: in.Shape[1] <= maxUnpaddedChannels}
	set := &ws.Set.GEMM
	axes := s.splitAtEdgesIfCheaper(in, set.Rows)
	g.blocks = newInputBlocks(ws.Set, in, axes, maxGradientBlockOutputs, true)
	g.groups = 1
	units := g.outputChannelUnitCount()
	threads, bytes := ws.Threads, 4*dw.Layout.FloatCount(dw.Shape)
	large := g.blocks.count() > 1 && bytes > maxGradientBytesPerGroup // a block's sums do not stay in the cache
	for g.groups < channels && (g.groups*units%threads != 0 || large && bytes/g.groups > maxGradientBytesPerGroup) {
		g.groups++
	}
	g.group = tensor.CeilDiv(channels, g.groups)
	g.groups = tensor.CeilDiv(channels, g.group)
	g.groupTapsByOutputs(s, axes.isSplitAtEdges())
	if g.parts = 1; g.groups*units < threads {
		g.parts = max(1, min(tensor.CeilDiv(threads, g.groups*units), tensor.CeilDiv(g.gemmRowCount(&g.classes[0], g.group), set.Rows)))
	}
	v := &g.blocks
	scratch := v.scratchFloats()
	most := v.images * max(v.slices*v.rows*v.w.count, s.maxPhaseOutputs()/(v.slabsPerImage()*v.bandsPerSlice())) * lanes // floats of a block of dy
	g.dyInPlace = v.images == 1 && dy.IsSinglePiece() && !axes.isSplitAtEdges()
	g.dyScratch = tensor.RoundUp(scratch, tensor.AlignmentFloats)
	g.runScratch = g.dyScratch + set.Blocks*most
	ws.ReserveScratch(g.runScratch + most)
	for i := range g.classes {
		g.buildGEMMTables(&g.classes[i])
	}
	return g
}

// groupTapsByOutputs divides the taps into tapSets. isSplit reports whether the axes of the input
// blocks are split at the edges.
func (g *DirectGradient) groupTapsByOutputs(s geometry, isSplit bool) {
	var lists [3][]axisPhase
	for i, a := range s {
		p := a.phases[0]
		if !isSplit {
			lists[i] = []axisPhase{p}
			continue
		}
		for _, t := range p.taps {
			lo, hi := a.validOutputs(p, t)
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
				c := sameOutputTaps{box: [3]axisPhase{d, h, w}, taps: combineTaps(d.taps, h.taps, w.taps, g.dw.Space)}
				live += len(c.taps)
				g.classes = append(g.classes, c)
			}
		}
	}
	g.hasDeadTaps = live < g.taps
	if len(g.classes) == 0 { // no tap reaches the input
		g.classes = []sameOutputTaps{{}}
	}
}

func (g *DirectGradient) buildGEMMTables(c *sameOutputTaps) {
	v, taps := &g.blocks, len(c.taps)
	perTap := lanes
	if g.flat {
		perTap = g.channels
	}
	c.table = kernel.NewTileOffsetTable(g.gemmRowCount(c, g.group), g.ws.Set.GEMM.Rows, func(i int) (in, out int) {
		b, t, l := i/(taps*perTap), c.taps[i/perTap%taps], i%perTap
		return b*v.plane*4 + v.byteOffset(t.slice, t.row, t.col) + 4*l, ((b*g.taps+t.index)*lanes + l) * lanes * 4
	})
	slices, rows, cols := g.outputExtent(c, v.slices, v.rows)
	c.steps = make([]int32, v.images*slices*rows*cols)
	for i := range c.steps {
		n, z, q, col := i/(slices*rows*cols), i/(rows*cols)%slices, i/cols%rows, i%cols
		c.steps[i] = int32(n*v.image*4 + ((z*v.d.stepIn*v.height+q*v.h.stepIn)*v.width+col*v.w.stepIn)*lanes*4)
	}
}

// outputExtent returns the depth, height and width of those outputs of a block to which the
// weights in c contribute. slices and rows are the size of the block.
func (g *DirectGradient) outputExtent(c *sameOutputTaps, slices, rows int) (d, h, w int) {
	if g.blocks.d.isSplit { // blocks are whole images
		return c.box[0].count, c.box[1].count, c.box[2].count
	}
	return min(slices, c.box[0].count), min(rows, c.box[1].count), c.box[2].count
}

// gemmRowCount returns the number of rows of the matrix kernel for the taps in c and the given
// number of input channel blocks.
func (g *DirectGradient) gemmRowCount(c *sameOutputTaps, inputBlocks int) int {
	if g.flat {
		return len(c.taps) * g.channels
	}
	return inputBlocks * len(c.taps) * lanes
}

// Tasks returns the tasks that compute the gradient. Each item computes part of the rows of
// a group of input channels, for one unit of output channels (see outputChannelUnitCount).
func (g *DirectGradient) Tasks() []threads.Task {
	run := threads.Task{Items: g.groups * g.parts * g.outputChannelUnitCount(), Run: g.computeGradient}
	if !g.clearsGradientFirst() {
		return []threads.Task{run}
	}
	// Rows of padding, and of taps that never reach the input, are not computed but
	// cleared.
	dw := g.dw.Data
	return []threads.Task{{Items: tensor.CeilDiv(len(dw), workspace.TaskItemFloats), Run: func(_ *threads.Worker, lo, hi int) {
		clear(dw[lo*workspace.TaskItemFloats : min(len(dw), hi*workspace.TaskItemFloats)])
	}}, run}
}

// clearsGradientFirst reports whether dw is set to zero before the first block of pixels, so
// that each block adds to dw. Otherwise the sums over the first block overwrite dw.
func (g *DirectGradient) clearsGradientFirst() bool { return g.flat || g.hasDeadTaps }

// outputChannelUnitCount returns the number of units that the output channels are divided into. A unit is
// as many channel blocks as one tile of the matrix kernel can compute.
func (g *DirectGradient) outputChannelUnitCount() int {
	return tensor.CeilDiv(tensor.ChannelBlockCount(g.dy.Shape[1]), g.ws.Set.GEMM.Blocks)
}

func (g *DirectGradient) computeGradient(w *threads.Worker, lo, hi int) {
	units := g.outputChannelUnitCount()
	for item := lo; item < hi; {
		part := item / units
		end := min(hi, (part+1)*units)
		g.computeInputGroupPart(w, part/g.parts, part%g.parts, item%units, end-part*units)
		item = end
	}
}

// computeInputGroupPart computes part of the rows of a group of input channels, for units [from, to) of
// output channels, block by block, so that a block's inputs and gradients are in the cache.
func (g *DirectGradient) computeInputGroupPart(w *threads.Worker, group, part, from, to int) {
	v, set := &g.blocks, &g.ws.Set.GEMM
	kBlocks := tensor.ChannelBlockCount(g.dy.Shape[1])
	perChannel := g.taps * lanes * lanes // floats of a channel block's weights
	perBlock := v.channels * perChannel
	c0 := group * g.group
	count := min(g.group, v.channels-c0)
	for b := range v.count() {
		p := v.blockRange(b)
		x := v.loadBlock(w.Scratch, p, c0, count)
		for k := from * set.Blocks; k < min(to*set.Blocks, kBlocks); {
			wide := set.NextTileBlocks(kBlocks - k)
			dw := g.dw.Data[k*perBlock+c0*perChannel:]
			for i := range g.classes {
				c := &g.classes[i]
				tiles := tensor.CeilDiv(g.gemmRowCount(c, count), set.Rows)
				first, last := part*tiles/g.parts, (part+1)*tiles/g.parts
				if rows := min(last*set.Rows, g.gemmRowCount(c, count)) - first*set.Rows; rows > 0 {
					dy, next, n := g.loadOutputGradients(w, c, p, k, wide)
					kernel.MultiplyRows(&set.Flat[wide], set.Rows, x, dy, dw, g.ws.Zeros, c.table[first*2*set.Rows:], c.steps, next*4, perBlock*4, n, rows, b > 0 || g.clearsGradientFirst())
				}
			}
			k += wide
		}
	}
}

// pixelRuns describes a box of pixels in a channel block: some slices, with the same number of
// rows in each slice, and a run of adjacent pixels in each row. All fields are in pixels.
type pixelRuns struct {
	at                 int // first pixel in the plane
	slices, rows, run  int // numbers of slices, of rows in a slice, and of pixels in a row
	nextSlice, nextRow int // distances
}

// outputGradientRuns returns the pixels of dy in range p to which the weights in c contribute.
func (g *DirectGradient) outputGradientRuns(c *sameOutputTaps, p blockRange) pixelRuns {
	rows, cols := g.dy.Space[1], g.dy.Space[2]
	r := pixelRuns{at: ((p.z0+c.box[0].first)*rows+p.q0+c.box[1].first)*cols + c.box[2].first, nextSlice: rows * cols, nextRow: cols}
	r.slices, r.rows, r.run = g.outputExtent(c, p.slices, p.rows)
	if r.run == cols {
		r.run, r.rows = r.run*r.rows, 1
		if r.run == rows*cols {
			r.run, r.slices = r.run*r.slices, 1
		}
	}
	return r
}

// loadOutputGradients returns dy for the pixels in range p to which the weights in c contribute, and
// for output channel blocks [k, k+wide). The result has the layout of the matrix kernel's
// weights. It is a copy in scratch memory unless dy can be read in place. next is the argument
// wNext for kernel.GEMMFunc, in floats instead of bytes. pixels is the number of pixels.
func (g *DirectGradient) loadOutputGradients(w *threads.Worker, c *sameOutputTaps, p blockRange, k, wide int) (dy []float32, next, pixels int) {
	r, interleaved := g.outputGradientRuns(c, p), g.ws.Set.GEMM.Interleaved
	pixels = p.images * r.slices * r.rows * r.run
	if g.dyInPlace && (!interleaved || wide == 1) {
		dy, _ = g.dy.ChannelBlock(p.n0, k)
		next = g.dy.PlaneFloats()
		if interleaved {
			next = lanes
		}
		return dy[r.at*lanes:], next, pixels
	}
	dy = w.Scratch[g.dyScratch:]
	if interleaved {
		g.copyOutputGradients(w, dy, p, k, wide, r)
		return dy, wide * lanes, pixels
	}
	for j := range wide {
		g.copyOutputGradients(w, dy[j*pixels*lanes:], p, k+j, 1, r)
	}
	return dy, pixels * lanes, pixels
}

// copyOutputGradients copies the pixels r of channel blocks [k, k+wide) of dy, for the images in p, and
// interleaves the blocks: all blocks of a pixel are adjacent. It copies all blocks of a run of pixels before
// it goes to the next run, so that the memory that they share is in the first-level cache.
func (g *DirectGradient) copyOutputGradients(w *threads.Worker, to []float32, p blockRange, k, wide int, r pixelRuns) {
	for i := range p.images {
		for z := range r.slices {
			for row := range r.rows {
				for j := range wide {
					from, norm := g.dy.ChannelBlock(p.n0+i, k+j)
					src := from[(r.at+z*r.nextSlice+row*r.nextRow)*lanes:]
					switch {
					case wide == 1:
						g.blocks.copyPixels(to, src, norm, r.run)
					case norm == nil:
						g.ws.Set.Spread(&to[j*lanes], &src[0], wide*lanes*4, r.run)
					default:
						g.blocks.copyPixels(w.Scratch[g.runScratch:], src, norm, r.run)
						g.ws.Set.Spread(&to[j*lanes], &w.Scratch[g.runScratch], wide*lanes*4, r.run)
					}
				}
				to = to[min(len(to), r.run*wide*lanes):]
			}
		}
	}
}
