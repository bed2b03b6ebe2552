package conv

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// maxUnpaddedChannels is the greatest number of input channels for which Direct uses
// kernel.GEMM.Flat. That kernel reads one channel per step, so it does not multiply padding
// channels.
const maxUnpaddedChannels = 4

// maxPassWeightBytes limits the weights that the matrix kernel reads in one pass over a
// block's pixels: together with a row of inputs they fit into the first-level cache.
const maxPassWeightBytes = 18 * 1024

// Direct computes a convolution (a cross-correlation) or a transposed convolution from its
// definition, over two or three spatial dimensions.
type Direct struct {
	ws               *workspace.Workspace
	in, weights, out tensor.Operand
	bias             []float32 // nil if there is none
	transposed       bool      // the weights are [in,out,…], not [out,in,…]
	flat             bool      // a step of the matrix kernel is one channel, not eight
	packOnce         bool      // the weights are packed once for all phases
	live             []int     // indexes in the window of the taps that some phase uses
	packedAt         int       // index in scratch memory of the packed weights, −1 if weights are read in place
	blocks           inputBlocks
	taps             int
	phases           []outputPhase
	groups           int                          // number of groups of output channels
	statistics       *workspace.ChannelStatistics // of the output, nil if nobody needs them
}

// outputPhase combines one axisPhase of each axis. It contains the tables for the matrix kernel
// that computes the outputs of the phase.
type outputPhase struct {
	first              int // index of the first output in its plane, in floats
	slices, rows, cols int
	taps               []volumeTap
	table              []int32 // rows of a full block, see kernel.NewTileOffsetTable
	steps              []int32 // steps of the matrix kernel, see kernel.GEMMFunc
	stepsPerPass       int     // number of steps per pass
}

// volumeTap is one weight of a window: its shift along each axis (see axis), and its index in
// the window.
type volumeTap struct{ slice, row, col, index int }

// NewDirect prepares the convolution of in with weights; it writes the result to out. bias
// may be nil. s determines whether it is a cross-correlation or its transpose. transposed
// is set if the weights have the shape [in,out,…] instead of [out,in,…].
func NewDirect(ws *workspace.Workspace, in, weights, out tensor.Operand, bias []float32, s geometry, transposed bool) *Direct {
	c := &Direct{ws: ws, in: in, weights: weights, out: out, bias: bias, transposed: transposed, flat: in.Shape[1] <= maxUnpaddedChannels, taps: s.tapCount()}
	set := &ws.Set.GEMM
	s = s.splitAtEdgesIfCheaper(in, set.Rows)
	c.blocks = newInputBlocks(ws.Set, in, s, blockPixels, !transposed)
	c.packOnce = (transposed || set.Interleaved) && !c.flat && s.isSplitAtEdges()
	scratch, chunk := c.blocks.scratchFloats(), 0
	s.forEachPhase(func(d, h, w axisPhase) {
		p := c.newOutputPhase(d, h, w)
		chunk = max(chunk, p.stepsPerPass)
		c.phases = append(c.phases, p)
		for _, t := range p.taps {
			c.live = append(c.live, t.index)
		}
	})
	slices.Sort(c.live)
	c.live = slices.Compact(c.live)
	c.packedAt = -1
	switch {
	case c.packOnce:
		c.packedAt = scratch
		scratch += set.Blocks * tensor.ChannelBlockCount(in.Shape[1]) * c.taps * lanes * lanes
	case c.flat || transposed || set.Interleaved:
		c.packedAt = scratch
		scratch += set.Blocks * chunk * c.channelsPerStep() * lanes
	}
	ws.ReserveScratch(scratch)
	parts := c.blocks.count()
	c.groups = 1
	if threads := ws.Threads; parts < 4*threads && parts%threads != 0 {
		c.groups = min(threads, tensor.CeilDiv(tensor.ChannelBlockCount(out.Shape[1]), 2))
	}
	return c
}

func (c *Direct) channelsPerStep() int {
	if c.flat {
		return 1
	}
	return lanes
}

