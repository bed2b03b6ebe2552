package train

import (
	"context"
	"hash/fnv"
	"os"

	"lockstep/pkg/monitor"
)

// loadMeter returns a meter of the load that other processes cause on the machine of rank
// 0. The run's own processes do not count: the launcher of rank 0, the ranks on its
// machine, and all their child processes. The meter is nil on the other ranks, and if some
// of the run's own processes cannot be seen. All ranks must call it.
func (t *Trainer) loadMeter(ctx context.Context) (*monitor.LoadMeter, error) {
	const perRank = 3 // pid, machine, PID namespace
	n, rank := t.group.Size(), t.group.Rank()
	all := make([]float64, perRank*n)
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without /proc, the load is not measured
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	copy(all[perRank*rank:], []float64{float64(os.Getpid()), identity(string(boot)), identity(namespace)})
	if n > 1 {
		if err := t.sum(ctx, all); err != nil {
			return nil, err
		}
	}
	if rank > 0 {
		return nil, nil
	}
	var roots []int
	if launcher := os.Getppid(); Launched() && launcher > 1 {
		roots = append(roots, launcher)
	}
	for i := range n {
		switch of := all[perRank*i:]; {
		case of[1] != all[1]: // another machine
		case of[2] != all[2]:
			return nil, nil // a container on this machine, whose processes cannot be seen
		default:
			roots = append(roots, int(of[0]))
		}
	}
	return monitor.NewLoadMeter(roots...), nil
}

// identity returns a hash of text that a float64 represents exactly.
func identity(text string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never returns an error
	return float64(h.Sum32())
}

// beginLoad starts to measure the load of other processes during an epoch.
func (r *recorder) beginLoad() {
	if r.load != nil {
		r.load.Begin()
	}
}

// endLoad ends the measurement of the load. The method epoch writes the result.
func (r *recorder) endLoad(epoch int) {
	r.measured = nil
	if r.load == nil {
		return
	}
	if l, ok := r.load.End(epoch); ok {
		r.measured = &l
	}
}
