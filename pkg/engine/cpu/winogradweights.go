package cpu

// winogradGradient computes the gradient of the weights of a 3×3 convolution of
// stride 1 with a pad of 1: the 36 points of inputs and of gradients of outputs
// are multiplied as matrices, [in, tiles] by [tiles, out], and the sums over all
// tiles transformed back. To the matrix kernel the input channels are the rows
// and the tiles the steps.
//
// The tiles are cut in parts by the shapes alone. A part's sum is taken by one
// worker in the order of the tiles, whatever their blocks, and the parts' sums
// are added in order: the number of workers changes nothing.
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
	block        int // tiles of a block
	d, v, z      transformed
	table, steps []int32 // of the matrix kernel
	// Where a worker's scratch memory holds these, in floats; v is at 0.
	zAt, patch, tmp int
}

// A gradient of many tiles and few weights is computed in gradientParts parts,
// as long as each has leastPart tiles and their sums fill no more than
// partFloats.
const (
	gradientParts = 8
	leastPart     = 64
	partFloats    = 13 << 18
)

// newWinogradGradient prepares the gradient dw of a convolution from in to an
// output with gradient dy.
func newWinogradGradient(x *executable, in, dy, dw operand) *winogradGradient {
	g := &winogradGradient{
		x: x, in: in, dy: dy, dw: dw,
		tiling: newTiling(in.Shape[0], in.Shape[2], in.Shape[3]), inC: blocks(in.Shape[1]), outC: blocks(dy.Shape[1]),
	}
	g.passes = newPasses(g.inC, g.outC)
	g.d = transformed{point: g.inC*g.passes.most()*lanes*lanes + pointGap, block: g.inC * lanes * lanes}
	g.parts = max(1, min(gradientParts, g.tiling.count/leastPart, partFloats/(points*g.d.point)))
	// Where the parts do not occupy all workers alike, the channels are cut too.
	threads, pairs := x.engine.pool.threads, ceilDiv(g.passes.most(), 2)
	g.outG, g.inG = 1, 1
	if g.parts < 4*threads && g.parts%threads != 0 {
		g.outG = min(threads, pairs)
		g.inG = min(ceilDiv(threads, g.outG), g.inC)
	}
	g.inMost, g.outMost = ceilDiv(g.inC, g.inG), 2*ceilDiv(pairs, g.outG)
	g.block = tilesOfBlock(ceilDiv(g.tiling.count, g.parts), (g.inMost+g.outMost)*lanes)
	g.v = transformed{tile: tileFloats(g.inMost * lanes), block: lanes}
	g.v.point = g.block*g.v.tile + pointGap
	g.z = transformed{tile: lanes, block: g.block * lanes, point: g.block*g.outMost*lanes + pointGap}
	g.zAt = points * g.v.point
	g.patch = g.zAt + points*g.z.point
	g.tmp = g.patch + points*lanes*max(g.inMost, g.outMost)
	x.needScratch(g.tmp + points*lanes + points*lanes*lanes)
	x.needShared(g.parts * points * g.d.point)
	g.table = tileTable(g.inMost*lanes, func(i int) (in, out int) { return 4 * i, 4 * lanes * i })
	g.steps = make([]int32, g.block)
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
			task{g.inC * (end - first), func(w *worker, lo, hi int) { g.write(w, first, lo, hi) }})
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
		for t0 := first; t0 < last; t0 += g.block {
			n := min(g.block, last-t0)
			g.tiling.transform(k, side{k.winograd.input, k.winograd.normInput, patchSide, 1}, g.in, c0, c1-c0, t0, n, v, g.v, patch, tmp)
			g.tiling.transform(k, side{k.winograd.gradient, nil, tileSide, 0}, g.dy, k0, k1-k0, t0, n, z, g.z, patch, tmp)
			g.multiply(d[(k0-pass)*g.d.block:], v, z, n, c0, c1, k0, k1, t0 > first)
		}
	}
}

// multiply adds the products of n tiles to the sums of input blocks [c0, c1)
// and output blocks [k0, k1), which d begins with.
func (g *winogradGradient) multiply(d, v, z []float32, n, c0, c1, k0, k1 int, accumulate bool) {
	set := &g.x.engine.kernels.gemm.flat
	for p := range points {
		for k := k0; k < k1; k += 2 {
			gemmRows(set[min(2, k1-k)][:], v[p*g.v.point:], z[p*g.z.point+(k-k0)*g.z.block:],
				d[p*g.d.point+(k-k0)*g.d.block+c0*lanes*lanes:], g.x.zeros, g.table, g.steps,
				g.z.block*4, g.d.block*4, n, (c1-c0)*lanes, accumulate)
		}
	}
}

// write adds the parts' sums and transforms them, for tiles of 8×8 weights of
// the pass whose first output block is given.
func (g *winogradGradient) write(w *worker, pass, lo, hi int) {
	const tile = lanes * lanes
	k := g.x.engine.kernels
	tmp, sum := &w.scratch[g.tmp], w.scratch[g.tmp+points*lanes:]
	for i := lo; i < hi; i++ {
		from, ld := &g.x.shared[i*tile], g.d.point
		if g.parts > 1 {
			for p := range points {
				at := func(part int) *float32 { return &g.x.shared[(part*points+p)*g.d.point+i*tile] }
				k.add(at(0), at(1), &sum[p*tile], tile)
				for part := 2; part < g.parts; part++ {
					k.add(&sum[p*tile], at(part), &sum[p*tile], tile)
				}
			}
			from, ld = &sum[0], tile
		}
		k.winograd.weightGradient(from, &g.dw.data[(pass*g.inC+i)*taps*tile], tmp, ld*4)
	}
}
