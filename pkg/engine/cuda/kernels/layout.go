package kernels

import "math"

// CastFromF32 is cast_from_f32: n float32 to t, round to nearest even. 6 bytes an
// element to 16 bits.
func CastFromF32(t Type, src, dst Pointer, n int) ([]Launch, error) {
	return cast(t, "cast_from_f32", src, dst, n, 4, t.Bytes())
}

// CastToF32 returns the launch of cast_to_f32, which converts n elements of t to float32.
func CastToF32(t Type, src, dst Pointer, n int) ([]Launch, error) {
	return cast(t, "cast_to_f32", src, dst, n, t.Bytes(), 4)
}

func cast(t Type, name string, src, dst Pointer, n, from, to int) ([]Launch, error) {
	c := check{op: name}
	c.positive("n", n)
	c.array("source", src, Pointer(from))
	c.array("destination", dst, Pointer(to))
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(n, vector)
	var l list
	l.typed(t, name, grid, block, 0, src, dst, wide(n))
	return l.done()
}

// Fill returns the launch of fill_u32, which sets n words of 4 bytes (two elements of 16
// bits) to value.
func Fill(dst Pointer, value uint32, n int) ([]Launch, error) {
	c := check{op: "fill"}
	c.positive("n", n)
	c.array("destination", dst, 4)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(n, 4)
	var l list
	l.untyped("fill_u32", grid, block, 0, dst, int(int32(value)), wide(n))
	return l.done()
}

// A transposition moves tiles of 32×32 elements through shared memory. Each row there is
// one element longer than the tile, so that the elements of a column are in different
// banks.
const (
	transposeEdge   = 32
	transposeRows   = 8
	transposeShared = transposeEdge * (transposeEdge + 1) * 4
)

// Transpose changes the layout of Batch samples of Channels × Spatial elements
// between planar float32 [Batch][Channels][Spatial] and channels-last rows of the
// launch's Type. With F32 and Batch as the number of filters it turns weights
// KCRS into KRSC and back.
type Transpose struct {
	Batch, Channels, Spatial int
	Padded                   int     // channels that are written per row; those from Channels on are set to zero
	Planar                   Pointer // float32
	Rows                     Pointer // [Batch·Spatial][Pitch] of the launch's Type
	Pitch                    int
}

// ToRows returns the launch of nchw_to_nhwc, or of nchw_to_rows if a row has one vector.
func (a Transpose) ToRows(t Type) ([]Launch, error) {
	grid, block, err := a.geometry("nchw to nhwc", t, a.Padded)
	if err != nil {
		return nil, err
	}
	var l list
	if a.Padded == vector && a.Pitch%vector == 0 && a.Rows%pointAlignment == 0 {
		grid, block = flat(a.Spatial, 1)
		grid[1] = uint32(a.Batch)
		l.typed(t, "nchw_to_rows", grid, block, 0, a.Planar, a.Rows, a.Pitch, a.Channels, wide(a.Spatial))
		return l.done()
	}
	l.typed(t, "nchw_to_nhwc", grid, block, transposeShared, a.Planar, a.Rows, a.Pitch, a.Channels, a.Padded, wide(a.Spatial))
	return l.done()
}

// ToPlanar returns the launch of nhwc_to_nchw. It ignores Padded.
func (a Transpose) ToPlanar(t Type) ([]Launch, error) {
	grid, block, err := a.geometry("nhwc to nchw", t, a.Channels)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "nhwc_to_nchw", grid, block, transposeShared, a.Rows, a.Pitch, a.Planar, a.Channels, wide(a.Spatial))
	return l.done()
}

func (a Transpose) geometry(op string, t Type, padded int) (grid, block [3]uint32, err error) {
	c := check{op: op}
	c.positive("batch", a.Batch)
	c.positive("channels", a.Channels)
	c.positive("spatial", a.Spatial)
	c.array("planar", a.Planar, 4)
	c.array("rows", a.Rows, Pointer(t.Bytes()))
	c.require(padded >= a.Channels && a.Pitch >= padded, "%d channels padded to %d at a pitch of %d", a.Channels, padded, a.Pitch)
	tilesC := (padded + transposeEdge - 1) / transposeEdge
	c.require(a.Batch <= gridLimit && tilesC <= gridLimit, "%d samples of %d channels: the grid holds %d", a.Batch, padded, gridLimit)
	return [3]uint32{uint32((a.Spatial + transposeEdge - 1) / transposeEdge), uint32(tilesC), uint32(a.Batch)},
		[3]uint32{transposeEdge, transposeRows, 1}, c.err
}

