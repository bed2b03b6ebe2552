package launch

import (
	"fmt"
	"os"
	"slices"
	"time"

	"lockstep/pkg/launch/internal/queue"
)

// schedulerVariables are the environment variables that identify a job of Slurm, PBS, LSF,
// Grid Engine, HTCondor, Flux or OAR. These schedulers reserve a part of the machine for each
// job.
var schedulerVariables = []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "_CONDOR_JOB_AD", "FLUX_JOB_ID", "OAR_JOB_ID"}

// mustQueue reports whether s has to wait for other sweeps.
func (s Sweep) mustQueue() bool {
	if s.Now || os.Getenv("LOCKSTEP_RUN") != "" {
		return false
	}
	return !slices.ContainsFunc(schedulerVariables, func(name string) bool { return os.Getenv(name) != "" })
}

// A BusyError reports a sweep that would have to wait for another.
type BusyError struct {
	Study string // of the other sweep
	PID   int
	Since time.Time
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; wait for it, or start anyway (Now, --now)", (&queue.Record{Study: e.Study, PID: e.PID, Started: e.Since}).Describe())
}
