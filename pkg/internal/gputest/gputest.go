// Package gputest starts CUDA engines on simulated GPUs, for tests of packages that
// train on an engine. The GPUs' kernels run on this processor.
package gputest

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/engine/cuda/kernels/hostsim"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/stack"
)

// Opener starts an engine for the worker of that number on its machine.
type Opener func(o engine.Options, localRank int) (engine.Engine, error)

// kernels are the GPU's kernels, compiled for this processor once.
var kernels = sync.OnceValues(func() (*hostsim.Simulator, error) { return hostsim.Open(context.Background()) })

// Shared returns an Opener of engines on one simulated GPU, which all workers share. It
// skips the test if the machine has no C++ compiler.
func Shared(t *testing.T) Opener {
	t.Helper()
	needKernels(t)
	m := clibtest.New(clibtest.Options{Execute: Execute})
	return func(o engine.Options, localRank int) (engine.Engine, error) { return on(m, o, localRank) }
}

// Each returns an Opener of engines on simulated machines: each worker has one of its
// own, as processes have CUDA contexts of their own, with n GPUs. With one GPU all
// workers have the same GPU, with more each worker has another. It skips the test if
// the machine has no C++ compiler.
func Each(t *testing.T, n int) Opener {
	t.Helper()
	needKernels(t)
	network := clibtest.NewNetwork()
	return func(o engine.Options, localRank int) (engine.Engine, error) {
		return on(clibtest.New(clibtest.Options{Execute: Execute, Devices: n, Network: network}), o, localRank)
	}
}

func on(m *clibtest.Machine, o engine.Options, localRank int) (engine.Engine, error) {
	s, err := m.Stack()
	if err != nil {
		return nil, err
	}
	return cuda.NewWithLibraries(s, os.Getenv, o, localRank)
}

// needKernels compiles the kernels, and turns the file of tuning results off.
func needKernels(t *testing.T) {
	t.Helper()
	t.Setenv("LOCKSTEP_TUNING_CACHE", "off")
	_, err := kernels()
	if errors.Is(err, hostsim.ErrNoCompiler) {
		t.Skip("no C++ compiler to run the kernels on this processor with:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Execute runs a kernel on this processor; it is for clibtest.Options.
func Execute(name string, grid, block [3]uint32, shared uint32, args []byte) error {
	if strings.Contains(name, "ceiling") {
		return nil // what measures a GPU takes a processor long
	}
	sim, err := kernels()
	if err != nil {
		return err
	}
	return sim.Run(name, grid, block, shared, args)
}

// NothingRepeats makes every algorithm of the stack's cuDNN one whose results may differ
// from run to run.
func NothingRepeats(s *stack.Stack) {
	get := s.CUDNN.GetAttribute
	s.CUDNN.GetAttribute = func(d cudnn.Descriptor, name cudnn.Attribute, typ cudnn.AttributeType, want int64, got *int64, values unsafe.Pointer) cudnn.Status {
		if name == cudnn.AttrEngineNumerical {
			*(*int32)(values), *got = cudnn.NoteNondeterministic, 1
			return cudnn.Success
		}
		return get(d, name, typ, want, got, values)
	}
}
