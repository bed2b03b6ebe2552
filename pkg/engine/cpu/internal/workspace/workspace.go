package workspace

import (
	"math"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/threads"
)

// ChunkPixels is the number of pixels that are added up in float32 before the
// sum goes on in float64.
const ChunkPixels = 512

// PieceFloats is the number of floats of an item of elementwise work.
const PieceFloats = 8 * 1024

// Workspace is the memory that all kernels of an executable share. At load the
// kernels ask for what they need; allocate then makes it.
type Workspace struct {
	Set      *kernel.Set
	Threads  int
	Shared   []float32                              // scratch of the kernel that runs
	Tallies  []float32                              // statistics of the output of the kernel that runs, for the next
	Moments  []float64                              // what synchronized batch norms exchange
	Zeros    []float32                              // kernel.MaxBlocks blocks
	Identity []float32                              // constants that normalise to the same value
	need     struct{ scratch, shared, tallies int } // floats; scratch is per worker
}

// newWorkspace returns a workspace for so many threads.
func New(set *kernel.Set, threads int) *Workspace {
	w := &Workspace{Set: set, Threads: threads, Zeros: kernel.AlignedFloats(kernel.MaxBlocks * kernel.Lanes), Identity: kernel.AlignedFloats(kernel.NormFloats)}
	for i := range kernel.Lanes {
		kernel.SetNorm(w.Identity, i, 1, 0, float32(math.Inf(-1)))
	}
	return w
}

// NeedScratch asks for n floats of scratch memory for each worker.
func (w *Workspace) NeedScratch(n int) { w.need.scratch = max(w.need.scratch, n) }

// NeedTallies asks for n floats for the statistics of one kernel's output.
func (w *Workspace) NeedTallies(n int) { w.need.tallies = max(w.need.tallies, n) }

// NeedMoments asks for n numbers for the statistics of one batch norm.
func (w *Workspace) NeedMoments(n int) {
	w.Moments = append(w.Moments, make([]float64, max(0, n-len(w.Moments)))...)
}

// NeedShared asks for n floats of scratch memory for a kernel as a whole.
func (w *Workspace) NeedShared(n int) { w.need.shared = max(w.need.shared, n) }

// Allocate makes the memory that the kernels have asked for, and returns the
// workers with theirs.
func (w *Workspace) Allocate() []threads.Worker {
	workers := make([]threads.Worker, w.Threads)
	for i := range workers {
		workers[i].Number, workers[i].Scratch = i, kernel.AlignedFloats(w.need.scratch)
	}
	w.Shared = kernel.AlignedFloats(w.need.shared)
	w.Tallies = kernel.AlignedFloats(w.need.tallies)
	return workers
}

// Bytes returns the size of the memory, without that of the workers.
func (w *Workspace) Bytes() int64 {
	return 4*int64(len(w.Shared)+len(w.Tallies)+len(w.Zeros)+len(w.Identity)) + 8*int64(len(w.Moments))
}

// Release drops the memory that allocate has made.
func (w *Workspace) Release() { w.Shared, w.Tallies, w.Moments = nil, nil, nil }
