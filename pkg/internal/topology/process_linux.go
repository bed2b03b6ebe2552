package topology

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Allowed returns the CPUs on which the calling thread may run, in ascending order: those of
// its affinity mask, which control groups (cpuset) and Slurm restrict. It fails on a kernel
// for more than 1024 CPUs.
func Allowed() ([]int, error) {
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

// SetThread restricts the calling thread to the given CPUs. Processes that the thread starts
// from then on inherit the restriction. The calling goroutine must be locked to its thread.
func SetThread(cpus []int) error {
	var set unix.CPUSet
	for _, id := range cpus {
		set.Set(id)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPUs %s: %w", FormatList(cpus), err)
	}
	return nil
}
