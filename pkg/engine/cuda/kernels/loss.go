package kernels

// lossBlocks is the number of blocks that sum a loss: 8 per multiprocessor of an H200,
// because each thread has only 8 bytes in flight.
const lossBlocks = 1056

// LossPartialFloats is the size of BCE's scratch memory, in floats.
const LossPartialFloats = lossBlocks * 8

// BCE computes the binary cross entropy of logits z with targets t from 0 to 1: the mean
// over Rows × Channels elements of max(z,0) − z·t + log(1+e^−|z|). It also computes the
// counts of metric.Counts, with foreground where z > 0 and where t > 0.5.
type BCE struct {
	Rows, Channels int     // Channels without padding
	Z              Pointer // logits of the launch's Type, [Rows][ZPitch]
	ZPitch         int     // 1 for a dense map of one channel
	T              Pointer // targets, float32, dense [Rows][Channels]
	Partial        Pointer // LossPartialFloats floats
	Loss           Pointer // float32 [1]
	Counts         Pointer // long long [4]: TP, FP, FN, TN; 0: not counted
	Accumulate     bool    // add to Counts instead of replacing them

	// For Backward:
	DLoss   Pointer // float32 [1], the gradient of the loss; 0: the gradient is 1
	Control Pointer // contains the loss scale, a factor of the gradient; 0: the scale is 1
	DZ      Pointer // [Rows][DZPitch]; the kernel writes zeros to the padding
	DZPitch int
}

// Forward returns the launches of bce and bce_finalize, which read z and t once.
func (a BCE) Forward(t Type) ([]Launch, error) {
	c := check{op: "bce"}
	a.check(&c, t)
	c.array("partial", a.Partial, pointAlignment)
	c.array("loss", a.Loss, 4)
	c.require(a.Counts%8 == 0, "counts are not aligned to 8 bytes")
	if c.err != nil {
		return nil, c.err
	}
	blocks := min(lossBlocks, (a.Rows*a.Channels+blockThreads-1)/blockThreads)
	var l list
	l.typed(t, "bce", [3]uint32{uint32(blocks), 1, 1}, [3]uint32{1, blockThreads, 1}, blockThreads*4*4,
		a.Z, a.ZPitch, a.T, a.Partial, wide(a.Rows), a.Channels)
	l.untyped("bce_finalize", [3]uint32{1, 1, 1}, [3]uint32{1, blockThreads, 1}, blockThreads*5*8,
		a.Partial, blocks, wide(a.Rows*a.Channels), a.Loss, a.Counts, a.Accumulate)
	return l.done()
}

// Backward returns the launch of bce_backward: dz = dloss·scale·(σ(z) − t)/elements.
func (a BCE) Backward(t Type) ([]Launch, error) {
	c := check{op: "bce backward"}
	a.checkBackward(&c, t)
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.Rows*a.DZPitch, 1)
	var l list
	l.typed(t, "bce_backward", grid, block, 0,
		a.Z, a.ZPitch, a.T, a.DLoss, a.Control, a.DZ, a.DZPitch, wide(a.Rows), a.Channels)
	return l.done()
}

func (a BCE) check(c *check, t Type) {
	c.positive("rows", a.Rows)
	c.positive("channels", a.Channels)
	c.array("z", a.Z, Pointer(t.Bytes()))
	c.array("t", a.T, 4)
	c.require(a.ZPitch >= a.Channels, "z has a pitch of %d for %d channels", a.ZPitch, a.Channels)
}

func (a BCE) checkBackward(c *check, t Type) {
	a.check(c, t)
	c.array("dz", a.DZ, Pointer(t.Bytes()))
	c.require(a.DZPitch >= a.Channels, "dz has a pitch of %d for %d channels", a.DZPitch, a.Channels)
	c.require(a.DLoss%4 == 0 && a.Control%8 == 0, "dloss or control is not aligned")
}

// DiceBCE computes Weight·D + (1−Weight)·B. B is the BCE. D is the mean over maps of 1 −
// (2Σpt+1)/(Σp+Σt+1) with p = σ(z), where a map is one channel of one sample (Milletari et
// al., V-Net, 2016, arXiv:1606.04797, but with sums instead of sums of squares in the
// denominator). It computes the same counts as BCE.
type DiceBCE struct {
	BCE            // Partial has the size DicePartialFloats
	Points int     // rows of a sample
	Weight float64 // of the Dice term, from 0 to 1
}

// DicePartialFloats returns the size of DiceBCE's scratch memory, in floats.
func DicePartialFloats(rows, points, channels int) int {
	maps := rows / max(points, 1) * channels
	return 8 * maps * (1 + diceChunks(maps, points))
}

// diceChunks returns the number of blocks per map.
func diceChunks(maps, points int) int {
	return max(1, min(lossBlocks/max(maps, 1), (points+blockThreads-1)/blockThreads))
}

// Forward returns the launches of dice_bce, dice_maps and bce_finalize, which read z and t
// once.
func (a DiceBCE) Forward(t Type) ([]Launch, error) {
	c := check{op: "dice bce"}
	a.check(&c, t)
	c.array("loss", a.Loss, 4)
	c.require(a.Counts%8 == 0, "counts are not aligned to 8 bytes")
	if c.err != nil {
		return nil, c.err
	}
	var l list
	maps, sums := a.sums(&l, t)
	l.untyped("bce_finalize", one, column, blockThreads*5*8,
		sums, maps, wide(a.Rows*a.Channels), a.Loss, a.Counts, a.Accumulate)
	return l.done()
}

