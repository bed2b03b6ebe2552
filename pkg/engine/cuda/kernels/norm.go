package kernels

// ReLUMask selects how the backward pass finds where the ReLU's input was positive.
type ReLUMask int

// Ways to determine where the input of the ReLU was positive.
const (
	MaskNone      ReLUMask = iota // no mask: there is no ReLU
	MaskRecompute                 // recompute y from x, which avoids reading y; impossible if a map was added before the ReLU
	MaskOutput                    // read the output y
)

// PartialSumFloats returns the size, in floats, of the field Partial of BatchNorm,
// BatchNormGrad, BiasGrad and HeadConvolution. This scratch memory contains sums over the rows
// of a map of rows × channels. It may be reused after the launches.
func PartialSumFloats(rows, channels int) int {
	t := newMatrixLaunchTiling(rows, channels, reduceBlocks)
	return t.chunks * (2*channels + vector)
}

// BatchNorm describes a batch normalization over the rows of x, with an optional sum and
// ReLU: y = act((x − mean)·invstd·gamma + beta + add) per channel.
type BatchNorm struct {
	Rows, Channels    int        // Channels includes padding
	X, Add, Y         FeatureMap // Add is optional
	Gamma, Beta       Pointer
	RunningMean       Pointer
	RunningVar        Pointer
	Mean, InvStd      Pointer // saved for the backward pass; written in training, not used in inference
	Partial           Pointer // PartialSumFloats(Rows, Channels) floats; training only
	Epsilon, Momentum float64 // Momentum is the weight of the batch, as in PyTorch
	ReLU              bool
}

// Training returns the launches of bn_stats, bn_finalize and bn_apply. They compute y with
// the mean and the biased variance of the batch, and update the running statistics with the
// mean and the unbiased variance. Memory traffic: 3 passes (x twice, y once), 4 with Add.
func (a BatchNorm) Training(t ElementType) ([]Launch, error) {
	c := argChecker{op: "batch norm"}
	a.checkMaps(&c)
	c.requireChannelVectors(map[string]Pointer{
		"gamma": a.Gamma, "beta": a.Beta, "running mean": a.RunningMean, "running variance": a.RunningVar,
		"mean": a.Mean, "invstd": a.InvStd, "partial": a.Partial,
	})
	if c.err != nil {
		return nil, c.err
	}
	first, err := a.Statistics(t)
	if err != nil {
		return nil, err
	}
	second, err := a.Apply(t)
	return append(first, second...), err
}

// Statistics returns the launches of bn_stats and bn_finalize, the first half of Training.
// It does not use Y, Gamma and Beta. Memory traffic: 1 pass over x.
func (a BatchNorm) Statistics(t ElementType) ([]Launch, error) {
	c := argChecker{op: "batch norm statistics"}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("x", a.X, a.Channels)
	c.requireChannelVectors(map[string]Pointer{"running mean": a.RunningMean, "running variance": a.RunningVar, "mean": a.Mean, "invstd": a.InvStd, "partial": a.Partial})
	if c.err != nil {
		return nil, c.err
	}
	r := newMatrixLaunchTiling(a.Rows, a.Channels, reduceBlocks)
	var l launchList
	l.addTypedLaunch(t, "bn_stats", r.grid, r.block, r.reductionSharedBytes(2*vector),
		a.X.Data, a.X.Pitch, a.Partial, int64Arg(a.Rows), int64Arg(r.rowsPerChunk), a.Channels)
	l.addUntypedLaunch("bn_finalize", gridCovering(a.Channels, columnSumBlockSide), [3]uint32{columnSumBlockSide, columnSumBlockSide, 1}, columnSumSharedBytes,
		a.Partial, r.chunks, int64Arg(a.Rows), int64Arg(r.rowsPerChunk), a.Channels, a.Epsilon, a.Momentum,
		a.Mean, a.InvStd, a.RunningMean, a.RunningVar)
	return l.result()
}

// StatisticsFromSums returns the launch of bn_sums, which computes the same as Statistics
// from Σ x and Σ x² of each channel, in float32. A convolution's kernel can compute these
// sums together with x. If the mean is much larger than the standard deviation, the
// variance is inaccurate because of cancellation.
func (a BatchNorm) StatisticsFromSums(sum, square Pointer) ([]Launch, error) {
	c := argChecker{op: "batch norm statistics of sums"}
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireChannelVectors(map[string]Pointer{"running mean": a.RunningMean, "running variance": a.RunningVar, "mean": a.Mean, "invstd": a.InvStd, "sum": sum, "square": square})
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.Channels, 1)
	var l launchList
	l.addUntypedLaunch("bn_sums", grid, block, 0,
		sum, square, int64Arg(a.Rows), a.Channels, a.Epsilon, a.Momentum, a.Mean, a.InvStd, a.RunningMean, a.RunningVar)
	return l.result()
}