// newOutputPhase builds the tables of the outputPhase that combines the given phases of depth, height
// and width.
func (c *Direct) newOutputPhase(pd, ph, pw axisPhase) outputPhase {
	v, set := &c.blocks, &c.ws.Set.GEMM
	rowOut := c.out.Space[2]
	sliceOut := c.out.Space[1] * rowOut
	p := outputPhase{first: (pd.first*sliceOut + ph.first*rowOut + pw.first) * lanes, slices: pd.count, rows: ph.count, cols: pw.count}
	p.taps = combineTaps(pd.taps, ph.taps, pw.taps, c.weights.Space)
	if c.flat {
		for _, t := range p.taps {
			for k := range c.in.Shape[1] {
				p.steps = append(p.steps, int32(v.byteOffset(t.slice, t.row, t.col)+4*k))
			}
		}
		p.stepsPerPass = max(1, len(p.steps))
	} else {
		const tile = lanes * lanes * 4 // bytes
		n := max(1, v.channels*len(p.taps))
		p.stepsPerPass = tensor.CeilDiv(n, tensor.CeilDiv(n, maxPassWeightBytes/(set.Blocks*tile)))
		for k := range v.channels {
			for _, t := range p.taps {
				weights := (k*c.taps + t.index) * tile
				if (c.transposed || set.Interleaved) && !c.packOnce {
					weights = len(p.steps) / 2 % p.stepsPerPass * tile
				}
				p.steps = append(p.steps, int32(k*v.plane*4+v.byteOffset(t.slice, t.row, t.col)), int32(weights))
			}
		}
	}
	slices, rows := min(v.slices, p.slices), min(v.rows, p.rows)
	outImage := tensor.ChannelBlockCount(c.out.Shape[1]) * c.out.PlaneFloats()
	p.table = kernel.NewTileOffsetTable(v.images*slices*rows*p.cols, set.Rows, func(i int) (in, out int) {
		n, z, q, col := i/(slices*rows*p.cols), i/(rows*p.cols)%slices, i/p.cols%rows, i%p.cols
		in = n*v.image*4 + ((z*v.d.stepIn*v.height+q*v.h.stepIn)*v.width+col*v.w.stepIn)*lanes*4
		out = n*outImage*4 + (z*v.d.stepOut*sliceOut+q*v.h.stepOut*rowOut+col*v.w.stepOut)*lanes*4
		return in, out
	})
	return p
}

// combineTaps combines the taps along depth, height and width to the taps of a
// three-dimensional window of size kernel.
func combineTaps(d, h, w []tap, kernel [3]int) (list []volumeTap) {
	for _, a := range d {
		for _, b := range h {
			for _, c := range w {
				list = append(list, volumeTap{a.shift, b.shift, c.shift, (a.index*kernel[1]+b.index)*kernel[2] + c.index})
			}
		}
	}
	return list
}

// Tasks returns one task, whose items are groups of output channels of one block of pixels.
func (c *Direct) Tasks() []threads.Task {
	return []threads.Task{{Items: c.blocks.count() * c.groups, Run: c.computeOutputs}}
}

// EnableStatistics makes the convolution also compute the statistics of its output, one
// part per block, while the output is in the cache. It returns nil, and changes nothing, if
// the outputs of a block are not adjacent.
func (c *Direct) EnableStatistics() *workspace.ChannelStatistics {
	if len(c.phases) != 1 && !c.blocks.holdWholeImages() {
		return nil
	}
	c.statistics = &workspace.ChannelStatistics{Channels: tensor.ChannelBlockCount(c.out.Shape[1])}
	for b := range c.blocks.count() {
		p := c.blocks.blockRange(b)
		_, pixels := c.outputPixelRange(p)
		c.statistics.Pixels = append(c.statistics.Pixels, p.images*pixels)
	}
	c.ws.ReserveStatistics(c.statistics.PartialSumFloats())
	return c.statistics
}

// outputPixelRange returns the range of pixels that p covers in each plane of the output: the index
// of the first pixel and the number of pixels.
func (c *Direct) outputPixelRange(p blockRange) (first, pixels int) {
	if c.blocks.holdWholeImages() {
		return 0, c.out.PlaneFloats() / lanes
	}
	rows, cols := c.out.Space[1], c.out.Space[2]
	return (p.z0*rows + p.q0) * cols, p.slices * p.rows * cols
}

