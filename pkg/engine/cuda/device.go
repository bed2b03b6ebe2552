package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/stack"
	"lockstep/pkg/internal/device"
)

// gpu is a GPU with its resources. Its methods must be called on the engine's thread.
type gpu struct {
	driver *driver.Driver
	cudnn  *cudnn.Library
	stack  *stack.Stack

	number     int
	name       string // "NVIDIA H200"
	uuid       [16]byte
	capability int // 90 for 9.0
	device     driver.Device
	context    driver.Context // the primary context
	modules    []driver.Module
	functions  map[string]driver.Function
	dnn        cudnn.Handle

	// The streams: compute runs kernels, copies transfers inputs to the GPU, and exchange
	// exchanges gradients with other workers.
	compute, copies, exchange driver.Stream
	allocated                 int64
	profile                   profiler
	lost                      error // the error that made the device unusable, or nil
}

// openGPU creates the context and the streams, loads the kernels for the given element
// types, and initializes cuDNN. It caches the kernels' machine code in folder unless that
// is empty.
func openGPU(s *stack.Stack, number int, types []kernels.ElementType, folder string) (*gpu, error) {
	g := &gpu{driver: s.Driver, cudnn: s.CUDNN, stack: s, number: number, functions: map[string]driver.Function{}}
	if err := g.open(types, folder); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// open does the work of openGPU. If it returns an error, the caller must call close.
func (g *gpu) open(types []kernels.ElementType, folder string) error {
	d := g.driver
	n, err := d.DeviceCount()
	if err != nil {
		return err
	}
	if g.number >= n {
		return fmt.Errorf("unknown GPU %d: this process can use %d GPUs, numbered from 0 (CUDA_VISIBLE_DEVICES may hide others)", g.number, n)
	}
	if g.device, err = d.DeviceGet(g.number); err != nil {
		return err
	}
	if g.name, err = d.DeviceName(g.device); err != nil {
		return err
	}
	if g.uuid, err = d.DeviceUUID(g.device); err != nil {
		return err
	}
	major, err1 := d.DeviceAttribute(g.device, driver.ComputeCapabilityMajor)
	minor, err2 := d.DeviceAttribute(g.device, driver.ComputeCapabilityMinor)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	g.capability = 10*major + minor
	if g.capability < 80 {
		return fmt.Errorf("%s has compute capability %d.%d, want 8.0 (Ampere, such as A100) or later", g.name, major, minor)
	}
	// cuDNN and NCCL use the primary context too. It is never released, because that would
	// destroy their resources, and another engine may start in this process.
	if g.context, err = d.PrimaryCtxRetain(g.device); err != nil {
		return err
	}
	if err := d.CtxSetCurrent(g.context); err != nil {
		return err
	}
	_, greatest, err := d.StreamPriorities()
	if err != nil {
		return err
	}
	for _, s := range []struct {
		stream   *driver.Stream
		priority int
	}{
		{&g.compute, 0},
		{&g.copies, 0},
		// A hint to start kernels of this stream, for which other ranks may wait, before
		// waiting kernels of the backward pass. Its effect has not been measured.
		{&g.exchange, greatest},
	} {
		if *s.stream, err = d.StreamCreate(driver.StreamNonBlocking, s.priority); err != nil {
			return err
		}
	}
	if err := g.loadKernels(types, folder); err != nil {
		return err
	}
	if g.dnn, err = g.cudnn.Create(); err != nil {
		return err
	}
	return g.cudnn.SetStream(g.dnn, g.compute)
}

// loadKernels compiles and loads the kernels, or reads their machine code from folder.
func (g *gpu) loadKernels(types []kernels.ElementType, folder string) error {
	c, err := newKernelCompiler(g.stack, folder)
	if err != nil {
		return err
	}
	images, err := c.compile(kernels.Units(types...), g.capability)
	if err != nil {
		return fmt.Errorf("compile the engine's kernels: %w", err)
	}
	for _, image := range images {
		m, err := g.driver.ModuleLoadData(image)
		if err != nil {
			return fmt.Errorf("load the engine's kernels: %w", err)
		}
		g.modules = append(g.modules, m)
	}
	for _, k := range kernels.ListKernels(types...) {
		if err := g.loadFunction(k.Name); err != nil {
			return fmt.Errorf("load kernel %s: %w", k.Name, err)
		}
	}
	return nil
}

// loadFunction searches the loaded modules for a kernel.
func (g *gpu) loadFunction(name string) (err error) {
	for _, m := range g.modules {
		if g.functions[name], err = g.driver.ModuleGetFunction(m, name); !errors.Is(err, driver.ErrorNotFound) {
			return err
		}
	}
	return err
}

// close releases all resources of the GPU that were created.
func (g *gpu) close() error {
	var errs []error
	d := g.driver
	if g.dnn != 0 {
		errs = append(errs, g.cudnn.Destroy(g.dnn))
	}
	for _, m := range g.modules {
		errs = append(errs, d.ModuleUnload(m))
	}
	for _, s := range []driver.Stream{g.compute, g.copies, g.exchange} {
		if s != 0 {
			errs = append(errs, d.StreamDestroy(s))
		}
	}
	if g.lost != nil {
		return nil // the resources of a lost device cannot be freed
	}
	return errors.Join(errs...)
}

// synchronize waits until all work in the three streams is done.
func (g *gpu) synchronize() error {
	for _, s := range []driver.Stream{g.copies, g.compute, g.exchange} {
		if err := g.driver.StreamSynchronize(s); err != nil {
			return g.explainLostGPU(err)
		}
	}
	return nil
}

// explainLostGPU checks whether err shows that the GPU is lost. If so, it returns an error that
// explains the loss, and stores that error in g.lost. Otherwise it returns err.
func (g *gpu) explainLostGPU(err error) error {
	if err == nil {
		return nil
	}
	var e *driver.Error
	if errors.As(err, &e) && e.Result.IsContextLost() {
		if g.lost == nil {
			g.lost = fmt.Errorf("GPU %d (%s) is lost: every further call to it fails until this process ends; start again from the last checkpoint (--resume), and if it happens again run nvidia-smi -q and look for ECC or Xid errors: %w", g.number, g.name, err)
		}
		return g.lost
	}
	return err
}

func cudnnType(t device.ElementType) cudnn.DataType {
	switch t {
	case device.F16:
		return cudnn.Float16
	case device.BF16:
		return cudnn.BFloat16
	}
	return cudnn.Float32
}
