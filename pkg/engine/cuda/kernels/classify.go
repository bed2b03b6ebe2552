package kernels

// GlobalAvgPool is the mean over the Points of each of Batch samples.
type GlobalAvgPool struct {
	Batch, Points, Channels int
	X                       Map // [Batch·Points] rows
	Y                       Map // [Batch] rows

	// Backward: dx = dy/Points + Acc.
	DY, DX, Acc Map // Acc optional
}

// Forward is global_avg_pool: x is read once.
func (a GlobalAvgPool) Forward(t Type) ([]Launch, error) {
	c := check{op: "global average pool"}
	a.check(&c)
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	c.require(a.Batch <= gridLimit, "%d samples: a grid has at most %d", a.Batch, gridLimit)
	if c.err != nil {
		return nil, c.err
	}
	vectors := a.Channels / vector
	bx := min(vectors, 32)
	by := max(1, min(blockThreads/bx, a.Points))
	var l list
	l.typed(t, "global_avg_pool", [3]uint32{uint32((vectors + bx - 1) / bx), uint32(a.Batch), 1}, [3]uint32{uint32(bx), uint32(by), 1}, uint32(4*vector*bx*by),
		a.X.Data, a.X.Pitch, a.Y.Data, a.Y.Pitch, wide(a.Points), a.Channels)
	return l.done()
}

