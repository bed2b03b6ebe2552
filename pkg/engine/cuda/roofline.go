package cuda

import (
	"context"
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib/cublaslt"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// Work contains the operations and the memory traffic of one task of a step: its
// coordinates in a roofline diagram (Williams, Waterman and Patterson, Roofline, 2009,
// doi:10.1145/1498765.1498785).
type Work struct {
	Task   string // "conv", "batch_norm", "adam"
	Layer  string
	Part   string // "forward", "backward", "optimizer"
	Tensor bool   // the operations are matrix products, which tensor cores can compute
	FLOPs  float64
	// Bytes is the number of bytes that the task's kernels read and write, as if caches
	// kept no data between kernels.
	Bytes float64
	// BytesAfter is the part of Bytes that kernels move after the operations instead of
	// during them. For example, a separate kernel adds the bias of a convolution if cuDNN
	// has no graph that does both.
	BytesAfter float64
}

// Ceilings contains the measured limits of a GPU.
type Ceilings struct {
	TensorFLOPS    float64 // matrix products in the engine's precision, per second
	TensorBy       string  // what measured them: "cuBLASLt, 8192×8192×8192", "mma in registers", "multiply-adds"
	FLOPS          float64 // fp32 multiply-adds, per second
	BytesPerSecond float64 // of a copy within memory, bytes read plus bytes written
}

// Validate returns an error unless all limits are positive.
func (c Ceilings) Validate() error {
	if !(c.TensorFLOPS > 0 && c.FLOPS > 0 && c.BytesPerSecond > 0) {
		return fmt.Errorf("validate ceilings: got %+v, want all numbers above 0", c)
	}
	return nil
}

// MinSeconds returns the least time of w in seconds: the time for its operations or for the
// bytes moved during them, whichever is longer, plus the time for the bytes moved
// afterwards.
func (c Ceilings) MinSeconds(w Work) float64 {
	peak := c.FLOPS
	if w.Tensor {
		peak = c.TensorFLOPS
	}
	return max(w.FLOPs/peak, (w.Bytes-w.BytesAfter)/c.BytesPerSecond) + w.BytesAfter/c.BytesPerSecond
}

// MinSecondsOfTasks returns the least time of each task in seconds, and the sum of these
// times, since tasks run one after another.
func (c Ceilings) MinSecondsOfTasks(list []Work) (each []float64, sum float64) {
	for _, w := range list {
		b := c.MinSeconds(w)
		each = append(each, b)
		sum += b
	}
	return each, sum
}

// StepWork returns the work of each task of a training step. exe must be an executable of
// this package. The update is the last task; it is left out if update is nil.
func StepWork(exe engine.Executable, update *optim.Update) ([]Work, error) {
	x, ok := exe.(*executable)
	if !ok {
		return nil, fmt.Errorf("list work of a step: got a %T, want an executable of engine/cuda", exe)
	}
	return x.stepWork(update), nil
}

func (x *executable) stepWork(update *optim.Update) (list []Work) {
	for i, t := range x.tasks {
		w := x.taskWork(i, t)
		w.Part = "forward"
		if t.kernel >= x.program.Forward {
			w.Part = "backward"
		}
		list = append(list, w)
	}
	for _, id := range x.program.Inputs {
		list = append(list, Work{
			Task: "pack", Layer: x.program.Tensors[id].Name, Part: "forward",
			Bytes: float64(x.inputBytes(id) + x.memory.locations[id].bytes()),
		})
	}
	if update != nil {
		list = append(list, x.updateWork(update))
	}
	return list
}

// updateWork returns the work of an update.
func (x *executable) updateWork(u *optim.Update) Work {
	n := 0
	for _, s := range x.update.segments.runs {
		n += s.size
	}
	bytes := 12 + 8*len(u.Slots())
	if x.low != device.F32 {
		bytes += x.low.Size()
	}
	if x.low == device.F16 {
		bytes += 4 // gradients are checked first
	}
	switch u.Rule {
	case optim.RuleLAMB:
		bytes += 12 // weights, m and v are read again
	case optim.RuleLARS:
		bytes += 8 // weights and gradients are read again
	}
	if u.ClipNorm > 0 && u.Rule != optim.RuleLARS {
		bytes += 4
	}
	return Work{Task: u.Rule, Part: "optimizer", FLOPs: 12 * float64(n), Bytes: float64(n * bytes)}
}

// taskWork returns the work of task t, which has index i. The caller sets Work.Part. Only
// the operations of matrix products are counted, because memory bandwidth limits all other
// tasks.
func (x *executable) taskWork(i int, t task) Work {
	w := Work{Task: string(t.op), Layer: t.name}
	size := func(id int) float64 {
		if id < 0 {
			return 0
		}
		return float64(x.memory.locations[id].bytes())
	}
	if c, ok := x.schedule.picks[i]; ok {
		w.Tensor, w.FLOPs = true, float64(x.program.FLOPs(x.program.Kernels[t.kernel]))
		w.Bytes, w.BytesAfter = c.bytes(), c.commandBytes
		return w
	}
	for _, id := range t.in {
		w.Bytes += size(id)
	}
	for _, id := range t.out {
		w.Bytes += size(id)
	}
	w.Bytes += size(t.acc)
	switch t.op {
	case plan.OpBatchNorm:
		if t.attr.Training && !t.precomputed {
			w.Bytes += size(t.in[0]) // read once for the statistics and once for the result
		}
		if t.prologue != nil && t.prologue.applied {
			w.Bytes -= size(t.in[0]) + size(t.out[0])
		}
	case plan.OpBatchNormBackward:
		if !t.precomputed {
			w.Bytes += size(t.in[0]) + size(t.in[4]) + size(t.in[5]) // read once for the sums and once for dx
		}
	}
	return w
}

// Sizes of the measurements. They are far larger than any cache, and long enough for the
// clocks to settle.
const (
	ceilingBytes      = 1 << 30
	ceilingIterations = 1 << 14
	ceilingRuns       = 10
	// For PeakFLOPS, which runs at the start of a training run and must be short.
	peakIterations = 1 << 12
	peakRuns       = 3
)

// Ceilings measures the GPU's limits, each as the best of ten runs: a copy within memory,
// multiply-adds in registers, and matrix products in the engine's precision. Matrix
// products are measured with large matrices in cuBLASLt and in registers with the engine's
// own kernel; the faster result counts. In fp32 without TF32, multiply-adds count instead
// of matrix products.
func (e *Engine) Ceilings(ctx context.Context) (Ceilings, error) {
	var c Ceilings
	err := e.thread.do(func() (err error) {
		c, err = e.gpu.measureCeilings(ctx, number.ActivationType(e.options.Precision), e.tf32)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("measure ceilings of %s: %w", e.Name(), err)
	}
	return c, nil
}

// PeakFLOPS measures matrix products like Ceilings, but only for about 20 ms. It returns
// operations per second, or 0 if the measurement fails. It uses cuBLASLt only if the
// library is available and there is enough memory.
func (e *Engine) PeakFLOPS() float64 {
	var flops float64
	_ = e.thread.do(func() (err error) { // the result is 0 if the engine is closed or the GPU is lost
		flops, err = e.gpu.measurePeak(context.Background(), number.ActivationType(e.options.Precision), e.tf32)
		return err
	})
	return flops
}

// measurePeak does the work of PeakFLOPS.
func (g *gpu) measurePeak(ctx context.Context, low device.Type, tf32 bool) (flops float64, err error) {
	processors, err := g.driver.DeviceAttribute(g.device, driver.MultiprocessorCount)
	if err != nil {
		return 0, g.explainLostGPU(err)
	}
	// Each thread writes one number: 8 blocks of 256 threads per multiprocessor.
	memory := memoryBlock{bytes: int64(8 * processors * 256 * 4)}
	if err := g.allocate(&memory); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.free(memory)) }()
	flops, _, err = g.measureRegisterFLOPS(ctx, low, memory, 8*processors, peakIterations, peakRuns)
	if err != nil || low == device.F32 && !tf32 || g.stack.CublasLt == nil {
		return flops, err
	}
	free, _, err := g.driver.MemGetInfo()
	if err != nil {
		return flops, g.explainLostGPU(err)
	}
	large := memoryBlock{bytes: min(3*productEdge*productEdge*int64(low.Size())+productWorkspace, free/2) / alignmentBytes * alignmentBytes}
	if g.allocate(&large) != nil {
		return flops, nil // training can go on without this measurement
	}
	defer func() { err = errors.Join(err, g.free(large)) }()
	product, _, err := g.measureProduct(ctx, low, large, peakRuns)
	return max(flops, product), err
}