func (a BatchNorm) checkMaps(c *argChecker) {
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("x", a.X, a.Channels)
	c.requireMap("y", a.Y, a.Channels)
	c.requireOptionalMap("add", a.Add, a.Channels)
}

// Apply returns the launch of bn_apply, the second half of Training, which computes y from
// x, Mean and InvStd.
func (a BatchNorm) Apply(t ElementType) ([]Launch, error) {
	c := argChecker{op: "batch norm"}
	a.checkMaps(&c)
	c.requireChannelVectors(map[string]Pointer{"gamma": a.Gamma, "beta": a.Beta, "mean": a.Mean, "invstd": a.InvStd})
	if c.err != nil {
		return nil, c.err
	}
	m := newMatrixLaunchTiling(a.Rows, a.Channels, mapBlocks)
	var l launchList
	l.addTypedLaunch(t, "bn_apply", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.Add.Data, a.Add.Pitch, a.Mean, a.InvStd, a.Gamma, a.Beta, a.Y.Data, a.Y.Pitch,
		int64Arg(a.Rows), int64Arg(m.rowsPerChunk), a.Channels, a.ReLU)
	return l.result()
}

// Inference returns the launch of bn_infer, which computes y with the running statistics.
// Memory traffic: 2 passes.
func (a BatchNorm) Inference(t ElementType) ([]Launch, error) {
	c := argChecker{op: "batch norm inference"}
	a.checkMaps(&c)
	c.requireChannelVectors(map[string]Pointer{"gamma": a.Gamma, "beta": a.Beta, "running mean": a.RunningMean, "running variance": a.RunningVar})
	if c.err != nil {
		return nil, c.err
	}
	m := newMatrixLaunchTiling(a.Rows, a.Channels, mapBlocks)
	var l launchList
	l.addTypedLaunch(t, "bn_infer", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.Add.Data, a.Add.Pitch, a.RunningMean, a.RunningVar, a.Gamma, a.Beta, a.Y.Data, a.Y.Pitch,
		int64Arg(a.Rows), int64Arg(m.rowsPerChunk), a.Channels, a.ReLU, a.Epsilon)
	return l.result()
}

// BatchNormGrad describes the gradient of BatchNorm.Training. Let d = dy where the ReLU's
// input is positive and 0 elsewhere, and x̂ = (x − mean)·invstd. Then dbeta = Σ d, dgamma =
// Σ d·x̂, dx = gamma·invstd·(d − dbeta/rows − x̂·dgamma/rows) + Acc, and dAdd = d.
type BatchNormGrad struct {
	Rows, Channels int
	X, DY          FeatureMap
	Y              FeatureMap // used only with MaskOutput
	Mean, InvStd   Pointer
	Gamma, Beta    Pointer
	DGamma, DBeta  Pointer    // float32; complete before the last launch
	Acc            FeatureMap // optional: added to dx; the gradient that reaches x on another path, such as the skip connection of a pre-activation block
	DX             FeatureMap // may be DY, X or Acc itself; if absent, only dgamma and dbeta are computed
	DAdd           FeatureMap // optional: the gradient of Add; may be DY
	Partial        Pointer    // PartialSumFloats(Rows, Channels) floats
	Mask           ReLUMask
}

// Launches returns the launches of Reduce and, if DX is present, of Apply. Memory traffic:
// 5 passes with MaskRecompute; with MaskOutput 2 more, which read y.
func (a BatchNormGrad) Launches(t ElementType) ([]Launch, error) {
	c := argChecker{op: "batch norm backward"}
	c.require(a.DX.Data != 0 || a.Acc.Data == 0 && a.DAdd.Data == 0, "dx is absent, but acc or dadd is present")
	if c.err != nil {
		return nil, c.err
	}
	first, err := a.Reduce(t)
	if err != nil || a.DX.Data == 0 {
		return first, err
	}
	second, err := a.Apply(t)
	return append(first, second...), err
}

// Reduce returns the launches of bn_backward_reduce and sum_chunks, which compute dgamma
// and dbeta. Memory traffic: 1 pass over x and dy, with MaskOutput also over y.
func (a BatchNormGrad) Reduce(t ElementType) ([]Launch, error) {
	c := argChecker{op: "batch norm backward"}
	a.checkArgs(&c)
	c.requireChannelVectors(map[string]Pointer{"partial": a.Partial})
	if c.err != nil {
		return nil, c.err
	}
	r := newMatrixLaunchTiling(a.Rows, a.Channels, reduceBlocks)
	var l launchList
	l.addTypedLaunch(t, "bn_backward_reduce", r.grid, r.block, r.reductionSharedBytes(2*vector),
		a.X.Data, a.X.Pitch, a.DY.Data, a.DY.Pitch, a.Y.Data, a.Y.Pitch, a.Mean, a.InvStd, a.Gamma, a.Beta, a.Partial,
		int64Arg(a.Rows), int64Arg(r.rowsPerChunk), a.Channels, int(a.Mask))
	l.addColumnSumLaunch(a.Partial, 2*a.Channels, r.chunks, a.DBeta, a.Channels, a.DGamma, a.Channels)
	return l.result()
}

