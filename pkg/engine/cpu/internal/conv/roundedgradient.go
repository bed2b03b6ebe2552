package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// RoundedGradient computes the gradient of a convolution's weights from inputs and gradients
// of outputs that are rounded to bfloat16, with float32 sums. The rows of the products are
// input channels, the columns output channels, and the steps positions (see roundedBlocks):
// for each tap the inputs are shifted, and positions without an output have gradient zero.
//
// How blocks are divided into parts depends only on the shapes. One worker adds up the blocks
// of a part, and the sums of parts are added in order.
type RoundedGradient struct {
	ws        *workspace.Workspace
	dy, dw    tensor.Operand
	blocks    roundedBlocks
	windows   windows
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

// maxRoundedSums is the greatest number of floats in the sums of all parts, if there are
// several parts. There are at most maxGradientParts parts.
const maxRoundedSums = 1 << 20

// NewRoundedGradient prepares the gradient dw of the weights of a convolution s with input
// in. dy is the gradient of its output. See CanRound.
func NewRoundedGradient(ws *workspace.Workspace, in, dy, dw tensor.Operand, s geometry) *RoundedGradient {
	g := &RoundedGradient{ws: ws, dy: dy, dw: dw, inG: tensor.CeilDiv(in.Shape[1], group), outG: tensor.CeilDiv(dy.Shape[1], group)}
	columns := g.inG // groups of channels, and of taps if the inputs are windows, that have columns
	if g.windows = newWindows(in, s); g.windows.exist() {
		columns *= s.tapCount()
		s = g.windows.positions()
	}
	g.blocks = newRoundedBlocks(ws.Set, in, s, columns)
	b := &g.blocks
	if g.windows.exist() {
		b.taps = g.windows.taps()
	}
	positions := b.positions()
	for s := range positions / group {
		g.steps = append(g.steps, int32(s*2*group), int32(s*2*stepWords))
	}
	if b.imagesLast {
		g.tapSteps = make([][]int32, len(b.taps))
		b.forEachPixel(func(pixel int, taps, pixels []int) {
			for i, t := range taps {
				g.tapSteps[t] = append(g.tapSteps[t], int32(pixels[i]*2*group), int32(pixel*2*stepWords))
			}
		})
	}
	g.row = positions + group // not a power of two, so that rows do not compete for lines of the cache
	g.parts = min(maxGradientParts, b.count())
	for g.parts > 1 && g.parts*g.sumFloats()*g.outG > maxRoundedSums {
		g.parts /= 2
	}
	g.groups = 1
	if n := ws.Threads; g.parts < 4*n && g.parts%n != 0 {
		g.groups = min(n, g.outG)
	}
	g.columnsAt = 4 * b.planeFloats()
	g.pairsAt = g.columnsAt + tensor.RoundUp(columns*group*g.row/2, tensor.AlignmentFloats)
	g.sumsAt = g.pairsAt + tensor.RoundUp(b.outputPositions()*group/2, tensor.AlignmentFloats)
	if b.count() == 1 {
		ws.ReserveScratch(g.sumsAt + g.sumFloats())
	} else {
		ws.ReserveScratch(g.sumsAt)
		ws.ReserveShared(g.parts * g.outG * g.sumFloats())
	}
	return g
}

func (g *RoundedGradient) sumFloats() int { return len(g.blocks.taps) * g.inG * group * group }

// Tasks returns the tasks that compute the gradient. If some taps never reach the input, the
// first task sets the gradient to zero. An item of the next task adds up one part for some
// output channels (see run). If there are several blocks, an item of the last task adds the
// sums of all parts for 32 output channels and one tap (see addParts).
func (g *RoundedGradient) Tasks() []threads.Task {
	var all []threads.Task
	if len(g.blocks.taps) < tensor.Elements(g.dw.Space[:]) { // some taps never reach the input
		dw := g.dw.Data
		all = append(all, threads.Task{Items: tensor.CeilDiv(len(dw), workspace.ItemFloats), Run: func(_ *threads.Worker, lo, hi int) {
			clear(dw[lo*workspace.ItemFloats : min(len(dw), hi*workspace.ItemFloats)])
		}})
	}
	all = append(all, threads.Task{Items: g.parts * g.groups, Run: g.run})
	if g.blocks.count() > 1 {
		all = append(all, threads.Task{Items: g.outG * len(g.blocks.taps), Run: g.addParts})
	}
	return all
}

func (g *RoundedGradient) run(w *threads.Worker, lo, hi int) {
	count := g.blocks.count()
	for item := lo; item < hi; item++ {
		part, o := item/g.groups, item%g.groups
		first, last := part*count/g.parts, (part+1)*count/g.parts
		for b := first; b < last; b++ {
			p := g.blocks.blockRange(b)
			g.packInputs(w.Scratch, p)
			for k := o * g.outG / g.groups; k < (o+1)*g.outG/g.groups; k++ {
				g.packGradients(w.Scratch, p, k)
				if count == 1 {
					g.multiply(w, w.Scratch[g.sumsAt:], false)
					for t := range g.blocks.taps {
						g.writeTap(w.Scratch[g.sumsAt:], k, t)
					}
				} else {
					g.multiply(w, g.ws.Shared[(part*g.outG+k)*g.sumFloats():], b > first)
				}
			}
		}
	}
}

// multiply overwrites sums, instead of adding to them, if accumulate is not set.
func (g *RoundedGradient) multiply(w *threads.Worker, sums []float32, accumulate bool) {
	columns, pairs := kernel.HalfWords(w.Scratch[g.columnsAt:g.pairsAt]), kernel.HalfWords(w.Scratch[g.pairsAt:g.sumsAt])
	for i, t := range g.blocks.taps {
		to, from, steps := sums[i*g.inG*group*group:], columns, g.steps
		if g.tapSteps != nil {
			steps = g.tapSteps[i]
		} else {
			if g.windows.exist() {
				from = columns[i*g.inG*group*g.row:]
			} else {
				from = columns[g.blocks.shift(t):]
			}
			// Up to the last position that has an output and reads inside of the row.
			n := g.blocks.rowCount(blockRange{images: g.blocks.images, slices: g.blocks.slices, rows: g.blocks.rows})
			steps = steps[:2*tensor.CeilDiv(n, group)]
		}
		g.ws.Set.BF16.Multiply(&to[0], &from[0], &pairs[0], &steps[0], len(steps)/2, 2*g.row, g.inG, accumulate)
	}
}

func (g *RoundedGradient) packInputs(scratch []float32, p blockRange) {
	b := &g.blocks
	columns, planes := kernel.HalfWords(scratch[g.columnsAt:g.pairsAt]), b.newPlanes(scratch)
	for _, plane := range planes {
		// Positions that are not loaded are multiplied by zero, and must be finite.
		if b.isFull(p) {
			clear(plane[b.images*b.size:])
		} else {
			clear(plane)
		}
	}
	pack := func(columns []uint16, c int) {
		for i := range min(group/lanes, b.channels-c) {
			b.kernels.BF16.PackColumns(&columns[(c+i)*lanes*g.row], &planes[i][0], b.positions(), 2*g.row)
		}
	}
	for c := 0; c < b.channels; c += group / lanes {
		if !g.windows.exist() {
			b.loadPlanes(&planes, p, c)
			pack(columns, c)
			continue
		}
		for i, t := range b.taps {
			g.windows.load(b, &planes, p, t, c)
			pack(columns[i*g.inG*group*g.row:], c)
		}
	}
	for i := range len(columns) / g.row { // what shifted rows read after the last position
		clear(columns[i*g.row+b.positions():][:g.row-b.positions()])
	}
}

func (g *RoundedGradient) packGradients(scratch []float32, p blockRange, k int) {
	b, planes := &g.blocks, g.blocks.newPlanes(scratch)
	blocks := min(group/lanes, tensor.ChannelBlocks(g.dy.Shape[1])-k*(group/lanes))
	for _, empty := range planes[blocks:] {
		clear(empty)
	}
	b.loadGradients(planes[:blocks], g.dy, p, k*(group/lanes))
	pairs := kernel.HalfWords(scratch[g.pairsAt:g.sumsAt])
	b.kernels.BF16.PackPairs(&pairs[0], &planes[0][0], &planes[1][0], &planes[2][0], &planes[3][0], b.outputPositions())
}

// loadGradients copies dy at the outputs in p, of channel blocks [c, c+len(to)), in the
// order of positions, with zeros at positions without an output, and normalizes it if
// necessary.
func (b *roundedBlocks) loadGradients(to [][]float32, dy tensor.Operand, p blockRange, c int) {
	rows, cols := dy.Space[1], dy.Space[2]
	whole := !b.imagesLast && b.holdWholeImages() && [3]int{b.depth, b.height, b.width} == dy.Space // no halo
	if whole || b.imagesLast {
		pixels := b.outputPositions()
		if whole {
			pixels = p.images * b.size / lanes
		}
		for _, plane := range to {
			if b.imagesLast && p.images < group {
				clear(plane[:pixels*lanes])
			}
			clear(plane[pixels*lanes:])
		}
		for n := range p.images {
			for i, plane := range to {
				from, _ := dy.Block(p.n0+n, c+i)
				if whole {
					copyImage(plane[n*b.size:], from, b.size/lanes)
				} else {
					b.kernels.Spread(&plane[n*lanes], &from[0], group*lanes*4, dy.PlaneFloats()/lanes)
				}
			}
		}
		for i, plane := range to {
			if _, norm := dy.Block(p.n0, c+i); norm != nil { // all images at once
				b.kernels.Normalize(&plane[0], &plane[0], &norm[0], pixels)
			}
		}
		return
	}
	for i, plane := range to {
		end := 0 // of the row before
		for n := range p.images {
			from, norm := dy.Block(p.n0+n, c+i)
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

func (g *RoundedGradient) addParts(_ *threads.Worker, lo, hi int) {
	n := g.inG * group * group
	for item := lo; item < hi; item++ {
		k, t := item/len(g.blocks.taps), item%len(g.blocks.taps)
		sums := g.ws.Shared[k*g.sumFloats():]
		to := sums[t*n:][:n]
		for part := 1; part < g.parts; part++ {
			g.ws.Set.Add(&to[0], &g.ws.Shared[(part*g.outG+k)*g.sumFloats()+t*n], &to[0], n)
		}
		g.writeTap(sums, k, t)
	}
}

// uncachedGradientBytes is the least size of a gradient that is written past the cache. The
// optimizer reads it only after the gradients of many other layers.
const uncachedGradientBytes = 1 << 20

// writeTap copies the sums of group k of 32 output channels at tap t to the gradient.
func (g *RoundedGradient) writeTap(sums []float32, k, t int) {
	const tile = lanes * lanes
	inC, all := g.blocks.channels, tensor.Elements(g.dw.Space[:])
	blocks := min(group/lanes, tensor.ChannelBlocks(g.dy.Shape[1])-k*(group/lanes))
	unpack := g.ws.Set.BF16.Unpack
	if 4*len(g.dw.Data) >= uncachedGradientBytes {
		unpack = g.ws.Set.BF16.UnpackUncached
	}
	rows := lanes // of the sums, whose gradients are adjacent
	if all == 1 {
		rows *= inC
	}
	for c := 0; c < inC; c += rows / lanes {
		to := g.dw.Data[((k*(group/lanes)*inC+c)*all+g.blocks.taps[t].index)*tile:]
		unpack(&to[0], &sums[(t*g.inG*group+c*lanes)*group], &g.ws.Zeros[0], rows, group*4, lanes*4, inC*all*tile*4, blocks)
	}
}
