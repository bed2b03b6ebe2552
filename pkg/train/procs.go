package train

import (
	"os"
	"runtime"
)

// Processors is the number of OS threads that may run Go code at once in a worker:
// those that compute, one for the exchange of gradients where it goes on beside
// them, and one for the loader and the garbage collector where the worker's
// share of the cores has room for it. With one a core, which is Go's default,
// every worker of a node of many cores would collect garbage with a quarter of
// them; and with one more than there are cores, the threads of a worker drive
// each other from its core: two workers on two cores were 4 % slower by it.
func Processors(threads, cores, workers int, overlaps bool) int {
	need, share := threads, cores/max(1, workers)
	if overlaps {
		need++
	}
	return max(need, min(share, threads+2))
}

// limitProcs sets that number for this process, unless the user has set
// GOMAXPROCS. It is for workers alone: a notebook's process trains too, and
// keeps all cores.
func limitProcs(threads, workers int, overlaps bool) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(Processors(threads, runtime.GOMAXPROCS(0), workers, overlaps))
	}
}
