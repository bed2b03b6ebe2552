package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// maxTransformedWeightBytes limits the transformed weights, four times as large as the
// weights.
const maxTransformedWeightBytes = 19 << 20

// outputChannelPasses divides the output blocks of a layer into passes, so that the transformed
// weights of a pass take at most maxTransformedWeightBytes. Each pass transforms the inputs
// again.
type outputChannelPasses struct {
	count int // of passes
	units int // of output blocks; a pass has whole units
	unit  int // output blocks per unit
	out   int
}

// newOutputChannelPasses divides outC output blocks into passes. inC is the number of input blocks
// times the taps along the depth; unit is the number of output blocks that stay together; least
// is the number of units that a pass should have even if its transformed weights exceed
// maxTransformedWeightBytes.
func newOutputChannelPasses(inC, outC, unit, least int) outputChannelPasses {
	units := tensor.CeilDiv(outC, unit)
	count := tensor.CeilDiv(units, max(least, maxTransformedWeightBytes/(kernel.Points*inC*unit*lanes*lanes*4)))
	return outputChannelPasses{count, units, unit, outC}
}

func (p outputChannelPasses) passOutputBlocks(i int) (first, end int) {
	return i * p.units / p.count * p.unit, min(p.out, (i+1)*p.units/p.count*p.unit)
}

func (p outputChannelPasses) maxBlocksPerPass() int {
	return min(p.out, p.unit*tensor.CeilDiv(p.units, p.count))
}

// groupRange divides the output blocks [first, end) of a pass into groups of whole units, and
// returns the range [k0, k1) of group g.
func (p outputChannelPasses) groupRange(first, end, g, groups int) (k0, k1 int) {
	units := tensor.CeilDiv(end-first, p.unit)
	return first + g*units/groups*p.unit, min(end, first+(g+1)*units/groups*p.unit)
}

// Winograd computes a convolution of stride 1 with a window of 3×3 and a padding of 1 in
// each slice, or its transpose, tile by tile. The 36 points of the inputs and of the
// weights are multiplied as 36 pairs of matrices, [tiles, in] by [in, out]. For three taps
// along the depth the matrices are [tiles, 3·in] and [3·in, out]: products of three slices
// are summed before they are transformed back, and each slice is transformed once.
type Winograd struct {
	ws               *workspace.Workspace
	in, weights, out tensor.Operand
	bias             []float32 // nil if there is none
	transposed       bool      // the weights are [in,out,…], and rotated by 180°
	tiling           winogradTiling
	inC, outC        int
	passes           outputChannelPasses // over the output channels
	groups           int                 // number of groups of output channels per pass
	u, v, m          winogradPointStrides
	pass             int                          // steps per call of the matrix kernel; a step is a channel block of a tap along the depth
	statistics       *workspace.ChannelStatistics // of the output, nil if nobody needs them
	table            []int32                      // rows, see kernel.NewTileOffsetTable
	steps            [2][]int32                   // steps of the matrix kernel, for full blocks of tiles and for the last one
	// mAt, patch and tmp are the indexes in a worker's scratch memory of the sums of
	// products, of a tile that crosses the edge of the map, and of the scratch memory of a
	// transform. The transformed inputs begin at index 0.
	mAt, patch, tmp int
}

