package cuda

import (
	"fmt"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib/cublaslt"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// command is an operation on the GPU with fixed arguments. It can run at once or be captured in
// a CUDA graph.
type command interface {
	run(g *gpu, s driver.Stream) error
	label() string
}

type taskCommand struct {
	command
	layer string
	task  int
}

// kernelCall launches one of the engine's own kernels.
type kernelCall struct {
	kernels.Launch
	function driver.Function
}

func (c *kernelCall) run(g *gpu, s driver.Stream) error {
	err := g.driver.LaunchKernel(c.function, c.Grid, c.Block, c.Shared, s, c.Args)
	if err != nil {
		return g.explainLostGPU(fmt.Errorf("launch %s: %w", c.Kernel, err))
	}
	return nil
}

func (c *kernelCall) label() string { return c.Kernel }

// newKernelCalls converts launches to commands. It returns err if that is not nil, so that
// callers can pass the results of a function that returns launches and an error.
func (g *gpu) newKernelCalls(list []kernels.Launch, err error) ([]command, error) {
	if err != nil {
		return nil, err
	}
	var out []command
	for _, l := range list {
		f, ok := g.functions[l.Kernel]
		if !ok {
			return nil, fmt.Errorf("launch %s: the kernel is not loaded", l.Kernel)
		}
		out = append(out, &kernelCall{l, f})
	}
	return out, nil
}

// cudnnPlanCall runs a cuDNN plan. It always runs in the compute stream, which is the stream of
// the cuDNN handle.
type cudnnPlanCall struct {
	name string
	plan *cudnn.Plan
	pack *cudnn.VariantPack
}

func (c *cudnnPlanCall) run(g *gpu, _ driver.Stream) error {
	if err := g.cudnn.Run(g.dnn, c.plan, c.pack); err != nil {
		return g.explainLostGPU(fmt.Errorf("run %s: %w", c.name, err))
	}
	return nil
}

func (c *cudnnPlanCall) label() string { return "cudnn " + c.name }

type copyWithinGPUCall struct {
	dst, src driver.Ptr
	bytes    int64
}

func (c *copyWithinGPUCall) run(g *gpu, s driver.Stream) error {
	return g.explainLostGPU(g.driver.MemcpyDtoDAsync(c.dst, c.src, c.bytes, s))
}

func (c *copyWithinGPUCall) label() string { return "copy" }

type clearMemoryCall struct {
	dst   driver.Ptr
	bytes int64
}

func (c *clearMemoryCall) run(g *gpu, s driver.Stream) error {
	return g.explainLostGPU(g.driver.MemsetD8Async(c.dst, 0, c.bytes, s))
}

func (c *clearMemoryCall) label() string { return "clear" }

type copyToHostCall struct {
	dst   pinnedMemory
	src   driver.Ptr
	bytes int64
}

func (c *copyToHostCall) run(g *gpu, s driver.Stream) error {
	return g.explainLostGPU(g.driver.MemcpyDtoHAsync(c.dst.ptr, c.src, c.bytes, s))
}

func (c *copyToHostCall) label() string { return "copy to the host" }

type copyToGPUCall struct {
	dst   driver.Ptr
	src   pinnedMemory
	bytes int64
}

func (c *copyToGPUCall) run(g *gpu, s driver.Stream) error {
	return g.explainLostGPU(g.driver.MemcpyHtoDAsync(c.dst, c.src.ptr, c.bytes, s))
}

func (c *copyToGPUCall) label() string { return "copy to the GPU" }

// matmulCall runs a cuBLASLt matrix product: d = a·b.
type matmulCall struct {
	library            *cublaslt.Library
	handle             cublaslt.Handle
	plan               *cublaslt.Plan
	a, b, d, workspace driver.Ptr
}

func (c *matmulCall) run(g *gpu, s driver.Stream) error {
	return g.explainLostGPU(c.library.Run(c.handle, c.plan, c.a, c.b, c.d, c.workspace, s))
}

func (c *matmulCall) label() string { return "cublasLt product" }

func (g *gpu) enqueueCommands(list []command, s driver.Stream) error {
	for _, c := range list {
		if err := c.run(g, s); err != nil {
			return err
		}
	}
	return nil
}
