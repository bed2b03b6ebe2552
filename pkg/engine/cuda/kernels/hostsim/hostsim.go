// Package hostsim runs the GPU kernels of package kernels on the host, for tests without a
// GPU. It compiles the kernels' source with g++, after a header that replaces CUDA's
// extensions of C++.
//
// The threads of a block run one at a time on one OS thread, in a fixed order, and switch
// only at barriers and shuffles. Shared memory is filled with NaN at first and ends at a
// guard page. Accesses outside of memory, misaligned accesses, undefined operations, and
// barriers that some thread never reaches are reported as errors that name the block and
// the thread. If blocks and threads run in the opposite order (Reversed), the results must
// have the same bits; otherwise a barrier is missing.
//
// The simulation cannot show all races between blocks, only those that depend on the order
// of execution. It cannot show how the device rounds exp and log, nor its speed.
package hostsim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"lockstep/pkg/engine/cuda/kernels"
)

// ErrNoCompiler is returned if the kernels cannot be compiled, because g++ is missing or
// the operating system is not Linux. Tests should be skipped then.
var ErrNoCompiler = errors.New("no g++ on this machine")

const maxThreadsPerBlock = 1024

// Simulator runs kernels on the host, one at a time. Several goroutines may use it.
type Simulator struct {
	// Reversed makes blocks and threads run from the last to the first, to find results that
	// depend on their order.
	Reversed bool

	kernels map[string]kernels.Kernel
	library *kernelLibrary
	mu      sync.Mutex
}

// Open compiles kernels.Source(types...), or loads it from the user's cache folder.
func Open(ctx context.Context, types ...kernels.ElementType) (*Simulator, error) {
	list := kernels.ListKernels(types...)
	lib, err := buildLibrary(ctx, kernels.Source(types...), list)
	if err != nil {
		return nil, fmt.Errorf("open simulated device: %w", err)
	}
	s := &Simulator{library: lib, kernels: map[string]kernels.Kernel{}}
	for _, k := range list {
		s.kernels[k.Name] = k
	}
	return s, nil
}

// OpenShared returns a simulator with the kernels for all element types. All calls return the
// same simulator.
var OpenShared = sync.OnceValues(func() (*Simulator, error) { return Open(context.Background()) })

// Launch runs the kernel launch l and waits for its end.
func (s *Simulator) Launch(l kernels.Launch) error {
	return s.Run(l.Kernel, l.Grid, l.Block, l.Shared, l.Args)
}

// Run runs the kernel with the given name and waits for its end. Pointers in args are
// addresses in this process, from Alloc or from the simulated driver of package clibtest.
// They must stay valid until Run returns.
func (s *Simulator) Run(name string, grid, block [3]uint32, shared uint32, args []byte) error {
	k, ok := s.kernels[name]
	if !ok {
		return fmt.Errorf("run kernel %s: unknown kernel", name)
	}
	if _, size := k.Offsets(); len(args) != size {
		return fmt.Errorf("run kernel %s: got %d bytes of arguments, want %d", name, len(args), size)
	}
	threads := uint64(1)
	for i := range 3 {
		threads *= uint64(block[i])
		limit := uint32(65535)
		if i == 0 {
			limit = 1<<31 - 1
		}
		if grid[i] < 1 || grid[i] > limit {
			return fmt.Errorf("run kernel %s: invalid grid %v", name, grid)
		}
	}
	if threads < 1 || threads > maxThreadsPerBlock {
		return fmt.Errorf("run kernel %s: block %v has %d threads, want 1 to %d", name, block, threads, maxThreadsPerBlock)
	}
	if shared > 48<<10 {
		return fmt.Errorf("run kernel %s: %d bytes of shared memory exceed the default limit of 48 kB", name, shared)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.library.run(name, grid, block, shared, args, s.Reversed)
}

// ParamSizes returns the size of each parameter of a kernel in bytes, as the compiler sees it.
func (s *Simulator) ParamSizes(name string) ([]int, error) {
	sizes := make([]uint32, 64)
	n := s.library.paramSizes(name, &sizes[0], int32(len(sizes)))
	if n < 0 {
		return nil, fmt.Errorf("look up kernel %s: unknown kernel", name)
	}
	var out []int
	for _, b := range sizes[:n] {
		out = append(out, int(b))
	}
	return out, nil
}

type kernelLibrary struct {
	runKernel  func(name string, grid, block *uint32, shared uint32, args unsafe.Pointer, reverse int32, message unsafe.Pointer, size uintptr) int32
	paramSizes func(name string, sizes *uint32, most int32) int32
}

func (l *kernelLibrary) run(name string, grid, block [3]uint32, shared uint32, args []byte, reverse bool) error {
	message := make([]byte, 512)
	order := int32(0)
	if reverse {
		order = 1
	}
	failed := l.runKernel(name, &grid[0], &block[0], shared, unsafe.Pointer(unsafe.SliceData(args)), order, unsafe.Pointer(&message[0]), uintptr(len(message)))
	runtime.KeepAlive(args)
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("run kernel %s: %s", name, textBeforeNUL(message))
}

func textBeforeNUL(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
