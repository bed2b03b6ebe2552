package kernels

// A synchronized batch norm uses the statistics of all workers' rows. Between the two
// halves of each pass, the workers exchange their sums:
//
//	forward   Moments or MomentsFromSums; exchange of the vector; StatisticsFromVector, Apply
//	backward  ReduceToVector; exchange of the vector; ApplyFromVector
//
// The vector has NormVectorLength(Channels) elements in float64: this worker's number of
// rows, and two sums per channel. The exchange adds up the vectors of all workers, which
// may have different numbers of rows.

// NormVectorLength returns the number of float64 elements that workers exchange for a batch
// norm: the number of rows and two sums per channel.
func NormVectorLength(channels int) int { return 1 + 2*channels }

// Moments returns the launches of bn_stats and bn_moments, which set vector to the number
// of rows, Σ x and Σ x². Memory traffic: 1 pass over x.
func (a BatchNorm) Moments(t ElementType, vector Pointer) ([]Launch, error) {
	first, err := a.Statistics(t)
	if err != nil {
		return nil, err
	}
	c := argChecker{op: "batch norm moments"}
	c.requireChannelVectors(map[string]Pointer{"vector": vector})
	if c.err != nil {
		return nil, c.err
	}
	r := newMatrixLaunchTiling(a.Rows, a.Channels, reduceBlocks)
	l := launchList{launches: first[:1]}
	l.addUntypedLaunch("bn_moments", gridCovering(a.Channels, columnSumBlockSide), [3]uint32{columnSumBlockSide, columnSumBlockSide, 1}, columnSumSharedBytes,
		a.Partial, r.chunks, int64Arg(a.Rows), int64Arg(r.rowsPerChunk), a.Channels, vector)
	return l.result()
}

// MomentsFromSums returns the launch of statistics_pack, which sets vector like Moments,
// but from Σ x and Σ x² of each channel, in float32. A convolution's kernel can compute
// these sums together with x.
func (a BatchNorm) MomentsFromSums(sum, square, vector Pointer) ([]Launch, error) {
	return packStatistics(sum, square, a.Rows, a.Channels, vector)
}

// StatisticsFromVector returns the launch of bn_join, which computes mean and invstd from
// the sum of all workers' vectors and updates the running statistics. The variance is
// unbiased with respect to the rows of all workers.
func (a BatchNorm) StatisticsFromVector(vector Pointer) ([]Launch, error) {
	c := argChecker{op: "batch norm statistics of all workers"}
	c.requireChannels(a.Channels)
	c.requireChannelVectors(map[string]Pointer{"running mean": a.RunningMean, "running variance": a.RunningVar, "mean": a.Mean, "invstd": a.InvStd, "vector": vector})
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(a.Channels, 1)
	var l launchList
	l.addUntypedLaunch("bn_join", grid, block, 0, vector, a.Channels, a.Epsilon, a.Momentum, a.Mean, a.InvStd, a.RunningMean, a.RunningVar)
	return l.result()
}

// ReduceToVector returns the launches of bn_backward_reduce, sum_chunks and
// statistics_pack. They compute dgamma and dbeta from this worker's rows, and set vector to
// the number of rows, dbeta and dgamma.
func (a BatchNormGrad) ReduceToVector(t ElementType, vector Pointer) ([]Launch, error) {
	first, err := a.Reduce(t)
	if err != nil {
		return nil, err
	}
	second, err := packStatistics(a.DBeta, a.DGamma, a.Rows, a.Channels, vector)
	return append(first, second...), err
}

// ApplyFromVector returns the launches of statistics_unpack and bn_backward_apply, which
// compute dx from the sum of all workers' vectors. scratch is memory for 2·Channels
// float32.
func (a BatchNormGrad) ApplyFromVector(t ElementType, vector, scratch Pointer) ([]Launch, error) {
	c := argChecker{op: "batch norm backward of all workers' sums"}
	c.require(a.DX.Data != 0, "dx is absent, so no exchange is needed")
	c.requireChannelVectors(map[string]Pointer{"vector": vector, "scratch": scratch})
	if c.err != nil {
		return nil, c.err
	}
	a.DBeta, a.DGamma = scratch, scratch+Pointer(4*a.Channels)
	apply, err := a.Apply(t)
	if err != nil {
		return nil, err
	}
	grid, block := flatGrid(a.Channels, 1)
	var l launchList
	l.addUntypedLaunch("statistics_unpack", grid, block, 0, vector, int64Arg(a.Rows), a.Channels, a.DBeta, a.DGamma)
	l.launches = append(l.launches, apply...)
	return l.result()
}

func packStatistics(a, b Pointer, rows, channels int, vector Pointer) ([]Launch, error) {
	c := argChecker{op: "statistics of a worker"}
	c.requirePositive("rows", rows)
	c.requireChannels(channels)
	c.requireChannelVectors(map[string]Pointer{"first sums": a, "second sums": b, "vector": vector})
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flatGrid(channels, 1)
	var l launchList
	l.addUntypedLaunch("statistics_pack", grid, block, 0, a, b, int64Arg(rows), channels, vector)
	return l.result()
}
