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

// Work is what one task of a step must do at least: the numbers that a roofline
// is drawn with (Williams, Waterman and Patterson, Roofline, 2009,
// doi:10.1145/1498765.1498785).
type Work struct {
	Task   string // "conv", "batch_norm", "adam"
	Layer  string
	Part   string // "forward", "backward", "optimizer"
	Tensor bool   // its operations are products of matrices, for the tensor cores
	FLOPs  float64
	// Bytes are those that its kernels read and write, each of their passes
	// counted, as if nothing stayed in the caches from one to the next.
	Bytes float64
	// Behind are those of Bytes that kernels move behind the operations, not beside
	// them: of a convolution's bias where cuDNN has no graph with both.
	Behind float64
}

// Ceilings are what a GPU can do, measured.
type Ceilings struct {
	TensorFLOPS    float64 // products of matrices in the engine's precision, a second
	TensorBy       string  // what measured them: "cuBLASLt, 8192×8192×8192", "mma in registers", "multiply-adds"
	FLOPS          float64 // fp32 multiply-adds, a second
	BytesPerSecond float64 // copied in memory: read and written
}

// Validate reports a ceiling that is none.
func (c Ceilings) Validate() error {
	if !(c.TensorFLOPS > 0 && c.FLOPS > 0 && c.BytesPerSecond > 0) {
		return fmt.Errorf("validate ceilings: %+v: each must be above 0", c)
	}
	return nil
}

// Bound is the least time of w in seconds: the longer of its operations' and its
// bytes', and that of the bytes behind.
func (c Ceilings) Bound(w Work) float64 {
	peak := c.FLOPS
	if w.Tensor {
		peak = c.TensorFLOPS
	}
	return max(w.FLOPs/peak, (w.Bytes-w.Behind)/c.BytesPerSecond) + w.Behind/c.BytesPerSecond
}

// Bounds are the least times of all tasks, and of all together: they run one
// after another.
func (c Ceilings) Bounds(list []Work) (each []float64, sum float64) {
	for _, w := range list {
		b := c.Bound(w)
		each = append(each, b)
		sum += b
	}
	return each, sum
}

// StepWork lists the tasks of a training step of an executable of this package,
// with update's optimiser (nil: none).
func StepWork(exe engine.Executable, update *optim.Update) ([]Work, error) {
	x, ok := exe.(*executable)
	if !ok {
		return nil, fmt.Errorf("list the work of a step: the executable is a %T, none of engine/cuda", exe)
	}
	return x.stepWork(update), nil
}

func (x *executable) stepWork(update *optim.Update) (list []Work) {
	for i, t := range x.tasks {
		w := x.work(i, t)
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

// updateWork is the optimiser's: weights and slots read and written, gradients
// read, copies written; and what it reads before for norms.
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
		bytes += 4 // they are looked at first
	}
	switch u.Rule {
	case optim.RuleLAMB:
		bytes += 12 // weights, m and v once more
	case optim.RuleLARS:
		bytes += 8 // weights and gradients once more
	}
	if u.ClipNorm > 0 && u.Rule != optim.RuleLARS {
		bytes += 4
	}
	return Work{Task: u.Rule, Part: "optimizer", FLOPs: 12 * float64(n), Bytes: float64(n * bytes)}
}

// work is a task's without its part. Operations other than products of matrices
// are counted in passes over memory alone: none of them comes near the
// processors' limit.
func (x *executable) work(i int, t task) Work {
	w := Work{Task: string(t.op), Layer: t.name}
	size := func(id int) float64 {
		if id < 0 {
			return 0
		}
		return float64(x.memory.locations[id].bytes())
	}
	if c, ok := x.schedule.picks[i]; ok {
		w.Tensor, w.FLOPs = true, float64(x.program.FLOPs(x.program.Kernels[t.kernel]))
		w.Bytes, w.Behind = c.bytes(), c.behind
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
		if t.attr.Training && !t.given {
			w.Bytes += size(t.in[0]) // once for the statistics, once for the result
		}
		if t.prologue != nil && t.prologue.applied {
			w.Bytes -= size(t.in[0]) + size(t.out[0])
		}
	case plan.OpBatchNormBackward:
		if !t.given {
			w.Bytes += size(t.in[0]) + size(t.in[4]) + size(t.in[5]) // for the sums, then for dx
		}
	}
	return w
}

