// Package gputest starts CUDA engines on simulated GPUs, for tests of packages that train on
// an engine. The kernels are compiled for the CPU.
package gputest

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/engine/cuda/kernels/hostsim"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/stack"
)

// EngineOpener starts an engine for the worker with the given local rank.
type EngineOpener func(o engine.Options, localRank int) (engine.Engine, error)

// NewSharedOpener returns an EngineOpener for workers that share one simulated GPU. It skips the
// test if the machine has no C++ compiler.
func NewSharedOpener(t *testing.T) EngineOpener {
	t.Helper()
	compileKernelsOrSkip(t)
	m := clibtest.New(clibtest.Options{Execute: ExecuteKernel})
	return func(o engine.Options, localRank int) (engine.Engine, error) {
		return openSimulatedEngine(m, o, localRank)
	}
}

// NewPerWorkerOpener returns an EngineOpener for workers in separate processes. Each worker has
// its own simulated machine with n GPUs. If n is 1, every worker uses GPU 0; otherwise, each uses
// a different GPU. NewPerWorkerOpener skips the test if the machine has no C++ compiler.
func NewPerWorkerOpener(t *testing.T, n int) EngineOpener {
	t.Helper()
	compileKernelsOrSkip(t)
	network := clibtest.NewNCCLNetwork()
	return func(o engine.Options, localRank int) (engine.Engine, error) {
		return openSimulatedEngine(clibtest.New(clibtest.Options{Execute: ExecuteKernel, Devices: n, Network: network}), o, localRank)
	}
}

func openSimulatedEngine(m *clibtest.Machine, o engine.Options, localRank int) (engine.Engine, error) {
	s, err := m.OpenStack()
	if err != nil {
		return nil, err
	}
	return cuda.NewWithLibraries(s, os.Getenv, o, localRank)
}

// compileKernelsOrSkip compiles the kernels for the CPU and disables the tuning cache. It skips the
// test under -short, or if there is no C++ compiler.
func compileKernelsOrSkip(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
	t.Setenv("LOCKSTEP_TUNING_CACHE", "off")
	_, err := hostsim.OpenShared()
	if errors.Is(err, hostsim.ErrNoCompiler) {
		t.Skip("no C++ compiler to run the kernels on this processor with:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ExecuteKernel runs a kernel on the CPU. It is a clibtest.Executor.
func ExecuteKernel(name string, grid, block [3]uint32, shared uint32, args []byte) error {
	if strings.Contains(name, "ceiling") {
		return nil // kernels that measure the speed of a GPU would take long on a CPU
	}
	sim, err := hostsim.OpenShared()
	if err != nil {
		return err
	}
	return sim.Run(name, grid, block, shared, args)
}

// MarkEnginesNondeterministic marks every engine of the stack's cuDNN as nondeterministic.
func MarkEnginesNondeterministic(s *stack.Stack) {
	get := s.CUDNN.GetAttribute
	s.CUDNN.GetAttribute = func(d cudnn.Descriptor, name cudnn.Attribute, typ cudnn.AttributeType, want int64, got *int64, values unsafe.Pointer) cudnn.Status {
		if name == cudnn.AttrEngineNumerical {
			*(*int32)(values), *got = cudnn.NoteNondeterministic, 1
			return cudnn.Success
		}
		return get(d, name, typ, want, got, values)
	}
}
