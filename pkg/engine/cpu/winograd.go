package cpu

// tileSide is the side of an output tile of Winograd's F(4×4,3×3), patchSide
// that of the inputs which it depends on, points the number of products of a
// tile, 36 in place of 144, and taps that of the window (Lavin and Gray, Fast Algorithms for Convolutional
// Neural Networks, arXiv:1509.09308, 2015).
const (
	tileSide  = 4
	patchSide = tileSide + 2
	points    = patchSide * patchSide
	taps      = 9
)

// winogradKernels are the transforms, M·d·Mᵀ with a constant matrix M, of
// squares of vectors of eight channels. Distances are in bytes. tmp is scratch
// memory of 36 vectors.
type winogradKernels struct {
	// input takes, from each of so many channel blocks plane bytes apart, 6×6
	// vectors in rows row bytes apart; point p of block b goes to v + p·ld + b·step.
	// gradient does the same with 4×4 gradients of outputs.
	// normInput normalises them first, with the constants of kernels.normalize
	// for each block.
	input, gradient func(x, v, tmp *float32, row, plane, ld, step, blocks int)
	normInput       func(x, v, tmp, p *float32, row, plane, ld, step, blocks int)
	// output takes the points' products, those of block b at m + p·ld + 32·b, to
	// 4×4 outputs and adds the eight biases at bias + b·biasStep.
	output func(m, y, bias, tmp *float32, ld, row, plane, biasStep, blocks int)
	// weights takes a tile [3][3][8][8] of weights to u + p·ld, eight vectors each;
	// weightGradient takes products that lie so to a tile of gradients.
	weights, weightGradient func(from, to, tmp *float32, ld int)
}

// tiling cuts the maps of images in tiles, numbered image by image and row by row.
type tiling struct{ h, w, rows, cols, count int }

func newTiling(n, h, w int) tiling {
	rows, cols := ceilDiv(h, tileSide), ceilDiv(w, tileSide)
	return tiling{h, w, rows, cols, n * rows * cols}
}

// at is where tile i begins.
func (t tiling) at(i int) (image, top, left int) {
	return i / (t.rows * t.cols), i / t.cols % t.rows * tileSide, i % t.cols * tileSide
}

// plane is the number of floats of a channel block of an image.
func (t tiling) plane() int { return t.h * t.w * lanes }

// transformed is how the points of a block of tiles lie, in floats: point p
// of tile t and channel block b is at p·point + t·tile + b·block.
type transformed struct{ point, tile, block int }

// pointGap separates the points, which lie a power of two apart otherwise: the
// cache would hold few of them at a time.
const pointGap = 16

// tileFloats is the distance of tiles with so many channels, again not a power of two.
func tileFloats(channels int) int {
	if channels%128 == 0 {
		return channels + pointGap
	}
	return channels
}

// side is a way to transform the squares of a map: side×side vectors that begin
// before pixels before a tile does.
type side struct {
	transform    func(x, v, tmp *float32, row, plane, ld, step, blocks int)
	norm         func(x, v, tmp, p *float32, row, plane, ld, step, blocks int) // the same of what is yet to be normalised
	side, before int
}

// transform computes the points of tiles [first, first+n) in v, of channel
// blocks [c0, c0+count) of o.
func (t tiling) transform(k *kernels, s side, o operand, c0, count, first, n int, v []float32, lie transformed, patch, tmp []float32) {
	for i := range o.pieces {
		p := &o.pieces[i]
		if from, to := max(c0, p.first), min(c0+count, p.first+p.count); from < to {
			t.transformPiece(k, s, p, from, to-from, first, n, v[(from-c0)*lie.block:], lie, patch, tmp)
		}
	}
}