// The sizes with which ceilings are measured: far beyond any cache, and long
// enough for clocks to settle.
const (
	ceilingBytes      = 1 << 30
	ceilingIterations = 1 << 14
	ceilingRuns       = 10
	// What a training run measures at its start: shorter, and beside what it holds.
	peakIterations = 1 << 12
	peakRuns       = 3
)

// Ceilings measures the GPU: a copy in memory, multiply-adds in registers, and
// products of matrices in the engine's precision: cuBLASLt's of large matrices, which
// use what the device is fastest with, or our own in registers where these are faster
// or cuBLASLt is not there. fp32 without TF32 counts as multiply-adds. The best of
// ten runs.
func (e *Engine) Ceilings(ctx context.Context) (Ceilings, error) {
	var c Ceilings
	err := e.thread.do(func() (err error) {
		c, err = e.gpu.ceilings(ctx, number.Low(e.options.Precision), e.tf32)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("measure the ceilings of %s: %w", e.Name(), err)
	}
	return c, nil
}

// PeakFLOPS is how fast the GPU multiplies matrices in the engine's precision, as
// Ceilings has it, measured in some 20 ms: by cuBLASLt where it is there and has the
// memory, and in registers. 0 where it cannot be measured.
func (e *Engine) PeakFLOPS() float64 {
	var flops float64
	_ = e.thread.do(func() (err error) { // a closed or lost GPU has none
		flops, err = e.gpu.peak(context.Background(), number.Low(e.options.Precision), e.tf32)
		return err
	})
	return flops
}

func (g *gpu) peak(ctx context.Context, low device.Type, tf32 bool) (flops float64, err error) {
	processors, err := g.driver.DeviceAttribute(g.device, driver.MultiprocessorCount)
	if err != nil {
		return 0, g.failed(err)
	}
	// 8 blocks of 256 threads a multiprocessor, each of which leaves a number.
	memory := block{bytes: int64(8 * processors * 256 * 4)}
	if err := g.allocate(&memory); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.free(memory)) }()
	flops, _, err = g.registers(ctx, low, memory, 8*processors, peakIterations, peakRuns)
	if err != nil || low == device.F32 && !tf32 || g.stack.CublasLt == nil {
		return flops, err
	}
	free, _, err := g.driver.MemGetInfo()
	if err != nil {
		return flops, g.failed(err)
	}
	large := block{bytes: min(3*productEdge*productEdge*int64(low.Size())+productWorkspace, free/2) / alignment * alignment}
	if g.allocate(&large) != nil {
		return flops, nil // training goes on with what there is
	}
	defer func() { err = errors.Join(err, g.free(large)) }()
	product, _, err := g.product(ctx, low, large, peakRuns)
	return max(flops, product), err
}

// registers is the speed of the GPU's arithmetic in registers: products of matrices
// where low has 16 bits, else multiply-adds.
func (g *gpu) registers(ctx context.Context, low device.Type, memory block, blocks, iterations, runs int) (flops float64, by string, err error) {
	var c kernels.Ceiling
	if low == device.F32 {
		by = "multiply-adds"
		c, err = kernels.FMACeiling(kernels.Pointer(memory.ptr), blocks, iterations)
	} else {
		by = "mma in registers"
		c, err = kernels.MMACeiling(number.KernelType(low), kernels.Pointer(memory.ptr), blocks, iterations)
	}
	if err != nil {
		return 0, "", err
	}
	seconds, err := g.best(ctx, runs, c.Launch)
	return c.FLOP / seconds, by, err
}

