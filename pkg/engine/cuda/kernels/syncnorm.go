package kernels

// A synchronized batch norm uses the statistics of all workers' rows. Each pass is split where
// the workers exchange their sums:
//
//	forward   Moments or MomentsOfSums → vector, exchange, Join, Apply
//	backward  Sums → vector, exchange, Joined
//
// The vector has VectorDoubles(Channels) elements in float64: this worker's number of rows, and
// two sums per channel. The exchange adds up the vectors of all workers, whose numbers of rows
// may differ.

// VectorDoubles returns the length of a batch norm's vector, in float64.
func VectorDoubles(channels int) int { return 1 + 2*channels }

// Moments returns the launches of bn_stats and bn_moments, which set vector to rows, Σ x
// and Σ x². They read x once.
func (a BatchNorm) Moments(t Type, vector Pointer) ([]Launch, error) {
	first, err := a.Statistics(t)
	if err != nil {
		return nil, err
	}
	c := check{op: "batch norm moments"}
	c.vectors(map[string]Pointer{"vector": vector})
	if c.err != nil {
		return nil, c.err
	}
	r := tiles(a.Rows, a.Channels, reduceBlocks)
	l := list{launches: first[:1]}
	l.untyped("bn_moments", over(a.Channels, columnThreads), [3]uint32{columnThreads, columnThreads, 1}, columnShared,
		a.Partial, r.chunks, wide(a.Rows), wide(r.rowsPerChunk), a.Channels, vector)
	return l.done()
}

// MomentsOfSums returns the launch of statistics_pack. It does the same as Moments, but
// from Σ x and Σ x² of each channel in float32, which a convolution's kernel has computed
// together with x.
func (a BatchNorm) MomentsOfSums(sum, square, vector Pointer) ([]Launch, error) {
	return pack(sum, square, a.Rows, a.Channels, vector)
}

// Join returns the launch of bn_join. It computes mean and invstd from the sum of all
// workers' vectors, and updates the running statistics, where the variance is unbiased with
// the number of rows of all workers.
func (a BatchNorm) Join(vector Pointer) ([]Launch, error) {
	c := check{op: "join the statistics of a batch norm"}
	c.channels(a.Channels)
	c.vectors(map[string]Pointer{"running mean": a.RunningMean, "running variance": a.RunningVar, "mean": a.Mean, "invstd": a.InvStd, "vector": vector})
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.Channels, 1)
	var l list
	l.untyped("bn_join", grid, block, 0, vector, a.Channels, a.Epsilon, a.Momentum, a.Mean, a.InvStd, a.RunningMean, a.RunningVar)
	return l.done()
}

// Sums returns the launches of bn_backward_reduce, sum_chunks and statistics_pack. They
// compute dgamma and dbeta of this worker's rows, and set vector to the number of rows,
// dbeta and dgamma.
func (a BatchNormGrad) Sums(t Type, vector Pointer) ([]Launch, error) {
	first, err := a.Reduce(t)
	if err != nil {
		return nil, err
	}
	second, err := pack(a.DBeta, a.DGamma, a.Rows, a.Channels, vector)
	return append(first, second...), err
}

// Joined returns the launches of statistics_unpack and bn_backward_apply, which compute dx
// from the sum of all workers' vectors. room is scratch memory for 2·Channels float32.
func (a BatchNormGrad) Joined(t Type, vector, room Pointer) ([]Launch, error) {
	c := check{op: "batch norm backward of all workers' sums"}
	c.require(a.DX.Data != 0, "dx is absent: then there is nothing to exchange")
	c.vectors(map[string]Pointer{"vector": vector, "room": room})
	if c.err != nil {
		return nil, c.err
	}
	a.DBeta, a.DGamma = room, room+Pointer(4*a.Channels)
	apply, err := a.Apply(t)
	if err != nil {
		return nil, err
	}
	grid, block := flat(a.Channels, 1)
	var l list
	l.untyped("statistics_unpack", grid, block, 0, vector, wide(a.Rows), a.Channels, a.DBeta, a.DGamma)
	l.launches = append(l.launches, apply...)
	return l.done()
}

// pack returns the launch of statistics_pack.
func pack(a, b Pointer, rows, channels int, vector Pointer) ([]Launch, error) {
	c := check{op: "statistics of a worker"}
	c.positive("rows", rows)
	c.channels(channels)
	c.vectors(map[string]Pointer{"first sums": a, "second sums": b, "vector": vector})
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(channels, 1)
	var l list
	l.untyped("statistics_pack", grid, block, 0, a, b, wide(rows), channels, vector)
	return l.done()
}
