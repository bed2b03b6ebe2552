package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// WinogradGradient computes the gradient of the weights of a convolution of stride 1 with a
// window of 3×3 and a padding of 1 in each slice. The 36 points of the inputs and of the
// gradients of the outputs are multiplied as matrices, [in, tiles] by [tiles, out], and the
// sums over all tiles are transformed back. The rows of the matrix kernel are the input
// channels, its steps are the tiles. Each tap along the depth has separate matrices, with
// the inputs of the slices before or after.
//
// The division of tiles into parts, and of parts into blocks, depends only on the shapes.
// One worker computes the sum of a part, in the order of blocks, slices and tiles, whatever
// the size of chunks, and the parts are added in order. So the results have the same bits
// for any number of workers.
type WinogradGradient struct {
	ws         *workspace.Workspace
	in, dy, dw tensor.Operand
	tiling     winogradTiling
	parts      int // number of parts of the tiles
	inC, outC  int
	passes     outputChannelPasses
	inG, outG  int // numbers of groups of channel blocks per pass
	inMost     int // input blocks of the largest group
	outMost    int // output blocks of the largest group
	d, v, z    winogradPointStrides
	steps      []int32                       // of the matrix kernel
	tables     [kernel.MaxBlocks + 1][]int32 // rows by the blocks of outputs of a tile, see kernel.NewTileOffsetTable
	// zAt, patch and tmp are the indexes in a worker's scratch memory of the transformed
	// gradients, of a tile that crosses the edge of the map, and of the scratch memory of a
	// transform. The transformed inputs begin at index 0.
	zAt, patch, tmp int
}

// A gradient is computed in up to maxGradientParts parts, so that several workers can compute
// it. The number of parts is halved until each part has at least minPartTiles tiles, and the
// sums of all parts take at most maxSumFloats floats. Adding up the parts then takes little of
// the time.
const (
	maxGradientParts = 8
	minPartTiles     = 192
	maxSumFloats     = 13 << 18
)

// NewWinogradGradient prepares the computation of dw, the gradient of a convolution's weights.
// in is the convolution's input, and dy is the gradient of its output.
func NewWinogradGradient(ws *workspace.Workspace, in, dy, dw tensor.Operand) *WinogradGradient {
	g := &WinogradGradient{
		ws: ws, in: in, dy: dy, dw: dw,
		tiling: newWinogradTiling(in.Shape[0], in.Space, dw.Space[0]), inC: tensor.ChannelBlockCount(in.Shape[1]), outC: tensor.ChannelBlockCount(dy.Shape[1]),
	}
	t, k := &g.tiling, ws.Set
	g.passes = newOutputChannelPasses(g.inC*t.taps, g.outC, k.GEMM.Blocks, 1)
	g.d = winogradPointStrides{point: t.taps*g.inC*g.passes.maxBlocksPerPass()*lanes*lanes + pointGapFloats, block: t.taps * g.inC * lanes * lanes}
	g.parts = maxGradientParts
	for g.parts > 1 && g.parts > min(t.count, t.count*t.depth/minPartTiles, maxSumFloats/(kernel.Points*g.d.point)) {
		g.parts /= 2
	}
	// Where the parts do not occupy all workers alike, the channels are cut too.
	threads, units := ws.Threads, tensor.CeilDiv(g.passes.maxBlocksPerPass(), k.GEMM.Blocks)
	g.outG, g.inG = 1, 1
	if g.parts < 4*threads && g.parts%threads != 0 {
		g.outG = min(threads, units)
		g.inG = min(tensor.CeilDiv(threads, g.outG), g.inC)
	}
	g.inMost, g.outMost = tensor.CeilDiv(g.inC, g.inG), k.GEMM.Blocks*tensor.CeilDiv(units, g.outG)
	t.chooseChunks(tensor.CeilDiv(t.count, g.parts), (g.inMost+g.outMost)*lanes, k.GEMM.Rows)
	rows := t.slices * t.block
	g.v = winogradPointStrides{tile: tileStride(g.inMost*lanes, k.Vector), block: lanes}
	g.v.point = (t.slices+2*t.haloSlices())*t.block*g.v.tile + pointGapFloats
	g.z = winogradPointStrides{tile: lanes, block: rows * lanes, point: rows*g.outMost*lanes + pointGapFloats}
	if k.GEMM.Interleaved {
		g.z = winogradPointStrides{tile: tileStride(g.outMost*lanes, k.Vector), block: lanes}
		g.z.point = rows*g.z.tile + pointGapFloats
	}
	g.zAt = kernel.Points * g.v.point
	g.patch = g.zAt + kernel.Points*g.z.point
	g.tmp = g.patch + kernel.Points*lanes*max(g.inMost, g.outMost)
	ws.ReserveScratch(g.tmp + kernel.Points*k.Vector + kernel.Points*lanes*lanes*blocksPerWeightUnit(ws))
	ws.ReserveSharedScratch(g.parts * kernel.Points * g.d.point)
	for b := 1; b <= k.GEMM.Blocks; b *= 2 {
		out := 4 * lanes
		if k.GEMM.Interleaved {
			out *= b
		}
		g.tables[b] = kernel.NewTileOffsetTable(g.inMost*lanes, k.GEMM.Rows, func(i int) (int, int) { return 4 * i, out * i })
	}
	g.steps = make([]int32, rows)
	for i := range g.steps {
		g.steps[i] = int32(i * g.v.tile * 4)
	}
	return g
}

