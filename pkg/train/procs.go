package train

import (
	"os"
	"runtime"
)

// Processors returns GOMAXPROCS for a worker: its computing threads, one more if gradients are
// exchanged during the backward pass, and one more for the loader and the garbage collector if its
// share of the cores allows it. workers is the number of workers that share the cores: those on
// this machine or, if they are bound, on this worker's cores.
//
// Go's default, one per core, is too large for several workers: each would collect garbage on a
// quarter of all cores. With more than its share of cores, the threads of a worker displace each
// other: two workers on two cores were 4 % slower.
func Processors(threads, cores, workers int, overlaps bool) int {
	need, share := threads, cores/max(1, workers)
	if overlaps {
		need++
	}
	return max(need, min(share, threads+2))
}

// limitProcessors sets GOMAXPROCS to the sum of Processors over the workers of this process, unless
// the environment sets it. Call it in worker processes only: a notebook that trains keeps all cores.
func limitProcessors(inProcess, threads, workers int, overlaps bool) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(inProcess * Processors(threads, runtime.GOMAXPROCS(0), workers, overlaps))
	}
}
