package slurmsubmit

import (
	"path/filepath"
	"strconv"
	"strings"

	"lockstep/pkg/launch/site"
)

// workerLogPattern is runs.WorkerLogName with srun's pattern %t for the rank.
const workerLogPattern = "worker-%t.log"

// workerLogCommand is a shell command that runs a program and writes its output to
// worker-<rank>.log. Its arguments are the run folder, the number of ranks of each process, the
// program, and the program's arguments. exec replaces the shell with the program, so that signals
// reach the program.
const workerLogCommand = `r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}; log=$0/worker-$((r * $1)).log; shift; exec "$@" >>"$log" 2>&1`

// setWorkerLogs gives each worker process of j, the job of r, its own log, named after the first
// rank of the process. srun can write these logs itself; for other commands, such as mpirun,
// workerLogCommand does.
func (b *SweepJobs) setWorkerLogs(j *site.Job, r *Run) {
	if r.Ranks > 1 || !b.Profile.StartsBySrun(*j) {
		j.Command = append([]string{"bash", "-c", workerLogCommand, r.Dir, strconv.Itoa(r.Ranks)}, j.Command...)
		return
	}
	// Slurm replaces patterns such as %t in the path.
	logs := filepath.Join(strings.ReplaceAll(r.Dir, "%", "%%"), workerLogPattern)
	// These variables set srun's --output, under its names in different versions, and --open-mode.
	j.Environment = append(j.Environment, "SLURM_STDOUTMODE="+logs, "SRUN_OUTPUT="+logs, "SLURM_OPEN_MODE=append")
}
