package observe

import (
	"lockstep/pkg/internal/topology"
	"lockstep/pkg/runs"
)

// CountSharedCores returns the number of CPU cores that the workers on a run's first machine
// shared, if they had more threads than cores. It returns 0 if they had enough cores or have GPUs,
// or if the log does not state the numbers.
func CountSharedCores(r runs.Run) int {
	nodes := NodeCount(r)
	if r.Info.Accelerator != "" || r.Info.GPUs > 0 || r.Info.Workers < 2 || nodes < 1 {
		return 0
	}
	workers := (r.Info.Workers + nodes - 1) / nodes
	if len(r.Workers) > 0 {
		workers = 0
		for _, w := range r.Workers {
			if w.Host == r.Workers[0].Host {
				workers++
			}
		}
	}
	cores := r.Info.Host.Cores
	if n := countBoundCores(r.Info.Binding); n > 0 && nodes == 1 { // the CPUs of several machines have equal numbers
		cores = n
	}
	if cores > 0 && workers*max(1, r.Info.ThreadsPerWorker) > cores {
		return cores
	}
	return 0
}

// countBoundCores returns the number of CPUs to which the workers of a run on one machine are bound, or
// 0 if unknown.
func countBoundCores(b *runs.Binding) int {
	if b == nil {
		return 0
	}
	lists := b.CPUs
	if len(lists) == 0 {
		lists = []string{b.Allowed}
	}
	there := map[int]bool{}
	for _, text := range lists {
		cpus, err := topology.ParseCPUList(text)
		if err != nil {
			return 0
		}
		for _, cpu := range cpus {
			there[cpu] = true
		}
	}
	return len(there)
}
