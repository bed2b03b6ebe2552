package runfolder

import (
	"errors"
	"fmt"
	"os"

	"lockstep/pkg/monitor"
)

// RecordResourceUsage records the CPU, memory and network usage of a program other than lockstep in the run
// folder dir. roots contains the pid of each rank's process, whose descendants are included. If something
// cannot be recorded, it calls note with the error, and the run continues. The caller must call stop.
func RecordResourceUsage(dir string, roots map[int]int, note func(error)) (stop func()) {
	stop = func() {}
	on, err := monitor.UsageEnabled(os.Getenv)
	if err != nil {
		note(err)
	}
	if !on {
		return stop
	}
	var all []*monitor.UsageRecorder
	var failed error
	for rank, pid := range roots {
		u, err := monitor.StartUsage(dir, rank, pid, nil)
		failed = errors.Join(failed, err)
		all = append(all, u)
	}
	if failed != nil {
		note(fmt.Errorf("CPU, memory and network usage of this run is not recorded, but the run continues: %w", failed))
	}
	return func() {
		for _, u := range all {
			if err := u.Stop(); err != nil {
				note(fmt.Errorf("the recording of CPU, memory and network usage stopped before the run ended; the run is not affected: %w", err))
			}
		}
	}
}
