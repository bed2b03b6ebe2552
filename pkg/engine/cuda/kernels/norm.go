package kernels

// Mask selects how the backward pass finds the elements that ReLU passed.
type Mask int

// Sources of the mask.
const (
	MaskNone      Mask = iota // there was no ReLU
	MaskRecompute             // computed again from x, which avoids reading y; not possible if a map was added before the ReLU
	MaskOutput                // from the output y
)

// PartialFloats returns the size of the scratch memory, in floats, that reductions over a
// map of rows × channels need: the field Partial of BatchNorm, BatchNormGrad, BiasGrad and
// Head. It is used only while the launches run.
func PartialFloats(rows, channels int) int {
	t := tiles(rows, channels, reduceBlocks)
	return t.chunks * (2*channels + vector)
}

// BatchNorm computes a batch normalization over the rows of x, with an optional sum and
// ReLU: y = act((x − mean)·invstd·gamma + beta + add) per channel.
type BatchNorm struct {
	Rows, Channels    int // Channels padded
	X, Add, Y         Map // Add optional
	Gamma, Beta       Pointer
	RunningMean       Pointer
	RunningVar        Pointer
	Mean, InvStd      Pointer // saved for the backward pass; written in training, not used in inference
	Partial           Pointer // PartialFloats(Rows, Channels) floats; training only
	Epsilon, Momentum float64 // Momentum is the weight of the batch, as in PyTorch
	ReLU              bool
}