func (g *gpu) ceilings(ctx context.Context, low device.Type, tf32 bool) (c Ceilings, err error) {
	free, _, err := g.driver.MemGetInfo()
	if err != nil {
		return c, g.failed(err)
	}
	memory := block{bytes: min(2*ceilingBytes, free/4) / alignment * alignment}
	if err := g.allocate(&memory); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, g.free(memory)) }()
	processors, err := g.driver.DeviceAttribute(g.device, driver.MultiprocessorCount)
	if err != nil {
		return c, g.failed(err)
	}
	half := memory.bytes / 2
	launches, err := kernels.CopyCeiling(kernels.Pointer(memory.ptr), kernels.Pointer(memory.ptr.Add(half)), int(half/16))
	if err != nil {
		return c, err
	}
	seconds, err := g.best(ctx, ceilingRuns, launches...)
	if err != nil {
		return c, err
	}
	c.BytesPerSecond = 2 * float64(half) / seconds
	c.FLOPS, c.TensorBy, err = g.registers(ctx, device.F32, memory, 8*processors, ceilingIterations, ceilingRuns)
	if c.TensorFLOPS = c.FLOPS; err != nil || low == device.F32 && !tf32 {
		return c, err
	}
	if low != device.F32 {
		c.TensorFLOPS, c.TensorBy, err = g.registers(ctx, low, memory, 8*processors, ceilingIterations, ceilingRuns)
		if err != nil {
			return c, err
		}
	}
	if g.stack.CublasLt == nil {
		return c, nil
	}
	product, edge, err := g.product(ctx, low, memory, ceilingRuns)
	if err != nil {
		return c, err
	}
	if product > c.TensorFLOPS {
		c.TensorFLOPS, c.TensorBy = product, fmt.Sprintf("cuBLASLt, %d×%d×%d", edge, edge, edge)
	}
	return c, nil
}

// The matrices of the product that measures a ceiling, and the memory that cuBLASLt
// may use beside them.
const (
	productEdge      = 8192
	productWorkspace = 64 << 20
)

// product is cuBLASLt's speed with square matrices of low (TF32 of fp32), as large as
// memory allows, full of noise: zeros cost less power.
func (g *gpu) product(ctx context.Context, low device.Type, memory block, runs int) (flops float64, edge int64, err error) {
	typ := map[device.Type]cublaslt.DataType{device.F32: cublaslt.Float32, device.F16: cublaslt.Float16, device.BF16: cublaslt.BFloat16}[low]
	compute := cublaslt.ComputeFloat32
	if low == device.F32 {
		compute = cublaslt.ComputeTF32
	}
	edge = productEdge
	matrix := func() int64 { return edge * edge * int64(low.Size()) }
	limit := min(productWorkspace, memory.bytes/8/alignment*alignment)
	for edge > 64 && 3*matrix()+limit > memory.bytes {
		edge /= 2
	}
	if err := g.noise(block{memory.ptr, 2 * matrix()}, low); err != nil {
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
	seconds, err := g.bestOf(ctx, runs, &productCall{lt, h, plan, a, a.Add(matrix()), a.Add(2 * matrix()), a.Add(3 * matrix())})
	if err != nil {
		return 0, 0, err
	}
	n := float64(edge)
	return 2 * n * n * n / seconds, edge, nil
}

// best is the least time of launches in so many runs, in seconds.
func (g *gpu) best(ctx context.Context, runs int, launches ...kernels.Launch) (float64, error) {
	calls, err := g.calls(launches, nil)
	if err != nil {
		return 0, err
	}
	return g.bestOf(ctx, runs, calls...)
}

// bestOf is the least time of commands in so many runs, behind one that is not counted,
// in seconds.
func (g *gpu) bestOf(ctx context.Context, runs int, calls ...command) (seconds float64, err error) {
	var events [2]driver.Event
	for i := range events {
		if events[i], err = g.driver.EventCreate(driver.EventDefault); err != nil {
			return 0, g.failed(err)
		}
		defer func() { err = errors.Join(err, g.failed(g.driver.EventDestroy(events[i]))) }()
	}
	for run := range runs + 1 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := g.driver.EventRecord(events[0], g.compute); err != nil {
			return 0, g.failed(err)
		}
		if err := g.runAll(calls, g.compute); err != nil {
			return 0, err
		}
		if err := g.driver.EventRecord(events[1], g.compute); err != nil {
			return 0, g.failed(err)
		}
		if err := g.driver.EventSynchronize(events[1]); err != nil {
			return 0, g.failed(err)
		}
		ms, err := g.driver.EventElapsed(events[0], events[1])
		if err != nil {
			return 0, g.failed(err)
		}
		if s := float64(ms) / 1e3; run > 0 && s > 0 && (seconds == 0 || s < seconds) {
			seconds = s
		}
	}
	if seconds == 0 {
		return 0, errors.New("the GPU's clock stands still")
	}
	return seconds, nil
}
