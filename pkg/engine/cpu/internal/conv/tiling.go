package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// winogradTiling divides the slices of volumes into tiles. A two-dimensional map is a volume of one
// slice. The tiles of a slice are numbered image by image and row by row; successive tiles form
// a block. A chunk is one block of tiles in several successive slices, whose tiles are
// transformed together. Chunks are numbered block by block.
type winogradTiling struct {
	depth, h, w int
	rows, cols  int
	count       int // number of tiles of a slice, of all images
	taps        int // number of taps of the window along the depth, 1 or 3
	block       int // tiles per block; the last one may have fewer
	slices      int // output slices per chunk; the last one of a block may have fewer
}

// tileChunk is a range of tiles, [first, first+n), in each of the output slices [z, z+slices).
type tileChunk struct{ first, n, z, slices int }

// newWinogradTiling returns the tiling of n volumes for a window with taps taps along the depth.
// Call chooseChunks before any method that uses chunks.
func newWinogradTiling(n int, space [3]int, taps int) winogradTiling {
	t := winogradTiling{depth: space[0], h: space[1], w: space[2], taps: taps}
	t.rows, t.cols = tensor.CeilDiv(t.h, kernel.TileSide), tensor.CeilDiv(t.w, kernel.TileSide)
	t.count = n * t.rows * t.cols
	return t
}

// Limits of a chunk's size, measured to be fast on a processor with 1 MiB of second-level
// cache.
const (
	maxChunkBytes = 512 << 10 // most bytes of transformed tiles, which stay in that cache
	minChunkTiles = 48        // least tiles of a chunk; with fewer the weights would be read too often
	volumeTiles   = 8         // tiles per slice of a chunk of a volume, which also keeps neighboring slices
)

// chooseChunks chooses the sizes of blocks and chunks so that the transformed inputs and
// outputs of a chunk fit into the cache. tiles is the number of tiles per slice that one worker
// computes. channels is the number of input channels plus output channels. rows is the number
// of rows of a full tile of the matrix kernel.
//
// channels may depend on the number of workers, but the order in which sums over tiles are
// added does not: the blocks of a volume do not depend on channels, and a two-dimensional map
// has only one slice.
func (t *winogradTiling) chooseChunks(tiles, channels, rows int) {
	most := max(minChunkTiles, maxChunkBytes/(kernel.Points*channels*4))
	if t.depth == 1 {
		t.block = min(tiles, tensor.RoundUp(tensor.CeilDiv(tiles, tensor.CeilDiv(tiles, most)), rows))
		t.slices = 1
		return
	}
	// Blocks of equal size keep the workers equally busy, since there are few.
	t.block = tensor.CeilDiv(tiles, tensor.CeilDiv(tiles, volumeTiles))
	t.slices = tensor.CeilDiv(t.depth, max(1, (t.depth*t.block+most/2)/most)) // the nearest number of chunks
}

// tileOrigin returns the image of tile i, and the row and column of its first pixel.
func (t *winogradTiling) tileOrigin(i int) (image, top, left int) {
	return i / (t.rows * t.cols), i / t.cols % t.rows * kernel.TileSide, i % t.cols * kernel.TileSide
}

// haloSlices returns the number of slices that the window adds on each side.
func (t *winogradTiling) haloSlices() int { return t.taps / 2 }

func (t *winogradTiling) sliceFloats() int { return t.h * t.w * lanes }

func (t *winogradTiling) volumeFloats() int { return t.depth * t.sliceFloats() }

func (t *winogradTiling) chunksPerBlock() int { return tensor.CeilDiv(t.depth, t.slices) }

func (t *winogradTiling) chunkCount() int {
	return tensor.CeilDiv(t.count, t.block) * t.chunksPerBlock()
}

func (t *winogradTiling) chunkAt(i int) tileChunk {
	first, z := i/t.chunksPerBlock()*t.block, i%t.chunksPerBlock()*t.slices
	return tileChunk{first, min(t.block, t.count-first), z, min(t.slices, t.depth-z)}
}

// tapsInsideVolume returns the range [first, end) of the taps along the depth that are inside the
// volume for output slice z.
func (t *winogradTiling) tapsInsideVolume(z int) (first, end int) {
	return max(0, t.haloSlices()-z), min(t.taps, t.depth-z+t.haloSlices())
}

// forEachTapRun calls f for each run of successive slices of chunk c that have the same
// taps [first, end) inside the volume.
func (t *winogradTiling) forEachTapRun(c tileChunk, f func(z, slices, first, end int)) {
	for z := c.z; z < c.z+c.slices; {
		first, end := t.tapsInsideVolume(z)
		n := 1
		for ; z+n < c.z+c.slices; n++ {
			if f, e := t.tapsInsideVolume(z + n); f != first || e != end {
				break
			}
		}
		f(z, n, first, end)
		z += n
	}
}

// winogradPointStrides describes the layout of a chunk's transformed tiles by distances in floats. If a
// slice has n tiles, point p of tile t, slice s and channel block b is at index p·point +
// (s·n+t)·tile + b·block.
type winogradPointStrides struct{ point, tile, block int }

