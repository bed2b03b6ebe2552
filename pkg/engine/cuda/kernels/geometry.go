package kernels

import "fmt"

// Launch geometry. Each thread processes vectors of 8 channels. For an activation, a block
// covers blockDim.x channel vectors and blockDim.y rows, so consecutive threads read
// consecutive memory. blockIdx.x is the index of a tile of channels, blockIdx.y the index
// of a chunk of rows. The geometry does not depend on the device, so all devices compute
// sums in the same order.
const (
	blockThreads = 256
	vector       = 8
	// reduceBlocks is the approximate number of blocks in a reduction: 4 per multiprocessor
	// of an H200 (132 of them), so that its 1024 threads have 64 kB of loads in flight.
	// Little's law requires 4.8 TB/s · 0.7 µs / 132 = 25 kB per multiprocessor.
	reduceBlocks = 528
	// mapBlocks is the approximate number of blocks in kernels that compute no sums. With
	// many short blocks, all multiprocessors finish at about the same time.
	mapBlocks = 4224
	gridLimit = 65535
	// pointAlignment is the alignment of every pointer to an activation, in bytes.
	pointAlignment = 16
)

// matrixLaunchTiling is the launch geometry of a kernel that processes a matrix of rows × channels.
type matrixLaunchTiling struct {
	grid, block  [3]uint32
	rowsPerChunk int
	chunks       int
}

// newMatrixLaunchTiling divides rows × channels into about the given number of blocks.
func newMatrixLaunchTiling(rows, channels, blocks int) matrixLaunchTiling {
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
	return matrixLaunchTiling{
		grid:         [3]uint32{uint32(columns), uint32(chunks), 1},
		block:        [3]uint32{uint32(bx), uint32(by), 1},
		rowsPerChunk: per, chunks: chunks,
	}
}

// reductionSharedBytes returns the size of a block's shared memory in a reduction over rows that needs
// perThread floats per thread.
func (t matrixLaunchTiling) reductionSharedBytes(perThread int) uint32 {
	return t.block[0] * t.block[1] * uint32(4*perThread)
}

// flatGrid returns the grid and the block for n elements, of which a thread processes perThread
// at a time. The grid has at most mapBlocks blocks; kernels loop over the remaining elements in
// strides of the grid's size.
func flatGrid(n, perThread int) (grid, block [3]uint32) {
	blocks := (n + perThread*blockThreads - 1) / (perThread * blockThreads)
	return [3]uint32{uint32(max(1, min(blocks, mapBlocks))), 1, 1}, [3]uint32{blockThreads, 1, 1}
}

// argChecker validates the arguments of launches of op. It keeps the first error.
type argChecker struct {
	op  string
	err error
}

func (c *argChecker) require(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("launch %s: "+format, append([]any{c.op}, args...)...)
	}
}

func (c *argChecker) requirePositive(name string, n int) {
	c.require(n > 0, "%s is %d, want at least 1", name, n)
}

func (c *argChecker) requireChannels(n int) {
	c.require(n > 0 && n%vector == 0, "got %d channels, want a positive multiple of %d", n, vector)
}

// requireMap requires m to be present and aligned, with a pitch of at least channels.
func (c *argChecker) requireMap(name string, m FeatureMap, channels int) {
	c.require(m.Data != 0, "%s is absent", name)
	c.requireOptionalMap(name, m, channels)
}

// requireOptionalMap is requireMap, but m may be absent.
func (c *argChecker) requireOptionalMap(name string, m FeatureMap, channels int) {
	if m.Data == 0 {
		return
	}
	c.require(m.Data%pointAlignment == 0, "%s at %#x is not aligned to %d bytes", name, uint64(m.Data), pointAlignment)
	c.require(m.Pitch%vector == 0 && m.Pitch >= channels, "%s has pitch %d, want a multiple of %d and at least %d channels", name, m.Pitch, vector, channels)
}

// requireArray records an error unless p is present and aligned to alignment bytes.
func (c *argChecker) requireArray(name string, p Pointer, alignment Pointer) {
	c.require(p != 0, "%s is absent", name)
	c.require(p%alignment == 0, "%s at %#x is not aligned to %d bytes", name, uint64(p), alignment)
}

// requireChannelVectors records an error unless all arrays are present and aligned for vectors.
// The keys are their names.
func (c *argChecker) requireChannelVectors(arrays map[string]Pointer) {
	for name, p := range arrays {
		c.requireArray(name, p, pointAlignment)
	}
}
