// Package workers starts the processes of a run, by itself or by mpirun, and ends them together:
// when one worker fails, all others are ended.
package workers

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/runs"
)

// Run describes the run to which processes belong.
type Run struct {
	Dir     string             // the run folder, with a log of each process
	Ranks   int                // number of ranks in each process
	Foreign bool               // whether the processes run a program other than lockstep
	Resume  bool               // whether the logs are continued and not replaced
	Label   string             // text before the rank in each line of the shared output
	Output  *output.LineWriter // the shared output

	GracePeriod time.Duration   // how long workers may take to shut down before they are killed
	KillNow     <-chan struct{} // closed when the workers are to be killed at once; nil: never
}

func (r Run) logPath(rank int) string { return filepath.Join(r.Dir, runs.WorkerLogName(rank)) }

func (r Run) linePrefix(process string) string {
	return "[" + strings.TrimSpace(r.Label+" "+process) + "] "
}

// NewTail returns a Tail for the log of the process whose first rank is rank. It is for a process
// that writes its log itself.
func (r Run) NewTail(rank int) *output.LogTail {
	return output.NewTail(r.logPath(rank), r.linePrefix(nameRanks(rank, r.Ranks)), r.Output)
}

// nameRanks returns a name for n ranks that start with rank, such as "rank 0" or "ranks 2-3".
func nameRanks(rank, n int) string {
	if n > 1 {
		return "ranks " + strconv.Itoa(rank) + "-" + strconv.Itoa(rank+n-1)
	}
	return "rank " + strconv.Itoa(rank)
}

// ThreadVariables returns environment variables that set the number of threads of a program other
// than lockstep. They also make Python flush its output after every line.
func ThreadVariables(threads int) []string {
	t := strconv.Itoa(threads)
	return []string{"OMP_NUM_THREADS=" + t, "OPENBLAS_NUM_THREADS=" + t, "MKL_NUM_THREADS=" + t, "GOMAXPROCS=" + t, "PYTHONUNBUFFERED=1"}
}

// ProgramEnvironment returns the environment for a program other than lockstep: this process's
// environment, with the variables of a worker added or replaced. env describes the rank for which
// srun or mpirun has started this process.
func ProgramEnvironment(env rendezvous.Env, threads int) []string {
	set := append([]string{
		"RANK=" + strconv.Itoa(env.Rank), "WORLD_SIZE=" + strconv.Itoa(env.World),
		"LOCAL_RANK=" + strconv.Itoa(env.LocalRank), "LOCAL_WORLD_SIZE=" + strconv.Itoa(env.LocalWorld),
	}, ThreadVariables(threads)...)
	if env.MasterAddr != "" && env.MasterPort != 0 {
		set = append(set, "MASTER_ADDR="+env.MasterAddr, "MASTER_PORT="+strconv.Itoa(env.MasterPort))
	}
	if env.ConnectsToMaster() {
		set = append(set, "LOCKSTEP_TOKEN="+env.Token)
	}
	return process.ModifiedEnvironment(set)
}
