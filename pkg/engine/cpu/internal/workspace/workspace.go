package workspace

import (
	"math"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/threads"
)

// MaxFloat32SumPixels is the greatest number of pixels whose sum is computed in float32. The
// sums of chunks are added in float64.
const MaxFloat32SumPixels = 512

// TaskItemFloats is the number of floats that an item of an elementwise task processes.
const TaskItemFloats = 8 * 1024

// Workspace is the memory that all operations of an executable share. While a program is
// loaded, the Reserve methods record sizes for Allocate.
type Workspace struct {
	Set      *kernel.Set
	Threads  int
	Shared   []float32                                 // scratch memory of the running kernel
	Partial  []float32                                 // Statistics of the running kernel's output, for the next kernel
	Moments  []float64                                 // sums of one batch norm, which a synchronized one exchanges
	Zeros    []float32                                 // kernel.MaxBlocks blocks of zeros
	Identity []float32                                 // constants with which Set.Normalize changes nothing
	need     struct{ scratch, shared, statistics int } // in floats; scratch for each worker
}

// New returns a workspace for the given instruction set and number of threads.
func New(set *kernel.Set, threads int) *Workspace {
	w := &Workspace{Set: set, Threads: threads, Zeros: kernel.NewAlignedFloats(kernel.MaxBlocks * kernel.Lanes), Identity: kernel.NewAlignedFloats(kernel.NormConstantFloats)}
	for i := range kernel.Lanes {
		kernel.SetNormConstants(w.Identity, i, 1, 0, float32(math.Inf(-1)))
	}
	return w
}

// ReserveScratch reserves at least n floats of scratch memory for each worker.
func (w *Workspace) ReserveScratch(n int) { w.need.scratch = max(w.need.scratch, n) }

// ReserveStatistics reserves at least n floats for the statistics of an operation's output.
func (w *Workspace) ReserveStatistics(n int) { w.need.statistics = max(w.need.statistics, n) }

// ReserveNormMoments reserves at least n numbers for the sums of a batch norm.
func (w *Workspace) ReserveNormMoments(n int) {
	w.Moments = append(w.Moments, make([]float64, max(0, n-len(w.Moments)))...)
}

// ReserveSharedScratch reserves at least n floats of scratch memory that all workers share.
func (w *Workspace) ReserveSharedScratch(n int) { w.need.shared = max(w.need.shared, n) }

// Allocate allocates the reserved memory and returns one worker per thread.
func (w *Workspace) Allocate() []threads.Worker {
	workers := make([]threads.Worker, w.Threads)
	for i := range workers {
		workers[i].Number, workers[i].Scratch = i, kernel.NewAlignedFloats(w.need.scratch)
	}
	w.Shared = kernel.NewAlignedFloats(w.need.shared)
	w.Partial = kernel.NewAlignedFloats(w.need.statistics)
	return workers
}

// Bytes returns the size of the memory in bytes, without the scratch memory of the workers.
func (w *Workspace) Bytes() int64 {
	return 4*int64(len(w.Shared)+len(w.Partial)+len(w.Zeros)+len(w.Identity)) + 8*int64(len(w.Moments))
}

// Release drops the workspace's memory, so that the garbage collector can free it.
func (w *Workspace) Release() { w.Shared, w.Partial, w.Moments = nil, nil, nil }
