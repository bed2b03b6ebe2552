package launch

import (
	"fmt"
	"os"
	"slices"
	"time"

	"lockstep/pkg/launch/internal/queue"
)

// schedulerVariables are environment variables that are set only in jobs of Slurm, PBS, LSF, Grid
// Engine, HTCondor, Flux or OAR. These schedulers reserve a part of the machine for each job.
var schedulerVariables = []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "_CONDOR_JOB_AD", "FLUX_JOB_ID", "OAR_JOB_ID"}

// mustQueue reports whether s has to wait for other sweeps.
func (s Sweep) mustQueue() bool { return !s.Now && !hasReservedCores() }

// hasReservedCores reports whether this process is part of a sweep or of a scheduler's job.
func hasReservedCores() bool {
	isSet := func(name string) bool { return os.Getenv(name) != "" }
	return isSet("LOCKSTEP_RUN") || slices.ContainsFunc(schedulerVariables, isSet)
}

// A BusyError reports that a sweep cannot start now without waiting for another sweep or for cores.
type BusyError struct {
	Study string // of the other sweep
	PID   int
	Since time.Time
	Cores string // the cores that the sweep would wait for, if other users' sweeps have them; then the other fields are empty
}

func (e *BusyError) Error() string {
	if e.Cores != "" {
		return fmt.Sprintf("other users' sweeps have the cores; this one needs %s; wait for them, or start anyway (Now, --now)", e.Cores)
	}
	return fmt.Sprintf("%s; wait for it, or start anyway (Now, --now)", (&queue.SweepRecord{Study: e.Study, PID: e.PID, Started: e.Since}).DescribeRunning())
}
