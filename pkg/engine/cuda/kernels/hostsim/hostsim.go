// Package hostsim runs the GPU kernels of package kernels on the host, for tests
// without a GPU: their own source, compiled by g++ after a header that stands in
// for what CUDA adds to C++.
//
// A block's threads take turns on one OS thread, in a fixed order, and change at
// barriers and shuffles only; shared memory is poisoned with NaN and ends at a
// guard page. An access outside of memory, a misaligned one, an undefined operation
// or a barrier that a thread never reaches comes back as an error that names block
// and thread. Running the blocks and threads in the opposite order (Reversed) must
// give the same bits: where it does not, a barrier is missing.
//
// What it cannot show: races between blocks beyond those that an order of execution
// shows, the device's own rounding of exp and log, and speed.
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

// ErrNoCompiler says that the kernels cannot be compiled here: no g++, or no
// system that this package knows. Tests skip then.
var ErrNoCompiler = errors.New("no g++ on this machine")

// maxThreads is how many threads a block may have, as on the device.
const maxThreads = 1024

// Simulator runs kernels. It may be used by several goroutines; launches take
// turns.
type Simulator struct {
	// Reversed runs blocks and threads from the last to the first.
	Reversed bool

	kernels map[string]kernels.Kernel
	library *library
	mu      sync.Mutex
}

// Open compiles kernels.Source(types...), or finds it compiled in the user's cache
// folder.
func Open(ctx context.Context, types ...kernels.Type) (*Simulator, error) {
	list := kernels.List(types...)
	lib, err := build(ctx, kernels.Source(types...), list)
	if err != nil {
		return nil, fmt.Errorf("open simulated device: %w", err)
	}
	s := &Simulator{library: lib, kernels: map[string]kernels.Kernel{}}
	for _, k := range list {
		s.kernels[k.Name] = k
	}
	return s, nil
}

// Launch runs l.
func (s *Simulator) Launch(l kernels.Launch) error {
	return s.Run(l.Kernel, l.Grid, l.Block, l.Shared, l.Args)
}

// Run runs the kernel of that name to its end. Pointers in args are addresses of
// this process, which must stay valid meanwhile (Alloc, or memory of a clibtest
// driver's own).
func (s *Simulator) Run(name string, grid, block [3]uint32, shared uint32, args []byte) error {
	k, ok := s.kernels[name]
	if !ok {
		return fmt.Errorf("run kernel %s: there is no such kernel", name)
	}
	if _, size := k.Offsets(); len(args) != size {
		return fmt.Errorf("run kernel %s: %d bytes of arguments, want %d", name, len(args), size)
	}
	threads := uint64(1)
	for i := range 3 {
		threads *= uint64(block[i])
		limit := uint32(65535)
		if i == 0 {
			limit = 1<<31 - 1
		}
		if grid[i] < 1 || grid[i] > limit {
			return fmt.Errorf("run kernel %s: a grid of %v", name, grid)
		}
	}
	if threads < 1 || threads > maxThreads {
		return fmt.Errorf("run kernel %s: a block of %v is %d threads: 1 to %d can be", name, block, threads, maxThreads)
	}
	if shared > 48<<10 {
		return fmt.Errorf("run kernel %s: %d bytes of shared memory: more than 48 kB must be asked for", name, shared)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.library.run(name, grid, block, shared, args, s.Reversed)
}

// Params are the sizes of the kernel's parameters, in bytes, as the compiler sees
// them.
func (s *Simulator) Params(name string) ([]int, error) {
	sizes := make([]uint32, 64)
	n := s.library.params(name, &sizes[0], int32(len(sizes)))
	if n < 0 {
		return nil, fmt.Errorf("look up kernel %s: there is no such kernel", name)
	}
	var out []int
	for _, b := range sizes[:n] {
		out = append(out, int(b))
	}
	return out, nil
}

// library is the compiled source.
type library struct {
	runKernel func(name string, grid, block *uint32, shared uint32, args unsafe.Pointer, reverse int32, message unsafe.Pointer, size uintptr) int32
	params    func(name string, sizes *uint32, most int32) int32
}

func (l *library) run(name string, grid, block [3]uint32, shared uint32, args []byte, reverse bool) error {
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
	return fmt.Errorf("run kernel %s: %s", name, cString(message))
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