// Training returns the launches of bn_stats, bn_finalize and bn_apply. y is computed with
// the batch's own mean and biased variance. These also update the running statistics, there
// with the unbiased variance. x is read twice and y is written once, so each element moves
// 3 times, or 4 times with Add.
func (a BatchNorm) Training(t Type) ([]Launch, error) {
	c := check{op: "batch norm"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	c.optional("add", a.Add, a.Channels)
	c.vectors(map[string]Pointer{
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
// It does not need y, gamma and beta, and reads x once.
func (a BatchNorm) Statistics(t Type) ([]Launch, error) {
	c := check{op: "batch norm statistics"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.vectors(map[string]Pointer{"running mean": a.RunningMean, "running variance": a.RunningVar, "mean": a.Mean, "invstd": a.InvStd, "partial": a.Partial})
	if c.err != nil {
		return nil, c.err
	}
	r := tiles(a.Rows, a.Channels, reduceBlocks)
	var l list
	l.typed(t, "bn_stats", r.grid, r.block, r.shared(2*vector),
		a.X.Data, a.X.Pitch, a.Partial, wide(a.Rows), wide(r.rowsPerChunk), a.Channels)
	l.untyped("bn_finalize", over(a.Channels, columnThreads), [3]uint32{columnThreads, columnThreads, 1}, columnShared,
		a.Partial, r.chunks, wide(a.Rows), wide(r.rowsPerChunk), a.Channels, a.Epsilon, a.Momentum,
		a.Mean, a.InvStd, a.RunningMean, a.RunningVar)
	return l.done()
}

// StatisticsOfSums returns the launch of bn_sums. It does the same as Statistics, but from
// Σ x and Σ x² of each channel in float32, which a convolution's kernel has computed
// together with x. If the mean is far larger than the deviation, the variance loses digits
// by cancellation.
func (a BatchNorm) StatisticsOfSums(sum, square Pointer) ([]Launch, error) {
	c := check{op: "batch norm statistics of sums"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.vectors(map[string]Pointer{"running mean": a.RunningMean, "running variance": a.RunningVar, "mean": a.Mean, "invstd": a.InvStd, "sum": sum, "square": square})
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.Channels, 1)
	var l list
	l.untyped("bn_sums", grid, block, 0,
		sum, square, wide(a.Rows), a.Channels, a.Epsilon, a.Momentum, a.Mean, a.InvStd, a.RunningMean, a.RunningVar)
	return l.done()
}

// Apply returns the launch of bn_apply, the second half of Training, which reads x and
// writes y.
func (a BatchNorm) Apply(t Type) ([]Launch, error) {
	c := check{op: "batch norm"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	c.optional("add", a.Add, a.Channels)
	c.vectors(map[string]Pointer{"gamma": a.Gamma, "beta": a.Beta, "mean": a.Mean, "invstd": a.InvStd})
	if c.err != nil {
		return nil, c.err
	}
	m := tiles(a.Rows, a.Channels, mapBlocks)
	var l list
	l.typed(t, "bn_apply", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.Add.Data, a.Add.Pitch, a.Mean, a.InvStd, a.Gamma, a.Beta, a.Y.Data, a.Y.Pitch,
		wide(a.Rows), wide(m.rowsPerChunk), a.Channels, a.ReLU)
	return l.done()
}

// ScaleShift returns the launch of bn_scale_shift. It computes two vectors of type t so
// that Training's y is act(x·scale + shift), for a convolution that applies this while it
// reads x. Neither x nor y is read or written. Scale and shift are rounded to t, so in fp16
// the error of y is up to 2⁻¹¹·(|x·scale| + |shift|).
func (a BatchNorm) ScaleShift(t Type, scale, shift Pointer) ([]Launch, error) {
	c := check{op: "batch norm scale and shift"}
	c.channels(a.Channels)
	c.vectors(map[string]Pointer{"gamma": a.Gamma, "beta": a.Beta, "mean": a.Mean, "invstd": a.InvStd, "scale": scale, "shift": shift})
	if c.err != nil {
		return nil, c.err
	}
	grid, block := flat(a.Channels, 1)
	var l list
	l.typed(t, "bn_scale_shift", grid, block, 0, a.Mean, a.InvStd, a.Gamma, a.Beta, scale, shift, a.Channels)
	return l.done()
}

// Inference returns the launch of bn_infer, which computes y with the running statistics.
// It moves each element 2 times.
func (a BatchNorm) Inference(t Type) ([]Launch, error) {
	c := check{op: "batch norm inference"}
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.activation("y", a.Y, a.Channels)
	c.optional("add", a.Add, a.Channels)
	c.vectors(map[string]Pointer{"gamma": a.Gamma, "beta": a.Beta, "running mean": a.RunningMean, "running variance": a.RunningVar})
	if c.err != nil {
		return nil, c.err
	}
	m := tiles(a.Rows, a.Channels, mapBlocks)
	var l list
	l.typed(t, "bn_infer", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.Add.Data, a.Add.Pitch, a.RunningMean, a.RunningVar, a.Gamma, a.Beta, a.Y.Data, a.Y.Pitch,
		wide(a.Rows), wide(m.rowsPerChunk), a.Channels, a.ReLU, a.Epsilon)
	return l.done()
}

// BatchNormGrad computes the backward pass of BatchNorm.Training. With d = dy where the
// ReLU passed its input, 0 elsewhere: dbeta = Σ d, dgamma = Σ d·x̂, dx = gamma·invstd·(d −
// dbeta/rows − x̂·dgamma/rows) + Acc, and dAdd = d.
type BatchNormGrad struct {
	Rows, Channels int
	X, DY          Map
	Y              Map // with MaskOutput
	Mean, InvStd   Pointer
	Gamma, Beta    Pointer
	DGamma, DBeta  Pointer // float32, written; complete before the last launch
	Acc            Map     // optional: added to dx, for the gradient that reaches x on another path (the skip connection of a pre-activation block)
	DX             Map     // may be DY, X or Acc itself; if absent, only dgamma and dbeta are computed
	DAdd           Map     // optional: the gradient of Add; may be DY
	Partial        Pointer // PartialFloats(Rows, Channels) floats
	Mask           Mask
}

// Launches returns the launches of Reduce and, if DX is present, of Apply. They move each
// element 5 times with MaskRecompute; with MaskOutput they read y two more times.
func (a BatchNormGrad) Launches(t Type) ([]Launch, error) {
	c := check{op: "batch norm backward"}
	c.require(a.DX.Data != 0 || a.Acc.Data == 0 && a.DAdd.Data == 0, "dx is absent, but acc or dadd is not")
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
// and dbeta. They read x and dy once, and with MaskOutput also y.
func (a BatchNormGrad) Reduce(t Type) ([]Launch, error) {
	c := check{op: "batch norm backward"}
	a.check(&c)
	c.vectors(map[string]Pointer{"partial": a.Partial})
	if c.err != nil {
		return nil, c.err
	}
	r := tiles(a.Rows, a.Channels, reduceBlocks)
	var l list
	l.typed(t, "bn_backward_reduce", r.grid, r.block, r.shared(2*vector),
		a.X.Data, a.X.Pitch, a.DY.Data, a.DY.Pitch, a.Y.Data, a.Y.Pitch, a.Mean, a.InvStd, a.Gamma, a.Beta, a.Partial,
		wide(a.Rows), wide(r.rowsPerChunk), a.Channels, int(a.Mask))
	l.sum(a.Partial, 2*a.Channels, r.chunks, a.DBeta, a.Channels, a.DGamma, a.Channels)
	return l.done()
}

// Apply returns the launch of bn_backward_apply, which needs the dgamma and dbeta of Reduce
// or of another kernel. It reads x and dy once and writes dx. The mask does not change a dy
// that is masked already.
func (a BatchNormGrad) Apply(t Type) ([]Launch, error) {
	c := check{op: "batch norm backward"}
	a.check(&c)
	c.activation("dx", a.DX, a.Channels)
	c.optional("acc", a.Acc, a.Channels)
	c.optional("dadd", a.DAdd, a.Channels)
	c.require(a.DAdd.Data == 0 || a.DAdd.Data != a.DX.Data, "dadd and dx are one tensor")
	if c.err != nil {
		return nil, c.err
	}
	m := tiles(a.Rows, a.Channels, mapBlocks)
	var l list
	l.typed(t, "bn_backward_apply", m.grid, m.block, 0,
		a.X.Data, a.X.Pitch, a.DY.Data, a.DY.Pitch, a.Y.Data, a.Y.Pitch, a.Mean, a.InvStd, a.Gamma, a.Beta,
		a.DGamma, a.DBeta, a.Acc.Data, a.Acc.Pitch, a.DX.Data, a.DX.Pitch, a.DAdd.Data, a.DAdd.Pitch,
		wide(a.Rows), wide(m.rowsPerChunk), a.Channels, int(a.Mask))
	return l.done()
}

// check checks the arguments that both halves use.
func (a BatchNormGrad) check(c *check) {
	c.positive("rows", a.Rows)
	c.channels(a.Channels)
	c.activation("x", a.X, a.Channels)
	c.activation("dy", a.DY, a.Channels)
	c.optional("y", a.Y, a.Channels)
	c.require(a.Mask >= MaskNone && a.Mask <= MaskOutput, "mask %d is not known", a.Mask)
	c.require(a.Mask != MaskOutput || a.Y.Data != 0, "the mask is taken from y, which is absent")
	c.vectors(map[string]Pointer{
		"gamma": a.Gamma, "beta": a.Beta, "mean": a.Mean, "invstd": a.InvStd, "dgamma": a.DGamma, "dbeta": a.DBeta,
	})
}

// columnThreads is the width and the height of the blocks that sum chunks: 32 threads read
// one column of the partial sums.
const columnThreads = 32

// columnShared is the shared memory of such a block: two doubles per thread.
const columnShared = columnThreads * columnThreads * 2 * 8

func over(n, per int) [3]uint32 { return [3]uint32{uint32((n + per - 1) / per), 1, 1} }

// list collects the launches of an operation.
type list struct {
	launches []Launch
	err      error
}

func (l *list) typed(t Type, name string, grid, block [3]uint32, shared uint32, values ...any) {
	k, err := of(t, name)
	l.add(k, err, grid, block, shared, values)
}

func (l *list) untyped(name string, grid, block [3]uint32, shared uint32, values ...any) {
	k, err := lookup(name)
	l.add(k, err, grid, block, shared, values)
}

func (l *list) add(k Kernel, err error, grid, block [3]uint32, shared uint32, values []any) {
	if l.err != nil {
		return
	}
	if err != nil {
		l.err = err
		return
	}
	args, err := k.pack(values...)
	if err != nil {
		l.err = err
		return
	}
	l.launches = append(l.launches, Launch{Kernel: k.Name, Grid: grid, Block: block, Shared: shared, Args: args})
}

// sum adds a launch that sums the rows of partial [chunks][pitch]: the first n0 columns to
// out0, the next n1 to out1.
func (l *list) sum(partial Pointer, pitch, chunks int, out0 Pointer, n0 int, out1 Pointer, n1 int) {
	l.untyped("sum_chunks", over(n0+n1, columnThreads), [3]uint32{columnThreads, columnThreads, 1}, columnShared/2,
		partial, pitch, chunks, out0, n0, out1, n1)
}

func (l *list) done() ([]Launch, error) { return l.launches, l.err }
