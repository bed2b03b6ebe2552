package kernels

// maxLossBlocks is the largest number of blocks that sum a loss. It is 8 per multiprocessor
// of an H200, because each thread has only 8 bytes of loads in flight.
const maxLossBlocks = 1056

// LossPartialSumFloats is the size, in floats, of the field Partial of BCE, L1 and SoftmaxCE.
const LossPartialSumFloats = maxLossBlocks * 8

// BCE describes the binary cross-entropy of logits z with targets t from 0 to 1: the mean
// over Rows × Channels elements of max(z,0) − z·t + log(1+e^−|z|). It also computes the
// counts of metric.Counts, where the prediction is positive if z > 0 and the target if t >
// 0.5.
type BCE struct {
	Rows, Channels int     // Channels without padding
	Z              Pointer // logits of the launch's element type, [Rows][ZPitch]
	ZPitch         int     // 1 for a dense map of one channel
	T              Pointer // targets, float32, dense [Rows][Channels]
	Partial        Pointer // LossPartialSumFloats floats
	Loss           Pointer // float32 [1]
	Counts         Pointer // int64 [4]: TP, FP, FN, TN; if the pointer is 0, nothing is counted
	Accumulate     bool    // add to Counts instead of replacing them

	// Operands of Backward only:
	DLoss   Pointer // float32 [1], the gradient of the loss; if the pointer is 0, the gradient is 1
	Control Pointer // control block with the loss scale, a factor of the gradient; if the pointer is 0, the scale is 1
	DZ      Pointer // [Rows][DZPitch]; the kernel writes zeros to the padding
	DZPitch int
}

// Forward returns the launches of bce and bce_finalize. Memory traffic: 1 pass over z and
// t.
func (a BCE) Forward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "bce"}
	a.checkArgs(&c, t)
	c.requireArray("partial", a.Partial, pointAlignment)
	c.requireArray("loss", a.Loss, 4)
	c.require(a.Counts%8 == 0, "counts are not aligned to 8 bytes")
	if c.err != nil {
		return nil, c.err
	}
	blocks := min(maxLossBlocks, (a.Rows*a.Channels+blockThreads-1)/blockThreads)
	var l launchList
	l.addTypedLaunch(t, "bce", [3]uint32{uint32(blocks), 1, 1}, [3]uint32{1, blockThreads, 1}, blockThreads*4*4,
		a.Z, a.ZPitch, a.T, a.Partial, int64Arg(a.Rows), a.Channels)
	l.addUntypedLaunch("bce_finalize", [3]uint32{1, 1, 1}, [3]uint32{1, blockThreads, 1}, blockThreads*5*8,
		a.Partial, blocks, int64Arg(a.Rows*a.Channels), a.Loss, a.Counts, a.Accumulate)
	return l.result()
}

// Backward returns the launch of bce_backward: dz = dloss·scale·(σ(z) − t)/n, where n is
// the number of elements.
func (a BCE) Backward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "bce backward"}
	a.checkBackwardArgs(&c, t)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.Rows*a.DZPitch, 1)
	var l launchList
	l.addTypedLaunch(t, "bce_backward", grid, block, 0,
		a.Z, a.ZPitch, a.T, a.DLoss, a.Control, a.DZ, a.DZPitch, int64Arg(a.Rows), a.Channels)
	return l.result()
}

func (a BCE) checkArgs(c *argChecker, t ElementType) {
	c.requirePositive("rows", a.Rows)
	c.requirePositive("channels", a.Channels)
	c.requireArray("z", a.Z, Pointer(t.Bytes()))
	c.requireArray("t", a.T, 4)
	c.require(a.ZPitch >= a.Channels, "z has pitch %d, want at least %d channels", a.ZPitch, a.Channels)
}

func (a BCE) checkBackwardArgs(c *argChecker, t ElementType) {
	a.checkArgs(c, t)
	c.requireArray("dz", a.DZ, Pointer(t.Bytes()))
	c.require(a.DZPitch >= a.Channels, "dz has pitch %d, want at least %d channels", a.DZPitch, a.Channels)
	c.require(a.DLoss%4 == 0 && a.Control%8 == 0, "dloss or control is not aligned")
}

