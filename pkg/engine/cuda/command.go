package cuda

import (
	"fmt"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib/cublaslt"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// command is an operation that can be enqueued in a stream. All its arguments are fixed, so
// it can be run at once or captured in a graph.
type command interface {
	run(g *gpu, s driver.Stream) error
	label() string
}

// named is a command with the layer and the task that it belongs to.
type named struct {
	command
	layer string
	task  int
}

// kernelCall launches one of our kernels.
type kernelCall struct {
	kernels.Launch
	function driver.Function
}

func (c *kernelCall) run(g *gpu, s driver.Stream) error {
	err := g.driver.LaunchKernel(c.function, c.Grid, c.Block, c.Shared, s, c.Args)
	if err != nil {
		return g.failed(fmt.Errorf("launch %s: %w", c.Kernel, err))
	}
	return nil
}

func (c *kernelCall) label() string { return c.Kernel }

// calls turns launches into commands. It returns err if that is not nil, so that a function
// that returns launches and an error can be its argument.
func (g *gpu) calls(list []kernels.Launch, err error) ([]command, error) {
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

// planCall executes one of cuDNN's plans. It runs in the stream of the cuDNN handle, which
// is the compute stream.
type planCall struct {
	name string
	plan *cudnn.Plan
	pack *cudnn.Pack
}

func (c *planCall) run(g *gpu, _ driver.Stream) error {
	if err := g.cudnn.Run(g.dnn, c.plan, c.pack); err != nil {
		return g.failed(fmt.Errorf("run %s: %w", c.name, err))
	}
	return nil
}

func (c *planCall) label() string { return "cudnn " + c.name }

// copyCall copies bytes within the GPU's memory.
type copyCall struct {
	dst, src driver.Ptr
	bytes    int64
}

func (c *copyCall) run(g *gpu, s driver.Stream) error {
	return g.failed(g.driver.MemcpyDtoDAsync(c.dst, c.src, c.bytes, s))
}

func (c *copyCall) label() string { return "copy" }

// clearCall sets bytes to zero.
type clearCall struct {
	dst   driver.Ptr
	bytes int64
}

func (c *clearCall) run(g *gpu, s driver.Stream) error {
	return g.failed(g.driver.MemsetD8Async(c.dst, 0, c.bytes, s))
}

func (c *clearCall) label() string { return "clear" }

// copyToHost copies from the GPU to page-locked host memory.
type copyToHost struct {
	dst   pinned
	src   driver.Ptr
	bytes int64
}

func (c *copyToHost) run(g *gpu, s driver.Stream) error {
	return g.failed(g.driver.MemcpyDtoHAsync(c.dst.ptr, c.src, c.bytes, s))
}

func (c *copyToHost) label() string { return "copy to the host" }

// upCall copies from page-locked host memory to the GPU.
type upCall struct {
	dst   driver.Ptr
	src   pinned
	bytes int64
}

func (c *upCall) run(g *gpu, s driver.Stream) error {
	return g.failed(g.driver.MemcpyHtoDAsync(c.dst, c.src.ptr, c.bytes, s))
}

func (c *upCall) label() string { return "copy to the GPU" }

// productCall runs one of cuBLASLt's matrix products.
type productCall struct {
	library            *cublaslt.Library
	handle             cublaslt.Handle
	plan               *cublaslt.Plan
	a, b, d, workspace driver.Ptr
}

func (c *productCall) run(g *gpu, s driver.Stream) error {
	return g.failed(c.library.Run(c.handle, c.plan, c.a, c.b, c.d, c.workspace, s))
}

func (c *productCall) label() string { return "cublasLt product" }

// runAll enqueues commands in a stream.
func (g *gpu) runAll(list []command, s driver.Stream) error {
	for _, c := range list {
		if err := c.run(g, s); err != nil {
			return err
		}
	}
	return nil
}