// Backward is global_avg_pool_backward: dx is written once.
func (a GlobalAvgPool) Backward(t Type) ([]Launch, error) {
	c := check{op: "global average pool backward"}
	a.check(&c)
	c.activation("dy", a.DY, a.Channels)
	c.activation("dx", a.DX, a.Channels)
	c.optional("acc", a.Acc, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	rows := a.Batch * a.Points
	m := tiles(rows, a.Channels, mapBlocks)
	var l list
	l.typed(t, "global_avg_pool_backward", m.grid, m.block, 0,
		a.DY.Data, a.DY.Pitch, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, wide(a.Points), wide(rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

func (a GlobalAvgPool) check(c *check) {
	c.positive("batch", a.Batch)
	c.positive("points", a.Points)
	c.channels(a.Channels)
}

// Average is avg_pool: the mean of each window. There is no padding.
func (a Pool) Average(t Type) ([]Launch, error) {
	c := check{op: "average pool"}
	a.check(&c)
	c.require(a.Pad == [3]int{}, "padding %v: an average has none", a.Pad)
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lines(a.Out)
	var l list
	l.typed(t, "avg_pool", grid, block, 0, append([]any{a.X.Data, a.X.Pitch, a.Y.Data, a.Y.Pitch, a.Channels}, a.window()...)...)
	return l.done()
}

// AverageBackward is avg_pool_backward: dx is gathered, as in Backward.
func (a Pool) AverageBackward(t Type) ([]Launch, error) {
	c := check{op: "average pool backward"}
	a.check(&c)
	c.require(a.Pad == [3]int{}, "padding %v: an average has none", a.Pad)
	c.activation("dy", a.DY, a.Channels)
	c.activation("dx", a.DX, a.Channels)
	c.optional("acc", a.Acc, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lines(a.In)
	var l list
	l.typed(t, "avg_pool_backward", grid, block, 0, append([]any{a.DY.Data, a.DY.Pitch, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, a.Channels}, a.window()...)...)
	return l.done()
}

// LeakyReLU is Y = A where A > 0, else slope·A. 2 transfers an element.
func (a Elementwise) LeakyReLU(t Type, slope float64) ([]Launch, error) {
	m, err := a.check("leaky relu", false)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "leaky_relu", m.grid, m.block, 0,
		a.A.Data, a.A.Pitch, Pointer(0), 0, Pointer(0), 0, a.Y.Data, a.Y.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels, slope)
	return l.done()
}

// LeakyReLUBackward is Y = B where A > 0, else slope·B, plus Acc: A is the output of
// the LeakyReLU, B its gradient. 3 transfers an element, 4 with Acc.
func (a Elementwise) LeakyReLUBackward(t Type, slope float64) ([]Launch, error) {
	m, err := a.check("leaky relu backward", true)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "leaky_relu", m.grid, m.block, 0,
		a.B.Data, a.B.Pitch, a.A.Data, a.A.Pitch, a.Acc.Data, a.Acc.Pitch, a.Y.Data, a.Y.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels, slope)
	return l.done()
}

// Tanh is Y = tanh(A). 2 transfers an element.
func (a Elementwise) Tanh(t Type) ([]Launch, error) {
	m, err := a.check("tanh", false)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "tanh", m.grid, m.block, 0, a.A.Data, a.A.Pitch, a.Y.Data, a.Y.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// TanhBackward is Y = B·(1 − A²) plus Acc: A is the output of the tanh, B its
// gradient. 3 transfers an element, 4 with Acc.
func (a Elementwise) TanhBackward(t Type) ([]Launch, error) {
	m, err := a.check("tanh backward", true)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "tanh_backward", m.grid, m.block, 0,
		a.A.Data, a.A.Pitch, a.B.Data, a.B.Pitch, a.Acc.Data, a.Acc.Pitch, a.Y.Data, a.Y.Pitch,
		wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// SoftmaxCE is the cross entropy of softmax(z) against classes t, the mean over Rows
// of −Σ q·log softmax(z), where q is 1−Smoothing for class t and Smoothing/Classes
// for all; with it the number of rows whose first greatest logit is class t. The
// classes must be whole numbers from 0 to Classes−1.
type SoftmaxCE struct {
	Rows, Classes int     // Classes as counted, not padded
	Z             Pointer // logits of the launch's Type, [Rows][ZPitch]
	ZPitch        int
	T             Pointer // float32 [Rows]
	Smoothing     float64
	Partial       Pointer // LossPartialFloats floats
	Loss          Pointer // float32 [1]
	Counts        Pointer // long long [4]: hits, 0, 0, 0; 0: not wanted
	Accumulate    bool    // counts are added to what is there

	// Backward:
	DLoss   Pointer // float32 [1], the gradient of the loss; 0: 1
	Control Pointer // its loss scale is multiplied in; 0: 1
	DZ      Pointer // [Rows][DZPitch], zero in the padding
	DZPitch int
}

func (a SoftmaxCE) check(c *check, t Type) {
	c.positive("rows", a.Rows)
	c.positive("classes", a.Classes)
	c.array("z", a.Z, Pointer(t.Bytes()))
	c.array("t", a.T, 4)
	c.require(a.ZPitch >= a.Classes, "z has a pitch of %d for %d classes", a.ZPitch, a.Classes)
	c.require(a.Smoothing >= 0 && a.Smoothing <= 1, "a label smoothing of %g is not from 0 to 1", a.Smoothing)
}

// rowThreads is how many threads work on a row of n classes: whole warps.
func rowThreads(n int) int { return max(32, min(blockThreads, (n+31)/32*32)) }

// Forward are softmax_ce and bce_finalize.
func (a SoftmaxCE) Forward(t Type) ([]Launch, error) {
	c := check{op: "softmax cross entropy"}
	a.check(&c, t)
	c.array("partial", a.Partial, pointAlignment)
	c.array("loss", a.Loss, 4)
	c.require(a.Counts%8 == 0, "counts are not aligned to 8 bytes")
	if c.err != nil {
		return nil, c.err
	}
	blocks, threads := min(lossBlocks, a.Rows), rowThreads(a.Classes)
	var l list
	l.typed(t, "softmax_ce", [3]uint32{uint32(blocks), 1, 1}, [3]uint32{1, uint32(threads), 1}, uint32(4*threads),
		a.Z, a.ZPitch, a.T, a.Partial, wide(a.Rows), a.Classes, a.Smoothing)
	l.untyped("bce_finalize", [3]uint32{1, 1, 1}, [3]uint32{1, blockThreads, 1}, blockThreads*5*8,
		a.Partial, blocks, wide(a.Rows), a.Loss, a.Counts, a.Accumulate)
	return l.done()
}

// Backward is softmax_ce_backward.
func (a SoftmaxCE) Backward(t Type) ([]Launch, error) {
	c := check{op: "softmax cross entropy backward"}
	a.check(&c, t)
	c.array("dz", a.DZ, Pointer(t.Bytes()))
	c.require(a.DZPitch >= a.Classes, "dz has a pitch of %d for %d classes", a.DZPitch, a.Classes)
	c.require(a.DLoss%4 == 0 && a.Control%8 == 0, "dloss or control is not aligned")
	if c.err != nil {
		return nil, c.err
	}
	threads := rowThreads(a.Classes)
	var l list
	l.typed(t, "softmax_ce_backward", [3]uint32{uint32(min(mapBlocks, a.Rows)), 1, 1}, [3]uint32{1, uint32(threads), 1}, uint32(4*threads),
		a.Z, a.ZPitch, a.T, a.DLoss, a.Control, a.DZ, a.DZPitch, wide(a.Rows), a.Classes, a.Smoothing)
	return l.done()
}

// L1 is the mean of |z − t| over Rows × Channels elements, plus ExpWeight times the mean
// over channel 0 of |e^14z − e^14t|. It counts nothing.
type L1 struct {
	BCE
	ExpWeight float64
}

// Forward are l1 and bce_finalize: z and t are read once.
func (a L1) Forward(t Type) ([]Launch, error) {
	c := check{op: "l1"}
	a.check(&c, t)
	c.array("partial", a.Partial, pointAlignment)
	c.array("loss", a.Loss, 4)
	if c.err != nil {
		return nil, c.err
	}
	blocks := min(lossBlocks, (a.Rows*a.Channels+blockThreads-1)/blockThreads)
	var l list
	l.typed(t, "l1", [3]uint32{uint32(blocks), 1, 1}, column, blockThreads*4,
		a.Z, a.ZPitch, a.T, a.Partial, wide(a.Rows), a.Channels, a.ExpWeight)
	l.untyped("bce_finalize", one, column, blockThreads*5*8,
		a.Partial, blocks, wide(a.Rows*a.Channels), a.Loss, Pointer(0), false)
	return l.done()
}

// Backward is l1_backward: dz = dloss·scale·sign(z − t)/elements, in channel 0 plus
// dloss·scale·ExpWeight·14·e^14z·sign(z − t)/elements of channel 0.
func (a L1) Backward(t Type) ([]Launch, error) {
	c := check{op: "l1 backward"}
	a.checkBackward(&c, t)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.Rows*a.DZPitch, 1)
	var l list
	l.typed(t, "l1_backward", grid, block, 0,
		a.Z, a.ZPitch, a.T, a.DLoss, a.Control, a.DZ, a.DZPitch, wide(a.Rows), a.Channels, a.ExpWeight)
	return l.done()
}