// measureRegisterFLOPS measures arithmetic in registers: matrix products if low has 16
// bits, otherwise multiply-adds. It returns operations per second and the name of the
// measured operation.
func (g *gpu) measureRegisterFLOPS(ctx context.Context, low device.Type, memory memoryBlock, blocks, iterations, runs int) (flops float64, by string, err error) {
	var c kernels.ThroughputTest
	if low == device.F32 {
		by = "multiply-adds"
		c, err = kernels.NewFMATest(kernels.Pointer(memory.ptr), blocks, iterations)
	} else {
		by = "mma in registers"
		c, err = kernels.NewMMATest(number.KernelType(low), kernels.Pointer(memory.ptr), blocks, iterations)
	}
	if err != nil {
		return 0, "", err
	}
	seconds, err := g.minLaunchSeconds(ctx, runs, c.Launch)
	return c.FLOP / seconds, by, err
}

// measureCeilings does the work of Ceilings.
func (g *gpu) measureCeilings(ctx context.Context, low device.Type, tf32 bool) (c Ceilings, err error) {
	free, _, err := g.driver.MemGetInfo()
	if err != nil {
		return c, g.explainLostGPU(err)
	}
	memory := memoryBlock{bytes: min(2*ceilingBytes, free/4) / alignmentBytes * alignmentBytes}
	if err := g.allocate(&memory); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, g.free(memory)) }()
	processors, err := g.driver.DeviceAttribute(g.device, driver.MultiprocessorCount)
	if err != nil {
		return c, g.explainLostGPU(err)
	}
	half := memory.bytes / 2
	launches, err := kernels.NewCopyTest(kernels.Pointer(memory.ptr), kernels.Pointer(memory.ptr.Add(half)), int(half/16))
	if err != nil {
		return c, err
	}
	seconds, err := g.minLaunchSeconds(ctx, ceilingRuns, launches...)
	if err != nil {
		return c, err
	}
	c.BytesPerSecond = 2 * float64(half) / seconds
	c.FLOPS, c.TensorBy, err = g.measureRegisterFLOPS(ctx, device.F32, memory, 8*processors, ceilingIterations, ceilingRuns)
	if c.TensorFLOPS = c.FLOPS; err != nil || low == device.F32 && !tf32 {
		return c, err
	}
	if low != device.F32 {
		c.TensorFLOPS, c.TensorBy, err = g.measureRegisterFLOPS(ctx, low, memory, 8*processors, ceilingIterations, ceilingRuns)
		if err != nil {
			return c, err
		}
	}
	if g.stack.CublasLt == nil {
		return c, nil
	}
	product, edge, err := g.measureProduct(ctx, low, memory, ceilingRuns)
	if err != nil {
		return c, err
	}
	if product > c.TensorFLOPS {
		c.TensorFLOPS, c.TensorBy = product, fmt.Sprintf("cuBLASLt, %d×%d×%d", edge, edge, edge)
	}
	return c, nil
}