// NewWinograd prepares the convolution of in with weights, or its transpose; it writes the
// result to out. bias may be nil.
func NewWinograd(ws *workspace.Workspace, in, weights, out tensor.Operand, bias []float32, transposed bool) *Winograd {
	c := &Winograd{
		ws: ws, in: in, weights: weights, out: out, bias: bias, transposed: transposed,
		tiling: newWinogradTiling(in.Shape[0], in.Space, weights.Space[0]), inC: tensor.ChannelBlockCount(in.Shape[1]), outC: tensor.ChannelBlockCount(out.Shape[1]),
	}
	t, inC, outC, k := &c.tiling, c.inC*lanes, c.outC*lanes, ws.Set
	t.chooseChunks(t.count, inC+outC, k.GEMM.Rows)
	// With fewer chunks than threads, the threads share the output channels of a pass.
	c.passes = newOutputChannelPasses(c.inC*t.taps, c.outC, k.GEMM.Blocks, tensor.CeilDiv(ws.Threads, t.chunkCount()))
	c.u = winogradPointStrides{point: t.taps*inC*c.passes.maxBlocksPerPass()*lanes + pointGapFloats, block: t.taps * inC * lanes}
	c.v = winogradPointStrides{tile: tileStride(inC, k.Vector), block: lanes}
	c.m = winogradPointStrides{tile: tileStride(outC, k.Vector), block: lanes}
	c.v.point = (t.slices+2*t.haloSlices())*t.block*c.v.tile + pointGapFloats
	c.m.point = t.slices*t.block*c.m.tile + pointGapFloats
	c.mAt = kernel.Points * c.v.point
	c.patch = c.mAt + kernel.Points*c.m.point
	c.tmp = c.patch + kernel.Points*lanes*max(c.inC, c.outC)
	ws.ReserveScratch(c.tmp + kernel.Points*k.Vector + 2*kernel.Taps*lanes*lanes) // rotated tiles of weights are after tmp
	ws.ReserveSharedScratch(kernel.Points * c.u.point)
	most := maxPassWeightBytes / (k.GEMM.Blocks * lanes * lanes * 4)
	c.pass = tensor.CeilDiv(t.taps*c.inC, tensor.CeilDiv(t.taps*c.inC, most))
	c.table = kernel.NewTileOffsetTable(t.slices*t.block, k.GEMM.Rows, func(i int) (in, out int) { return i * c.v.tile * 4, i * c.m.tile * 4 })
	for i, n := range []int{t.block, t.chunkAt(t.chunkCount() - 1).n} {
		for d := range t.taps {
			for b := range c.inC {
				c.steps[i] = append(c.steps[i], int32((d*n*c.v.tile+b*lanes)*4), int32((d*c.inC+b)*lanes*lanes*4))
			}
		}
	}
	c.groups = 1
	if parts, threads := t.chunkCount(), ws.Threads; parts < 4*threads && parts%threads != 0 {
		c.groups = min(threads, tensor.CeilDiv(c.passes.maxBlocksPerPass(), k.GEMM.Blocks))
	}
	return c
}

// Tasks returns two tasks for each pass: one transforms the weights, one computes the
// outputs. An item of the second computes a group of output blocks of one chunk.
func (c *Winograd) Tasks() []threads.Task {
	var all []threads.Task
	for i := range c.passes.count {
		first, end := c.passes.passOutputBlocks(i)
		all = append(all,
			threads.Task{Items: c.tiling.taps * c.inC * tensor.CeilDiv(end-first, blocksPerWeightUnit(c.ws)), Run: func(w *threads.Worker, lo, hi int) { c.transformWeights(w, first, end, lo, hi) }},
			threads.Task{Items: c.tiling.chunkCount() * c.groups, Run: func(w *threads.Worker, lo, hi int) { c.computeOutputs(w, first, end, lo, hi) }})
	}
	return all
}

func blocksPerWeightUnit(ws *workspace.Workspace) int {
	if set := &ws.Set.GEMM; set.Interleaved {
		return set.Blocks
	}
	return 1
}

// transformWeights transforms the weights of items [lo, hi), in the pass over output blocks
// [first, end). Each item consists of the tiles of 8×8 weights for one input block, one
// group of output blocks and one tap along the depth.
func (c *Winograd) transformWeights(w *threads.Worker, first, end, lo, hi int) {
	unit, depth := blocksPerWeightUnit(c.ws), c.tiling.taps
	for i := lo; i < hi; i++ {
		d, in := i/c.inC%depth, i%c.inC
		for k, last := first+i/(depth*c.inC)*unit, min(end, first+(i/(depth*c.inC)+1)*unit); k < last; {
			wide := 1
			if unit > 1 {
				wide = c.ws.Set.GEMM.NextTileBlocks(last - k)
			}
			c.transformWeightBlocks(w, k-first, k, wide, d, in)
			k += wide
		}
	}
}

// transformWeightBlocks transforms the weights from input block in to output blocks [out,
// out+wide), at tap d along the depth. first is the index of block out in the pass.
func (c *Winograd) transformWeightBlocks(w *threads.Worker, first, out, wide, d, in int) {
	const tile = lanes * lanes
	k, depth := c.ws.Set, c.tiling.taps
	tmp := w.Scratch[c.tmp:]
	u := c.ws.Shared[first*c.u.block+(d*c.inC+in)*tile*wide:]
	if wide == 1 {
		k.Winograd.Weights(c.weightTile(tmp[kernel.Points*k.Vector:], d, in, out), &u[0], &tmp[0], c.u.point*4)
		return
	}
	for b := 0; b < wide; b += 2 {
		from, next := c.weightTile(tmp[kernel.Points*k.Vector:], d, in, out+b), c.inC*depth*kernel.Taps*tile
		if c.transposed {
			next = kernel.Taps * tile
			c.weightTile(tmp[kernel.Points*k.Vector+next:], d, in, out+b+1)
		}
		k.Winograd.WeightPair(from, &u[b*lanes], &tmp[0], next*4, c.u.point*4, wide*lanes*4)
	}
}

