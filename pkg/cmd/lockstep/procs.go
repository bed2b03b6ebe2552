package main

import (
	"os"
	"runtime"
)

// procs is the number of OS threads that may run Go code at once in a worker:
// those that compute, one for the exchange of gradients and one for the rest,
// as far as there are cores, but always one beside those that compute. With one
// a core, which is Go's default, every worker of a node of many cores would
// collect garbage with a quarter of them.
func procs(threads, cores int) int { return max(threads+1, min(cores, threads+2)) }

// limitProcs sets that number for this process, unless the user has set
// GOMAXPROCS. It is for workers alone: a notebook's process trains too, and
// keeps all cores.
func limitProcs(threads int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(procs(threads, runtime.GOMAXPROCS(0)))
	}
}