// transformPiece is transform for channel blocks of one piece. Squares that
// reach over the map's edge are cut out to patch, with zeros around.
func (t tiling) transformPiece(k *kernels, s side, p *piece, c0, count, first, n int, v []float32, lie transformed, patch, tmp []float32) {
	row, plane := t.w*lanes, t.plane()
	var norm []float32
	if p.norm != nil {
		norm = p.norm[(c0-p.first)*normFloats:]
	}
	for i := range n {
		image, top, left := t.at(first + i)
		top, left = top-s.before, left-s.before
		from := p.data[image*p.image+(c0-p.first)*plane:]
		if top >= 0 && left >= 0 && top+s.side <= t.h && left+s.side <= t.w {
			if norm == nil {
				s.transform(&from[top*row+left*lanes], &v[i*lie.tile], &tmp[0], row*4, plane*4, lie.point*4, lie.block*4, count)
			} else {
				s.norm(&from[top*row+left*lanes], &v[i*lie.tile], &tmp[0], &norm[0], row*4, plane*4, lie.point*4, lie.block*4, count)
			}
			continue
		}
		size := s.side * s.side * lanes
		clear(patch[:count*size])
		y0, y1 := max(0, -top), min(s.side, t.h-top)
		x0, x1 := max(0, -left), min(s.side, t.w-left)
		for c := range count {
			for y := y0; y < y1; y++ {
				to, at := &patch[c*size+(y*s.side+x0)*lanes], &from[c*plane+(top+y)*row+(left+x0)*lanes]
				if norm == nil {
					copyBlocks(to, at, x1-x0)
				} else {
					k.normalize(at, to, &norm[c*normFloats], x1-x0)
				}
			}
		}
		s.transform(&patch[0], &v[i*lie.tile], &tmp[0], s.side*lanes*4, size*4, lie.point*4, lie.block*4, count)
	}
}

// copyBlocks copies n vectors, one at a time: few are not worth a call of memmove.
func copyBlocks(to, from *float32, n int) {
	dst, src := blocksAt(to, n), blocksAt(from, n)
	for i := range dst {
		dst[i] = src[i]
	}
}

// passBytes bounds the transformed weights that are held at a time, those of
// all channels of a layer being four times as large as the weights.
const passBytes = 19 << 20

// passes cuts the output blocks in passes of whole pairs, each with few enough
// weights; the inputs are transformed again in each.
type passes struct{ count, pairs, out int }

func newPasses(inC, outC int) passes {
	pairs := ceilDiv(outC, 2)
	count := ceilDiv(pairs, max(1, passBytes/(points*inC*2*lanes*lanes*4)))
	return passes{count, pairs, outC}
}

// blocks are the output blocks [first, end) of pass i.
func (p passes) blocks(i int) (first, end int) {
	return i * p.pairs / p.count * 2, min(p.out, (i+1)*p.pairs/p.count*2)
}

// most is the number of output blocks of the largest pass.
func (p passes) most() int { return min(p.out, 2*ceilDiv(p.pairs, p.count)) }

// winograd computes a 3×3 convolution of stride 1 with a pad of 1, or its
// transpose, tile by tile: the 36 points of inputs and of weights are
// multiplied as 36 matrices, [tiles, in] by [in, out].
type winograd struct {
	x                *executable
	in, weights, out operand
	bias             []float32 // nil without bias
	transposed       bool      // weights are [in,out,3,3], and turned
	tiling           tiling
	inC, outC        int    // channel blocks
	block            int    // tiles of a block
	passes           passes // over the output channels
	groups           int    // parts that a pass is cut in
	u, v, m          transformed
	chunk            int     // channel blocks of one pass
	tally            *tally  // of the output, nil where none is asked for
	table, steps     []int32 // of the matrix kernel
	// Where a worker's scratch memory holds these, in floats; v is at 0.
	mAt, patch, tmp int
}

// winogradBytes bounds the transformed tiles of a block, so that they stay in
// the second-level cache; blocks of fewer than leastTiles would read the weights
// too often. Found by measurement on a processor with 1 MiB of that cache.
const (
	winogradBytes = 512 << 10
	leastTiles    = 48
)

// tilesOfBlock is the number of tiles that are transformed at once: a block's
// points of in and out channels together are to be small.
func tilesOfBlock(tiles, channels int) int {
	most := max(leastTiles, winogradBytes/(points*channels*4))
	n := ceilDiv(tiles, ceilDiv(tiles, most))
	return min(tiles, roundUp(n, maxRows))
}

