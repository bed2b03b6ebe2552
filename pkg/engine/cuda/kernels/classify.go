package kernels

// GlobalAvgPool describes the mean over the Points positions of each sample and channel.
type GlobalAvgPool struct {
	Batch, Points, Channels int
	X                       FeatureMap // [Batch·Points] rows
	Y                       FeatureMap // [Batch] rows

	DY, DX, Acc FeatureMap // used by Backward: dx = dy/Points + Acc; Acc optional
}

// Forward returns the launch of global_avg_pool. Memory traffic: 1 pass over x.
func (a GlobalAvgPool) Forward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "global average pool"}
	a.checkArgs(&c)
	c.requireMap("x", a.X, a.Channels)
	c.requireMap("y", a.Y, a.Channels)
	c.require(a.Batch <= gridLimit, "got %d samples, want at most %d", a.Batch, gridLimit)
	if c.err != nil {
		return nil, c.err
	}
	vectors := a.Channels / vector
	bx := min(vectors, 32)
	by := max(1, min(blockThreads/bx, a.Points))
	var l launchList
	l.addTypedLaunch(t, "global_avg_pool", [3]uint32{uint32((vectors + bx - 1) / bx), uint32(a.Batch), 1}, [3]uint32{uint32(bx), uint32(by), 1}, uint32(4*vector*bx*by),
		a.X.Data, a.X.Pitch, a.Y.Data, a.Y.Pitch, int64Arg(a.Points), a.Channels)
	return l.result()
}

// Backward returns the launch of global_avg_pool_backward, which overwrites every element
// of dx.
func (a GlobalAvgPool) Backward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "global average pool backward"}
	a.checkArgs(&c)
	c.requireMap("dy", a.DY, a.Channels)
	c.requireMap("dx", a.DX, a.Channels)
	c.requireOptionalMap("acc", a.Acc, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	rows := a.Batch * a.Points
	m := newMatrixLaunchTiling(rows, a.Channels, mapBlocks)
	var l launchList
	l.addTypedLaunch(t, "global_avg_pool_backward", m.grid, m.block, 0,
		a.DY.Data, a.DY.Pitch, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, int64Arg(a.Points), int64Arg(rows), int64Arg(m.rowsPerChunk), a.Channels)
	return l.result()
}

func (a GlobalAvgPool) checkArgs(c *argChecker) {
	c.requirePositive("batch", a.Batch)
	c.requirePositive("points", a.Points)
	c.requireChannels(a.Channels)
}

// Average returns the launch of avg_pool: the mean of each window. Padding is not
// supported.
func (a Pooling) Average(t ElementType) ([]Launch, error) {
	c := argChecker{op: "average pool"}
	a.checkArgs(&c)
	c.require(a.Pad == [3]int{}, "padding %v is not supported", a.Pad)
	c.requireMap("x", a.X, a.Channels)
	c.requireMap("y", a.Y, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lineLaunchGrid(a.Out)
	var l launchList
	l.addTypedLaunch(t, "avg_pool", grid, block, 0, append([]any{a.X.Data, a.X.Pitch, a.Y.Data, a.Y.Pitch, a.Channels}, a.windowArgs()...)...)
	return l.result()
}

// AverageBackward returns the launch of avg_pool_backward. Like Pooling.Backward, it
// uses one thread per input and no atomic operations.
func (a Pooling) AverageBackward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "average pool backward"}
	a.checkArgs(&c)
	c.require(a.Pad == [3]int{}, "padding %v is not supported", a.Pad)
	c.requireMap("dy", a.DY, a.Channels)
	c.requireMap("dx", a.DX, a.Channels)
	c.requireOptionalMap("acc", a.Acc, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := a.lineLaunchGrid(a.In)
	var l launchList
	l.addTypedLaunch(t, "avg_pool_backward", grid, block, 0, append([]any{a.DY.Data, a.DY.Pitch, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, a.Channels}, a.windowArgs()...)...)
	return l.result()
}