// pointGapFloats is the number of unused floats after each point. Without them, the
// distance between points would often be a power of two, at which a cache holds few lines.
const pointGapFloats = 16

// tileStride returns the distance between transformed tiles, in floats. It is a multiple of
// vector and avoids powers of two, like pointGapFloats.
func tileStride(channels, vector int) int {
	channels = tensor.RoundUp(channels, vector)
	if channels%128 == 0 {
		return channels + pointGapFloats
	}
	return channels
}

type tileTransform struct {
	transform func(x, v, tmp *float32, row, plane, ld, step, blocks int)
	norm      func(x, v, tmp, p *float32, row, plane, ld, step, blocks int) // normalizes first; may be nil
	side      int                                                           // pixels
	before    int                                                           // pixels of a square before its tile, in both directions
}

func newInputTransform(k *kernel.WinogradTransforms) tileTransform {
	return tileTransform{k.Input, k.NormInput, kernel.PatchSide, 1}
}

func newGradientTransform(k *kernel.WinogradTransforms) tileTransform {
	return tileTransform{k.Gradient, nil, kernel.TileSide, 0}
}

// transformChunkInputs writes to v the transformed inputs that chunk c depends on, for channel blocks
// [c0, c0+count). The first slice in v is slice c.z − haloSlices; slices outside the volume are
// not written. If follows is set, v still contains the inputs of the previous chunk of the
// block, and transformChunkInputs moves the slices that both chunks need.
func (t *winogradTiling) transformChunkInputs(k *kernel.Set, o tensor.Operand, c0, count int, c tileChunk, follows bool, v []float32, layout winogradPointStrides, patch, tmp []float32) {
	slot, held := 0, 2*t.haloSlices()
	if follows {
		slot = held
		for p := range kernel.Points {
			rows := v[p*layout.point:]
			copy(rows[:held*c.n*layout.tile], rows[t.slices*c.n*layout.tile:])
		}
	}
	for ; slot < c.slices+held; slot++ {
		if z := c.z - t.haloSlices() + slot; z >= 0 && z < t.depth {
			t.transformTiles(k, newInputTransform(&k.Winograd), o, c0, count, c.first, c.n, z, v[slot*c.n*layout.tile:], layout, patch, tmp)
		}
	}
}

func (t *winogradTiling) transformTiles(k *kernel.Set, s tileTransform, o tensor.Operand, c0, count, first, n, z int, v []float32, layout winogradPointStrides, patch, tmp []float32) {
	for i := range o.Pieces {
		p := &o.Pieces[i]
		if from, to := max(c0, p.First), min(c0+count, p.First+p.Count); from < to {
			t.transformMemoryPiece(k, s, p, from, to-from, first, n, z, v[(from-c0)*layout.block:], layout, patch, tmp)
		}
	}
}

// transformMemoryPiece transforms tiles of channel blocks in one piece of an activation. It copies
// squares that cross the edge of the map to patch, with zeros outside the map.
func (t *winogradTiling) transformMemoryPiece(k *kernel.Set, s tileTransform, p *tensor.MemoryPiece, c0, count, first, n, z int, v []float32, layout winogradPointStrides, patch, tmp []float32) {
	row, plane := t.w*lanes, t.volumeFloats()
	var norm []float32
	if p.Norm != nil {
		norm = p.Norm[(c0-p.First)*kernel.NormConstantFloats:]
	}
	for i := range n {
		image, top, left := t.tileOrigin(first + i)
		top, left = top-s.before, left-s.before
		from := p.Data[image*p.Image+(c0-p.First)*plane+z*t.sliceFloats():]
		if top >= 0 && left >= 0 && top+s.side <= t.h && left+s.side <= t.w {
			if norm == nil {
				s.transform(&from[top*row+left*lanes], &v[i*layout.tile], &tmp[0], row*4, plane*4, layout.point*4, layout.block*4, count)
			} else {
				s.norm(&from[top*row+left*lanes], &v[i*layout.tile], &tmp[0], &norm[0], row*4, plane*4, layout.point*4, layout.block*4, count)
			}
			continue
		}
		size := s.side * s.side * lanes
		clear(patch[:count*size])
		y0, y1 := max(0, -top), min(s.side, t.h-top)
		x0, x1 := max(0, -left), min(s.side, t.w-left)
		box := kernel.PixelBox{Pixels: x1 - x0, Rows: y1 - y0, Planes: count, FromRow: row * 4, FromPlane: plane * 4, ToRow: s.side * lanes * 4, ToPlane: size * 4}
		inside, to := &from[(top+y0)*row+(left+x0)*lanes], &patch[(y0*s.side+x0)*lanes]
		if norm == nil {
			k.CopyBox(inside, to, box)
		} else {
			k.NormalizeBox(inside, to, &norm[0], box)
		}
		s.transform(&patch[0], &v[i*layout.tile], &tmp[0], s.side*lanes*4, size*4, layout.point*4, layout.block*4, count)
	}
}

// copyBlocks copies n blocks of eight channels. For small n this is faster than memmove.
func copyBlocks(to, from *float32, n int) {
	dst, src := kernel.FloatBlocksAt(to, n), kernel.FloatBlocksAt(from, n)
	for i := range dst {
		dst[i] = src[i]
	}
}
