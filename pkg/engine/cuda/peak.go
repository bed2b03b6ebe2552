package cuda

import (
	"context"
	"errors"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib/cublaslt"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
)

// Sizes of the measurement, which runs at the start of a training run and must be short.
const (
	peakIterations = 1 << 12
	peakRuns       = 3
)

// PeakFLOPS measures the speed of matrix products in the engine's precision, in floating-point
// operations per second. It times large matrices in cuBLASLt, if the library is available and
// there is enough memory, and products in registers with the engine's own kernel; the faster
// result counts. In fp32 without TF32 it times multiply-adds instead. The measurement takes
// about 20 ms. PeakFLOPS returns 0 if it fails.
func (e *Engine) PeakFLOPS() float64 {
	var flops float64
	_ = e.thread.do(func() (err error) { // the result is 0 if the engine is closed or the GPU is lost
		flops, err = e.gpu.measurePeakFLOPS(context.Background(), number.ActivationType(e.options.Precision), e.tf32)
		return err
	})
	return flops
}

// measurePeakFLOPS does the work of PeakFLOPS.
func (g *gpu) measurePeakFLOPS(ctx context.Context, low device.ElementType, tf32 bool) (flops float64, err error) {
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
	flops, err = g.measureRegisterFLOPS(ctx, low, memory, 8*processors)
	if err != nil || low == device.F32 && !tf32 || g.stack.CublasLt == nil {
		return flops, err
	}
	free, _, err := g.driver.MemGetInfo()
	if err != nil {
		return flops, g.explainLostGPU(err)
	}
	large := memoryBlock{bytes: min(3*productEdge*productEdge*int64(low.Size())+productWorkspace, free/2) / tensorAlignmentBytes * tensorAlignmentBytes}
	if g.allocate(&large) != nil {
		return flops, nil // training can go on without this measurement
	}
	defer func() { err = errors.Join(err, g.free(large)) }()
	product, err := g.measureMatmulFLOPS(ctx, low, large)
	return max(flops, product), err
}

// measureRegisterFLOPS measures arithmetic in registers: matrix products if low has 16
// bits, otherwise multiply-adds. It returns operations per second.
func (g *gpu) measureRegisterFLOPS(ctx context.Context, low device.ElementType, memory memoryBlock, blocks int) (flops float64, err error) {
	var c kernels.ThroughputTest
	if low == device.F32 {
		c, err = kernels.NewFMATest(kernels.Pointer(memory.ptr), blocks, peakIterations)
	} else {
		c, err = kernels.NewMMATest(number.KernelType(low), kernels.Pointer(memory.ptr), blocks, peakIterations)
	}
	if err != nil {
		return 0, err
	}
	calls, err := g.newKernelCalls([]kernels.Launch{c.Launch}, nil)
	if err != nil {
		return 0, err
	}
	seconds, err := g.minCommandSeconds(ctx, calls...)
	return c.FLOP / seconds, err
}

// Limits of the matrix product that measureMatmulFLOPS measures: the number of rows of the
// square matrices, and the size of cuBLASLt's workspace in bytes.
const (
	productEdge      = 8192
	productWorkspace = 64 << 20
)

// measureMatmulFLOPS measures cuBLASLt's product of square matrices of type low (TF32 for
// fp32). The matrices are as large as memory allows, up to productEdge rows, and contain
// noise, since zeros need less power. It returns operations per second.
func (g *gpu) measureMatmulFLOPS(ctx context.Context, low device.ElementType, memory memoryBlock) (flops float64, err error) {
	typ := map[device.ElementType]cublaslt.DataType{device.F32: cublaslt.Float32, device.F16: cublaslt.Float16, device.BF16: cublaslt.BFloat16}[low]
	compute := cublaslt.ComputeFloat32
	if low == device.F32 {
		compute = cublaslt.ComputeTF32
	}
	edge := int64(productEdge)
	matrix := func() int64 { return edge * edge * int64(low.Size()) }
	limit := min(productWorkspace, memory.bytes/8/tensorAlignmentBytes*tensorAlignmentBytes)
	for edge > 64 && 3*matrix()+limit > memory.bytes {
		edge /= 2
	}
	if err := g.fillNoise(memoryBlock{memory.ptr, 2 * matrix()}, low); err != nil {
		return 0, err
	}
	lt := g.stack.CublasLt
	h, err := lt.Create()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lt.Destroy(h)) }()
	plan, err := lt.Plan(h, cublaslt.Matmul{
		M: edge, N: edge, K: edge, TransA: true, TypeA: typ, TypeB: typ, TypeD: typ, LDA: edge, LDB: edge, LDD: edge,
		Compute: compute, WorkspaceLimit: limit,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lt.Close(plan)) }()
	a := memory.ptr
	seconds, err := g.minCommandSeconds(ctx, &matmulCall{lt, h, plan, a, a.Add(matrix()), a.Add(2 * matrix()), a.Add(3 * matrix())})
	if err != nil {
		return 0, err
	}
	n := float64(edge)
	return 2 * n * n * n / seconds, nil
}

// minCommandSeconds runs the commands peakRuns times and returns the shortest time in seconds.
// An additional first run does not count.
func (g *gpu) minCommandSeconds(ctx context.Context, calls ...command) (seconds float64, err error) {
	var events [2]driver.Event
	for i := range events {
		if events[i], err = g.driver.EventCreate(driver.EventDefault); err != nil {
			return 0, g.explainLostGPU(err)
		}
		defer func() { err = errors.Join(err, g.explainLostGPU(g.driver.EventDestroy(events[i]))) }()
	}
	for run := range peakRuns + 1 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := g.driver.EventRecord(events[0], g.compute); err != nil {
			return 0, g.explainLostGPU(err)
		}
		if err := g.enqueueCommands(calls, g.compute); err != nil {
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