// newWinograd prepares the convolution of in with weights into out, or its
// transpose. bias may be nil.
func newWinograd(x *executable, in, weights, out operand, bias []float32, transposed bool) *winograd {
	c := &winograd{
		x: x, in: in, weights: weights, out: out, bias: bias, transposed: transposed,
		tiling: newTiling(in.Shape[0], in.Shape[2], in.Shape[3]), inC: blocks(in.Shape[1]), outC: blocks(out.Shape[1]),
	}
	inC, outC := c.inC*lanes, c.outC*lanes
	c.block = tilesOfBlock(c.tiling.count, inC+outC)
	c.passes = newPasses(c.inC, c.outC)
	c.u = transformed{point: inC*c.passes.most()*lanes + pointGap, block: inC * lanes}
	c.v = transformed{tile: tileFloats(inC), block: lanes}
	c.m = transformed{tile: tileFloats(outC), block: lanes}
	c.v.point, c.m.point = c.block*c.v.tile+pointGap, c.block*c.m.tile+pointGap
	c.mAt = points * c.v.point
	c.patch = c.mAt + points*c.m.point
	c.tmp = c.patch + points*lanes*max(c.inC, c.outC)
	x.needScratch(c.tmp + points*lanes + taps*lanes*lanes) // a tile of weights is turned after tmp
	x.needShared(points * c.u.point)
	most := weightBudget / (2 * lanes * lanes * 4)
	c.chunk = ceilDiv(c.inC, ceilDiv(c.inC, most))
	c.table = tileTable(c.block, func(i int) (in, out int) { return i * c.v.tile * 4, i * c.m.tile * 4 })
	for i := range c.inC {
		c.steps = append(c.steps, int32(i*lanes*4), int32(i*lanes*lanes*4))
	}
	c.groups = 1
	if parts, threads := c.parts(), x.engine.pool.threads; parts < 4*threads && parts%threads != 0 {
		c.groups = min(threads, ceilDiv(c.passes.most(), 2))
	}
	return c
}

// parts is the number of blocks of tiles.
func (c *winograd) parts() int { return ceilDiv(c.tiling.count, c.block) }

// tasks are, pass by pass, the weights' transform, and blocks of tiles by
// groups of output channels.
func (c *winograd) tasks() []task {
	var all []task
	for i := range c.passes.count {
		first, end := c.passes.blocks(i)
		all = append(all,
			task{c.inC * (end - first), func(w *worker, lo, hi int) { c.transformWeights(w, first, lo, hi) }},
			task{c.parts() * c.groups, func(w *worker, lo, hi int) { c.run(w, first, end, lo, hi) }})
	}
	return all
}

// transformWeights computes the points of tiles of 8×8 weights of the pass
// whose first output block is given.
func (c *winograd) transformWeights(w *worker, first, lo, hi int) {
	const tile = lanes * lanes
	k := c.x.engine.kernels
	tmp := w.scratch[c.tmp:]
	for i := lo; i < hi; i++ {
		out, in := first+i/c.inC, i%c.inC
		from := c.weights.data[(out*c.inC+in)*taps*tile:]
		if c.transposed {
			at := c.weights.data[(in*c.outC+out)*taps*tile:]
			from = tmp[points*lanes:]
			for t := range taps {
				k.transpose(&from[(taps-1-t)*tile], &at[t*tile])
			}
		}
		k.winograd.weights(&from[0], &c.x.shared[(out-first)*c.u.block+in*tile], &tmp[0], c.u.point*4)
	}
}