// Pixels describes the conversion of bytes to values: (byte/Divisor − mean[c])·invstd[c].
type Pixels struct {
	Channels, Padded int     // channels of the source, and channels written (zeros from Channels on)
	Divisor          float64 // 255 for images, 1 or 255 for masks
	Mean, InvStd     Pointer // float32 [Channels]; both 0: only divide by Divisor
	Dst              Pointer // rows of the launch's Type
	Pitch            int
}

func (a Pixels) check(c *check, t Type) {
	c.positive("channels", a.Channels)
	c.require(a.Padded >= a.Channels && a.Pitch >= a.Padded, "%d channels padded to %d at a pitch of %d", a.Channels, a.Padded, a.Pitch)
	c.require(a.Divisor > 0, "divisor is %g", a.Divisor)
	c.require((a.Mean == 0) == (a.InvStd == 0) && a.Mean%4 == 0 && a.InvStd%4 == 0, "mean and invstd go together, aligned to 4 bytes")
	alignment := Pointer(t.Bytes())
	if a.Padded%vector == 0 {
		alignment = pointAlignment // whole vectors are written
		c.require(a.Pitch%vector == 0, "rows of %d channels at a pitch of %d", a.Padded, a.Pitch)
	}
	c.array("destination", a.Dst, alignment)
}

// Normalize converts Batch samples of planar bytes [Channels][Spatial] to rows. For each
// position the kernel reads Channels bytes and writes Padded elements.
type Normalize struct {
	Pixels
	Batch, Spatial int
	Src            Pointer
}

// Launches returns the launch of normalize_u8.
func (a Normalize) Launches(t Type) ([]Launch, error) {
	c := check{op: "normalize"}
	a.check(&c, t)
	c.positive("batch", a.Batch)
	c.positive("spatial", a.Spatial)
	c.array("source", a.Src, 1)
	c.require(a.Batch <= gridLimit, "%d samples: the grid holds %d", a.Batch, gridLimit)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.Spatial, 1)
	grid[1] = uint32(a.Batch)
	var l list
	l.typed(t, "normalize_u8", grid, block, 0, a.Src, a.Dst, a.Pitch, a.Mean, a.InvStd, a.Channels, a.Padded, wide(a.Spatial), a.Divisor)
	return l.done()
}

// Augment crops, rotates and mirrors samples of a data set in device memory, which contains
// planar bytes [sample][Channels][D][H][W]. It does the same as pkg/data: the augmentation
// of a sample depends only on Control's seed and epoch and on the sample's index. Images
// and masks need two calls with the same options, the masks without jitter. In 2-D Size[0]
// and Out[0] are 1.
//
// The random numbers of a sample come from the stream that data uses, in this order, and
// are drawn even for augmentations that are switched off. In 2-D: y and x of the window, 4
// flips, 4 rotations, brightness, contrast. In 3-D: z, y and x of the window, 8 flips, the
// 24 rotations of the cube, brightness, contrast. Rotation r of the 24 permutes the axes by
// r/4 (only if the output is a cube). By r%4 it mirrors an even number of axes, or an odd
// number if the permutation is odd. A flip mirrors further axes.
//
// Jitter: v' = min(max((v − ½)·contrast + ½ + brightness, 0), 1), with brightness uniform
// in ±Brightness and contrast uniform in 1±Contrast.
type Augment struct {
	Pixels
	Batch                int
	Size, Out            [3]int
	Src                  Pointer
	Samples              Pointer // int32 [Batch], indexes in the data set
	Stored               Pointer // int32 [Batch], indexes of the samples in Src; 0: the same as Samples
	Control              Pointer
	Flip, Rotate         bool
	Brightness, Contrast float64
}

