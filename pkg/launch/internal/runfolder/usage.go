package runfolder

import (
	"errors"
	"fmt"
	"os"

	"lockstep/pkg/monitor"
)

// RecordUsage records what the process trees of a program other than lockstep use, in the run folder
// dir. roots has the process of each rank. It calls note for what cannot be recorded, which does not
// end the run. The caller must call stop.
func RecordUsage(dir string, roots map[int]int, note func(error)) (stop func()) {
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