// computeOutputStatistics computes the statistics of output channel blocks [k0, k1) over the pixels
// in p. b is the index of p's block. The outputs have just been written and are in the cache.
func (c *Direct) computeOutputStatistics(b int, p blockRange, k0, k1 int) {
	at, pixels := c.outputPixelRange(p)
	for k := k0; k < k1; k++ {
		for i := range p.images {
			y, _ := c.out.ChannelBlock(p.n0+i, k)
			y = y[at*lanes:]
			to := c.ws.Partial[c.statistics.PartSumsOffset(b, k):]
			if i == 0 {
				to = c.statistics.BeginPartSums(c.ws.Partial, b, k, y)
			}
			c.ws.Set.Deviations(&y[0], pixels, &to[0])
		}
	}
}

func (c *Direct) computeOutputs(w *threads.Worker, lo, hi int) {
	var x []float32
	var p blockRange
	outC := tensor.ChannelBlockCount(c.out.Shape[1])
	pairs := tensor.CeilDiv(outC, 2)
	for item, loaded := lo, -1; item < hi; item++ {
		b, g := item/c.groups, item%c.groups
		if b != loaded {
			p = c.blocks.blockRange(b)
			x = c.blocks.loadBlock(w.Scratch, p, 0, c.blocks.channels)
			loaded = b
		}
		k0, k1 := g*pairs/c.groups*2, min(outC, (g+1)*pairs/c.groups*2)
		for k := k0; k < k1; {
			wide := c.ws.Set.GEMM.NextTileBlocks(k1 - k)
			if c.packOnce {
				c.packAllWeights(w.Scratch[c.packedAt:], k, wide)
			}
			for i := range c.phases {
				c.computeOutputPhase(w, &c.phases[i], x, p, k, wide)
			}
			k += wide
		}
		if c.statistics != nil {
			c.computeOutputStatistics(b, p, k0, k1)
		}
	}
}

// computeOutputPhase computes the outputs of phase f in range p, for output channel blocks [k, k+wide). x
// contains the loaded inputs.
func (c *Direct) computeOutputPhase(w *threads.Worker, f *outputPhase, x []float32, p blockRange, k, wide int) {
	slices, rows := min(p.slices, f.slices-p.z0), min(p.rows, f.rows-p.q0)
	if rows <= 0 || slices <= 0 {
		return
	}
	plane, rowOut := c.out.PlaneFloats(), c.out.Space[2]
	set := &c.ws.Set.GEMM
	tiles, width := &set.Deep[wide], 2
	if c.flat {
		tiles, width = &set.Flat[wide], 1
	}
	y := c.out.Data[(p.n0*tensor.ChannelBlockCount(c.out.Shape[1])+k)*plane+f.first+
		(p.z0*c.blocks.d.stepOut*c.out.Space[1]+p.q0*c.blocks.h.stepOut)*rowOut*lanes:]
	bias := c.ws.Zeros
	if c.bias != nil {
		bias = c.bias[k*lanes:]
	}
	all := len(f.steps) / width
	for s := 0; s == 0 || s < all; s += f.stepsPerPass {
		n := min(f.stepsPerPass, all-s)
		weights, next := c.prepareWeights(w, f, k, wide, s, n)
		kernel.MultiplyRows(tiles, set.Rows, x, weights, y, bias, f.table, f.steps[s*width:], next*4, plane*4, n, p.images*slices*rows*f.cols, s > 0)
	}
}

// prepareWeights returns the weights of steps [s, s+n) of phase f for output blocks [k,
// k+wide). It packs them into scratch memory unless they can be read in place. next is the
// parameter wNext of kernel.GEMMFunc, but in floats.
func (c *Direct) prepareWeights(w *threads.Worker, f *outputPhase, k, wide, s, n int) (weights []float32, next int) {
	all := c.blocks.channels * c.taps * lanes * lanes
	switch {
	case c.packedAt < 0:
		return c.weights.Data[k*all:], all
	case c.packOnce:
		return w.Scratch[c.packedAt:], all
	}
	next = n * c.channelsPerStep() * lanes
	dst := w.Scratch[c.packedAt:][:wide*next]
	blockStride, vectorStride := c.packedStrides(next, wide)
	if c.flat {
		for v := range min(wide, len(dst)) { // a phase may have no steps
			c.packFlatWeights(dst[v*blockStride:], f, k+v, vectorStride)
		}
	} else {
		c.packStepWeights(dst, f, k, wide, s, n, blockStride, vectorStride)
	}
	if c.flat && blockStride == lanes {
		next = vectorStride
	}
	return dst, next
}