// LeakyReLU returns the launch of Y = A where A > 0 and Y = slope·A elsewhere. Memory
// traffic: 2 passes.
func (a ElementwiseOp) LeakyReLU(t ElementType, slope float64) ([]Launch, error) {
	return a.newLaunches(t, "leaky relu", "leaky_relu", false, []FeatureMap{a.A, {}, {}, a.Y}, slope)
}

// LeakyReLUBackward returns the launch of Y = B + Acc where A > 0 and Y = slope·B + Acc
// elsewhere. A is the output of the LeakyReLU, and B is the gradient of that output. Memory
// traffic: 3 passes, 4 with Acc.
func (a ElementwiseOp) LeakyReLUBackward(t ElementType, slope float64) ([]Launch, error) {
	return a.newLaunches(t, "leaky relu backward", "leaky_relu", true, []FeatureMap{a.B, a.A, a.Acc, a.Y}, slope)
}

// Tanh returns the launch of Y = tanh(A). Memory traffic: 2 passes.
func (a ElementwiseOp) Tanh(t ElementType) ([]Launch, error) {
	return a.newLaunches(t, "tanh", "tanh", false, []FeatureMap{a.A, a.Y})
}

// TanhBackward returns the launch of Y = B·(1 − A²) + Acc. A is the output of the tanh, and
// B is the gradient of that output. Memory traffic: 3 passes, 4 with Acc.
func (a ElementwiseOp) TanhBackward(t ElementType) ([]Launch, error) {
	return a.newLaunches(t, "tanh backward", "tanh_backward", true, []FeatureMap{a.A, a.B, a.Acc, a.Y})
}

// SoftmaxCE describes the cross-entropy of softmax(z) with class indexes t: the mean over Rows
// of −Σ q·log softmax(z). The target q of a class is Smoothing/Classes, plus 1 − Smoothing for
// class t. Class indexes must be integers from 0 to Classes−1. The kernel also counts the
// correctly classified rows: those whose greatest logit (the first of several equal ones)
// belongs to class t.
type SoftmaxCE struct {
	Rows, Classes int     // Classes without padding
	Z             Pointer // logits of the launch's element type, [Rows][ZPitch]
	ZPitch        int
	T             Pointer // class indexes as float32 [Rows]
	Smoothing     float64
	Partial       Pointer // LossPartialSumFloats floats
	Loss          Pointer // float32 [1]
	Counts        Pointer // int64 [4]: number of rows classified correctly, 0, 0, 0; if the pointer is 0, nothing is counted
	Accumulate    bool    // add to Counts instead of replacing them

	// Operands of Backward only:
	DLoss   Pointer // float32 [1], the gradient of the loss; if the pointer is 0, the gradient is 1
	Control Pointer // control block with the loss scale, a factor of the gradient; if the pointer is 0, the scale is 1
	DZ      Pointer // [Rows][DZPitch]; the kernel writes zeros to the padding
	DZPitch int
}

func (a SoftmaxCE) checkArgs(c *argChecker, t ElementType) {
	c.requirePositive("rows", a.Rows)
	c.requirePositive("classes", a.Classes)
	c.requireArray("z", a.Z, Pointer(t.Bytes()))
	c.requireArray("t", a.T, 4)
	c.require(a.ZPitch >= a.Classes, "z has pitch %d, want at least %d classes", a.ZPitch, a.Classes)
	c.require(a.Smoothing >= 0 && a.Smoothing <= 1, "label smoothing is %g, want 0 to 1", a.Smoothing)
}

// threadsPerRow returns the threads for a row of n classes, a multiple of the warp size.
func threadsPerRow(n int) int { return max(32, min(blockThreads, (n+31)/32*32)) }

