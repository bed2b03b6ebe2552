package train

import (
	"context"
	"hash/fnv"
	"os"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/monitor"
)

// newLoadMeter returns a meter of the load that is caused on rank 0's machine by processes outside
// of this run. The launcher of rank 0, the ranks on its machine, and their child processes belong
// to the run. The meter is nil on the other ranks, and if rank 0 cannot see all these processes.
// All ranks must call newLoadMeter.
func (t *Trainer) newLoadMeter(ctx context.Context) (*monitor.LoadMeter, error) {
	const perRank = 3 // pid, machine, PID namespace
	n, rank := t.group.Size(), t.group.Rank()
	all := make([]float64, perRank*n)
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	copy(all[perRank*rank:], []float64{float64(os.Getpid()), hashToFloat64(process.BootID()), hashToFloat64(namespace)})
	if n > 1 {
		if err := t.allReduce(ctx, all); err != nil {
			return nil, err
		}
	}
	if rank > 0 {
		return nil, nil
	}
	var roots []int
	if launcher := os.Getppid(); StartedByLauncher() && launcher > 1 {
		roots = append(roots, launcher)
	}
	for i := range n {
		switch rank := all[perRank*i:]; {
		case rank[1] != all[1]: // on another machine
		case rank[2] != all[2]:
			return nil, nil // in a container on this machine, whose processes rank 0 cannot see
		default:
			roots = append(roots, int(rank[0]))
		}
	}
	return monitor.NewLoadMeter(roots...), nil
}

// hashToFloat64 returns a 32-bit hash of text as a float64, which represents it exactly.
func hashToFloat64(text string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never returns an error
	return float64(h.Sum32())
}

// startLoadMeasurement starts to measure the load of other processes at the start of an
// epoch.
func (r *runFiles) startLoadMeasurement() {
	if r.meter != nil {
		r.meter.Begin()
	}
}

// finishLoadMeasurement ends the measurement of the load, and keeps the result for
// writeEpoch.
func (r *runFiles) finishLoadMeasurement(epoch int) {
	r.lastLoad = nil
	if r.meter == nil {
		return
	}
	if l, ok := r.meter.End(epoch); ok {
		r.lastLoad = &l
	}
}
