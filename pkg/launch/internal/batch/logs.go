package batch

import (
	"path/filepath"
	"strconv"
	"strings"

	"lockstep/pkg/launch/site"
)

// workerLogPattern is runs.WorkerLogName with srun's pattern for the rank.
const workerLogPattern = "worker-%t.log"

// workerLogCommand runs a program with its output in worker-<rank>.log. Its arguments are the run
// folder, the number of ranks of each process, and the program with its arguments. exec keeps the
// process, so that signals reach the program.
const workerLogCommand = `r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}; log=$0/worker-$((r * $1)).log; shift; exec "$@" >>"$log" 2>&1`

// writeWorkerLogs makes the job j of r write one log per worker process. srun does so by itself;
// for other commands, such as mpirun, a shell does. The log is named by the first rank of its
// process.
func (b *Batch) writeWorkerLogs(j *site.Job, r *Run) {
	if r.Ranks > 1 || !b.Profile.StartsBySrun(*j) {
		j.Command = append([]string{"bash", "-c", workerLogCommand, r.Dir, strconv.Itoa(r.Ranks)}, j.Command...)
		return
	}
	// Slurm replaces patterns such as %t in the path.
	logs := filepath.Join(strings.ReplaceAll(r.Dir, "%", "%%"), workerLogPattern)
	// They are srun's --output, by its names in different versions, and its --open-mode.
	j.Environment = append(j.Environment, "SLURM_STDOUTMODE="+logs, "SRUN_OUTPUT="+logs, "SLURM_OPEN_MODE=append")
}