// Apply returns the launch of bn_backward_apply, which computes dx from dgamma and dbeta.
// These may come from Reduce or from another kernel. DY may be masked already: masking it
// again changes nothing.
func (a BatchNormGrad) Apply(t ElementType) ([]Launch, error) {
	c := argChecker{op: "batch norm backward"}
	a.checkArgs(&c)
	c.requireMap("dx", a.DX, a.Channels)
	c.requireOptionalMap("acc", a.Acc, a.Channels)
	c.requireOptionalMap("dadd", a.DAdd, a.Channels)
	c.require(a.DAdd.Data == 0 || a.DAdd.Data != a.DX.Data, "dadd and dx are the same tensor")
	if c.err != nil {
		return nil, c.err
	}
	m := newMatrixLaunchTiling(a.Rows, a.Channels, mapBlocks)
	var l launchList
	l.addTypedLaunch(t, "bn_backward_apply", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.DY.Data, a.DY.Pitch, a.Y.Data, a.Y.Pitch, a.Mean, a.InvStd, a.Gamma, a.Beta,
		a.DGamma, a.DBeta, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, a.DAdd.Data, a.DAdd.Pitch,
		int64Arg(a.Rows), int64Arg(m.rowsPerChunk), a.Channels, int(a.Mask))
	return l.result()
}

func (a BatchNormGrad) checkArgs(c *argChecker) {
	c.requirePositive("rows", a.Rows)
	c.requireChannels(a.Channels)
	c.requireMap("x", a.X, a.Channels)
	c.requireMap("dy", a.DY, a.Channels)
	c.requireOptionalMap("y", a.Y, a.Channels)
	c.require(a.Mask >= MaskNone && a.Mask <= MaskOutput, "unknown mask %d", a.Mask)
	c.require(a.Mask != MaskOutput || a.Y.Data != 0, "y is absent, but MaskOutput needs it")
	c.requireChannelVectors(map[string]Pointer{
		"gamma": a.Gamma, "beta": a.Beta, "mean": a.Mean, "invstd": a.InvStd, "dgamma": a.DGamma, "dbeta": a.DBeta,
	})
}

// columnSumBlockSide is the width and the height of the blocks that sum columns of partial sums:
// 32 threads read each column.
const columnSumBlockSide = 32

// columnSumSharedBytes is the size of the shared memory of a block that sums columns: two
// float64 per thread.
const columnSumSharedBytes = columnSumBlockSide * columnSumBlockSide * 2 * 8

// gridCovering returns a grid with enough blocks for n elements, if each block processes
// perBlock elements.
func gridCovering(n, perBlock int) [3]uint32 {
	return [3]uint32{uint32((n + perBlock - 1) / perBlock), 1, 1}
}

// launchList collects the launches of an operation up to the first error.
type launchList struct {
	launches []Launch
	err      error
}

func (l *launchList) addTypedLaunch(t ElementType, name string, grid, block [3]uint32, shared uint32, values ...any) {
	k, err := lookUpTyped(t, name)
	l.add(k, err, grid, block, shared, values)
}

func (l *launchList) addUntypedLaunch(name string, grid, block [3]uint32, shared uint32, values ...any) {
	k, err := lookUpUntyped(name)
	l.add(k, err, grid, block, shared, values)
}

// add appends a launch of k. err is the error of looking up k; if it is not nil, add only
// records it.
func (l *launchList) add(k Kernel, err error, grid, block [3]uint32, shared uint32, values []any) {
	if l.err != nil {
		return
	}
	if err != nil {
		l.err = err
		return
	}
	args, err := k.packArgs(values...)
	if err != nil {
		l.err = err
		return
	}
	l.launches = append(l.launches, Launch{Kernel: k.Name, Grid: grid, Block: block, Shared: shared, Args: args})
}

// addColumnSumLaunch appends a launch that sums each column of partial [chunks][pitch]. The sums of
// the first n0 columns are written to out0, and those of the next n1 columns to out1.
func (l *launchList) addColumnSumLaunch(partial Pointer, pitch, chunks int, out0 Pointer, n0 int, out1 Pointer, n1 int) {
	l.addUntypedLaunch("sum_chunks", gridCovering(n0+n1, columnSumBlockSide), [3]uint32{columnSumBlockSide, columnSumBlockSide, 1}, columnSumSharedBytes/2,
		partial, pitch, chunks, out0, n0, out1, n1)
}

func (l *launchList) result() ([]Launch, error) { return l.launches, l.err }