// weightTile returns the 3×3 tiles of 8×8 weights from input block in to output block out, at
// tap d along the depth. For a transposed convolution it writes rotated tiles to scratch and
// returns them.
func (c *Winograd) weightTile(scratch []float32, d, in, out int) *float32 {
	const tile = lanes * lanes
	depth := c.tiling.taps
	if !c.transposed {
		return &c.weights.Data[((out*c.inC+in)*depth+d)*kernel.Taps*tile]
	}
	from := c.weights.Data[((in*c.outC+out)*depth+depth-1-d)*kernel.Taps*tile:]
	for t := range kernel.Taps {
		c.ws.Set.Transpose(&scratch[(kernel.Taps-1-t)*tile], &from[t*tile], lanes*4)
	}
	return &scratch[0]
}

func (c *Winograd) computeOutputs(w *threads.Worker, first, end, lo, hi int) {
	v, m := w.Scratch[:c.mAt], w.Scratch[c.mAt:c.patch]
	patch, tmp := w.Scratch[c.patch:c.tmp], w.Scratch[c.tmp:]
	for item, loaded := lo, -1; item < hi; item++ {
		i, g := item/c.groups, item%c.groups
		part := c.tiling.chunkAt(i)
		if i != loaded {
			c.tiling.transformChunkInputs(c.ws.Set, c.in, 0, c.inC, part, item > lo && part.z > 0, v, c.v, patch, tmp)
			loaded = i
		}
		k0, k1 := c.passes.groupRange(first, end, g, c.groups)
		c.multiplyTransformedTiles(v, m, part, first, k0, k1)
		c.writeOutputs(m, patch, tmp, part, k0, k1)
		if c.statistics != nil {
			c.computeOutputStatistics(i, part, k0, k1)
		}
	}
}

// multiplyTransformedTiles computes the sums m of products for output blocks [k0, k1) from the transformed
// inputs v of the chunk part. first is the first output block of the pass.
func (c *Winograd) multiplyTransformedTiles(v, m []float32, part tileChunk, first, k0, k1 int) {
	set := &c.ws.Set.GEMM
	steps := c.steps[0]
	if part.n != c.tiling.block {
		steps = c.steps[1]
	}
	for p := range kernel.Points {
		for k := k0; k < k1; {
			wide := set.NextTileBlocks(k1 - k)
			weights := c.ws.Shared[p*c.u.point+(k-first)*c.u.block:]
			c.tiling.forEachTapRun(part, func(z, slices, tap, end int) {
				row := (z - part.z) * part.n
				for s := tap * c.inC; s < end*c.inC; s += c.pass {
					kernel.MultiplyRows(&set.Deep[wide], set.Rows, v[p*c.v.point+row*c.v.tile:], weights,
						m[p*c.m.point+row*c.m.tile+k*lanes:], c.ws.Zeros, c.table, steps[2*s:],
						c.u.block*4, lanes*4, min(c.pass, end*c.inC-s), slices*part.n, s > tap*c.inC)
				}
			})
			k += wide
		}
	}
}

// writeOutputs transforms the sums m of output blocks [k0, k1) to outputs. If a tile crosses
// the edge of the map, writeOutputs computes the whole tile in patch and copies the part inside
// the map.
func (c *Winograd) writeOutputs(m, patch, tmp []float32, part tileChunk, k0, k1 int) {
	t, output := &c.tiling, c.ws.Set.Winograd.Output
	bias, biasStep := c.ws.Zeros, 0
	if c.bias != nil {
		bias, biasStep = c.bias[k0*lanes:], lanes*4
	}
	row := t.w * lanes
	for i := range part.slices * part.n {
		image, top, left := t.tileOrigin(part.first + i%part.n)
		y := c.out.Data[(image*c.outC+k0)*t.volumeFloats()+(part.z+i/part.n)*t.sliceFloats()+top*row+left*lanes:]
		from := &m[i*c.m.tile+k0*lanes]
		if top+kernel.TileSide <= t.h && left+kernel.TileSide <= t.w {
			output(from, &y[0], &bias[0], &tmp[0], c.m.point*4, row*4, t.volumeFloats()*4, biasStep, k1-k0)
			continue
		}
		const size = kernel.TileSide * kernel.TileSide * lanes
		output(from, &patch[0], &bias[0], &tmp[0], c.m.point*4, kernel.TileSide*lanes*4, size*4, biasStep, k1-k0)
		width := min(kernel.TileSide, t.w-left) * lanes
		for k := range k1 - k0 {
			for r := range min(kernel.TileSide, t.h-top) {
				copy(y[k*t.volumeFloats()+r*row:][:width], patch[k*size+r*kernel.TileSide*lanes:])
			}
		}
	}
}
