package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// DirectBF16Gradient computes the gradient of a convolution's weights. It rounds the inputs and
// the gradients of the outputs to bfloat16 and sums their products in float32. In these matrix
// products, the rows are input channels, the columns are output channels, and the steps are
// positions (see bf16Blocks). For each tap the inputs are shifted. Positions without an output
// have gradient zero.
//
// How blocks are divided into parts depends only on the shapes. One worker adds up the blocks
// of a part, and the sums of the parts are added in order.
type DirectBF16Gradient struct {
	ws        *workspace.Workspace
	dy, dw    tensor.Operand
	blocks    bf16Blocks
	windows   disjointWindows
	inG, outG int       // numbers of groups of 32 channels
	groups    int       // number of groups of output groups
	parts     int       // of the blocks
	steps     []int32   // for all positions, if images are not last
	tapSteps  [][]int32 // by tap, if images are last, else nil
	row       int       // words from a rounded input channel to the next
	// Indexes in scratch memory of the rounded inputs, of the rounded gradients, and, if there
	// is only one block, of the sums. Planes of floats come before them.
	columnsAt, pairsAt, sumsAt int
}

// maxPartialSumFloats is the greatest total size, in floats, of the sums of several parts.
// There are at most maxGradientParts parts.
const maxPartialSumFloats = 1 << 20

// NewDirectBF16Gradient prepares the computation of dw, the gradient of the weights of
// convolution s. in is the convolution's input, and dy is the gradient of its output.
// SupportsBF16 must be true for s.
func NewDirectBF16Gradient(ws *workspace.Workspace, in, dy, dw tensor.Operand, s geometry) *DirectBF16Gradient {
	g := &DirectBF16Gradient{ws: ws, dy: dy, dw: dw, inG: tensor.CeilDiv(in.Shape[1], tileChannels), outG: tensor.CeilDiv(dy.Shape[1], tileChannels)}
	columns := g.inG // groups of channels, and of taps if the inputs are windows, that have columns
	if g.windows = newDisjointWindows(in, s); g.windows.exist() {
		columns *= s.tapCount()
		s = g.windows.tapGeometry()
	}
	g.blocks = newBF16Blocks(ws.Set, in, s, columns)
	b := &g.blocks
	if g.windows.exist() {
		b.taps = g.windows.taps()
	}
	positions := b.positionCount()
	for s := range positions / tileChannels {
		g.steps = append(g.steps, int32(s*2*tileChannels), int32(s*2*stepWeightWords))
	}
	if b.imagesLast {
		g.tapSteps = make([][]int32, len(b.taps))
		b.forEachOutputPixel(func(pixel int, taps, pixels []int) {
			for i, t := range taps {
				g.tapSteps[t] = append(g.tapSteps[t], int32(pixels[i]*2*tileChannels), int32(pixel*2*stepWeightWords))
			}
		})
	}
	g.row = positions + tileChannels // not a power of two, so that rows do not compete for lines of the cache
	g.parts = min(maxGradientParts, b.count())
	for g.parts > 1 && g.parts*g.partialSumFloats()*g.outG > maxPartialSumFloats {
		g.parts /= 2
	}
	g.groups = 1
	if n := ws.Threads; g.parts < 4*n && g.parts%n != 0 {
		g.groups = min(n, g.outG)
	}
	g.columnsAt = 4 * b.planeFloats()
	g.pairsAt = g.columnsAt + tensor.RoundUp(columns*tileChannels*g.row/2, tensor.AlignmentFloats)
	g.sumsAt = g.pairsAt + tensor.RoundUp(b.outputPositionCount()*tileChannels/2, tensor.AlignmentFloats)
	if b.count() == 1 {
		ws.ReserveScratch(g.sumsAt + g.partialSumFloats())
	} else {
		ws.ReserveScratch(g.sumsAt)
		ws.ReserveSharedScratch(g.parts * g.outG * g.partialSumFloats())
	}
	return g
}

func (g *DirectBF16Gradient) partialSumFloats() int {
	return len(g.blocks.taps) * g.inG * tileChannels * tileChannels
}

