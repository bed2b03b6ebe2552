package kernels

import "fmt"

// Launch geometry. A thread works on vectors of 8 channels. For an activation, a block is
// bx channel vectors wide and by rows high, so that consecutive threads read consecutive
// memory. blockIdx.x counts tiles of channels, blockIdx.y counts chunks of rows. The
// geometry does not depend on the device, so sums are computed in the same order
// everywhere.
const (
	blockThreads = 256
	vector       = 8
	// reduceBlocks is the approximate number of blocks in a reduction: 4 for each of an
	// H200's 132 multiprocessors, whose 1024 threads have 64 kB of loads in flight.
	// Little's law requires 4.8 TB/s · 0.7 µs / 132 = 25 kB.
	reduceBlocks = 528
	// mapBlocks is the approximate number of blocks in kernels that do not sum. With more
	// and shorter blocks, the multiprocessors finish at about the same time.
	mapBlocks = 4224
	// gridLimit is the maximum of gridDim.y and gridDim.z.
	gridLimit = 65535
	// pointAlignment is the alignment of every pointer to an activation, in bytes.
	pointAlignment = 16
)

// tile is the launch geometry of a kernel over rows of channels.
type tile struct {
	grid, block  [3]uint32
	rowsPerChunk int
	chunks       int
}

// tiles divides rows × channels into about the given number of blocks.
func tiles(rows, channels, blocks int) tile {
	vectors := channels / vector
	bx := min(vectors, 32)
	if vectors > 32 && vectors <= 64 {
		bx = vectors
	}
	by := max(1, min(blockThreads/bx, rows))
	columns := (vectors + bx - 1) / bx
	chunks := min(max(1, blocks/columns), (rows+by-1)/by, gridLimit)
	per := (rows + chunks - 1) / chunks
	per = (per + by - 1) / by * by
	chunks = (rows + per - 1) / per
	return tile{
		grid:         [3]uint32{uint32(columns), uint32(chunks), 1},
		block:        [3]uint32{uint32(bx), uint32(by), 1},
		rowsPerChunk: per, chunks: chunks,
	}
}

// shared returns the bytes of shared memory in which a reduction adds its rows: perThread
// floats for each thread.
func (t tile) shared(perThread int) uint32 {
	return t.block[0] * t.block[1] * uint32(4*perThread)
}

// flat returns the grid of a kernel over n elements with perThread elements per thread.
// Threads of a limited grid continue in strides of the grid's size.
func flat(n, perThread int) (grid, block [3]uint32) {
	blocks := (n + perThread*blockThreads - 1) / (perThread * blockThreads)
	return [3]uint32{uint32(max(1, min(blocks, mapBlocks))), 1, 1}, [3]uint32{blockThreads, 1, 1}
}

// check collects the error of a launch's arguments. Only the first error is kept.
type check struct {
	op  string
	err error
}

func (c *check) require(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("launch %s: "+format, append([]any{c.op}, args...)...)
	}
}

// positive requires n to be at least 1.
func (c *check) positive(name string, n int) { c.require(n > 0, "%s is %d", name, n) }

// channels requires n to be a positive multiple of the vector size.
func (c *check) channels(n int) {
	c.require(n > 0 && n%vector == 0, "%d channels: must be a positive multiple of %d", n, vector)
}

// activation requires a map that is present, aligned, and has at least the given number of
// channels.
func (c *check) activation(name string, m Map, channels int) {
	c.require(m.Data != 0, "%s is absent", name)
	c.optional(name, m, channels)
}

func (c *check) optional(name string, m Map, channels int) {
	if m.Data == 0 {
		return
	}
	c.require(m.Data%pointAlignment == 0, "%s at %#x is not aligned to %d bytes", name, uint64(m.Data), pointAlignment)
	c.require(m.Pitch%vector == 0 && m.Pitch >= channels, "%s has a pitch of %d elements: must be a multiple of %d and at least %d channels", name, m.Pitch, vector, channels)
}

// array requires a pointer that is not 0 and has the given alignment.
func (c *check) array(name string, p Pointer, alignment Pointer) {
	c.require(p != 0, "%s is absent", name)
	c.require(p%alignment == 0, "%s at %#x is not aligned to %d bytes", name, uint64(p), alignment)
}

// vectors requires arrays of floats, one value per channel, that can be read in vectors.
func (c *check) vectors(arrays map[string]Pointer) {
	for name, p := range arrays {
		c.array(name, p, pointAlignment)
	}
}