// DiceBCE describes the loss Weight·D + (1−Weight)·B, where B is the BCE. The Dice term D
// is the mean over maps of 1 − (2Σpt+1)/(Σp+Σt+1) with p = σ(z), where a map is one channel
// of one sample. It is the loss of Milletari et al. (V-Net, 2016, arXiv:1606.04797), but
// with sums instead of sums of squares in the denominator. DiceBCE computes the same counts
// as BCE.
type DiceBCE struct {
	BCE            // Partial has the size DicePartialSumFloats
	Points int     // number of rows per sample
	Weight float64 // of the Dice term, from 0 to 1
}

// DicePartialSumFloats returns the size of the field Partial of DiceBCE, in floats.
func DicePartialSumFloats(rows, points, channels int) int {
	maps := rows / max(points, 1) * channels
	return 8 * maps * (1 + diceChunksPerMap(maps, points))
}

func diceChunksPerMap(maps, points int) int {
	return max(1, min(maxLossBlocks/max(maps, 1), (points+blockThreads-1)/blockThreads))
}

// Forward returns the launches of dice_bce, dice_maps and bce_finalize. Memory traffic: 1
// pass over z and t.
func (a DiceBCE) Forward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "dice bce"}
	a.checkArgs(&c, t)
	c.requireArray("loss", a.Loss, 4)
	c.require(a.Counts%8 == 0, "counts are not aligned to 8 bytes")
	if c.err != nil {
		return nil, c.err
	}
	var l launchList
	maps, sums := a.addMapSumLaunches(&l, t)
	l.addUntypedLaunch("bce_finalize", unitDim, squareSumBlockShape, blockThreads*5*8,
		sums, maps, int64Arg(a.Rows*a.Channels), a.Loss, a.Counts, a.Accumulate)
	return l.result()
}

// Backward returns the launch of dice_bce_backward, after the launches of dice_bce and
// dice_maps, which compute the sums again.
func (a DiceBCE) Backward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "dice bce backward"}
	a.checkArgs(&c, t)
	a.checkBackwardArgs(&c, t)
	if c.err != nil {
		return nil, c.err
	}
	var l launchList
	_, sums := a.addMapSumLaunches(&l, t)
	grid, block := flatGrid(a.Rows*a.DZPitch, 1)
	l.addTypedLaunch(t, "dice_bce_backward", grid, block, 0,
		a.Z, a.ZPitch, a.T, sums, a.DLoss, a.Control, a.DZ, a.DZPitch, int64Arg(a.Rows), int64Arg(a.Points), a.Channels, a.Weight)
	return l.result()
}

func (a DiceBCE) checkArgs(c *argChecker, t ElementType) {
	a.BCE.checkArgs(c, t)
	c.requireArray("partial", a.Partial, pointAlignment)
	c.require(a.Points > 0 && a.Rows%max(a.Points, 1) == 0, "%d rows are not a multiple of %d points per sample", a.Rows, a.Points)
	c.require(a.Points <= 0 || a.Rows/max(a.Points, 1)*a.Channels <= gridLimit, "got %d maps, want at most %d", a.Rows/max(a.Points, 1)*a.Channels, gridLimit)
	c.require(a.Weight >= 0 && a.Weight <= 1, "weight of the Dice term is %g, want 0 to 1", a.Weight)
}

// addMapSumLaunches adds the launches that compute the sums of each map to l. It returns the number of
// maps and the address of the sums.
func (a DiceBCE) addMapSumLaunches(l *launchList, t ElementType) (maps int, sums Pointer) {
	maps = a.Rows / a.Points * a.Channels
	chunks := diceChunksPerMap(maps, a.Points)
	sums = a.Partial + Pointer(4*8*maps*chunks)
	l.addTypedLaunch(t, "dice_bce", [3]uint32{uint32(chunks), uint32(maps), 1}, squareSumBlockShape, blockThreads*4*4,
		a.Z, a.ZPitch, a.T, a.Partial, int64Arg(a.Points), a.Channels)
	l.addUntypedLaunch("dice_maps", gridOfBlocks(maps), squareSumBlockShape, blockThreads*8*8, a.Partial, chunks, int64Arg(a.Points), a.Weight, sums)
	return maps, sums
}

