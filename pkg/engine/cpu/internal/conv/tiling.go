package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// tiling divides the slices of volumes into tiles, numbered image by image and row by
// row. A map of two dimensions is a volume of one slice. Successive tiles form a block;
// a block in successive slices is a chunk, which is transformed at once. Chunks are
// numbered block by block.
type tiling struct {
	depth, h, w int
	rows, cols  int
	count       int // number of tiles of a slice, of all images
	taps        int // number of taps of the window along the depth, 1 or 3
	block       int // tiles per block; the last one may have fewer
	slices      int // output slices per chunk; the last one of a block may have fewer
}

// chunk is tiles [first, first+n) of output slices [z, z+slices).
type chunk struct{ first, n, z, slices int }

// newTiling returns the tiles of n volumes with the given depth, height and width, for
// a window with the given number of taps along the depth. cut chooses its blocks.
func newTiling(n int, space [3]int, taps int) tiling {
	t := tiling{depth: space[0], h: space[1], w: space[2], taps: taps}
	t.rows, t.cols = tensor.CeilDiv(t.h, kernel.TileSide), tensor.CeilDiv(t.w, kernel.TileSide)
	t.count = n * t.rows * t.cols
	return t
}

// Sizes of a chunk, measured to be fast on a processor with 1 MiB of second-level
// cache.
const (
	winogradBytes = 512 << 10 // most bytes of transformed tiles, which stay in that cache
	leastTiles    = 48        // fewer tiles would read the weights too often
	sliceTiles    = 8         // tiles per slice of a volume, since neighboring slices are kept too
)

// cut chooses chunks for the given number of tiles of a slice. The points of a chunk's
// inputs and outputs, with the given channels together, stay small, and its tiles fill
// tiles of the matrix kernel with the given rows. The number of channels does not
// change the order of blocks, slices and tiles: the blocks of a volume do not depend on
// it, and a map has one slice.
func (t *tiling) cut(tiles, channels, rows int) {
	most := max(leastTiles, winogradBytes/(kernel.Points*channels*4))
	if t.depth == 1 {
		t.block = min(tiles, tensor.RoundUp(tensor.CeilDiv(tiles, tensor.CeilDiv(tiles, most)), rows))
		t.slices = 1
		return
	}
	// Blocks of equal size keep the workers equally busy, since there are few.
	t.block = tensor.CeilDiv(tiles, tensor.CeilDiv(tiles, sliceTiles))
	t.slices = tensor.CeilDiv(t.depth, max(1, (t.depth*t.block+most/2)/most)) // the nearest number of chunks
}

// at returns the first pixel of tile i.
func (t *tiling) at(i int) (image, top, left int) {
	return i / (t.rows * t.cols), i / t.cols % t.rows * kernel.TileSide, i % t.cols * kernel.TileSide
}

// halo returns the number of input slices before and after an output slice that the
// window reaches.
func (t *tiling) halo() int { return t.taps / 2 }

// slice returns the number of floats of a slice of a channel block, and plane that of
// all its slices.
func (t *tiling) slice() int { return t.h * t.w * lanes }
func (t *tiling) plane() int { return t.depth * t.slice() }

// perBlock returns the number of chunks of a block, and chunks that of all blocks.
func (t *tiling) perBlock() int { return tensor.CeilDiv(t.depth, t.slices) }
func (t *tiling) chunks() int   { return tensor.CeilDiv(t.count, t.block) * t.perBlock() }

// chunk returns chunk i.
func (t *tiling) chunk(i int) chunk {
	first, z := i/t.perBlock()*t.block, i%t.perBlock()*t.slices
	return chunk{first, min(t.block, t.count-first), z, min(t.slices, t.depth-z)}
}

// tapsInside returns the taps along the depth, [first, end), that are inside the volume
// for output slice z.
func (t *tiling) tapsInside(z int) (first, end int) {
	return max(0, t.halo()-z), min(t.taps, t.depth-z+t.halo())
}

// eachRun calls f for each run of successive slices of a chunk that have the same taps
// inside the volume.
func (t *tiling) eachRun(c chunk, f func(z, slices, first, end int)) {
	for z := c.z; z < c.z+c.slices; {
		first, end := t.tapsInside(z)
		n := 1
		for ; z+n < c.z+c.slices; n++ {
			if f, e := t.tapsInside(z + n); f != first || e != end {
				break
			}
		}
		f(z, n, first, end)
		z += n
	}
}