// Tasks returns two tasks for each pass. An item of the first computes the sums of one part
// for a group of input channels and a group of output channels. The second adds the parts
// and transforms the sums back.
func (g *WinogradGradient) Tasks() []threads.Task {
	var all []threads.Task
	for i := range g.passes.count {
		first, end := g.passes.passOutputBlocks(i)
		all = append(all,
			threads.Task{Items: g.parts * g.inG * g.outG, Run: func(w *threads.Worker, lo, hi int) { g.computePartialSums(w, first, end, lo, hi) }},
			threads.Task{Items: g.tiling.taps * g.inC * tensor.CeilDiv(end-first, blocksPerWeightUnit(g.ws)), Run: func(w *threads.Worker, lo, hi int) { g.writeSummedGradients(w, first, end, lo, hi) }})
	}
	return all
}

func (g *WinogradGradient) computePartialSums(w *threads.Worker, pass, end, lo, hi int) {
	k := g.ws.Set
	v, z := w.Scratch[:g.zAt], w.Scratch[g.zAt:g.patch]
	patch, tmp := w.Scratch[g.patch:g.tmp], w.Scratch[g.tmp:]
	for item := lo; item < hi; item++ {
		part, i, o := item/(g.inG*g.outG), item/g.outG%g.inG, item%g.outG
		first, last := part*g.tiling.count/g.parts, (part+1)*g.tiling.count/g.parts
		d := g.ws.Shared[part*kernel.Points*g.d.point:]
		c0, c1 := i*g.inC/g.inG, (i+1)*g.inC/g.inG
		k0, k1 := g.passes.groupRange(pass, end, o, g.outG)
		for t0 := first; t0 < last; t0 += g.tiling.block {
			for z0 := 0; z0 < g.tiling.depth; z0 += g.tiling.slices {
				at := tileChunk{t0, min(g.tiling.block, last-t0), z0, min(g.tiling.slices, g.tiling.depth-z0)}
				g.tiling.transformChunkInputs(k, g.in, c0, c1-c0, at, z0 > 0, v, g.v, patch, tmp)
				for s := range at.slices {
					g.tiling.transformTiles(k, newGradientTransform(&k.Winograd), g.dy, k0, k1-k0, t0, at.n, z0+s, z[s*at.n*g.z.tile:], g.z, patch, tmp)
				}
				g.multiplyTransformedTiles(d[(k0-pass)*g.d.block:], v, z, at, c0, c1, k0, k1, t0 > first || z0 > 0)
			}
		}
	}
}

