package cpu

// winogradGradient computes the gradient of the weights of a convolution of
// stride 1 with a window of 3×3 and a pad of 1 in each slice: the 36 points of
// inputs and of gradients of outputs are multiplied as matrices, [in, tiles] by
// [tiles, out], and the sums over all tiles transformed back. To the matrix
// kernel the input channels are the rows and the tiles the steps. A tap along the
// depth is a matrix of its own, of the inputs so many slices before or behind.
//
// The tiles are cut in parts and these in blocks by the shapes alone. A part's
// sum is taken by one worker in the order of blocks, slices and tiles, however
// many slices a chunk has, and the parts' sums are added in order: the number of
// workers changes nothing.
type winogradGradient struct {
	x            *executable
	in, dy, dw   operand
	tiling       tiling
	parts        int // that the tiles are cut in
	inC, outC    int // channel blocks
	passes       passes
	inG, outG    int // groups that those of a pass are cut in
	inMost       int // input channel blocks of the largest group
	outMost      int // output channel blocks of the largest group
	d, v, z      transformed
	table, steps []int32 // of the matrix kernel
	// Where a worker's scratch memory holds these, in floats; v is at 0.
	zAt, patch, tmp int
}

// A gradient of many tiles and few weights is computed in gradientParts parts,
// or half as many and so on, as long as each has leastPart tiles, which pay for
// its sums' memory, and all sums fill no more than partFloats.
const (
	gradientParts = 8
	leastPart     = 192
	partFloats    = 13 << 18
)

// newWinogradGradient prepares the gradient dw of a convolution from in to an
// output with gradient dy.
func newWinogradGradient(x *executable, in, dy, dw operand) *winogradGradient {
	g := &winogradGradient{
		x: x, in: in, dy: dy, dw: dw,
		tiling: newTiling(in.Shape[0], in.space, dw.space[0]), inC: blocks(in.Shape[1]), outC: blocks(dy.Shape[1]),
	}
	t := &g.tiling
	g.passes = newPasses(g.inC*t.taps, g.outC)
	g.d = transformed{point: t.taps*g.inC*g.passes.most()*lanes*lanes + pointGap, block: t.taps * g.inC * lanes * lanes}
	g.parts = gradientParts
	for g.parts > 1 && g.parts > min(t.count, t.count*t.depth/leastPart, partFloats/(points*g.d.point)) {
		g.parts /= 2
	}
	// Where the parts do not occupy all workers alike, the channels are cut too.
	threads, pairs := x.engine.pool.threads, ceilDiv(g.passes.most(), 2)
	g.outG, g.inG = 1, 1
	if g.parts < 4*threads && g.parts%threads != 0 {
		g.outG = min(threads, pairs)
		g.inG = min(ceilDiv(threads, g.outG), g.inC)
	}
	g.inMost, g.outMost = ceilDiv(g.inC, g.inG), 2*ceilDiv(pairs, g.outG)
	t.cut(ceilDiv(t.count, g.parts), (g.inMost+g.outMost)*lanes)
	rows := t.slices * t.block
	g.v = transformed{tile: tileFloats(g.inMost * lanes), block: lanes}
	g.v.point = (t.slices+2*t.halo())*t.block*g.v.tile + pointGap
	g.z = transformed{tile: lanes, block: rows * lanes, point: rows*g.outMost*lanes + pointGap}
	g.zAt = points * g.v.point
	g.patch = g.zAt + points*g.z.point
	g.tmp = g.patch + points*lanes*max(g.inMost, g.outMost)
	x.needScratch(g.tmp + points*lanes + points*lanes*lanes)
	x.needShared(g.parts * points * g.d.point)
	g.table = tileTable(g.inMost*lanes, func(i int) (in, out int) { return 4 * i, 4 * lanes * i })
	g.steps = make([]int32, rows)
	for i := range g.steps {
		g.steps[i] = int32(i * g.v.tile * 4)
	}
	return g
}

// tasks are, pass by pass, parts by groups of input channels and groups of
// output channels, and then the transform of the sums.
func (g *winogradGradient) tasks() []task {
	var all []task
	for i := range g.passes.count {
		first, end := g.passes.blocks(i)
		all = append(all,
			task{g.parts * g.inG * g.outG, func(w *worker, lo, hi int) { g.run(w, first, end, lo, hi) }},
			task{g.tiling.taps * g.inC * (end - first), func(w *worker, lo, hi int) { g.write(w, first, lo, hi) }})
	}
	return all
}