// Backward returns the launches of dice_bce and dice_maps again, and of dice_bce_backward.
func (a DiceBCE) Backward(t Type) ([]Launch, error) {
	c := check{op: "dice bce backward"}
	a.check(&c, t)
	a.checkBackward(&c, t)
	if c.err != nil {
		return nil, c.err
	}
	var l list
	_, sums := a.sums(&l, t)
	grid, block := flat(a.Rows*a.DZPitch, 1)
	l.typed(t, "dice_bce_backward", grid, block, 0,
		a.Z, a.ZPitch, a.T, sums, a.DLoss, a.Control, a.DZ, a.DZPitch, wide(a.Rows), wide(a.Points), a.Channels, a.Weight)
	return l.done()
}

func (a DiceBCE) check(c *check, t Type) {
	a.BCE.check(c, t)
	c.array("partial", a.Partial, pointAlignment)
	c.require(a.Points > 0 && a.Rows%max(a.Points, 1) == 0, "%d rows of samples of %d", a.Rows, a.Points)
	c.require(a.Points <= 0 || a.Rows/max(a.Points, 1)*a.Channels <= gridLimit, "%d maps: a grid has at most %d", a.Rows/max(a.Points, 1)*a.Channels, gridLimit)
	c.require(a.Weight >= 0 && a.Weight <= 1, "the weight of the Dice term is %g: must be from 0 to 1", a.Weight)
}

// sums adds the launches that sum each map, and returns the number of maps and the address
// of the sums.
func (a DiceBCE) sums(l *list, t Type) (maps int, at Pointer) {
	maps = a.Rows / a.Points * a.Channels
	chunks := diceChunks(maps, a.Points)
	at = a.Partial + Pointer(4*8*maps*chunks)
	l.typed(t, "dice_bce", [3]uint32{uint32(chunks), uint32(maps), 1}, column, blockThreads*4*4,
		a.Z, a.ZPitch, a.T, a.Partial, wide(a.Points), a.Channels)
	l.untyped("dice_maps", each(maps), column, blockThreads*8*8, a.Partial, chunks, wide(a.Points), a.Weight, at)
	return maps, at
}

// Head computes a convolution with a window of 1 and one output channel: z = x·w + bias per
// row. cuDNN requires 8 output channels and would write and read 8 times as much.
type Head struct {
	Rows, Channels int     // Channels padded
	X              Map     // of the launch's Type
	W              Pointer // float32 [Channels], zero in the padding: the master weights
	Bias           Pointer // float32 [1]; 0: no bias
	Z              Pointer // float32, dense [Rows]

	// For BackwardData and BackwardWeights:
	DZ      Pointer // float32, dense [Rows]
	DX      Map
	Acc     Map     // optional: added to dx
	DW      Pointer // float32 [Channels]
	DBias   Pointer // float32 [1]; 0: not computed
	Partial Pointer // PartialFloats(Rows, Channels) floats
}

// Forward returns the launch of head_forward, which reads x once and writes z in float32.
func (a Head) Forward(t Type) ([]Launch, error) {
	c := check{op: "head"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.array("w", a.W, pointAlignment)
	c.array("z", a.Z, 4)
	c.require(a.Bias%4 == 0, "bias is not aligned to 4 bytes")
	if c.err != nil {
		return nil, c.err
	}
	// The number of neighboring threads of a warp that share a row: a power of two.
	lanes := 1
	for lanes < 32 && lanes < a.Channels/vector {
		lanes *= 2
	}
	grid, block := flat(a.Rows*lanes, 1)
	var l list
	l.typed(t, "head_forward", grid, block, 0, a.X.Data, a.X.Pitch, a.W, a.Bias, a.Z, wide(a.Rows), a.Channels, lanes)
	return l.done()
}

// BackwardData returns the launch of head_backward_data: dx = dz·w + acc.
func (a Head) BackwardData(t Type) ([]Launch, error) {
	c := check{op: "head backward data"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.array("dz", a.DZ, 4)
	c.array("w", a.W, pointAlignment)
	c.optional("acc", a.Acc, a.Channels)
	c.activation("dx", a.DX, a.Channels)
	if c.err != nil {
		return nil, c.err
	}
	m := tiles(a.Rows, a.Channels, mapBlocks)
	var l list
	l.typed(t, "head_backward_data", m.grid, m.block, 0,
		a.DZ, a.W, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, wide(a.Rows), wide(m.rowsPerChunk), a.Channels)
	return l.done()
}

// BackwardWeights returns the launches of head_backward_weights and sum_chunks: dw = Σ dz·x
// and dbias = Σ dz. They read x once.
func (a Head) BackwardWeights(t Type) ([]Launch, error) {
	c := check{op: "head backward weights"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.array("dz", a.DZ, 4)
	c.array("dw", a.DW, 4)
	c.array("partial", a.Partial, pointAlignment)
	c.require(a.DBias%4 == 0, "dbias is not aligned to 4 bytes")
	if c.err != nil {
		return nil, c.err
	}
	r := tiles(a.Rows, a.Channels, reduceBlocks)
	pitch := a.Channels + vector
	bias := 0
	if a.DBias != 0 {
		bias = 1
	}
	var l list
	l.typed(t, "head_backward_weights", r.grid, r.block, r.shared(vector+1),
		a.X.Data, a.X.Pitch, a.DZ, a.Partial, pitch, wide(a.Rows), wide(r.rowsPerChunk), a.Channels)
	l.sum(a.Partial, pitch, r.chunks, a.DW, a.Channels, a.DBias, bias)
	return l.done()
}
