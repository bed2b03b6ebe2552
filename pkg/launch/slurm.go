package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/launch/internal/estimate"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/notebook"
	"lockstep/pkg/train"
)

// SlurmOptions are the fields of a Sweep that only Slurm uses. The defaults are those of the
// site profile.
type SlurmOptions struct {
	Account     string
	Partition   string
	Reservation string
	Dependency  string        // as sbatch --dependency, such as afterok:17
	Time        time.Duration // the time limit of each job
	// TasksPerNode is the largest number of workers on a node. 0 means that of the site.
	TasksPerNode int
	CPUsPerTask  int // 0 means that of the site
	GPUsPerNode  int // 0 means one per worker on GPUs, else none
	// ArraySize is the largest number of runs in one job array. Runs that need the same nodes,
	// tasks and GPUs, such as those with different seeds, are submitted as one array, in which
	// each run is a task. 1 submits each run as a job of its own. 0 means 1000, which Slurm's
	// default configuration allows.
	ArraySize int
	// MPI starts the workers by the site's command for MPI programs (mpi_command in its profile),
	// such as srun --mpi=pmi2. Programs that call MPI need it, and LOCKSTEP_COLLECTIVE=mpi.
	MPI bool
	// Signal is the signal that Slurm sends before it preempts a job or its time limit is
	// reached, and how many seconds before. The default is USR1@120. The workers then save the
	// run, and the job is requeued and continues. "none" sends no signal.
	Signal string
}

// defaultSignal gives the workers two minutes to finish the current step and to save.
const defaultSignal = "USR1@120"

const (
	scriptName  = "job.sh"
	jobFileName = "job.json"
)

// jobFile describes the job of a run. It is in the run folder.
type jobFile struct {
	Job     string   `json:"job,omitempty"` // id; "" until it was submitted
	Site    string   `json:"site"`
	Study   string   `json:"study"`
	Series  string   `json:"series"`
	Workers int      `json:"workers"`
	Nodes   int      `json:"nodes"`
	Seed    int64    `json:"seed"`
	Threads int      `json:"threads"`
	Command []string `json:"command,omitempty"` // a program other than lockstep
	// Submission is the id of the sweep that submitted the job. The job script runs only if it is
	// that of the script; see withdrawalCheck.
	Submission string `json:"submission"`
}

// readJobFile reads the description of the job in a run folder.
func readJobFile(dir string) (jobFile, error) {
	var f jobFile
	text, err := safeopen.ReadFile(dir, filepath.Join(dir, jobFileName), queue.MaxRecordBytes)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return jobFile{}, fmt.Errorf("read description of job: %w", err)
	}
	return f, nil
}

// write writes the description to the run folder dir.
func (f jobFile) write(dir string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = wholefile.WriteBytes(filepath.Join(dir, jobFileName), append(text, '\n'), 0o644)
	}
	return runfolder.WrapWriteError("write description of job", err)
}

// slurmPlan contains the jobs of a sweep before their submission.
type slurmPlan struct {
	profile *site.Profile
	name    string // of the site
	binary  string // the lockstep command
	sweep   *slurmSweep
	dir     string // of the study
	s       *Sweep

	id          string         // of the sweep's record
	submissions submissionList // one for each call of sbatch
	warnings    []string       // jobs that would run, but probably not as intended
}

