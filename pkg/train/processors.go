package train

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"

	"lockstep/pkg/internal/topology"
	"lockstep/pkg/runs"
)

// BindingVariable is the environment variable with which a launcher tells a worker to which CPUs
// the run's workers are bound. Its value is a runs.Binding in JSON.
const BindingVariable = "LOCKSTEP_BINDING"

// readCPUBinding returns the binding in this worker's environment. It returns nil if there is none, or
// if it is for a number of workers other than world. getenv is os.Getenv except in tests.
func readCPUBinding(getenv func(string) string, world int) *runs.Binding {
	var b runs.Binding
	if json.Unmarshal([]byte(getenv(BindingVariable)), &b) != nil || b.Mode == "" {
		return nil
	}
	if len(b.CPUs) > 0 && len(b.CPUs) != world {
		return nil
	}
	return &b
}

// countWorkersSharingCPUs returns the number of workers whose CPUs overlap with those of the given
// rank, including that rank. If the workers are not bound, it returns localWorkers, the number of
// workers on this machine.
func countWorkersSharingCPUs(b *runs.Binding, rank, localWorkers int) int {
	if b == nil || rank >= len(b.CPUs) {
		return localWorkers
	}
	own, err := topology.ParseCPUList(b.CPUs[rank])
	if err != nil {
		return localWorkers
	}
	n := 0
	for _, text := range b.CPUs {
		cpus, err := topology.ParseCPUList(text)
		if err == nil && slices.ContainsFunc(cpus, func(id int) bool { return slices.Contains(own, id) }) {
			n++
		}
	}
	return n
}

// describeHost describes this machine. For bound workers, Cores counts the cores of all workers of
// the run, not only of this one.
func describeHost(b *runs.Binding) runs.Host {
	host := runs.DescribeHost()
	if b != nil && len(b.CPUs) > 0 {
		if cpus, err := topology.ParseCPUList(b.Allowed); err == nil && len(cpus) > 0 {
			host.Cores = len(cpus)
		}
	}
	return host
}

// Processors returns GOMAXPROCS for a worker: its computing threads, one more if gradients are
// exchanged during the backward pass, and one more for the loader and the garbage collector if its
// share of the cores is large enough. workers is the number of workers that share the cores: those
// on this machine or, if they are bound, those on this worker's cores.
//
// Go's default, one per core, is too large for several workers, because each would collect garbage
// on a quarter of all cores. If a worker uses more than its share of cores, the threads of the
// workers displace each other: two workers on two cores were 4 % slower.
func Processors(threads, cores, workers int, overlaps bool) int {
	need, share := threads, cores/max(1, workers)
	if overlaps {
		need++
	}
	return max(need, min(share, threads+2))
}

// limitGOMAXPROCS sets GOMAXPROCS to the sum of Processors over the workers of this process, unless
// the environment sets it. Call it in worker processes only: a notebook that trains keeps all cores.
func limitGOMAXPROCS(inProcess, threads, workers int, overlaps bool) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(inProcess * Processors(threads, runtime.GOMAXPROCS(0), workers, overlaps))
	}
}
