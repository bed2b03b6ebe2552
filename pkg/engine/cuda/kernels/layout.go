package kernels

import "math"

// CastFromF32 returns the launch of cast_from_f32, which converts n float32 elements to
// type t and rounds to nearest, ties to even.
func CastFromF32(t ElementType, src, dst Pointer, n int) ([]Launch, error) {
	return castLaunches(t, "cast_from_f32", src, dst, n, 4, t.Bytes())
}

// CastToF32 returns the launch of cast_to_f32, the inverse of CastFromF32.
func CastToF32(t ElementType, src, dst Pointer, n int) ([]Launch, error) {
	return castLaunches(t, "cast_to_f32", src, dst, n, t.Bytes(), 4)
}

// castLaunches returns the launch of a cast kernel; from and to are element sizes in bytes.
func castLaunches(t ElementType, name string, src, dst Pointer, n, from, to int) ([]Launch, error) {
	c := argChecker{op: name}
	c.requirePositive("n", n)
	c.requireArray("source", src, Pointer(from))
	c.requireArray("destination", dst, Pointer(to))
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(n, vector)
	var l launchList
	l.addTypedLaunch(t, name, grid, block, 0, src, dst, int64Arg(n))
	return l.result()
}

// FillWords returns the launch of fill_u32, which sets n 32-bit words to value.
func FillWords(dst Pointer, value uint32, n int) ([]Launch, error) {
	c := argChecker{op: "fill"}
	c.requirePositive("n", n)
	c.requireArray("destination", dst, 4)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(n, 4)
	var l launchList
	l.addUntypedLaunch("fill_u32", grid, block, 0, dst, int(int32(value)), int64Arg(n))
	return l.result()
}

// A transposition moves tiles of 32×32 elements through shared memory. Each row in shared
// memory has one extra element, so that the elements of a column are in different banks.
const (
	transposeEdge   = 32
	transposeRows   = 8
	transposeShared = transposeEdge * (transposeEdge + 1) * 4
)

// Transposition describes a change of layout between planar float32 [Batch][Channels][Spatial]
// and channels-last rows of the launch's element type. It can also convert weights between the
// layouts KCRS and KRSC: the element type is then F32, and Batch is the number of filters.
type Transposition struct {
	Batch, Channels, Spatial int
	Padded                   int     // number of channels written per row; channels from Channels on are zero
	Planar                   Pointer // float32
	Rows                     Pointer // [Batch·Spatial][Pitch] of the launch's element type
	Pitch                    int
}

// ToRows returns the launch of nchw_to_nhwc. If each row is a single aligned vector of 8
// channels, it returns the launch of nchw_to_rows instead, which is faster.
func (a Transposition) ToRows(t ElementType) ([]Launch, error) {
	grid, block, err := a.launchGeometry("nchw to nhwc", t, a.Padded)
	if err != nil {
		return nil, err
	}
	var l launchList
	if a.Padded == vector && a.Pitch%vector == 0 && a.Rows%pointAlignment == 0 {
		grid, block = flatGrid(a.Spatial, 1)
		grid[1] = uint32(a.Batch)
		l.addTypedLaunch(t, "nchw_to_rows", grid, block, 0, a.Planar, a.Rows, a.Pitch, a.Channels, int64Arg(a.Spatial))
		return l.result()
	}
	l.addTypedLaunch(t, "nchw_to_nhwc", grid, block, transposeShared, a.Planar, a.Rows, a.Pitch, a.Channels, a.Padded, int64Arg(a.Spatial))
	return l.result()
}

// ToPlanar returns the launch of nhwc_to_nchw. It ignores the field Padded.
func (a Transposition) ToPlanar(t ElementType) ([]Launch, error) {
	grid, block, err := a.launchGeometry("nhwc to nchw", t, a.Channels)
	if err != nil {
		return nil, err
	}
	var l launchList
	l.addTypedLaunch(t, "nhwc_to_nchw", grid, block, transposeShared, a.Rows, a.Pitch, a.Planar, a.Channels, int64Arg(a.Spatial))
	return l.result()
}

// launchGeometry validates the arguments and returns the grid and the block. padded is the
// number of channels per row that the kernel accesses, including padding.
func (a Transposition) launchGeometry(op string, t ElementType, padded int) (grid, block [3]uint32, err error) {
	c := argChecker{op: op}
	c.requirePositive("batch", a.Batch)
	c.requirePositive("channels", a.Channels)
	c.requirePositive("spatial", a.Spatial)
	c.requireArray("planar", a.Planar, 4)
	c.requireArray("rows", a.Rows, Pointer(t.Bytes()))
	c.require(padded >= a.Channels && a.Pitch >= padded, "want channels ≤ padded channels ≤ pitch, got %d, %d and %d", a.Channels, padded, a.Pitch)
	tilesC := (padded + transposeEdge - 1) / transposeEdge
	c.require(a.Batch <= gridLimit && tilesC <= gridLimit, "%d samples of %d channels exceed the grid limit of %d", a.Batch, padded, gridLimit)
	return [3]uint32{uint32((a.Spatial + transposeEdge - 1) / transposeEdge), uint32(tilesC), uint32(a.Batch)},
		[3]uint32{transposeEdge, transposeRows, 1}, c.err
}