// Slurm submits the runs of s as jobs of Slurm, all at once, and returns without waiting for
// them. name is a site profile, or the path of one. Each run has the same folder and worker
// command as with Local; srun starts the workers. The run folder also has the job script
// (job.sh) and its output. Runs that need the same resources are the tasks of one job array
// (see SlurmOptions.ArraySize); the output of their scripts is in .launch in the study's folder. A
// notebook shows the scripts first, closed.
//
// The jobs do not need this process: they continue when ctx, the notebook or its kernel ends,
// and Attach finds them again. Cancel cancels them. Finished runs are not submitted again, and
// for runs whose jobs still wait or run, the returned Job shows these jobs. If Slurm rejects a
// job, the jobs submitted before it are canceled.
//
// The secret of the workers is in no job script: they read the user's token file, for which the
// home folder must be the same on all nodes.
func Slurm(ctx context.Context, name string, s Sweep) (*Job, error) {
	p, err := planSlurm(ctx, name, &s)
	if err != nil {
		return nil, err
	}
	if notebook.InNotebook() && len(p.submissions) > 0 {
		if err := notebook.Display(p.submissions); err != nil {
			return nil, fmt.Errorf("launch %s: show job scripts: %w; nothing was submitted", s.Study, err)
		}
	}
	if err := p.submit(ctx); err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	job := &Job{dir: p.dir, name: s.Study, sweep: p.sweep, note: strings.Join(append(p.warnings, p.sweep.describeJobs()), "\n")}
	if notebook.InNotebook() {
		return job, notebook.Display(job.note)
	}
	if s.Output != nil {
		output.NewLineWriter(s.Output).WriteLine(job.note)
	}
	return job, nil
}

// SlurmDryRun returns what Slurm would do: each job script and the command that submits it. It
// submits nothing.
func SlurmDryRun(ctx context.Context, name string, s Sweep) (string, error) {
	p, err := planSlurm(ctx, name, &s)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, warning := range p.warnings {
		fmt.Fprintf(&b, "# %s\n", warning)
	}
	for _, r := range p.sweep.all {
		switch {
		case r.skip:
			fmt.Fprintf(&b, "# %s is done: nothing to do\n\n", r.name)
		case r.job.ID != "":
			fmt.Fprintf(&b, "# %s is job %s already: nothing to do\n\n", r.name, r.job.ID)
		}
	}
	b.WriteString(p.submissions.String())
	return b.String(), nil
}

// planSlurm checks s, fills in its defaults, and plans its jobs. It submits nothing.
func planSlurm(ctx context.Context, name string, s *Sweep) (*slurmPlan, error) {
	p := &slurmPlan{name: name, s: s, id: queue.NewID(time.Now())}
	var err error
	if p.profile, err = site.Load(name); err != nil {
		return nil, &train.UsageError{Err: err}
	}
	if err := s.validate(math.MaxInt); err != nil { // the nodes have other cores than this machine
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: %w", err)}
	}
	if s.MPI != (MPIOptions{}) {
		return nil, &train.UsageError{Err: errors.New("validate sweep: the options of MPI are for launch.MPI (--on mpi): with Slurm, use SlurmOptions.MPI (--mpi)")}
	}
	if s.Bind != "" && s.Bind != BindNone {
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: binding %q is for local sweeps: with Slurm, srun binds the workers", s.Bind)}
	}
	s.Oversubscribe = false // it compares with the cores of this machine
	if s.Slurm.ArraySize < 0 {
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: got arrays of at most %d runs: use 1 for no arrays, or 0 for the default", s.Slurm.ArraySize)}
	}
	*s = s.withDefaults()
	if err := p.plan(ctx); err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	return p, nil
}

// plan implements planSlurm for a sweep that has been validated and has its defaults.
func (p *slurmPlan) plan(ctx context.Context) (err error) {
	if p.dir, err = p.s.findStudyFolder(); err == nil {
		p.dir, err = filepath.Abs(p.dir)
	}
	if err != nil {
		return err
	}
	if p.binary, err = Binary(ctx); err != nil {
		return err
	}
	l := &localSweep{all: p.s.planRuns(p.dir)}
	if p.s.isForeign() {
		if _, err := exec.LookPath(p.s.Command[0]); err != nil {
			return err
		}
	} else if err := p.s.checkConfigs(ctx, p.binary, l.all); err != nil {
		return err
	}
	if err := l.checkSameConfigs(); err != nil {
		return err
	}
	p.sweep = &slurmSweep{study: p.s.Study}
	for _, r := range l.all {
		r.changed = func() {}
		p.sweep.all = append(p.sweep.all, newSlurmRun(r))
	}
	if err := p.findJobs(ctx); err != nil {
		return err
	}
	return p.checkSite(ctx)
}

