package kernels

// Bias computes y = act(x + bias + add) for each channel.
type Bias struct {
	Rows, Channels int
	X, Add, Y      Map     // Add optional; Y may be X
	Bias           Pointer // float32 [Channels]; 0: no bias
	ReLU           bool
}

// Launches returns the launch of bias_act, which moves each element 2 times, or 3 times
// with Add.
func (a Bias) Launches(t Type) ([]Launch, error) {
	c := check{op: "bias"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	c.optional("add", a.Add, a.Channels)
	c.require(a.Bias%pointAlignment == 0, "bias is not aligned to %d bytes", pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	m := tiles(a.Rows, a.Channels, mapBlocks)
	var l list
	l.typed(t, "bias_act", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.Bias, a.Add.Data, a.Add.Pitch, a.Y.Data, a.Y.Pitch,
		wide(a.Rows), wide(m.rowsPerChunk), a.Channels, a.ReLU)
	return l.done()
}

// BiasGrad computes db = Σ d over rows. d is dy, or if Y is present, dy where the ReLU's
// output Y is positive and 0 elsewhere. If DX is present, d is written to it.
type BiasGrad struct {
	Rows, Channels int
	DY             Map
	Y              Map // optional: output of the ReLU
	DX             Map // optional; may be DY
	DBias          Pointer
	Partial        Pointer // PartialFloats(Rows, Channels) floats
}

// Launches returns the launches of bias_backward and sum_chunks, which move each element
// once, or 3 times with Y and DX.
func (a BiasGrad) Launches(t Type) ([]Launch, error) {
	c := check{op: "bias backward"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("dy", a.DY, a.Channels)
	c.optional("y", a.Y, a.Channels)
	c.optional("dx", a.DX, a.Channels)
	c.array("db", a.DBias, 4)
	c.array("partial", a.Partial, pointAlignment)
	if c.err != nil {
		return nil, c.err
	}
	r := tiles(a.Rows, a.Channels, reduceBlocks)
	var l list
	l.typed(t, "bias_backward", r.grid, r.block, r.shared(vector),
		a.DY.Data, a.DY.Pitch, a.Y.Data, a.Y.Pitch, a.DX.Data, a.DX.Pitch, a.Partial,
		wide(a.Rows), wide(r.rowsPerChunk), a.Channels)
	l.sum(a.Partial, a.Channels, r.chunks, a.DBias, a.Channels, 0, 0)
	return l.done()
}

// Elementwise describes the maps of an operation on single elements: one or two inputs and
// the result Y.
type Elementwise struct {
	Rows, Channels int
	A, B, Y        Map
	Acc            Map // ReLUBackward only, optional: added to dx
}

func (a Elementwise) check(op string, two bool) (tile, error) {
	c := check{op: op}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("first input", a.A, a.Channels)
	if two {
		c.activation("second input", a.B, a.Channels)
	}
	c.optional("acc", a.Acc, a.Channels)
	c.activation("output", a.Y, a.Channels)
	if c.err != nil {
		return tile{}, c.err
	}
	return tiles(a.Rows, a.Channels, mapBlocks), nil
}

// ReLU returns the launch of Y = max(0, A). A NaN stays NaN. It moves each element 2 times.
func (a Elementwise) ReLU(t Type) ([]Launch, error) {
	m, err := a.check("relu", false)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "relu", m.grid, m.block, 0, a.A.Data, a.A.Pitch, a.Y.Data, a.Y.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// ReLUBackward returns the launch of Y = B where A > 0, 0 elsewhere, plus Acc. A is the
// output of the ReLU, B the gradient of that output. It moves each element 3 times, or 4
// times with Acc.
func (a Elementwise) ReLUBackward(t Type) ([]Launch, error) {
	m, err := a.check("relu backward", true)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "relu_backward", m.grid, m.block, 0,
		a.A.Data, a.A.Pitch, a.B.Data, a.B.Pitch, a.Acc.Data, a.Acc.Pitch, a.Y.Data, a.Y.Pitch,
		wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// Add returns the launch of Y = A + B, which moves each element 3 times.
func (a Elementwise) Add(t Type) ([]Launch, error) {
	m, err := a.check("add", true)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "add", m.grid, m.block, 0,
		a.A.Data, a.A.Pitch, a.B.Data, a.B.Pitch, a.Y.Data, a.Y.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// CopyChannels copies Rows × Channels elements between two maps with different pitches: an
// operand of a concatenation, or a slice. Pointers must be aligned to an element. If
// pointers, pitches and channels are multiples of 16 bytes or 8 elements, the kernel copies
// vectors. It moves each element 2 times.
type CopyChannels struct {
	Rows, Channels     int
	Src, Dst           Pointer
	SrcPitch, DstPitch int
}

// Launches returns the launch of copy_channels.
func (a CopyChannels) Launches(t Type) ([]Launch, error) {
	c := check{op: "copy channels"}
	c.positive("rows", a.Rows)
	c.positive("channels", a.Channels)
	c.array("source", a.Src, Pointer(t.Bytes()))
	c.array("destination", a.Dst, Pointer(t.Bytes()))
	c.require(a.SrcPitch >= a.Channels && a.DstPitch >= a.Channels, "pitches %d and %d for %d channels", a.SrcPitch, a.DstPitch, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.Rows*a.Channels, vector)
	var l list
	l.typed(t, "copy_channels", grid, block, 0, a.Src, a.SrcPitch, a.Dst, a.DstPitch, wide(a.Rows), a.Channels)
	return l.done()
}

// Padding moves the maps of Batch samples: Y[p] = X[p − Shift] + Acc[p], where X is zero
// outside its bounds. With a positive Shift there are zeros before the map, and with a
// larger Out also after it. A negative Shift selects the middle of a map, which is the
// gradient of padding. Sizes are depth, height and width.
type Padding struct {
	Batch, Channels int
	In, Out, Shift  [3]int
	X, Y, Acc       Map // Acc optional
}

// Launches returns the launch of pad, which moves each element 2 times, or 3 times with
// Acc.
func (a Padding) Launches(t Type) ([]Launch, error) {
	c := check{op: "pad"}
	c.positive("batch", a.Batch)
	c.channels(a.Channels)
	for i := range 3 {
		c.require(a.In[i] > 0 && a.Out[i] > 0, "sizes %v to %v", a.In, a.Out)
	}
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	c.optional("acc", a.Acc, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := Pool{Batch: a.Batch, Channels: a.Channels}.lines(a.Out)
	args := []any{a.X.Data, a.X.Pitch, a.Acc.Data, a.Acc.Pitch, a.Y.Data, a.Y.Pitch, a.Channels, a.Batch}
	for _, s := range [][3]int{a.In, a.Out, a.Shift} {
		args = append(args, s[0], s[1], s[2])
	}
	var l list
	l.typed(t, "pad", grid, block, 0, args...)
	return l.done()
}

// Pool describes a max pooling over Batch samples. Sizes are depth, height and width (depth
// 1 for two dimensions). Positions outside the map are never the maximum. With PadZeros
// they are zeros that may be the maximum, and then no input gets the gradient. Of equal
// maxima the first in row order is used. NaN is greater than all numbers.
type Pool struct {
	Batch, Channels     int
	In, Out             [3]int
	Kernel, Stride, Pad [3]int
	X, Y                Map     // forward
	DY, DX, Acc         Map     // backward; Acc optional: added to dx
	PadZeros            bool    // forward: positions outside the map are zeros
	Index               Pointer // one byte per element of y, [rows of y][Channels]: the position of the maximum in the window; forward: 0 if it is not needed
}

func (a Pool) check(c *check) {
	c.positive("batch", a.Batch)
	c.channels(a.Channels)
	taps := 1
	for i := range 3 {
		taps *= a.Kernel[i]
		c.require(a.In[i] > 0 && a.Out[i] > 0 && a.Kernel[i] > 0 && a.Stride[i] > 0 && a.Pad[i] >= 0 && a.Pad[i] < a.Kernel[i],
			"sizes %v to %v by windows %v, strides %v, padding %v", a.In, a.Out, a.Kernel, a.Stride, a.Pad)
		c.require((a.Out[i]-1)*a.Stride[i]-a.Pad[i]+a.Kernel[i] <= a.In[i]+a.Pad[i],
			"windows %v of %v outputs leave the %v inputs", a.Kernel, a.Out, a.In)
	}
	c.require(taps <= 256, "%d positions in a window: a byte counts 256", taps)
	c.require(a.Index%vector == 0, "index is not aligned to %d bytes", vector)
}

func (a Pool) window() []any {
	v := []any{a.Batch}
	for _, s := range [][3]int{a.In, a.Out, a.Kernel, a.Stride, a.Pad} {
		v = append(v, s[0], s[1], s[2])
	}
	return v
}

// lines returns the launch geometry of a kernel over lines of width pixels.
func (a Pool) lines(size [3]int) (grid, block [3]uint32) {
	vectors := a.Channels / vector
	bx := min(vectors, 64)
	by := min(blockThreads/bx, size[2])
	lines := a.Batch * size[0] * size[1]
	return [3]uint32{uint32((vectors + bx - 1) / bx), uint32(min(lines, gridLimit)), 1}, [3]uint32{uint32(bx), uint32(by), 1}
}

// Forward returns the launch of max_pool. It reads x once, and writes y and one byte of
// index per output: 11 bytes per output for a window of 2×2 in 16 bits.
func (a Pool) Forward(t Type) ([]Launch, error) {
	c := check{op: "max pool"}
	a.check(&c)
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lines(a.Out)
	var l list
	l.typed(t, "max_pool", grid, block, 0, append(append([]any{a.X.Data, a.X.Pitch, a.Y.Data, a.Y.Pitch, a.Index, a.Channels}, a.window()...), a.PadZeros)...)
	return l.done()
}

// Backward returns the launch of max_pool_backward. One thread per input gathers dx, so
// overlapping windows need no atomic operations. It reads dy and index once from memory and
// writes dx once.
func (a Pool) Backward(t Type) ([]Launch, error) {
	c := check{op: "max pool backward"}
	a.check(&c)
	c.activation("dy", a.DY, a.Channels)
	c.activation("dx", a.DX, a.Channels)
	c.optional("acc", a.Acc, a.Channels)
	c.array("index", a.Index, vector)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lines(a.In)
	var l list
	l.typed(t, "max_pool_backward", grid, block, 0, append([]any{a.DY.Data, a.DY.Pitch, a.Index, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, a.Channels}, a.window()...)...)
	return l.done()
}