// run computes items [lo, hi) of the pass over output blocks [first, end), an
// item being a group of them of a block of tiles.
func (c *winograd) run(w *worker, first, end, lo, hi int) {
	k := c.x.engine.kernels
	v, m := w.scratch[:c.mAt], w.scratch[c.mAt:c.patch]
	patch, tmp := w.scratch[c.patch:c.tmp], w.scratch[c.tmp:]
	pairs := ceilDiv(end-first, 2)
	for item, loaded := lo, -1; item < hi; item++ {
		b, g := item/c.groups, item%c.groups
		t0 := b * c.block
		n := min(c.block, c.tiling.count-t0)
		if b != loaded {
			c.tiling.transform(k, side{k.winograd.input, k.winograd.normInput, patchSide, 1}, c.in, 0, c.inC, t0, n, v, c.v, patch, tmp)
			loaded = b
		}
		k0, k1 := first+g*pairs/c.groups*2, min(end, first+(g+1)*pairs/c.groups*2)
		c.multiply(v, m, n, first, k0, k1)
		c.write(m, patch, tmp, t0, n, k0, k1)
		if c.tally != nil {
			c.count(b, t0, n, k0, k1)
		}
	}
}

// multiply computes the products of n tiles' points for output blocks [k0, k1)
// of the pass that begins with block first.
func (c *winograd) multiply(v, m []float32, n, first, k0, k1 int) {
	set := &c.x.engine.kernels.gemm.deep
	for p := range points {
		for k := k0; k < k1; k += 2 {
			for s := 0; s < c.inC; s += c.chunk {
				gemmRows(set[min(2, k1-k)][:], v[p*c.v.point:], c.x.shared[p*c.u.point+(k-first)*c.u.block:],
					m[p*c.m.point+k*lanes:], c.x.zeros, c.table, c.steps[2*s:],
					c.u.block*4, lanes*4, min(c.chunk, c.inC-s), n, s > 0)
			}
		}
	}
}

// write transforms the products of output blocks [k0, k1) back. A tile that
// reaches over the map's edge is made in patch and cut.
func (c *winograd) write(m, patch, tmp []float32, first, n, k0, k1 int) {
	t, output := &c.tiling, c.x.engine.kernels.winograd.output
	bias, biasStep := c.x.zeros, 0
	if c.bias != nil {
		bias, biasStep = c.bias[k0*lanes:], lanes*4
	}
	row := t.w * lanes
	for i := range n {
		image, top, left := t.at(first + i)
		y := c.out.data[(image*c.outC+k0)*t.plane()+top*row+left*lanes:]
		from := &m[i*c.m.tile+k0*lanes]
		if top+tileSide <= t.h && left+tileSide <= t.w {
			output(from, &y[0], &bias[0], &tmp[0], c.m.point*4, row*4, t.plane()*4, biasStep, k1-k0)
			continue
		}
		const size = tileSide * tileSide * lanes
		output(from, &patch[0], &bias[0], &tmp[0], c.m.point*4, tileSide*lanes*4, size*4, biasStep, k1-k0)
		width := min(tileSide, t.w-left) * lanes
		for k := range k1 - k0 {
			for r := range min(tileSide, t.h-top) {
				copy(y[k*t.plane()+r*row:][:width], patch[k*size+r*tileSide*lanes:])
			}
		}
	}
}

// Costs of the transforms in multiplications and additions of the matrix
// kernel, from the times of each on one core (BenchmarkConvolution's maps of
// 8×8): those of a tile's input and output by channel, and that of a weight,
// which is greater where its points must go to memory and back.
const (
	inputCost     = 500
	outputCost    = 250
	weightCost    = 300
	farWeightCost = 1600
	nearBytes     = 16 << 20
)

// winogradPays says whether a convolution is expected to take less time by
// tiles than product by product: that is, whether there are enough tiles to pay
// for the weights' transform, and enough channels to pay for the tiles'.
func winogradPays(large, small operand) bool {
	s := large.Shape
	c, k := s[1], small.Shape[1]
	if min(c, k) <= flatChannels {
		return false // the direct algorithm leaves the padding out
	}
	c, k = roundUp(c, lanes), roundUp(k, lanes)
	tiles := newTiling(s[0], s[2], s[3]).count
	direct := 9 * c * k * s[0] * s[2] * s[3]
	weight := weightCost
	if points*c*k*4 > nearBytes {
		weight = farWeightCost
	}
	return c*k*(points*tiles+weight)+tiles*(inputCost*c+outputCost*k) < direct
}
