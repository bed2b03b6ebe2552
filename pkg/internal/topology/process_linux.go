package topology

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AllowedCPUs returns the CPUs on which the calling thread may run, in ascending order: the
// CPUs of its affinity mask, which control groups (cpuset) and Slurm restrict. It returns an
// error on a kernel for more than 1024 CPUs.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPUs of this process: %w", err)
	}
	var cpus []int
	for id := 0; len(cpus) < set.Count(); id++ {
		if set.IsSet(id) {
			cpus = append(cpus, id)
		}
	}
	return cpus, nil
}

// BindThread restricts the calling thread to the given CPUs. Processes that the thread starts
// from then on inherit the restriction. The calling goroutine must be locked to its thread.
func BindThread(cpus []int) error {
	var set unix.CPUSet
	for _, id := range cpus {
		set.Set(id)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPUs %s: %w", FormatCPUList(cpus), err)
	}
	return nil
}