// Launches returns the launch of augment_2d, or of augment_3d if samples have depth.
func (a Augment) Launches(t Type) ([]Launch, error) {
	c := check{op: "augment"}
	a.check(&c, t)
	c.positive("batch", a.Batch)
	c.array("source", a.Src, 1)
	c.array("samples", a.Samples, 4)
	c.require(a.Stored%4 == 0, "stored is not aligned to 4 bytes")
	c.array("control", a.Control, pointAlignment)
	c.require(a.Batch <= gridLimit, "%d samples: the grid holds %d", a.Batch, gridLimit)
	for i := range 3 {
		c.require(a.Out[i] > 0 && a.Out[i] <= a.Size[i], "a window of %v in a sample of %v", a.Out, a.Size)
	}
	c.require(a.Brightness >= 0 && a.Contrast >= 0 && a.Contrast <= 1, "brightness %g, contrast %g", a.Brightness, a.Contrast)
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
	grid, block := flat(a.Out[0]*a.Out[1]*a.Out[2], 1)
	grid[1] = uint32(a.Batch)
	name := "augment_2d"
	values := []any{a.Src, a.Samples, a.Stored, a.Control, a.Dst, a.Pitch, a.Mean, a.InvStd, a.Channels, a.Padded}
	if a.Size[0] > 1 {
		name = "augment_3d"
		values = append(values, a.Size[0], a.Size[1], a.Size[2], a.Out[0], a.Out[1], a.Out[2])
	} else {
		values = append(values, a.Size[1], a.Size[2], a.Out[1], a.Out[2])
	}
	var l list
	l.typed(t, name, grid, block, 0, append(values, flags, a.Divisor, bits(a.Brightness), bits(a.Contrast))...)
	return l.done()
}

// bits returns the bits of v as an argument for a kernel.
func bits(v float64) wide { return wide(int64(math.Float64bits(v))) }

// TakeRows returns the launch of take_rows, which copies row rows[i] (int32) of src to row
// i of dst, for batch rows of width float32.
func TakeRows(src, rows, dst Pointer, batch, width int) ([]Launch, error) {
	c := check{op: "take rows"}
	c.array("source", src, 4)
	c.array("rows", rows, 4)
	c.array("destination", dst, 4)
	c.positive("batch", batch)
	c.positive("width", width)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(batch*width, 1)
	var l list
	l.untyped("take_rows", grid, block, 0, src, rows, dst, wide(batch*width), width)
	return l.done()
}

// CopyCeiling returns the launch of copy_ceiling, which copies n vectors of 16 bytes, 32·n
// bytes of traffic, to measure the memory's bandwidth.
func CopyCeiling(src, dst Pointer, n int) ([]Launch, error) {
	c := check{op: "copy ceiling"}
	c.positive("n", n)
	c.array("source", src, 16)
	c.array("destination", dst, 16)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(n, 4)
	var l list
	l.untyped("copy_ceiling", grid, block, 0, src, dst, wide(n))
	return l.done()
}

// Ceiling is a kernel that only computes, and its number of operations.
type Ceiling struct {
	Launch Launch
	FLOP   float64
}

// FMACeiling returns fma_ceiling: float32 multiply-adds in registers, in the given number
// of blocks (8 blocks fill a multiprocessor). It writes 256·blocks floats to out, all equal
// to iterations.
func FMACeiling(out Pointer, blocks, iterations int) (Ceiling, error) {
	return ceiling("fma_ceiling", out, blocks, iterations, 16*2)
}

// MMACeiling returns mma_ceiling_f16 or mma_ceiling_bf16: 16×8×16 matrix products of the
// tensor cores in registers, with sums in float32. It writes 256·blocks floats to out, all
// equal to 16·iterations. Hopper's wgmma instruction is faster still; it is measured by
// cublasLt.
func MMACeiling(t Type, out Pointer, blocks, iterations int) (Ceiling, error) {
	// 8 products per warp of 32 threads, 2·16·8·16 operations each.
	return ceiling("mma_ceiling_"+t.String(), out, blocks, iterations, 8*2*16*8*16/32)
}

func ceiling(name string, out Pointer, blocks, iterations int, perThread float64) (Ceiling, error) {
	c := check{op: name}
	c.array("out", out, 4)
	c.positive("blocks", blocks)
	c.positive("iterations", iterations)
	if c.err != nil {
		return Ceiling{}, c.err
	}
	var l list
	l.untyped(name, [3]uint32{uint32(blocks), 1, 1}, [3]uint32{blockThreads, 1, 1}, 0, out, iterations)
	if l.err != nil {
		return Ceiling{}, l.err
	}
	return Ceiling{l.launches[0], perThread * float64(iterations) * float64(blocks) * blockThreads}, nil
}