// multiplyTransformedTiles adds the products of chunk at to the sums d, for input blocks [c0, c1) and output
// blocks [k0, k1). v and z are the transformed inputs and gradients. The sums in d begin with
// output block k0. If accumulate is false, multiply overwrites the sums.
func (g *WinogradGradient) multiplyTransformedTiles(d, v, z []float32, at tileChunk, c0, c1, k0, k1 int, accumulate bool) {
	const tile = lanes * lanes
	set, t := &g.ws.Set.GEMM, &g.tiling
	for p := range kernel.Points {
		for k := k0; k < k1; {
			wide := set.NextTileBlocks(k1 - k)
			wNext, yNext, row := g.z.block, g.d.block, tile
			if set.Interleaved {
				wNext, yNext, row = g.z.tile, lanes, tile*wide
			}
			for tap := range t.taps {
				// In slices [from, to) of the chunk's outputs the tap is inside the volume.
				from := max(0, t.haloSlices()-tap-at.z)
				to := max(from, min(at.slices, t.depth+t.haloSlices()-tap-at.z))
				kernel.MultiplyRows(&set.Flat[wide], set.Rows, v[p*g.v.point+(from+tap)*at.n*g.v.tile:], z[p*g.z.point+(k-k0)*g.z.block+from*at.n*g.z.tile:],
					d[p*g.d.point+(k-k0)*g.d.block+(tap*g.inC+c0)*row:], g.ws.Zeros, g.tables[wide], g.steps,
					wNext*4, yNext*4, (to-from)*at.n, (c1-c0)*lanes, accumulate)
			}
			k += wide
		}
	}
}

// writeSummedGradients adds the sums of all parts and transforms the totals to gradients. An item
// consists of the tiles of 8×8 weights from one input block to one unit of output blocks, at
// one tap along the depth.
func (g *WinogradGradient) writeSummedGradients(w *threads.Worker, pass, end, lo, hi int) {
	unit, depth := blocksPerWeightUnit(g.ws), g.tiling.taps
	for i := lo; i < hi; i++ {
		out, in, tap := i/(g.inC*depth)*unit, i/depth%g.inC, i%depth
		for k, last := pass+out, min(end, pass+out+unit); k < last; {
			wide := 1
			if unit > 1 {
				wide = g.ws.Set.GEMM.NextTileBlocks(last - k)
			}
			g.writeWeightGradients(w, k-pass, k, wide, in, tap)
			k += wide
		}
	}
}

// writeWeightGradients writes the gradients of the weights from input block in to output blocks
// [out, out+wide), at one tap along the depth. first is the index of block out in the pass.
func (g *WinogradGradient) writeWeightGradients(w *threads.Worker, first, out, wide, in, tap int) {
	const tile = lanes * lanes
	k, depth := g.ws.Set, g.tiling.taps
	tmp, sum := &w.Scratch[g.tmp], w.Scratch[g.tmp+kernel.Points*k.Vector:]
	sums, size := first*g.d.block+(tap*g.inC+in)*tile*wide, tile*wide
	from, ld := g.ws.Shared[sums:], g.d.point
	if g.parts > 1 {
		for p := range kernel.Points {
			partSum := func(part int) *float32 { return &g.ws.Shared[(part*kernel.Points+p)*g.d.point+sums] }
			k.Add(partSum(0), partSum(1), &sum[p*size], size)
			for part := 2; part < g.parts; part++ {
				k.Add(&sum[p*size], partSum(part), &sum[p*size], size)
			}
		}
		from, ld = sum, size
	}
	next := g.inC * depth * kernel.Taps * tile
	dw := g.dw.Data[((out*g.inC+in)*depth+tap)*kernel.Taps*tile:]
	if wide == 1 {
		k.Winograd.WeightGradient(&from[0], &dw[0], tmp, ld*4)
		return
	}
	for b := 0; b < wide; b += 2 {
		k.Winograd.WeightGradientPair(&from[b*lanes], &dw[b*next], tmp, next*4, ld*4, wide*lanes*4)
	}
}