// Tasks returns the tasks that compute the gradient. If some taps never reach the input, the
// first task sets the gradient to zero. An item of the next task adds up one part for some
// output channels (see run). If there are several blocks, an item of the last task adds the
// sums of all parts for 32 output channels and one tap (see addPartialSums).
func (g *DirectBF16Gradient) Tasks() []threads.Task {
	var all []threads.Task
	if len(g.blocks.taps) < tensor.ElementCount(g.dw.Space[:]) { // some taps never reach the input
		dw := g.dw.Data
		all = append(all, threads.Task{Items: tensor.CeilDiv(len(dw), workspace.TaskItemFloats), Run: func(_ *threads.Worker, lo, hi int) {
			clear(dw[lo*workspace.TaskItemFloats : min(len(dw), hi*workspace.TaskItemFloats)])
		}})
	}
	all = append(all, threads.Task{Items: g.parts * g.groups, Run: g.computePartialSums})
	if g.blocks.count() > 1 {
		all = append(all, threads.Task{Items: g.outG * len(g.blocks.taps), Run: g.addPartialSums})
	}
	return all
}

func (g *DirectBF16Gradient) computePartialSums(w *threads.Worker, lo, hi int) {
	count := g.blocks.count()
	for item := lo; item < hi; item++ {
		part, o := item/g.groups, item%g.groups
		first, last := part*count/g.parts, (part+1)*count/g.parts
		for b := first; b < last; b++ {
			p := g.blocks.blockRange(b)
			g.packInputs(w.Scratch, p)
			for k := o * g.outG / g.groups; k < (o+1)*g.outG/g.groups; k++ {
				g.packOutputGradients(w.Scratch, p, k)
				if count == 1 {
					g.multiplyBlock(w, w.Scratch[g.sumsAt:], false)
					for t := range g.blocks.taps {
						g.writeTapGradient(w.Scratch[g.sumsAt:], k, t)
					}
				} else {
					g.multiplyBlock(w, g.ws.Shared[(part*g.outG+k)*g.partialSumFloats():], b > first)
				}
			}
		}
	}
}

// multiplyBlock adds the products of the loaded block to sums, or overwrites sums if accumulate is
// false.
func (g *DirectBF16Gradient) multiplyBlock(w *threads.Worker, sums []float32, accumulate bool) {
	columns, pairs := kernel.Uint16View(w.Scratch[g.columnsAt:g.pairsAt]), kernel.Uint16View(w.Scratch[g.pairsAt:g.sumsAt])
	for i, t := range g.blocks.taps {
		to, from, steps := sums[i*g.inG*tileChannels*tileChannels:], columns, g.steps
		if g.tapSteps != nil {
			steps = g.tapSteps[i]
		} else {
			if g.windows.exist() {
				from = columns[i*g.inG*tileChannels*g.row:]
			} else {
				from = columns[g.blocks.tapShift(t):]
			}
			// Up to the last position that has an output and reads inside of the row.
			n := g.blocks.outputSpan(blockRange{images: g.blocks.images, slices: g.blocks.slices, rows: g.blocks.rows})
			steps = steps[:2*tensor.CeilDiv(n, tileChannels)]
		}
		g.ws.Set.BF16.Multiply(&to[0], &from[0], &pairs[0], &steps[0], len(steps)/2, 2*g.row, g.inG, accumulate)
	}
}

func (g *DirectBF16Gradient) packInputs(scratch []float32, p blockRange) {
	b := &g.blocks
	columns, planes := kernel.Uint16View(scratch[g.columnsAt:g.pairsAt]), b.newPlanes(scratch)
	for _, plane := range planes {
		// Positions that are not loaded are multiplied by zero, and must be finite.
		if b.isFull(p) {
			clear(plane[b.images*b.size:])
		} else {
			clear(plane)
		}
	}
	pack := func(columns []uint16, c int) {
		for i := range min(tileChannels/lanes, b.channels-c) {
			b.kernels.BF16.PackColumns(&columns[(c+i)*lanes*g.row], &planes[i][0], b.positionCount(), 2*g.row)
		}
	}
	for c := 0; c < b.channels; c += tileChannels / lanes {
		if !g.windows.exist() {
			b.loadChannelPlanes(&planes, p, c)
			pack(columns, c)
			continue
		}
		for i, t := range b.taps {
			g.windows.loadTapPixels(b, &planes, p, t, c)
			pack(columns[i*g.inG*tileChannels*g.row:], c)
		}
	}
	for i := range len(columns) / g.row { // what shifted rows read after the last position
		clear(columns[i*g.row+b.positionCount():][:g.row-b.positionCount()])
	}
}

