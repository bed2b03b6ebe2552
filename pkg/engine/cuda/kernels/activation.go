package kernels

// Bias describes y = act(x + bias + add), with one bias per channel. act is ReLU or the
// identity.
type Bias struct {
	Rows, Channels int
	X, Add, Y      FeatureMap // Add optional; Y may be X
	Bias           Pointer    // float32 [Channels]; 0: no bias
	ReLU           bool
}

// Launches returns the launch of bias_act. Memory traffic: 2 passes over the map, 3 with
// Add.
func (a Bias) Launches(t ElementType) ([]Launch, error) {
	c := argChecker{op: "bias"}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("x", a.X, a.Channels)
	c.requireMap("y", a.Y, a.Channels)
	c.requireOptionalMap("add", a.Add, a.Channels)
	c.require(a.Bias%pointAlignment == 0, "bias is not aligned to %d bytes", pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	m := newMatrixLaunchTiling(a.Rows, a.Channels, mapBlocks)
	var l launchList
	l.addTypedLaunch(t, "bias_act", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.Bias, a.Add.Data, a.Add.Pitch, a.Y.Data, a.Y.Pitch,
		int64Arg(a.Rows), int64Arg(m.rowsPerChunk), a.Channels, a.ReLU)
	return l.result()
}

// BiasGrad describes the gradient of a bias: db = Σ d over all rows. If Y, the output of a
// ReLU, is present, d is dy where Y > 0 and 0 elsewhere; otherwise d is dy. If DX is
// present, d is written to it.
type BiasGrad struct {
	Rows, Channels int
	DY             FeatureMap
	Y              FeatureMap // optional: output of the ReLU
	DX             FeatureMap // optional; may be DY
	DBias          Pointer
	Partial        Pointer // PartialSumFloats(Rows, Channels) floats
}

// Launches returns the launches of bias_backward and sum_chunks. Memory traffic: 1 pass
// over the map, 3 with Y and DX.
func (a BiasGrad) Launches(t ElementType) ([]Launch, error) {
	c := argChecker{op: "bias backward"}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("dy", a.DY, a.Channels)
	c.requireOptionalMap("y", a.Y, a.Channels)
	c.requireOptionalMap("dx", a.DX, a.Channels)
	c.requireArray("db", a.DBias, 4)
	c.requireArray("partial", a.Partial, pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	r := newMatrixLaunchTiling(a.Rows, a.Channels, reduceBlocks)
	var l launchList
	l.addTypedLaunch(t, "bias_backward", r.grid, r.block, r.reductionSharedBytes(vector),
		a.DY.Data, a.DY.Pitch, a.Y.Data, a.Y.Pitch, a.DX.Data, a.DX.Pitch, a.Partial,
		int64Arg(a.Rows), int64Arg(r.rowsPerChunk), a.Channels)
	l.addColumnSumLaunch(a.Partial, a.Channels, r.chunks, a.DBias, a.Channels, 0, 0)
	return l.result()
}

// ElementwiseOp describes the operands of an elementwise operation. Every operation reads A and
// writes Y; some also read B.
type ElementwiseOp struct {
	Rows, Channels int
	A, B, Y        FeatureMap
	Acc            FeatureMap // optional, for the backward operations: added to Y
}

// newLaunches returns the launch of the named kernel. The kernel's arguments are maps, then the
// geometry, then more. op names the operation in errors. If binary is set, the operation reads
// B.
func (a ElementwiseOp) newLaunches(t ElementType, op, kernel string, binary bool, maps []FeatureMap, more ...any) ([]Launch, error) {
	c := argChecker{op: op}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("first input", a.A, a.Channels)
	if binary {
		c.requireMap("second input", a.B, a.Channels)
	}
	c.requireOptionalMap("acc", a.Acc, a.Channels)
	c.requireMap("output", a.Y, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	var args []any
	for _, m := range maps {
		args = append(args, m.Data, m.Pitch)
	}
	m := newMatrixLaunchTiling(a.Rows, a.Channels, mapBlocks)
	args = append(append(args, int64Arg(a.Rows), int64Arg(m.rowsPerChunk), a.Channels), more...)
	var l launchList
	l.addTypedLaunch(t, kernel, m.grid, m.block, 0, args...)
	return l.result()
}

// ReLU returns the launch of Y = max(0, A), where NaN stays NaN. Memory traffic: 2 passes.
func (a ElementwiseOp) ReLU(t ElementType) ([]Launch, error) {
	return a.newLaunches(t, "relu", "relu", false, []FeatureMap{a.A, a.Y})
}

// ReLUBackward returns the launch of Y = B + Acc where A > 0 and Y = Acc elsewhere. A is
// the output of the ReLU, and B is the gradient of that output. Memory traffic: 3 passes, 4
// with Acc.
func (a ElementwiseOp) ReLUBackward(t ElementType) ([]Launch, error) {
	return a.newLaunches(t, "relu backward", "relu_backward", true, []FeatureMap{a.A, a.B, a.Acc, a.Y})
}

// Add returns the launch of Y = A + B. Memory traffic: 3 passes.
func (a ElementwiseOp) Add(t ElementType) ([]Launch, error) {
	return a.newLaunches(t, "add", "add", true, []FeatureMap{a.A, a.B, a.Y})
}

// ChannelCopy describes a copy of Rows × Channels elements between two maps with different
// pitches, such as an operand of a concatenation or a slice. Pointers must be aligned to an
// element. The kernel copies vectors of 8 elements if all pointers are aligned to 16 bytes
// and all pitches and channel counts are multiples of 8.
type ChannelCopy struct {
	Rows, Channels     int
	Src, Dst           Pointer
	SrcPitch, DstPitch int
}

// Launches returns the launch of copy_channels. Memory traffic: 2 passes.
func (a ChannelCopy) Launches(t ElementType) ([]Launch, error) {
	c := argChecker{op: "copy channels"}
	c.requirePositive("rows", a.Rows)
	c.requirePositive("channels", a.Channels)
	c.requireArray("source", a.Src, Pointer(t.Bytes()))
	c.requireArray("destination", a.Dst, Pointer(t.Bytes()))
	c.require(a.SrcPitch >= a.Channels && a.DstPitch >= a.Channels, "pitches %d and %d are less than %d channels", a.SrcPitch, a.DstPitch, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.Rows*a.Channels, vector)
	var l launchList
	l.addTypedLaunch(t, "copy_channels", grid, block, 0, a.Src, a.SrcPitch, a.Dst, a.DstPitch, int64Arg(a.Rows), a.Channels)
	return l.result()
}

// Padding describes the zero padding of the maps of Batch samples, or its gradient: Y[p] =
// X[p − Shift] + Acc[p], where X is zero outside its bounds. A positive Shift inserts zeros
// before the map; a larger Out adds zeros after it. A negative Shift cuts out the middle of
// a map, which is the gradient of padding. In, Out and Shift are in the order depth,
// height, width.
type Padding struct {
	Batch, Channels int
	In, Out, Shift  [3]int
	X, Y, Acc       FeatureMap // Acc optional
}

// Launches returns the launch of pad. Memory traffic: 2 passes, 3 with Acc.
func (a Padding) Launches(t ElementType) ([]Launch, error) {
	c := argChecker{op: "pad"}
	c.requirePositive("batch", a.Batch)
	c.requireChannels(a.Channels)
	for i := range 3 {
		c.require(a.In[i] > 0 && a.Out[i] > 0, "input size %v and output size %v must be positive", a.In, a.Out)
	}
	c.requireMap("x", a.X, a.Channels)
	c.requireMap("y", a.Y, a.Channels)
	c.requireOptionalMap("acc", a.Acc, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := Pooling{Batch: a.Batch, Channels: a.Channels}.lineLaunchGrid(a.Out)
	args := []any{a.X.Data, a.X.Pitch, a.Acc.Data, a.Acc.Pitch, a.Y.Data, a.Y.Pitch, a.Channels, a.Batch}
	for _, s := range [][3]int{a.In, a.Out, a.Shift} {
		args = append(args, s[0], s[1], s[2])
	}
	var l launchList
	l.addTypedLaunch(t, "pad", grid, block, 0, args...)
	return l.result()
}

// Pooling describes a max or average pooling over Batch samples. Sizes are in the order
// depth, height, width; the depth is 1 in two dimensions. For a max pooling, positions
// outside the map are ignored, or are zeros if PadZeros is set; no input receives the
// gradient of such a zero. Of equal maxima the first in row order is used. NaN is greater
// than all numbers.
type Pooling struct {
	Batch, Channels     int
	In, Out             [3]int
	Kernel, Stride, Pad [3]int
	X, Y                FeatureMap // forward
	DY, DX, Acc         FeatureMap // backward; Acc optional: added to dx
	PadZeros            bool       // forward: positions outside the map are zeros
	Index               Pointer    // one byte per element of y, [rows of y][Channels]: the position of the maximum in the window; forward: 0 if it is not needed
}

func (a Pooling) checkArgs(c *argChecker) {
	c.requirePositive("batch", a.Batch)
	c.requireChannels(a.Channels)
	taps := 1
	for i := range 3 {
		taps *= a.Kernel[i]
		c.require(a.In[i] > 0 && a.Out[i] > 0 && a.Kernel[i] > 0 && a.Stride[i] > 0 && a.Pad[i] >= 0 && a.Pad[i] < a.Kernel[i],
			"invalid geometry: input %v, output %v, window %v, stride %v, padding %v", a.In, a.Out, a.Kernel, a.Stride, a.Pad)
		c.require((a.Out[i]-1)*a.Stride[i]-a.Pad[i]+a.Kernel[i] <= a.In[i]+a.Pad[i],
			"%v windows of size %v exceed the padded input of size %v", a.Out, a.Kernel, a.In)
	}
	c.require(taps <= 256, "a window has %d positions, want at most 256", taps)
	c.require(a.Index%vector == 0, "index is not aligned to %d bytes", vector)
}

// windowArgs returns the batch size and the geometry in the order of poolParams.
func (a Pooling) windowArgs() []any {
	v := []any{a.Batch}
	for _, s := range [][3]int{a.In, a.Out, a.Kernel, a.Stride, a.Pad} {
		v = append(v, s[0], s[1], s[2])
	}
	return v
}

// lineLaunchGrid returns the grid and the block for a kernel that processes a map of the given size
// line by line.
func (a Pooling) lineLaunchGrid(size [3]int) (grid, block [3]uint32) {
	vectors := a.Channels / vector
	bx := min(vectors, 64)
	by := min(blockThreads/bx, size[2])
	lines := a.Batch * size[0] * size[1]
	return [3]uint32{uint32((vectors + bx - 1) / bx), uint32(min(lines, gridLimit)), 1}, [3]uint32{uint32(bx), uint32(by), 1}
}

// Forward returns the launch of max_pool, which reads x once and writes y and a one-byte index
// for each output. For 2×2 windows of 16-bit elements, this is 11 bytes of memory traffic per
// output.
func (a Pooling) Forward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "max pool"}
	a.checkArgs(&c)
	c.requireMap("x", a.X, a.Channels)
	c.requireMap("y", a.Y, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lineLaunchGrid(a.Out)
	var l launchList
	l.addTypedLaunch(t, "max_pool", grid, block, 0, append(append([]any{a.X.Data, a.X.Pitch, a.Y.Data, a.Y.Pitch, a.Index, a.Channels}, a.windowArgs()...), a.PadZeros)...)
	return l.result()
}

// Backward returns the launch of max_pool_backward. One thread per input sums the gradients
// of all windows that contain the input, so overlapping windows need no atomic operations.
// Each element of dy, index and dx is read or written once in memory.
func (a Pooling) Backward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "max pool backward"}
	a.checkArgs(&c)
	c.requireMap("dy", a.DY, a.Channels)
	c.requireMap("dx", a.DX, a.Channels)
	c.requireOptionalMap("acc", a.Acc, a.Channels)
	c.requireArray("index", a.Index, vector)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lineLaunchGrid(a.In)
	var l launchList
	l.addTypedLaunch(t, "max_pool_backward", grid, block, 0, append([]any{a.DY.Data, a.DY.Pitch, a.Index, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, a.Channels}, a.windowArgs()...)...)
	return l.result()
}