// Number of rows of the square matrices in the measured product, and limit of cuBLASLt's
// workspace in bytes.
const (
	productEdge      = 8192
	productWorkspace = 64 << 20
)

// measureProduct measures cuBLASLt's product of square matrices of type low (TF32 for
// fp32). The matrices are as large as memory allows, up to productEdge rows, and contain
// noise, since zeros need less power. It returns operations per second and the number of
// rows.
func (g *gpu) measureProduct(ctx context.Context, low device.Type, memory memoryBlock, runs int) (flops float64, edge int64, err error) {
	typ := map[device.Type]cublaslt.DataType{device.F32: cublaslt.Float32, device.F16: cublaslt.Float16, device.BF16: cublaslt.BFloat16}[low]
	compute := cublaslt.ComputeFloat32
	if low == device.F32 {
		compute = cublaslt.ComputeTF32
	}
	edge = productEdge
	matrix := func() int64 { return edge * edge * int64(low.Size()) }
	limit := min(productWorkspace, memory.bytes/8/alignmentBytes*alignmentBytes)
	for edge > 64 && 3*matrix()+limit > memory.bytes {
		edge /= 2
	}
	if err := g.fillNoise(memoryBlock{memory.ptr, 2 * matrix()}, low); err != nil {
		return 0, 0, err
	}
	lt := g.stack.CublasLt
	h, err := lt.Create()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, lt.Destroy(h)) }()
	plan, err := lt.Plan(h, cublaslt.Matmul{
		M: edge, N: edge, K: edge, TransA: true, TypeA: typ, TypeB: typ, TypeD: typ, LDA: edge, LDB: edge, LDD: edge,
		Compute: compute, WorkspaceLimit: limit,
	})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, lt.Close(plan)) }()
	a := memory.ptr
	seconds, err := g.minCommandSeconds(ctx, runs, &matmulCall{lt, h, plan, a, a.Add(matrix()), a.Add(2 * matrix()), a.Add(3 * matrix())})
	if err != nil {
		return 0, 0, err
	}
	n := float64(edge)
	return 2 * n * n * n / seconds, edge, nil
}