func (g *DirectBF16Gradient) packOutputGradients(scratch []float32, p blockRange, k int) {
	b, planes := &g.blocks, g.blocks.newPlanes(scratch)
	blocks := min(tileChannels/lanes, tensor.ChannelBlockCount(g.dy.Shape[1])-k*(tileChannels/lanes))
	for _, empty := range planes[blocks:] {
		clear(empty)
	}
	b.loadOutputGradients(planes[:blocks], g.dy, p, k*(tileChannels/lanes))
	pairs := kernel.Uint16View(scratch[g.pairsAt:g.sumsAt])
	b.kernels.BF16.PackPairs(&pairs[0], &planes[0][0], &planes[1][0], &planes[2][0], &planes[3][0], b.outputPositionCount())
}

// loadOutputGradients copies dy at the outputs in p, for channel blocks [c, c+len(to)), in the order
// of positions. Positions without an output become zero. It normalizes the values if necessary.
func (b *bf16Blocks) loadOutputGradients(to [][]float32, dy tensor.Operand, p blockRange, c int) {
	rows, cols := dy.Space[1], dy.Space[2]
	whole := !b.imagesLast && b.holdWholeImages() && [3]int{b.depth, b.height, b.width} == dy.Space // no halo
	if whole || b.imagesLast {
		pixels := b.outputPositionCount()
		if whole {
			pixels = p.images * b.size / lanes
		}
		for _, plane := range to {
			if b.imagesLast && p.images < tileChannels {
				clear(plane[:pixels*lanes])
			}
			clear(plane[pixels*lanes:])
		}
		for n := range p.images {
			for i, plane := range to {
				from, _ := dy.ChannelBlock(p.n0+n, c+i)
				if whole {
					copyImage(plane[n*b.size:], from, b.size/lanes)
				} else {
					b.kernels.Spread(&plane[n*lanes], &from[0], tileChannels*lanes*4, dy.PlaneFloats()/lanes)
				}
			}
		}
		for i, plane := range to {
			if _, norm := dy.ChannelBlock(p.n0, c+i); norm != nil { // all images at once
				b.kernels.Normalize(&plane[0], &plane[0], &norm[0], pixels)
			}
		}
		return
	}
	for i, plane := range to {
		end := 0 // of the row before
		for n := range p.images {
			from, norm := dy.ChannelBlock(p.n0+n, c+i)
			for z := range p.slices {
				for r := range p.rows {
					at := n*b.size + (z*b.height+r)*b.width*lanes
					clear(plane[end:at])
					b.copyPixels(plane[at:], from[((p.z0+z)*rows+p.q0+r)*cols*lanes:], norm, cols)
					end = at + cols*lanes
				}
			}
		}
		clear(plane[end:])
	}
}

func (g *DirectBF16Gradient) addPartialSums(_ *threads.Worker, lo, hi int) {
	n := g.inG * tileChannels * tileChannels
	for item := lo; item < hi; item++ {
		k, t := item/len(g.blocks.taps), item%len(g.blocks.taps)
		sums := g.ws.Shared[k*g.partialSumFloats():]
		to := sums[t*n:][:n]
		for part := 1; part < g.parts; part++ {
			g.ws.Set.Add(&to[0], &g.ws.Shared[(part*g.outG+k)*g.partialSumFloats()+t*n], &to[0], n)
		}
		g.writeTapGradient(sums, k, t)
	}
}

// minUncachedGradientBytes is the least size of a gradient that is written past the cache. The
// optimizer reads it only after the gradients of many other layers.
const minUncachedGradientBytes = 1 << 20

// writeTapGradient copies the sums for tap t and the k-th group of 32 output channels to the
// gradient.
func (g *DirectBF16Gradient) writeTapGradient(sums []float32, k, t int) {
	const tile = lanes * lanes
	inC, all := g.blocks.channels, tensor.ElementCount(g.dw.Space[:])
	blocks := min(tileChannels/lanes, tensor.ChannelBlockCount(g.dy.Shape[1])-k*(tileChannels/lanes))
	unpack := g.ws.Set.BF16.Unpack
	if 4*len(g.dw.Data) >= minUncachedGradientBytes {
		unpack = g.ws.Set.BF16.UnpackUncached
	}
	rows := lanes // of the sums, whose gradients are adjacent
	if all == 1 {
		rows *= inC
	}
	for c := 0; c < inC; c += rows / lanes {
		to := g.dw.Data[((k*(tileChannels/lanes)*inC+c)*all+g.blocks.taps[t].index)*tile:]
		unpack(&to[0], &sums[(t*g.inG*tileChannels+c*lanes)*tileChannels], &g.ws.Zeros[0], rows, tileChannels*4, lanes*4, inC*all*tile*4, blocks)
	}
}