// transformed is the layout of the points of a chunk's tiles: point p of tile t of slice
// s and channel block b is at p·point + (s·n+t)·tile + b·block floats, with n tiles per
// slice.
type transformed struct{ point, tile, block int }

// pointGap is the number of unused floats after each point. Without it the distance of
// points would often be a power of two, and a cache holds few lines at such a distance.
const pointGap = 16

// tileFloats returns the distance of tiles with the given channels, rounded up to whole
// vectors. It avoids powers of two, as pointGap does.
func tileFloats(channels, vector int) int {
	channels = tensor.RoundUp(channels, vector)
	if channels%128 == 0 {
		return channels + pointGap
	}
	return channels
}

// squares describes which squares of a map are transformed, and how.
type squares struct {
	transform func(x, v, tmp *float32, row, plane, ld, step, blocks int)
	norm      func(x, v, tmp, p *float32, row, plane, ld, step, blocks int) // normalizes first; may be nil
	side      int                                                           // pixels
	before    int                                                           // pixels of a square before its tile, in both directions
}

// inputSquares describes the squares of inputs that tiles of outputs depend on.
func inputSquares(k *kernel.Winograd) squares {
	return squares{k.Input, k.NormInput, kernel.PatchSide, 1}
}

// gradientSquares describes the tiles of gradients of outputs.
func gradientSquares(k *kernel.Winograd) squares {
	return squares{k.Gradient, nil, kernel.TileSide, 0}
}

// load transforms the inputs that chunk c depends on, of channel blocks
// [c0, c0+count). The first slice in v is slice c.z − halo; slices outside of the volume
// are not written. If follows is set, v holds the inputs of the previous chunk of the
// same block: the slices that both need are moved and not transformed again.
func (t *tiling) load(k *kernel.Set, o tensor.Operand, c0, count int, c chunk, follows bool, v []float32, lie transformed, patch, tmp []float32) {
	slot, held := 0, 2*t.halo()
	if follows {
		slot = held
		for p := range kernel.Points {
			rows := v[p*lie.point:]
			copy(rows[:held*c.n*lie.tile], rows[t.slices*c.n*lie.tile:])
		}
	}
	for ; slot < c.slices+held; slot++ {
		if z := c.z - t.halo() + slot; z >= 0 && z < t.depth {
			t.transform(k, inputSquares(&k.Winograd), o, c0, count, c.first, c.n, z, v[slot*c.n*lie.tile:], lie, patch, tmp)
		}
	}
}

// transform computes the points of tiles [first, first+n) of slice z, of channel blocks
// [c0, c0+count) of o, and writes them to v.
func (t *tiling) transform(k *kernel.Set, s squares, o tensor.Operand, c0, count, first, n, z int, v []float32, lie transformed, patch, tmp []float32) {
	for i := range o.Pieces {
		p := &o.Pieces[i]
		if from, to := max(c0, p.First), min(c0+count, p.First+p.Count); from < to {
			t.transformPiece(k, s, p, from, to-from, first, n, z, v[(from-c0)*lie.block:], lie, patch, tmp)
		}
	}
}

// transformPiece transforms channel blocks of one piece of an activation. Squares that
// cross the edge of the map are copied to patch, with zeros outside of the map.
func (t *tiling) transformPiece(k *kernel.Set, s squares, p *tensor.Piece, c0, count, first, n, z int, v []float32, lie transformed, patch, tmp []float32) {
	row, plane := t.w*lanes, t.plane()
	var norm []float32
	if p.Norm != nil {
		norm = p.Norm[(c0-p.First)*kernel.NormFloats:]
	}
	for i := range n {
		image, top, left := t.at(first + i)
		top, left = top-s.before, left-s.before
		from := p.Data[image*p.Image+(c0-p.First)*plane+z*t.slice():]
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
					k.Normalize(at, to, &norm[c*kernel.NormFloats], x1-x0)
				}
			}
		}
		s.transform(&patch[0], &v[i*lie.tile], &tmp[0], s.side*lanes*4, size*4, lie.point*4, lie.block*4, count)
	}
}

// copyBlocks copies n vectors one at a time, since a call of memmove costs more if there
// are few.
func copyBlocks(to, from *float32, n int) {
	dst, src := kernel.BlocksAt(to, n), kernel.BlocksAt(from, n)
	for i := range dst {
		dst[i] = src[i]
	}
}