// checkSite returns an error if a job that is to be submitted would be refused or wait for ever,
// and otherwise plans their submissions.
func (p *slurmPlan) checkSite(ctx context.Context) (err error) {
	var cluster *site.Cluster
	var found, warnings runProblems
	added := 0 // jobs
	var finished []estimate.Finished
	if p.s.Slurm.Time > 0 {
		finished = estimate.ReadFinished(p.dir)
	}
	for _, r := range p.sweep.all {
		if r.skip || r.job.ID != "" {
			continue
		}
		j, err := p.newJob(r)
		if err != nil {
			return err
		}
		if !r.resume {
			j.Estimate, j.Source = r.toEstimate().Time(finished)
		}
		if cluster == nil {
			if cluster, err = p.readCluster(ctx); err != nil {
				return err
			}
		}
		added++
		for _, problem := range p.profile.Check(j, cluster) {
			if problem.Warning {
				warnings.add(r.name, problem.String())
			} else {
				found.add(r.name, problem.String())
			}
		}
		if len(found.texts) > 0 {
			continue
		}
		if r.script, err = p.profile.Script(j); err != nil {
			return err
		}
		r.script += requeueCommands
		r.placed = j
	}
	for _, line := range warnings.lines() {
		p.warnings = append(p.warnings, "warning: "+line)
	}
	problems := found.lines()
	for _, problem := range cluster.CheckCount(added, p.s.Slurm.Account) {
		problems = append(problems, problem.String())
	}
	if len(problems) > 0 {
		return &train.UsageError{Err: fmt.Errorf("%s; nothing was submitted", strings.Join(problems, "\n"))}
	}
	p.submissions, err = p.planSubmissions()
	return err
}

// readCluster asks Slurm for the partitions and for the limits of the user's accounts. If the
// limits are unknown, Slurm itself applies them at submission, so that it is only a warning.
func (p *slurmPlan) readCluster(ctx context.Context) (*site.Cluster, error) {
	cluster, err := p.sweep.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.sweep.client.AddAccounts(ctx, cluster); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		p.warnings = append(p.warnings, fmt.Sprintf("warning: the limits of your account are unknown, but Slurm applies them: %v", err))
	}
	return cluster, nil
}

// toEstimate returns the description of the run by which its time is estimated.
func (r *run) toEstimate() estimate.Run {
	return estimate.Run{
		Workers: r.workers, Epochs: r.plannedEpochs(), Config: r.config, GlobalBatch: r.sweep.GlobalBatch > 0, Command: r.command, Threads: r.sweep.Threads,
	}
}

// newSlurmRun returns a run that was not submitted yet.
func newSlurmRun(r *run) *slurmRun {
	n := &slurmRun{run: r}
	processes := r.processes(r.sweep.isForeign())
	for rank := 0; rank < r.workers; rank += processes.Ranks {
		n.tails = append(n.tails, processes.NewTail(rank))
	}
	if len(n.tails) > 0 {
		r.setRank0Output(n.tails[0].Out)
	}
	return n
}

// findJobs finds the jobs that an earlier call has submitted, and checks the folders of the
// other runs.
func (p *slurmPlan) findJobs(ctx context.Context) error {
	var ids []string
	for _, r := range p.sweep.all {
		if f, err := readJobFile(r.dir); err == nil && f.Job != "" {
			r.job.ID = f.Job
			ids = append(ids, f.Job)
		}
	}
	jobs, err := p.sweep.client.Jobs(ctx, ids)
	if err != nil {
		return err
	}
	for _, r := range p.sweep.all {
		j := jobs[r.job.ID]
		if r.job.ID != "" && j.IsKnown() && !j.HasEnded() {
			continue
		}
		r.job = slurm.Job{}
		if err := r.checkFolder(); err != nil {
			return err
		}
	}
	return nil
}

