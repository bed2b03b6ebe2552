package cpu

// maxRows and maxBlocks are the greatest numbers of rows and of blocks of eight
// outputs that a tile of any instruction set's matrix kernel has.
const (
	maxRows   = 12
	maxBlocks = 4
)

// gemmFunc adds up outer products of gathered rows and weights. For each of
// tiles tiles of up to gemmSet.rows rows (the number is the function's own), for
// row i of the tile and output lane j of the function's blocks of eight:
//
//	y[out(i)][j] = start + Σ over t < nstep, c < depth of x[in(i) + at(t) + 4c] · w[t][c][j]
//
// x and y with byte offsets from their bases. rows holds, for each tile,
// gemmSet.rows offsets in(i) and as many offsets out(i), of which only the first
// of each are used where the tile has fewer rows. depth, the number of consecutive
// floats of x that a step takes, is eight or one, again the function's own.
// Block b of a row's outputs is b·yNext bytes after the first. start is bias[j],
// or what y holds already if accumulate is set. nstep may be zero.
//
// Where depth is one, steps holds the offsets at(t), and w the weights of the
// steps in order. Where it is eight, steps holds pairs of offsets, at(t) and
// the offset in w of the step's weights. How several blocks' weights are laid
// out depends on gemmSet.joined:
//
//   - Not joined, a block's weights are [nstep][8] or [8][8] at the step's offset,
//     and those of block b are b·wNext bytes further.
//   - Joined, the blocks' weights of a step are next to each other, [8·blocks] or
//     [8][8·blocks]. Where depth is one, the steps are wNext bytes apart. Where
//     it is eight, offsets in w are those of one block and are multiplied by the
//     number of blocks.
type gemmFunc func(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

// gemmSet holds the matrix kernel for every shape of tile.
type gemmSet struct {
	rows   int  // rows of a full tile
	blocks int  // the most blocks of eight outputs of a tile, 2 or 4
	joined bool // the layout of several blocks' weights, see gemmFunc

	// deep[b][m] takes m rows, eight floats per step, b blocks of eight
	// outputs; flat[b][m] takes one float per step. b is 1, 2 or 4.
	deep, flat [maxBlocks + 1][maxRows + 1]gemmFunc
}

// wide returns how many of n blocks of outputs the next tile takes: 1, 2 or 4.
func (s *gemmSet) wide(n int) int {
	switch {
	case n >= 4 && s.blocks >= 4:
		return 4
	case n >= 2:
		return 2
	}
	return 1
}

// kernels are the inner loops of one instruction set. Where a function takes
// pixels, its pointers lead to that many blocks of eight channels.
type kernels struct {
	name     string
	vector   int // floats of a vector register, 8 or 16
	gemm     gemmSet
	winograd winogradKernels

	// transpose writes the columns of a tile of 8×8 to rows that are stride bytes
	// apart.
	transpose func(dst, src *float32, stride int)
	// spread copies n vectors of eight floats to places that are stride bytes apart.
	spread func(dst, src *float32, stride, n int)

	// deviations adds Σ (x − out[0]) to out[1] and Σ (x − out[0])² to out[2], of
	// three blocks of eight channels' floats.
	deviations func(x *float32, pixels int, out *float32)
	// normalize computes y = max(x·p[0] + p[1], p[2]) with three blocks of eight
	// channels' constants p; NaN stays NaN.
	normalize func(x, y, p *float32, pixels int)
	// normSums writes to out Σ dy and Σ dy·(x − mean), eight channels each, over
	// the pixels where x·p[0] + p[1] > p[2].
	normSums func(x, dy, p, mean, out *float32, pixels int)
	// normGrad computes dx = q[0]·dy + q[1]·(x − q[2]) + q[3] with dy counted only
	// where x·p[0] + p[1] > p[2]. dx may be dy.
	normGrad func(x, dy, dx, p, q *float32, pixels int)
	// sums adds the pixels' eight channels to out.
	sums func(x *float32, pixels int, out *float32)

	// maxPool writes count pixels of a row: the maxima of max(x·p[0] + p[1], p[2])
	// over kh×kw windows whose rows are row bytes and whose first columns step
	// bytes apart, and to index which element of its window each is, the first of
	// equal ones.
	maxPool func(x, y, p *float32, index *byte, count, kh, kw, row, step int)
	// maxPoolGrad adds dy to the element of its window that index names.
	maxPoolGrad func(index *byte, dy, dx *float32, count, kh, kw, row, step int)

	// The next take n floats, a multiple of eight.
	add      func(a, b, y *float32, n int)
	relu     func(x, y *float32, n int)
	reluGrad func(y, dy, dx *float32, n int)
	// leaky computes y = b where a > 0, else slope·b.
	leaky func(a, b, y, slope *float32, n int)
	// tanhGrad computes dx = dy·(1 − y²).
	tanhGrad func(y, dy, dx *float32, n int)
	// distances writes to out eight sums of |a − b|, and signs computes y = scale
	// times the sign of a − b.
	distances func(a, b, out *float32, n int)
	signs     func(a, b, y, scale *float32, n int)
	// bce writes to out eight sums of max(z,0) − z·t + log(1+e^−|z|), and bceGrad
	// computes dz = scale·(1/(1+e^−z) − t).
	bce     func(z, t, out *float32, n int)
	bceGrad func(z, t, dz, scale *float32, n int)
	// adam is one step over n floats with c = weight decay, β1, 1−β1, β2, 1−β2,
	// 1/√(1−β2^t), ε, lr/(1−β1^t).
	adam func(w, g, m, v, c *float32, n int)
	// momentum is one step with c = weight decay, momentum, lr; sgd is the same
	// without a buffer, which is to say with momentum 0.
	momentum func(w, g, buf, c *float32, n int)
	sgd      func(w, g, c *float32, n int)
}