// run computes items [lo, hi) of the pass over output blocks [pass, end), an item
// being a group of input channels by one of output channels of a part.
func (g *winogradGradient) run(w *worker, pass, end, lo, hi int) {
	k := g.x.engine.kernels
	v, z := w.scratch[:g.zAt], w.scratch[g.zAt:g.patch]
	patch, tmp := w.scratch[g.patch:g.tmp], w.scratch[g.tmp:]
	pairs := ceilDiv(end-pass, 2)
	for item := lo; item < hi; item++ {
		part, i, o := item/(g.inG*g.outG), item/g.outG%g.inG, item%g.outG
		first, last := part*g.tiling.count/g.parts, (part+1)*g.tiling.count/g.parts
		d := g.x.shared[part*points*g.d.point:]
		c0, c1 := i*g.inC/g.inG, (i+1)*g.inC/g.inG
		k0, k1 := pass+o*pairs/g.outG*2, min(end, pass+(o+1)*pairs/g.outG*2)
		for t0 := first; t0 < last; t0 += g.tiling.block {
			for z0 := 0; z0 < g.tiling.depth; z0 += g.tiling.slices {
				at := chunk{t0, min(g.tiling.block, last-t0), z0, min(g.tiling.slices, g.tiling.depth-z0)}
				g.tiling.load(k, g.in, c0, c1-c0, at, z0 > 0, v, g.v, patch, tmp)
				for s := range at.slices {
					g.tiling.transform(k, k.winograd.gradientSide(), g.dy, k0, k1-k0, t0, at.n, z0+s, z[s*at.n*g.z.tile:], g.z, patch, tmp)
				}
				g.multiply(d[(k0-pass)*g.d.block:], v, z, at, c0, c1, k0, k1, t0 > first || z0 > 0)
			}
		}
	}
}

// multiply adds the products of a chunk to the sums of input blocks [c0, c1)
// and output blocks [k0, k1), which d begins with.
func (g *winogradGradient) multiply(d, v, z []float32, at chunk, c0, c1, k0, k1 int, accumulate bool) {
	set := &g.x.engine.kernels.gemm.flat
	t := &g.tiling
	for p := range points {
		for k := k0; k < k1; k += 2 {
			for tap := range t.taps {
				// Outputs' slices [from, to) of the chunk have the tap inside the volume.
				from := max(0, t.halo()-tap-at.z)
				to := max(from, min(at.slices, t.depth+t.halo()-tap-at.z))
				gemmRows(set[min(2, k1-k)][:], v[p*g.v.point+(from+tap)*at.n*g.v.tile:], z[p*g.z.point+(k-k0)*g.z.block+from*at.n*g.z.tile:],
					d[p*g.d.point+(k-k0)*g.d.block+(tap*g.inC+c0)*lanes*lanes:], g.x.zeros, g.table, g.steps,
					g.z.block*4, g.d.block*4, (to-from)*at.n, (c1-c0)*lanes, accumulate)
			}
		}
	}
}

// write adds the parts' sums and transforms them, for tiles of 8×8 weights of
// the pass whose first output block is given.
func (g *winogradGradient) write(w *worker, pass, lo, hi int) {
	const tile = lanes * lanes
	k := g.x.engine.kernels
	tmp, sum := &w.scratch[g.tmp], w.scratch[g.tmp+points*lanes:]
	depth := g.tiling.taps
	for i := lo; i < hi; i++ {
		out, in, tap := i/(g.inC*depth), i/depth%g.inC, i%depth
		sums := out*g.d.block + (tap*g.inC+in)*tile
		from, ld := &g.x.shared[sums], g.d.point
		if g.parts > 1 {
			for p := range points {
				at := func(part int) *float32 { return &g.x.shared[(part*points+p)*g.d.point+sums] }
				k.add(at(0), at(1), &sum[p*tile], tile)
				for part := 2; part < g.parts; part++ {
					k.add(&sum[p*tile], at(part), &sum[p*tile], tile)
				}
			}
			from, ld = &sum[0], tile
		}
		k.winograd.weightGradient(from, &g.dw.data[(pass*g.inC*depth+i)*taps*tile], tmp, ld*4)
	}
}
