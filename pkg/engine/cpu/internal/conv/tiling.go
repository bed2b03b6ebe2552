package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// tiling cuts the slices of volumes in tiles, numbered image by image and row by
// row; a map of two dimensions is a volume of one slice. Successive tiles are a
// block, and a block in successive slices is a chunk: what is transformed at
// once. The chunks of a block follow each other.
type tiling struct {
	depth, h, w int
	rows, cols  int
	count       int // tiles of a slice of all images
	taps        int // of the window along the depth, 1 or 3
	block       int // tiles of a block, the last one's may be fewer
	slices      int // of outputs in a chunk, the last one's of a block may be fewer
}

// chunk is tiles [first, first+n) of outputs' slices [z, z+slices).
type chunk struct{ first, n, z, slices int }

// newTiling is for n volumes of a depth, height and width, and a window of so
// many taps along the depth. Its blocks are for cut to choose.
func newTiling(n int, space [3]int, taps int) tiling {
	t := tiling{depth: space[0], h: space[1], w: space[2], taps: taps}
	t.rows, t.cols = tensor.CeilDiv(t.h, kernel.TileSide), tensor.CeilDiv(t.w, kernel.TileSide)
	t.count = n * t.rows * t.cols
	return t
}

// winogradBytes bounds the transformed tiles of a chunk, so that they stay in
// the second-level cache; chunks of fewer than leastTiles would read the weights
// too often. Those of a volume are of about sliceTiles in several slices, for the
// slices around them are held too. Found by measurement on a processor with 1 MiB
// of that cache.
const (
	winogradBytes = 512 << 10
	leastTiles    = 48
	sliceTiles    = 8
)

// cut chooses chunks for the first tiles of a slice: a chunk's points of inputs
// and outputs, of so many channels together, are to be small, and its tiles fill
// tiles of so many rows of the matrix kernel. The channels change
// nothing of the order of blocks, slices and tiles: a volume's blocks do not
// depend on them, and a map has one slice.
func (t *tiling) cut(tiles, channels, rows int) {
	most := max(leastTiles, winogradBytes/(kernel.Points*channels*4))
	if t.depth == 1 {
		t.block = min(tiles, tensor.RoundUp(tensor.CeilDiv(tiles, tensor.CeilDiv(tiles, most)), rows))
		t.slices = 1
		return
	}
	// There are few blocks: of equal size they keep the workers equally busy.
	t.block = tensor.CeilDiv(tiles, tensor.CeilDiv(tiles, sliceTiles))
	t.slices = tensor.CeilDiv(t.depth, max(1, (t.depth*t.block+most/2)/most)) // the nearest number of chunks
}

// at is where tile i begins.
func (t *tiling) at(i int) (image, top, left int) {
	return i / (t.rows * t.cols), i / t.cols % t.rows * kernel.TileSide, i % t.cols * kernel.TileSide
}

// halo is the number of slices that a window reaches over an output's on either side.
func (t *tiling) halo() int { return t.taps / 2 }

// slice is the number of floats of a slice of a channel block, plane that of all.
func (t *tiling) slice() int { return t.h * t.w * lanes }
func (t *tiling) plane() int { return t.depth * t.slice() }

// perBlock is the number of chunks of a block, and chunks that of all.
func (t *tiling) perBlock() int { return tensor.CeilDiv(t.depth, t.slices) }
func (t *tiling) chunks() int   { return tensor.CeilDiv(t.count, t.block) * t.perBlock() }

// chunk is chunk i.
func (t *tiling) chunk(i int) chunk {
	first, z := i/t.perBlock()*t.block, i%t.perBlock()*t.slices
	return chunk{first, min(t.block, t.count-first), z, min(t.slices, t.depth-z)}
}

// within are the taps along the depth, from first to end−1, that are inside the
// volume for slice z of the outputs.
func (t *tiling) within(z int) (first, end int) {
	return max(0, t.halo()-z), min(t.taps, t.depth-z+t.halo())
}

// eachStretch calls f for the successive slices of a chunk that have the same
// taps inside the volume.
func (t *tiling) eachStretch(c chunk, f func(z, slices, first, end int)) {
	for z := c.z; z < c.z+c.slices; {
		first, end := t.within(z)
		n := 1
		for ; z+n < c.z+c.slices; n++ {
			if f, e := t.within(z + n); f != first || e != end {
				break
			}
		}
		f(z, n, first, end)
		z += n
	}
}

// transformed is how the points of a chunk's tiles lie, in floats: point p
// of tile t of slice s and channel block b is at p·point + (s·n+t)·tile + b·block,
// with n tiles in a slice.
type transformed struct{ point, tile, block int }

// pointGap separates the points, which lie a power of two apart otherwise: the
// cache would hold few of them at a time.
const pointGap = 16

// tileFloats is the distance of tiles with so many channels, whole vectors of so
// many floats, again not a power of two.
func tileFloats(channels, vector int) int {
	channels = tensor.RoundUp(channels, vector)
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

// inputSide and gradientSide are the ways of inputs and of outputs' gradients.
func inputSide(k *kernel.Winograd) side    { return side{k.Input, k.NormInput, kernel.PatchSide, 1} }
func gradientSide(k *kernel.Winograd) side { return side{k.Gradient, nil, kernel.TileSide, 0} }

// load transforms the inputs that chunk c depends on, of channel blocks
// [c0, c0+count): its slices in v are those from c.z − halo on, and those
// outside the volume are left out. If v holds the inputs of the chunk before of
// the same block, the slices that both need move and are not transformed again.
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
			t.transform(k, inputSide(&k.Winograd), o, c0, count, c.first, c.n, z, v[slot*c.n*lie.tile:], lie, patch, tmp)
		}
	}
}

// transform computes the points of tiles [first, first+n) of slice z in v, of
// channel blocks [c0, c0+count) of o.
func (t *tiling) transform(k *kernel.Set, s side, o tensor.Operand, c0, count, first, n, z int, v []float32, lie transformed, patch, tmp []float32) {
	for i := range o.Pieces {
		p := &o.Pieces[i]
		if from, to := max(c0, p.First), min(c0+count, p.First+p.Count); from < to {
			t.transformPiece(k, s, p, from, to-from, first, n, z, v[(from-c0)*lie.block:], lie, patch, tmp)
		}
	}
}

// transformPiece is transform for channel blocks of one piece. Squares that
// reach over the map's edge are cut out to patch, with zeros around.
func (t *tiling) transformPiece(k *kernel.Set, s side, p *tensor.Piece, c0, count, first, n, z int, v []float32, lie transformed, patch, tmp []float32) {
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

// copyBlocks copies n vectors, one at a time: few are not worth a call of memmove.
func copyBlocks(to, from *float32, n int) {
	dst, src := kernel.BlocksAt(to, n), kernel.BlocksAt(from, n)
	for i := range dst {
		dst[i] = src[i]
	}
}
