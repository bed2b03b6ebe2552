package kernels

// Bias is y = act(x + bias + add) per channel.
type Bias struct {
	Rows, Channels int
	X, Add, Y      Map     // Add optional; Y may be X
	Bias           Pointer // float32 [Channels], 0: none
	ReLU           bool
}

// Launches is bias_act: 2 transfers an element, 3 with Add.
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

// BiasGrad is db = Σ d over rows, where d is dy, or with Y the part of dy that
// the ReLU let through; DX gets d.
type BiasGrad struct {
	Rows, Channels int
	DY             Map
	Y              Map // optional: output of the ReLU
	DX             Map // optional; may be DY
	DBias          Pointer
	Partial        Pointer // PartialFloats(Rows, Channels) floats
}

// Launches are bias_backward and sum_chunks: 1 transfer an element, 3 with Y and
// DX.
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

// Elementwise is an operation of one map, or two, on a third.
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

// ReLU is Y = max(0, A); a NaN stays one. 2 transfers an element.
func (a Elementwise) ReLU(t Type) ([]Launch, error) {
	m, err := a.check("relu", false)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "relu", m.grid, m.block, 0, a.A.Data, a.A.Pitch, a.Y.Data, a.Y.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// ReLUBackward is Y = B where A > 0, else 0, plus Acc: A is the output of the
// ReLU, B its gradient. 3 transfers an element, 4 with Acc.
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

// Add is Y = A + B. 3 transfers an element.
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

// CopyChannels copies rows × channels elements between two pitches: one part of
// a concatenation or of a slice. Anything aligned to an element goes; where all
// is a multiple of 8 elements and 16 bytes, in vectors. 2 transfers an element.
type CopyChannels struct {
	Rows, Channels     int
	Src, Dst           Pointer
	SrcPitch, DstPitch int
}

// Launches is copy_channels.
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

// Padding moves the maps of Batch samples: Y at a position is X at the one that lies
// Shift before it, zero where that is outside X, plus Acc. Positive shifts put zeros in
// front, and a larger Out puts some behind; negative ones take the middle of a map, which
// is the gradient. Sizes are depth, height and width.
type Padding struct {
	Batch, Channels int
	In, Out, Shift  [3]int
	X, Y, Acc       Map // Acc optional
}

// Launches is pad: 2 transfers an element, 3 with Acc.
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

// Pool is a max-pooling over Batch samples; sizes are depth, height and width (a
// depth of 1 in 2-D). The padding never is the maximum, or with PadZeros a zero like
// others, to which no gradient goes; of equal maxima the first in row order counts, a
// NaN is above all.
type Pool struct {
	Batch, Channels     int
	In, Out             [3]int
	Kernel, Stride, Pad [3]int
	X, Y                Map     // forward
	DY, DX, Acc         Map     // backward; Acc optional: added to dx
	PadZeros            bool    // forward: the padding is zeros that take part
	Index               Pointer // a byte an element of y, [rows of y][Channels]: where in the window the maximum is; forward: 0 if not wanted
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

// lines is the geometry of a kernel over lines of width pixels.
func (a Pool) lines(size [3]int) (grid, block [3]uint32) {
	vectors := a.Channels / vector
	bx := min(vectors, 64)
	by := min(blockThreads/bx, size[2])
	lines := a.Batch * size[0] * size[1]
	return [3]uint32{uint32((vectors + bx - 1) / bx), uint32(min(lines, gridLimit)), 1}, [3]uint32{uint32(bx), uint32(by), 1}
}

// Forward is max_pool. x is read once, y written once, and a byte of index an
// output: for a window of 2×2 in 16 bits 11 bytes an output.
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

// Backward is max_pool_backward: dx is gathered, a thread an input, so that
// overlapping windows need no atomics. dy and index are read once from memory,
// dx is written once.
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
