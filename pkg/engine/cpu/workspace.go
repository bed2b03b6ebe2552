package cpu

import (
	"math"

	"lockstep/pkg/engine/cpu/internal/kernel"
)

// chunkPixels is the number of pixels that are added up in float32 before the
// sum goes on in float64.
const chunkPixels = 512

// pieceFloats is the number of floats of an item of elementwise work.
const pieceFloats = 8 * 1024

// workspace is the memory that all kernels of an executable share. At load the
// kernels ask for what they need; allocate then makes it.
type workspace struct {
	set     *kernel.Set
	threads int
	shared  []float32                              // scratch of the kernel that runs
	tallies []float32                              // statistics of the output of the kernel that runs, for the next
	moments []float64                              // what synchronized batch norms exchange
	zeros   []float32                              // kernel.MaxBlocks blocks
	same    []float32                              // constants that normalise to the same value
	need    struct{ scratch, shared, tallies int } // floats; scratch is per worker
}

// newWorkspace returns a workspace for so many threads.
func newWorkspace(set *kernel.Set, threads int) *workspace {
	w := &workspace{set: set, threads: threads, zeros: kernel.AlignedFloats(kernel.MaxBlocks * kernel.Lanes), same: kernel.AlignedFloats(kernel.NormFloats)}
	for i := range kernel.Lanes {
		kernel.SetNorm(w.same, i, 1, 0, float32(math.Inf(-1)))
	}
	return w
}

// needScratch asks for n floats of scratch memory for each worker.
func (w *workspace) needScratch(n int) { w.need.scratch = max(w.need.scratch, n) }

// needTallies asks for n floats for the statistics of one kernel's output.
func (w *workspace) needTallies(n int) { w.need.tallies = max(w.need.tallies, n) }

// needMoments asks for n numbers for the statistics of one batch norm.
func (w *workspace) needMoments(n int) {
	w.moments = append(w.moments, make([]float64, max(0, n-len(w.moments)))...)
}

// needShared asks for n floats of scratch memory for a kernel as a whole.
func (w *workspace) needShared(n int) { w.need.shared = max(w.need.shared, n) }

// allocate makes the memory that the kernels have asked for, and returns the
// workers with theirs.
func (w *workspace) allocate() []worker {
	workers := make([]worker, w.threads)
	for i := range workers {
		workers[i].number, workers[i].scratch = i, kernel.AlignedFloats(w.need.scratch)
	}
	w.shared = kernel.AlignedFloats(w.need.shared)
	w.tallies = kernel.AlignedFloats(w.need.tallies)
	return workers
}

// bytes returns the size of the memory, without that of the workers.
func (w *workspace) bytes() int64 {
	return 4*int64(len(w.shared)+len(w.tallies)+len(w.zeros)+len(w.same)) + 8*int64(len(w.moments))
}

// release drops the memory that allocate has made.
func (w *workspace) release() { w.shared, w.tallies, w.moments = nil, nil, nil }