// PixelConversion converts a byte of channel c to (byte/Divisor − Mean[c])·InvStd[c].
type PixelConversion struct {
	Channels, Padded int     // number of channels in the source and in Dst; channels from Channels on are zero
	Divisor          float64 // 255 for images, 1 or 255 for masks
	Mean, InvStd     Pointer // float32 [Channels]; if both pointers are 0, bytes are only divided by Divisor
	Dst              Pointer // rows of the launch's element type
	Pitch            int
}

func (a PixelConversion) checkArgs(c *argChecker, t ElementType) {
	c.requirePositive("channels", a.Channels)
	c.require(a.Padded >= a.Channels && a.Pitch >= a.Padded, "want channels ≤ padded channels ≤ pitch, got %d, %d and %d", a.Channels, a.Padded, a.Pitch)
	c.require(a.Divisor > 0, "divisor is %g, want more than 0", a.Divisor)
	c.require((a.Mean == 0) == (a.InvStd == 0) && a.Mean%4 == 0 && a.InvStd%4 == 0, "mean and invstd must both be present or absent, and aligned to 4 bytes")
	alignment := Pointer(t.Bytes())
	if a.Padded%vector == 0 {
		alignment = pointAlignment // the kernel writes vectors
		c.require(a.Pitch%vector == 0, "pitch is %d, want a multiple of %d", a.Pitch, vector)
	}
	c.requireArray("destination", a.Dst, alignment)
}

// Normalization describes the conversion of Batch samples of planar bytes
// [Channels][Spatial] to rows. Per position, the kernel reads Channels bytes and writes
// Padded elements.
type Normalization struct {
	PixelConversion
	Batch, Spatial int
	Src            Pointer
}

// Launches returns the launch of normalize_u8.
func (a Normalization) Launches(t ElementType) ([]Launch, error) {
	c := argChecker{op: "normalize"}
	a.checkArgs(&c, t)
	c.requirePositive("batch", a.Batch)
	c.requirePositive("spatial", a.Spatial)
	c.requireArray("source", a.Src, 1)
	c.require(a.Batch <= gridLimit, "got %d samples, want at most %d", a.Batch, gridLimit)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.Spatial, 1)
	grid[1] = uint32(a.Batch)
	var l launchList
	l.addTypedLaunch(t, "normalize_u8", grid, block, 0, a.Src, a.Dst, a.Pitch, a.Mean, a.InvStd, a.Channels, a.Padded, int64Arg(a.Spatial), a.Divisor)
	return l.result()
}

// Augmentation describes a kernel that crops, rotates and flips samples of a data set in device
// memory. The data set consists of planar bytes [sample][Channels][D][H][W]. The results are
// the same as in pkg/data: the augmentation of a sample depends only on the seed, the epoch in
// ControlBlock and the sample's index. Images and masks need two launches with equal options,
// except that masks must not have jitter. In 2-D, Size[0] and Out[0] are 1.
//
// The random numbers of a sample come from the same stream as in pkg/data. They are drawn in
// the following order, even for augmentations that are off. In 2-D: y and x of the crop, one of
// 4 flips, one of 4 rotations, brightness, contrast. In 3-D: z, y and x of the crop, one of 8
// flips, one of the 24 rotations of the cube, brightness, contrast. If the output is a cube,
// rotation r permutes the axes by permutation r/4. Then r%4 selects the mirrored axes: an even
// number of them, or an odd number if the permutation is odd. A flip mirrors further axes.
//
// Jitter: v' = min(max((v − ½)·contrast + ½ + brightness, 0), 1), where brightness is uniform
// in ±Brightness and contrast is uniform in 1±Contrast.
type Augmentation struct {
	PixelConversion
	Batch                int
	Size, Out            [3]int
	Src                  Pointer
	Samples              Pointer // int32 [Batch], indexes in the data set
	Stored               Pointer // int32 [Batch], indexes in Src; if the pointer is 0, they equal Samples
	Control              Pointer
	Flip, Rotate         bool
	Brightness, Contrast float64
}