// Forward returns the launches of softmax_ce and bce_finalize, which compute Loss and
// Counts.
func (a SoftmaxCE) Forward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "softmax cross entropy"}
	a.checkArgs(&c, t)
	c.requireArray("partial", a.Partial, pointAlignment)
	c.requireArray("loss", a.Loss, 4)
	c.require(a.Counts%8 == 0, "counts are not aligned to 8 bytes")
	if c.err != nil {
		return nil, c.err
	}
	blocks, threads := min(maxLossBlocks, a.Rows), threadsPerRow(a.Classes)
	var l launchList
	l.addTypedLaunch(t, "softmax_ce", [3]uint32{uint32(blocks), 1, 1}, [3]uint32{1, uint32(threads), 1}, uint32(4*threads),
		a.Z, a.ZPitch, a.T, a.Partial, int64Arg(a.Rows), a.Classes, a.Smoothing)
	l.addUntypedLaunch("bce_finalize", [3]uint32{1, 1, 1}, [3]uint32{1, blockThreads, 1}, blockThreads*5*8,
		a.Partial, blocks, int64Arg(a.Rows), a.Loss, a.Counts, a.Accumulate)
	return l.result()
}

// Backward returns the launch of softmax_ce_backward, which computes dz.
func (a SoftmaxCE) Backward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "softmax cross entropy backward"}
	a.checkArgs(&c, t)
	c.requireArray("dz", a.DZ, Pointer(t.Bytes()))
	c.require(a.DZPitch >= a.Classes, "dz has pitch %d, want at least %d classes", a.DZPitch, a.Classes)
	c.require(a.DLoss%4 == 0 && a.Control%8 == 0, "dloss or control is not aligned")
	if c.err != nil {
		return nil, c.err
	}
	threads := threadsPerRow(a.Classes)
	var l launchList
	l.addTypedLaunch(t, "softmax_ce_backward", [3]uint32{uint32(min(mapBlocks, a.Rows)), 1, 1}, [3]uint32{1, uint32(threads), 1}, uint32(4*threads),
		a.Z, a.ZPitch, a.T, a.DLoss, a.Control, a.DZ, a.DZPitch, int64Arg(a.Rows), a.Classes, a.Smoothing)
	return l.result()
}

// L1 describes the mean of |z − t| over Rows × Channels elements, plus ExpWeight times the
// mean of |e^14z − e^14t| over channel 0. The fields Counts and Accumulate are ignored.
type L1 struct {
	BCE
	ExpWeight float64
}

// Forward returns the launches of l1 and bce_finalize. Memory traffic: 1 pass over z and t.
func (a L1) Forward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "l1"}
	a.checkArgs(&c, t)
	c.requireArray("partial", a.Partial, pointAlignment)
	c.requireArray("loss", a.Loss, 4)
	if c.err != nil {
		return nil, c.err
	}
	blocks := min(maxLossBlocks, (a.Rows*a.Channels+blockThreads-1)/blockThreads)
	var l launchList
	l.addTypedLaunch(t, "l1", [3]uint32{uint32(blocks), 1, 1}, squareSumBlockShape, blockThreads*4,
		a.Z, a.ZPitch, a.T, a.Partial, int64Arg(a.Rows), a.Channels, a.ExpWeight)
	l.addUntypedLaunch("bce_finalize", unitDim, squareSumBlockShape, blockThreads*5*8,
		a.Partial, blocks, int64Arg(a.Rows*a.Channels), a.Loss, Pointer(0), false)
	return l.result()
}

// Backward returns the launch of l1_backward: dz = dloss·scale·sign(z − t)/n, where n is
// the number of elements. In channel 0 it adds dloss·scale·ExpWeight·14·e^14z·sign(z −
// t)/Rows.
func (a L1) Backward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "l1 backward"}
	a.checkBackwardArgs(&c, t)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.Rows*a.DZPitch, 1)
	var l launchList
	l.addTypedLaunch(t, "l1_backward", grid, block, 0,
		a.Z, a.ZPitch, a.T, a.DLoss, a.Control, a.DZ, a.DZPitch, int64Arg(a.Rows), a.Channels, a.ExpWeight)
	return l.result()
}
