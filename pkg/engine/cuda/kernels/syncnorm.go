package kernels

// A synchronised batch norm normalises by the statistics of all workers' rows. Its
// passes are cut where these meet:
//
//	forward   Moments or MomentsOfSums → vector, exchange, Join, Apply
//	backward  Sums → vector, exchange, Joined
//
// The vector is VectorDoubles(Channels) numbers in float64: this worker's rows, and two
// sums for each channel. The exchange adds the vectors of all workers up. Workers may
// have different numbers of rows.

// VectorDoubles is the length of the vector of a batch norm, in float64.
func VectorDoubles(channels int) int { return 1 + 2*channels }

// Moments are bn_stats and bn_moments: vector is rows, Σ x and Σ x². x is read once.
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

// MomentsOfSums is statistics_pack: as Moments, from Σ x and Σ x² of each channel in
// float32, which a convolution's kernel has made beside its result.
func (a BatchNorm) MomentsOfSums(sum, square, vector Pointer) ([]Launch, error) {
	return pack(sum, square, a.Rows, a.Channels, vector)
}

// Join is bn_join: mean and invstd of the sum of all workers' vectors, which also move
// the running statistics, the variance unbiased by the rows of all workers.
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

// Sums are bn_backward_reduce, sum_chunks and statistics_pack: dgamma and dbeta of this
// worker's rows, and vector of its rows, dbeta and dgamma.
func (a BatchNormGrad) Sums(t Type, vector Pointer) ([]Launch, error) {
	first, err := a.Reduce(t)
	if err != nil {
		return nil, err
	}
	second, err := pack(a.DBeta, a.DGamma, a.Rows, a.Channels, vector)
	return append(first, second...), err
}

// Joined are statistics_unpack and bn_backward_apply: dx of the sum of all workers'
// vectors. room is memory for 2·Channels float32.
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

// pack is statistics_pack.
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
