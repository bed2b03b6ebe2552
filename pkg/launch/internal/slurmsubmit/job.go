// Package slurmsubmit submits the runs of a sweep as jobs of Slurm: it writes their job scripts,
// makes one job array of runs that need the same resources, and submits them. RunTask runs a
// program as a task of such a job.
package slurmsubmit

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/site"
)

const (
	scriptName      = "job.sh"
	descriptionName = "job.json"
	exitName        = "job.exit" // exit code of the job script, if the job executes several runs
)

// SweepJobs describes the jobs of one sweep.
type SweepJobs struct {
	ID      string // of the submission; the same as that of the sweep's record
	Site    string // name of the site profile
	Profile *site.Profile
	Study   string
	Dir     string // the study's folder
	Threads int    // of each worker
}

// Run is a run that is to be submitted.
type Run struct {
	Name    string // of the run folder
	Dir     string // the run folder
	Series  string
	Workers int
	Ranks   int // workers of each process
	Seed    int64
	Command []string // a program other than lockstep, with its arguments; else empty

	GPUs         int    // of all workers of Command
	IsOneProcess bool   // whether all workers of Command are in one process
	TFConfig     bool   // whether Command gets TF_CONFIG
	Profiler     string // that starts Command and adds to its times; "" if none

	// ID is the id of the job, or of the task of a job array. It is "" until the run is submitted.
	ID string

	job    site.Job // what it needs
	script string   // text of the job script
}

// AddCommonSettings returns the job of r with everything that is common to the runs of a sweep: the
// workers' environment variables, their logs, and the check for withdrawn submissions. j already
// has the command of a worker process.
func (b *SweepJobs) AddCommonSettings(j site.Job, r *Run) site.Job {
	j.Environment = []string{"LOCKSTEP_RUN=" + r.Dir, "LOCKSTEP_SEED=" + strconv.FormatInt(r.Seed, 10)}
	if len(r.Command) > 0 {
		// Makes srun end the other tasks if one fails. Lockstep's own workers notice it themselves.
		j.Environment = append(j.Environment, "SLURM_KILL_BAD_EXIT=1")
	}
	b.setWorkerLogs(&j, r)
	j.Begin = b.withdrawalCheck(r)
	return j
}

// SetJobScript sets the job script of r from the result of AddCommonSettings. It writes no file.
func (b *SweepJobs) SetJobScript(j site.Job, r *Run) (err error) {
	r.job = j
	if r.script, err = b.Profile.Script(j); err == nil {
		r.script += requeueCommands
	}
	return err
}

// withdrawalCheck returns the first lines of a job script, which end the job if its submission was
// withdrawn: the controller may accept a job after sbatch has stopped waiting for the answer, when
// the run may have been submitted again.
func (b *SweepJobs) withdrawalCheck(r *Run) string {
	return fmt.Sprintf(`if ! grep -qF %s %s; then
  echo "nothing to do: the submission of this job was withdrawn, and the run has no job or a later one"
  exit 1
fi`, process.QuoteShellArgument(fmt.Sprintf("%q: %q", "submission", b.ID)), process.QuoteShellArgument(filepath.Join(r.Dir, descriptionName)))
}

// requeueCommands are the last lines of each job script. If the workers saved the run because the
// job is about to end, they exit with ExitRequeue, and the script requeues the job.
var requeueCommands = fmt.Sprintf(`
status=$?
if [ "$status" -eq %d ]; then # the workers have saved the run after a signal: continue it later
  scontrol requeue "$SLURM_JOB_ID" && sleep 60 # until Slurm ends this script
fi
exit "$status"
`, ExitRequeue)

// ExitRequeue is the exit code of a worker that has saved the run after SIGUSR1: EX_TEMPFAIL of
// sysexits.h.
const ExitRequeue = 75

// JobOutputPath returns the path of the file with the output of a run's job script. dir is the run
// folder, and id the id of the job. The outputs of all tasks of a job array are in one folder.
func JobOutputPath(dir, id string) string {
	if slurm.IsArrayTask(id) {
		dir = filepath.Join(filepath.Dir(dir), queue.RecordsFolder)
	}
	return filepath.Join(dir, JobOutputName(id))
}

// JobOutputName returns the file name of the job script's output. id is the id of the job, or Slurm's
// pattern for it: %j, or %A_%a for a task of an array.
func JobOutputName(id string) string { return "slurm-" + id + ".out" }

// jobDescription describes the job of a run, in the run folder.
type jobDescription struct {
	Job     string   `json:"job,omitempty"` // id; "" until it was submitted
	Site    string   `json:"site"`
	Study   string   `json:"study"`
	Series  string   `json:"series"`
	Workers int      `json:"workers"`
	Nodes   int      `json:"nodes"`
	Seed    int64    `json:"seed"`
	Threads int      `json:"threads"`
	Command []string `json:"command,omitempty"` // a program other than lockstep

	GPUs       int    `json:"gpus,omitempty"`        // of all workers of Command
	OneProcess bool   `json:"one_process,omitempty"` // whether all workers of Command are in one process
	TFConfig   bool   `json:"tf_config,omitempty"`   // whether Command gets TF_CONFIG
	Profiler   string `json:"profiler,omitempty"`    // that starts Command

	// Submission is the id of the sweep that submitted the job. A job script with another id does
	// nothing; see withdrawalCheck.
	Submission string `json:"submission"`
}

// ReadJobID returns the id of the job that an earlier sweep submitted for the run in the folder
// dir. It returns "" if there is none.
func ReadJobID(dir string) (id string) {
	f, err := readDescription(dir)
	if err != nil {
		return ""
	}
	return f.Job
}

// ReadExitCode returns the exit code of the run in the folder dir, if it is one of several runs in
// a job. ok is false if the run has not ended.
func ReadExitCode(dir string) (code int, ok bool) {
	text, err := safeopen.ReadFile(dir, filepath.Join(dir, exitName), queue.MaxRecordBytes)
	if err != nil {
		return 0, false
	}
	code, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return code, err == nil
}

func readDescription(dir string) (jobDescription, error) {
	var f jobDescription
	text, err := safeopen.ReadFile(dir, filepath.Join(dir, descriptionName), queue.MaxRecordBytes)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return jobDescription{}, fmt.Errorf("read description of job: %w", err)
	}
	return f, nil
}

func (b *SweepJobs) writeDescription(r *Run) error {
	text, err := json.MarshalIndent(jobDescription{
		Job: r.ID, Site: b.Site, Study: b.Study, Series: r.Series, Workers: r.Workers, Nodes: r.job.Nodes, Seed: r.Seed,
		Threads: b.Threads, Command: r.Command, GPUs: r.GPUs, OneProcess: r.IsOneProcess, TFConfig: r.TFConfig, Profiler: r.Profiler, Submission: b.ID,
	}, "", "  ")
	if err == nil {
		err = wholefile.WriteBytes(filepath.Join(r.Dir, descriptionName), append(text, '\n'), 0o644)
	}
	return runfolder.WrapWriteError("write description of job", err)
}