// place returns the job of a run, without its command, at the site.
func (p *slurmPlan) place(r *slurmRun) (site.Job, error) {
	o := p.s.Slurm
	j := site.Job{
		Name: p.s.Study + "-" + r.name, Folder: r.dir, CPUsPerTask: o.CPUsPerTask, Time: o.Time, Account: o.Account, Partition: o.Partition,
		Reservation: o.Reservation, Dependency: o.Dependency, Output: slurmOutputName("%j"), Signal: o.Signal, Requeue: true, MPI: o.MPI,
	}
	switch j.Signal {
	case "":
		j.Signal = defaultSignal
	case "none":
		j.Signal = ""
	}
	j, err := p.profile.Place(j, r.workers, r.replicasPerProcess(), strings.HasPrefix(r.device(), "cuda") || o.GPUsPerNode > 0)
	if err != nil {
		return j, err
	}
	if o.TasksPerNode > 0 {
		j.TasksPerNode = min(o.TasksPerNode, j.Tasks)
		j.Nodes = (j.Tasks + j.TasksPerNode - 1) / j.TasksPerNode
	}
	if o.GPUsPerNode > 0 {
		j.GPUsPerNode = o.GPUsPerNode
	}
	return j, nil
}

// newJob returns the job of a run at the site.
func (p *slurmPlan) newJob(r *slurmRun) (site.Job, error) {
	j, err := p.place(r)
	if err != nil {
		return j, err
	}
	// Slurm replaces patterns such as %t in the path.
	logs := filepath.Join(strings.ReplaceAll(r.dir, "%", "%%"), workerLogPattern)
	j.Environment = []string{
		"LOCKSTEP_RUN=" + r.dir, "LOCKSTEP_SEED=" + strconv.FormatInt(r.seed, 10),
		// They are srun's --output, by its names in different versions, and its --open-mode.
		"SLURM_STDOUTMODE=" + logs, "SRUN_OUTPUT=" + logs, "SLURM_OPEN_MODE=append",
	}
	if p.s.isForeign() {
		// If a task fails, the others end. The workers of lockstep notice it themselves.
		j.Environment = append(j.Environment, "SLURM_KILL_BAD_EXIT=1")
	}
	j.Command = p.command(r)
	j.Begin = p.withdrawalCheck(r)
	return j, nil
}

// withdrawalCheck returns the first lines of the job script of a run. They end the job if its
// submission was withdrawn: the controller may accept a job after sbatch gave up waiting for the
// answer, and by then the run may have been submitted again.
func (p *slurmPlan) withdrawalCheck(r *slurmRun) string {
	return fmt.Sprintf(`if ! grep -qF %s %s; then
  echo "this job was withdrawn when it was submitted: the run has no job, or a later one"
  exit 1
fi`, process.QuoteArgument(fmt.Sprintf("%q: %q", "submission", p.id)), process.QuoteArgument(filepath.Join(r.dir, jobFileName)))
}

// workerLogPattern is runs.WorkerLogName with srun's pattern for the rank.
const workerLogPattern = "worker-%t.log"

// requeueCommands are the end of each job script. The workers end with exit code
// ExitRequeue if they have saved the run after the signal that announces the end of the job.
var requeueCommands = fmt.Sprintf(`
status=$?
if [ "$status" -eq %d ]; then # the workers have saved the run after a signal: continue it later
  scontrol requeue "$SLURM_JOB_ID" && sleep 60 # until Slurm ends this script
fi
exit "$status"
`, ExitRequeue)

// ExitRequeue is the exit code of a worker that has saved the run after SIGUSR1, which announces
// that Slurm is going to end the job. A job whose workers end with it is requeued. It is
// EX_TEMPFAIL of sysexits.h.
const ExitRequeue = 75

// command returns the command that srun starts for each process of the run.
func (p *slurmPlan) command(r *slurmRun) []string {
	if p.s.isForeign() {
		return append([]string{p.binary, "launch", "--task", r.dir, "--"}, r.command...)
	}
	args := append([]string{p.binary}, r.trainArguments()...)
	if !r.resume { // the job continues the run when it was requeued
		args = append(args, "--resume")
	}
	return args
}