// minLaunchSeconds returns the shortest time of the launches in the given number of runs,
// in seconds.
func (g *gpu) minLaunchSeconds(ctx context.Context, runs int, launches ...kernels.Launch) (float64, error) {
	calls, err := g.newKernelCalls(launches, nil)
	if err != nil {
		return 0, err
	}
	return g.minCommandSeconds(ctx, runs, calls...)
}

// minCommandSeconds returns the shortest time of the commands in the given number of runs,
// in seconds. An additional first run does not count.
func (g *gpu) minCommandSeconds(ctx context.Context, runs int, calls ...command) (seconds float64, err error) {
	var events [2]driver.Event
	for i := range events {
		if events[i], err = g.driver.EventCreate(driver.EventDefault); err != nil {
			return 0, g.explainLostGPU(err)
		}
		defer func() { err = errors.Join(err, g.explainLostGPU(g.driver.EventDestroy(events[i]))) }()
	}
	for run := range runs + 1 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := g.driver.EventRecord(events[0], g.compute); err != nil {
			return 0, g.explainLostGPU(err)
		}
		if err := g.enqueueAll(calls, g.compute); err != nil {
			return 0, err
		}
		if err := g.driver.EventRecord(events[1], g.compute); err != nil {
			return 0, g.explainLostGPU(err)
		}
		if err := g.driver.EventSynchronize(events[1]); err != nil {
			return 0, g.explainLostGPU(err)
		}
		ms, err := g.driver.EventElapsed(events[0], events[1])
		if err != nil {
			return 0, g.explainLostGPU(err)
		}
		if s := float64(ms) / 1e3; run > 0 && s > 0 && (seconds == 0 || s < seconds) {
			seconds = s
		}
	}
	if seconds == 0 {
		return 0, errors.New("the GPU's timer does not advance")
	}
	return seconds, nil
}
