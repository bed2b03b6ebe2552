package kernels

// GlobalAvgPool computes the mean over the Points positions of each of Batch samples.
type GlobalAvgPool struct {
	Batch, Points, Channels int
	X                       Map // [Batch·Points] rows
	Y                       Map // [Batch] rows

	// For Backward: dx = dy/Points + Acc.
	DY, DX, Acc Map // Acc optional
}

// Forward returns the launch of global_avg_pool, which reads x once.
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

// Backward returns the launch of global_avg_pool_backward, which writes dx once.
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

// Average returns the launch of avg_pool: the mean of each window, without padding.
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

// AverageBackward returns the launch of avg_pool_backward. Like Backward it gathers dx.
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

// LeakyReLU returns the launch of Y = A where A > 0, slope·A elsewhere. It moves each
// element 2 times.
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

// LeakyReLUBackward returns the launch of Y = B where A > 0, slope·B elsewhere, plus Acc. A
// is the output of the LeakyReLU, B the gradient of that output. It moves each element 3
// times, or 4 times with Acc.
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

// Tanh returns the launch of Y = tanh(A), which moves each element 2 times.
func (a Elementwise) Tanh(t Type) ([]Launch, error) {
	m, err := a.check("tanh", false)
	if err != nil {
		return nil, err
	}
	var l list
	l.typed(t, "tanh", m.grid, m.block, 0, a.A.Data, a.A.Pitch, a.Y.Data, a.Y.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// TanhBackward returns the launch of Y = B·(1 − A²) + Acc. A is the output of the tanh, B
// the gradient of that output. It moves each element 3 times, or 4 times with Acc.
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

// SoftmaxCE computes the cross entropy of softmax(z) with classes t: the mean over Rows of
// −Σ q·log softmax(z), where q = Smoothing/Classes for each class, plus 1−Smoothing for
// class t. It also counts the rows whose first greatest logit is class t. Classes must be
// integers from 0 to Classes−1.
type SoftmaxCE struct {
	Rows, Classes int     // Classes without padding
	Z             Pointer // logits of the launch's Type, [Rows][ZPitch]
	ZPitch        int
	T             Pointer // float32 [Rows]
	Smoothing     float64
	Partial       Pointer // LossPartialFloats floats
	Loss          Pointer // float32 [1]
	Counts        Pointer // long long [4]: rows with the right class, 0, 0, 0; 0: not counted
	Accumulate    bool    // add to Counts instead of replacing them

	// For Backward:
	DLoss   Pointer // float32 [1], the gradient of the loss; 0: the gradient is 1
	Control Pointer // contains the loss scale, a factor of the gradient; 0: the scale is 1
	DZ      Pointer // [Rows][DZPitch]; the kernel writes zeros to the padding
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

// rowThreads returns the number of threads that work on a row of n classes, a multiple of
// the warp size.
func rowThreads(n int) int { return max(32, min(blockThreads, (n+31)/32*32)) }

// Forward returns the launches of softmax_ce and bce_finalize.
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

// Backward returns the launch of softmax_ce_backward.
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

// L1 computes the mean of |z − t| over Rows × Channels elements, plus ExpWeight times the
// mean of |e^14z − e^14t| over channel 0. It ignores Counts.
type L1 struct {
	BCE
	ExpWeight float64
}

// Forward returns the launches of l1 and bce_finalize, which read z and t once.
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

// Backward returns the launch of l1_backward: dz = dloss·scale·sign(z − t)/elements. In
// channel 0 it adds dloss·scale·ExpWeight·14·e^14z·sign(z − t)/(elements of channel 0).
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