// HeadConvolution describes a convolution with a 1×1 window and one output channel: z = x·w
// + bias for each row. cuDNN requires 8 output channels, so it would read and write 8 times
// as much.
type HeadConvolution struct {
	Rows, Channels int        // Channels includes padding
	X              FeatureMap // elements have the launch's element type
	W              Pointer    // master weights: float32 [Channels], zero in the padding
	Bias           Pointer    // float32 [1]; 0: no bias
	Z              Pointer    // float32, dense [Rows]

	// Operands of BackwardData and BackwardWeights:
	DZ      Pointer // float32, dense [Rows]
	DX      FeatureMap
	Acc     FeatureMap // optional: added to dx
	DW      Pointer    // float32 [Channels]
	DBias   Pointer    // float32 [1]; 0: not computed
	Partial Pointer    // PartialSumFloats(Rows, Channels) floats
}

// Forward returns the launch of head_forward. Memory traffic: 1 pass over x; z is written
// in float32.
func (a HeadConvolution) Forward(t ElementType) ([]Launch, error) {
	c := argChecker{op: "head"}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("x", a.X, a.Channels)
	c.requireArray("w", a.W, pointAlignment)
	c.requireArray("z", a.Z, 4)
	c.require(a.Bias%4 == 0, "bias is not aligned to 4 bytes")
	if c.err != nil {
		return nil, c.err
	}
	// The consecutive threads of a warp that process a row together, a power of two.
	lanes := 1
	for lanes < 32 && lanes < a.Channels/vector {
		lanes *= 2
	}
	grid, block := flatGrid(a.Rows*lanes, 1)
	var l launchList
	l.addTypedLaunch(t, "head_forward", grid, block, 0, a.X.Data, a.X.Pitch, a.W, a.Bias, a.Z, int64Arg(a.Rows), a.Channels, lanes)
	return l.result()
}

// BackwardData returns the launch of head_backward_data: dx = dz·w + acc.
func (a HeadConvolution) BackwardData(t ElementType) ([]Launch, error) {
	c := argChecker{op: "head backward data"}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireArray("dz", a.DZ, 4)
	c.requireArray("w", a.W, pointAlignment)
	c.requireOptionalMap("acc", a.Acc, a.Channels)
	c.requireMap("dx", a.DX, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	m := newMatrixLaunchTiling(a.Rows, a.Channels, mapBlocks)
	var l launchList
	l.addTypedLaunch(t, "head_backward_data", m.grid, m.block, 0,
		a.DZ, a.W, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, int64Arg(a.Rows), int64Arg(m.rowsPerChunk), a.Channels)
	return l.result()
}

// BackwardWeights returns the launches of head_backward_weights and sum_chunks: dw = Σ dz·x
// and dbias = Σ dz. Memory traffic: 1 pass over x.
func (a HeadConvolution) BackwardWeights(t ElementType) ([]Launch, error) {
	c := argChecker{op: "head backward weights"}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("x", a.X, a.Channels)
	c.requireArray("dz", a.DZ, 4)
	c.requireArray("dw", a.DW, 4)
	c.requireArray("partial", a.Partial, pointAlignment)
	c.require(a.DBias%4 == 0, "dbias is not aligned to 4 bytes")
	if c.err != nil {
		return nil, c.err
	}
	r := newMatrixLaunchTiling(a.Rows, a.Channels, reduceBlocks)
	pitch := a.Channels + vector
	bias := 0
	if a.DBias != 0 {
		bias = 1
	}
	var l launchList
	l.addTypedLaunch(t, "head_backward_weights", r.grid, r.block, r.reductionSharedBytes(vector+1),
		a.X.Data, a.X.Pitch, a.DZ, a.Partial, pitch, int64Arg(a.Rows), int64Arg(r.rowsPerChunk), a.Channels)
	l.addColumnSumLaunch(a.Partial, pitch, r.chunks, a.DW, a.Channels, a.DBias, bias)
	return l.result()
}