// Launches returns the launch of augment_2d, or of augment_3d if the samples have a depth.
func (a Augmentation) Launches(t ElementType) ([]Launch, error) {
	c := argChecker{op: "augment"}
	a.checkArgs(&c, t)
	c.requirePositive("batch", a.Batch)
	c.requireArray("source", a.Src, 1)
	c.requireArray("samples", a.Samples, 4)
	c.require(a.Stored%4 == 0, "stored is not aligned to 4 bytes")
	c.requireArray("control", a.Control, pointAlignment)
	c.require(a.Batch <= gridLimit, "got %d samples, want at most %d", a.Batch, gridLimit)
	for i := range 3 {
		c.require(a.Out[i] > 0 && a.Out[i] <= a.Size[i], "crop of size %v does not fit in a sample of size %v", a.Out, a.Size)
	}
	c.require(a.Brightness >= 0 && a.Contrast >= 0 && a.Contrast <= 1, "invalid brightness %g or contrast %g", a.Brightness, a.Contrast)
	if c.err != nil {
		return nil, c.err
	}
	flags := 0
	if a.Flip {
		flags |= 1
	}
	if a.Rotate {
		flags |= 2
	}
	grid, block := flatGrid(a.Out[0]*a.Out[1]*a.Out[2], 1)
	grid[1] = uint32(a.Batch)
	name := "augment_2d"
	values := []any{a.Src, a.Samples, a.Stored, a.Control, a.Dst, a.Pitch, a.Mean, a.InvStd, a.Channels, a.Padded}
	if a.Size[0] > 1 {
		name = "augment_3d"
		values = append(values, a.Size[0], a.Size[1], a.Size[2], a.Out[0], a.Out[1], a.Out[2])
	} else {
		values = append(values, a.Size[1], a.Size[2], a.Out[1], a.Out[2])
	}
	var l launchList
	l.addTypedLaunch(t, name, grid, block, 0, append(values, flags, a.Divisor, float64BitsArg(a.Brightness), float64BitsArg(a.Contrast))...)
	return l.result()
}

func float64BitsArg(v float64) int64Arg { return int64Arg(int64(math.Float64bits(v))) }

// GatherRows returns the launch of take_rows, which sets row i of dst to row rows[i] of
// src, for i < batch. rows is an int32 array in device memory; a row has width float32
// elements.
func GatherRows(src, rows, dst Pointer, batch, width int) ([]Launch, error) {
	c := argChecker{op: "take rows"}
	c.requireArray("source", src, 4)
	c.requireArray("rows", rows, 4)
	c.requireArray("destination", dst, 4)
	c.requirePositive("batch", batch)
	c.requirePositive("width", width)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(batch*width, 1)
	var l launchList
	l.addUntypedLaunch("take_rows", grid, block, 0, src, rows, dst, int64Arg(batch*width), width)
	return l.result()
}

// ThroughputTest is the launch of a kernel that measures arithmetic throughput, with the
// number of floating-point operations that it performs.
type ThroughputTest struct {
	Launch Launch
	FLOP   float64
}

// NewFMATest returns the launch of fma_ceiling, which computes float32 multiply-adds in
// registers, in the given number of blocks (8 blocks fill a multiprocessor). The kernel
// writes 256·blocks floats to out, each equal to iterations.
func NewFMATest(out Pointer, blocks, iterations int) (ThroughputTest, error) {
	return newThroughputTest("fma_ceiling", out, blocks, iterations, 16*2)
}

// NewMMATest returns the launch of mma_ceiling_f16 or mma_ceiling_bf16, which computes
// 16×8×16 matrix products in registers with tensor cores and sums them in float32. The
// kernel writes 256·blocks floats to out, each equal to 16·iterations. Hopper's wgmma
// instructions are faster; cuBLASLt is used to measure them.
func NewMMATest(t ElementType, out Pointer, blocks, iterations int) (ThroughputTest, error) {
	// 8 products per warp of 32 threads, 2·16·8·16 operations each.
	return newThroughputTest("mma_ceiling_"+t.String(), out, blocks, iterations, 8*2*16*8*16/32)
}

// newThroughputTest returns the launch of the named kernel, which performs perThread
// operations per thread and iteration.
func newThroughputTest(name string, out Pointer, blocks, iterations int, perThread float64) (ThroughputTest, error) {
	c := argChecker{op: name}
	c.requireArray("out", out, 4)
	c.requirePositive("blocks", blocks)
	c.requirePositive("iterations", iterations)
	if c.err != nil {
		return ThroughputTest{}, c.err
	}
	var l launchList
	l.addUntypedLaunch(name, [3]uint32{uint32(blocks), 1, 1}, [3]uint32{blockThreads, 1, 1}, 0, out, iterations)
	if l.err != nil {
		return ThroughputTest{}, l.err
	}
	return ThroughputTest{l.launches[0], perThread * float64(iterations) * float64(blocks) * blockThreads}, nil
}
