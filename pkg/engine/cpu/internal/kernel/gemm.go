package kernel

// Upper limits on the size of a tile, over all instruction sets: its rows, and its blocks of
// eight outputs.
const (
	maxRows   = 12
	MaxBlocks = 4
)

// GEMMFunc is the matrix kernel for tiles of a fixed size. It multiplies a matrix of
// inputs, which it gathers from x, by a matrix of weights w. For each of the given number
// of tiles, for each row i of the tile and each output lane j of its blocks of eight
// outputs, it computes
//
//	y[out(i)][j] = start + Σ over t < nstep, c < depth of x[in(i) + s(t) + 4c] · w[t][c][j]
//
// where in, s and out are byte offsets from x and y. For each tile, rows contains
// GEMM.Rows offsets in(i) and then GEMM.Rows offsets out(i); a function for fewer rows uses
// the first offsets of each. A step reads depth consecutive floats of x; depth is eight
// (GEMM.Deep) or one (GEMM.Flat). Block b of a row's outputs is b·yNext bytes after the
// first block. The sum starts with bias[j], or with the value in y if accumulate is set.
// nstep may be zero.
//
// If depth is one, steps contains the offsets s(t), and w contains the weights in the
// order of the steps. If depth is eight, steps contains pairs of offsets: s(t), and the
// offset in w of the step's weights. The layout of the weights of several blocks depends on
// GEMM.Interleaved:
//
//   - If it is not set, the weights of a block are [nstep][8], or [8][8] at the offset of a
//     step, and the weights of block b begin b·wNext bytes after those of block 0.
//   - If it is set, the weights of all blocks for a step are next to each other,
//     [8·blocks] or [8][8·blocks]. If depth is one, the weights of successive steps are
//     wNext bytes apart. If depth is eight, the function multiplies the offsets in w by
//     the number of blocks.
type GEMMFunc func(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool)

// GEMM contains the matrix kernels for all sizes of tiles.
type GEMM struct {
	Rows        int  // number of rows of a full tile
	Blocks      int  // greatest number of blocks of eight outputs of a tile, 2 or 4
	Interleaved bool // whether the weights of several blocks are interleaved, see GEMMFunc

	// Deep[b][m] computes tiles of m rows and b blocks of eight outputs, and reads eight
	// floats per step; Flat[b][m] reads one float per step. b is 1, 2 or 4. The
	// functions for the numbers of rows in firstSplitTileRows may be nil.
	Deep, Flat [MaxBlocks + 1][maxRows + 1]GEMMFunc
}

// NextTileBlocks returns the number of output blocks that the next tile should compute if n
// blocks remain: 1, 2 or 4.
func (s *GEMM) NextTileBlocks(n int) int {
	switch {
	case n >= 4 && s.Blocks >= 4:
		return 4
	case n >= 2:
		return 2
	}
	return 1
}

// NewTileOffsetTable builds the table of byte offsets that GEMMFunc reads, for n rows in tiles of
// the given number of rows. offsets returns the offsets of row i.
func NewTileOffsetTable(n, rows int, offsets func(i int) (in, out int)) []int32 {
	table := make([]int32, (n+rows-1)/rows*2*rows)
	for i := range n {
		in, out := offsets(i)
		tile := table[i/rows*2*rows:]
		tile[i%rows], tile[rows+i%rows] = int32(in), int32(out)
	}
	return table
}

// firstSplitTileRows is indexed by a number of rows for which there may be no kernel. It
// contains the rows of the first of the two tiles that compute them together. No tile has one
// row, because one row takes as long as two.
var firstSplitTileRows = [maxRows]int{5: 3, 7: 4, 9: 6, 10: 6, 11: 8}

// MultiplyRows calls the matrix kernel for the first n rows of a table that NewTileOffsetTable has
// built for tiles of the given number of rows. The last tile may have fewer rows. If set has no
// function for that number of rows, two smaller tiles compute them (see firstSplitTileRows).
func MultiplyRows(set *[maxRows + 1]GEMMFunc, rows int, x, w, y, bias []float32, table, steps []int32, wNext, yNext, nstep, n int, accumulate bool) {
	if tiles := n / rows; tiles > 0 {
		set[rows](dataPointer(x), dataPointer(w), dataPointer(y), dataPointer(bias), dataPointer(table), dataPointer(steps), wNext, yNext, nstep, tiles, accumulate)
	}
	at := n / rows * 2 * rows // index in table of the first remaining row
	for rest := n % rows; rest > 0; {
		m := rest
		if set[m] == nil {
			m = firstSplitTileRows[m]
		}
		set[m](dataPointer(x), dataPointer(w), dataPointer(y), dataPointer(bias), &table[at], dataPointer(steps), wNext, yNext, nstep, 1, accumulate)
		rest, at = rest-m, at+m
	}
}

// dataPointer returns the address of s[0], or nil if s is empty.
func dataPointer[T any](s []T) *T {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}