// packedStrides returns the layout of packed weights as distances in floats: blockStride
// between output blocks, and vectorStride between the vectors of eight weights within a block.
// blocks is the number of output blocks, and blockFloats is the size of each.
func (c *Direct) packedStrides(blockFloats, blocks int) (blockStride, vectorStride int) {
	if c.ws.Set.GEMM.Interleaved {
		return lanes, blocks * lanes
	}
	return blockFloats, lanes
}

// packAllWeights packs the weights of output blocks [k, k+wide) for all taps that reach the
// input.
func (c *Direct) packAllWeights(dst []float32, k, wide int) {
	all := c.blocks.channels * c.taps
	blockStride, vectorStride := c.packedStrides(all*lanes*lanes, wide)
	for j := range c.blocks.channels {
		for _, t := range c.live {
			for v := range wide {
				c.packWeightTile(dst[v*blockStride+(j*c.taps+t)*lanes*vectorStride:], j, k+v, t, vectorStride)
			}
		}
	}
}

// adjacentPackedTiles is the number of tiles of weights that packStepWeights packs for one output block before it
// goes on to the next block. Tiles of several blocks may share cache lines. So few tiles stay in the first-level
// cache until every block has written its part of a line.
const adjacentPackedTiles = 8

// packStepWeights packs steps [s, s+n) of phase f for output blocks [k, k+wide), with the strides that
// packedStrides returns.
func (c *Direct) packStepWeights(dst []float32, f *outputPhase, k, wide, s, n, blockStride, vectorStride int) {
	taps := max(1, len(f.taps))
	if !c.transposed && taps == c.taps { // the tiles of an output block are next to each other
		for i := 0; i < n; i += adjacentPackedTiles {
			for v := range wide {
				c.ws.Set.Spread(&dst[v*blockStride+i*lanes*vectorStride], &c.weights.Data[((k+v)*c.blocks.channels*taps+s+i)*lanes*lanes], vectorStride*4, min(adjacentPackedTiles, n-i)*lanes)
			}
		}
		return
	}
	j, t := s/taps, s%taps
	for i := range n {
		for v := range wide {
			c.packWeightTile(dst[v*blockStride+i*lanes*vectorStride:], j, k+v, f.taps[t].index, vectorStride)
		}
		if t++; t == taps {
			j, t = j+1, 0
		}
	}
}

// packWeightTile packs the tile of 8×8 weights from input block j to output block k at one tap.
func (c *Direct) packWeightTile(dst []float32, j, k, tap, vectorStride int) {
	const tile = lanes * lanes
	if c.transposed {
		outer := tensor.ChannelBlockCount(c.weights.Shape[1])
		c.ws.Set.Transpose(&dst[0], &c.weights.Data[((j*outer+k)*c.taps+tap)*tile], vectorStride*4)
	} else {
		c.ws.Set.Spread(&dst[0], &c.weights.Data[((k*c.blocks.channels+j)*c.taps+tap)*tile], vectorStride*4, lanes)
	}
}

// packFlatWeights packs all steps of phase f for output block k, without padding channels.
func (c *Direct) packFlatWeights(to []float32, f *outputPhase, k, vectorStride int) {
	const tile = lanes * lanes
	channels := c.in.Shape[1]
	for t, tp := range f.taps {
		from := c.weights.Data[(k*c.taps+tp.index)*tile:][:tile]
		for j := range channels {
			dst := to[(t*channels+j)*vectorStride:][:lanes]
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

// NewGeometry describes the convolution from the map large to the smaller map small, or, if
// transposed is set, the transposed convolution from small to large.
func NewGeometry(large, small, weights tensor.Operand, stride, pad [3]int, transposed bool) (s geometry) {
	for i := range s {
		l, m, k := large.Space[i], small.Space[i], weights.Space[i]
		if transposed {
			s[i] = newScatterAxis(m, l, k, stride[i], pad[i])
		} else {
			s[i] = newGatherAxis(l, m, k, stride[i], pad[i])
		}
	}
	return s
}
