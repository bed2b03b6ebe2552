package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
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
}

// readJobFile reads the description of the job in a run folder.
func readJobFile(dir string) (jobFile, error) {
	var f jobFile
	text, err := safeopen.ReadFile(dir, filepath.Join(dir, jobFileName), maxRecordBytes)
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
	return wrapWriteError("write description of job", err)
}

// slurmPlan contains the jobs of a sweep before their submission.
type slurmPlan struct {
	profile *site.Profile
	name    string // of the site
	binary  string // the lockstep command
	sweep   *slurmSweep
	dir     string // of the study
	s       *Sweep

	warnings []string // jobs that would run, but probably not as intended
}

// Slurm submits the runs of s as jobs of Slurm, all at once, and returns without waiting for
// them. name is a site profile, or the path of one. Each run has the same folder and worker
// command as with Local; srun starts the workers. The run folder also has the job script
// (job.sh) and its output.
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
		path := filepath.Join(r.dir, scriptName)
		switch {
		case r.skip:
			fmt.Fprintf(&b, "# %s is done: nothing to do\n\n", r.name)
			continue
		case r.job.ID != "":
			fmt.Fprintf(&b, "# %s is job %s already: nothing to do\n\n", r.name, r.job.ID)
			continue
		}
		fmt.Fprintf(&b, "# %s: would write %s\n%s\n# and submit it:\n# %s\n\n", r.name, path, r.script, strings.Join(slurm.SubmitCommand(process.QuoteArgument(path)), " "))
	}
	return b.String(), nil
}

// planSlurm checks s, fills in its defaults, and plans its jobs. It submits nothing.
func planSlurm(ctx context.Context, name string, s *Sweep) (*slurmPlan, error) {
	p := &slurmPlan{name: name, s: s}
	var err error
	if p.profile, err = site.Load(name); err != nil {
		return nil, &train.UsageError{Err: err}
	}
	if err := s.validate(math.MaxInt); err != nil { // the nodes have other cores than this machine
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: %w", err)}
	}
	if s.Bind != "" && s.Bind != BindNone {
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: binding %q is for local sweeps: with Slurm, srun binds the workers", s.Bind)}
	}
	s.Oversubscribe = false // it compares with the cores of this machine
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
// and otherwise sets their scripts.
func (p *slurmPlan) checkSite(ctx context.Context) error {
	var cluster *site.Cluster
	var found []string
	added := 0 // jobs
	for _, r := range p.sweep.all {
		if r.skip || r.job.ID != "" {
			continue
		}
		j, err := p.newJob(r)
		if err != nil {
			return err
		}
		if cluster == nil {
			if cluster, err = p.readCluster(ctx); err != nil {
				return err
			}
		}
		added++
		for _, problem := range p.profile.Check(j, cluster) {
			text := fmt.Sprintf("run %s: %s", r.name, problem)
			if problem.Warning {
				p.warnings = append(p.warnings, "warning: "+text)
			} else {
				found = append(found, text)
			}
		}
		if len(found) > 0 {
			continue
		}
		if r.script, err = p.profile.Script(j); err != nil {
			return err
		}
		r.script += requeueCommands
		r.nodes = j.Nodes
	}
	for _, problem := range cluster.CheckCount(added, p.s.Slurm.Account) {
		found = append(found, problem.String())
	}
	if len(found) > 0 {
		return &train.UsageError{Err: fmt.Errorf("%s; nothing was submitted", strings.Join(found, "\n"))}
	}
	return nil
}

// newSlurmRun returns a run that was not submitted yet.
func newSlurmRun(r *run) *slurmRun {
	n := &slurmRun{run: r}
	perProcess := r.replicasPerProcess()
	for rank := 0; rank < r.workers; rank += perProcess {
		n.tails = append(n.tails, r.newLogTail(rank))
	}
	if len(n.tails) > 0 {
		r.setRank0Output(n.tails[0].out)
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

// submit submits the jobs of the runs that are to be done.
func (p *slurmPlan) submit(ctx context.Context) (err error) {
	var submitted []string
	for _, r := range p.sweep.all {
		if r.script == "" {
			continue
		}
		if len(submitted) == 0 {
			if _, err := rendezvous.CreateToken(os.Getenv); err != nil {
				return err
			}
		}
		if err = context.Cause(ctx); err != nil {
			err = fmt.Errorf("interrupted before run %s was submitted; jobs submitted before were canceled: %w", r.name, err)
		} else {
			r.job.ID, err = p.submitRun(ctx, r)
		}
		if err != nil {
			_ = os.Remove(p.dir) // if it is empty
			return errors.Join(err, p.sweep.client.Cancel(context.WithoutCancel(ctx), submitted, false))
		}
		submitted = append(submitted, r.job.ID)
	}
	if len(submitted) == 0 {
		return nil
	}
	if err := p.s.saveLineTemplates(p.dir); err != nil {
		return err
	}
	return p.createRecord()
}

// submitRun writes the job script of a run and submits it. If Slurm rejects it, what was
// written is removed.
func (p *slurmPlan) submitRun(ctx context.Context, r *slurmRun) (id string, err error) {
	if err := makeFolder(r.dir); err != nil {
		return "", err
	}
	if err := runs.RemoveTemporary(r.dir); err != nil {
		return "", err
	}
	path := filepath.Join(r.dir, scriptName)
	if err := wrapWriteError("write job script", wholefile.WriteBytes(path, []byte(r.script), 0o755)); err != nil {
		return "", err
	}
	f := jobFile{
		Site: p.name, Study: p.s.Study, Series: r.variant.series, Workers: r.workers, Nodes: r.nodes, Seed: r.seed,
		Threads: p.s.Threads, Command: r.command,
	}
	if err := f.write(r.dir); err != nil {
		return "", err
	}
	if f.Job, err = p.sweep.client.Submit(ctx, path); err != nil {
		err = errors.Join(err, os.Remove(path), os.Remove(filepath.Join(r.dir, jobFileName)))
		_ = os.Remove(r.dir) // unless it has other files
		return "", fmt.Errorf("run %s: %w", r.name, err)
	}
	if err := f.write(r.dir); err != nil {
		return "", errors.Join(err, p.sweep.client.Cancel(context.WithoutCancel(ctx), []string{f.Job}, false))
	}
	return f.Job, nil
}

// createRecord writes the record of the sweep, by which Attach finds it.
func (p *slurmPlan) createRecord() error {
	if err := makeFolder(filepath.Join(p.dir, recordsFolder)); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := newSweepID(time.Now())
	p.sweep.record = &sweepRecord{
		ID: id, Study: p.s.Study, Dir: p.dir, Host: host, Started: time.Now(), Detach: true, Site: p.name, path: recordPath(p.dir, id),
	}
	p.sweep.saveRecord()
	_, err = readRecord(p.sweep.record.path)
	return err
}

// attachSlurm returns the sweep of a record whose runs are jobs of Slurm.
func attachSlurm(record *sweepRecord) *slurmSweep {
	m := &slurmSweep{study: record.Study, record: record}
	for _, n := range record.Runs {
		r := newSlurmRun(&run{
			dir: n.Dir, name: n.Name, workers: n.Workers, seed: n.Seed, sweep: &Sweep{Epochs: n.Epochs}, out: output.NewLineWriter(nil),
			state: n.State, started: n.Started, ended: n.Ended, changed: func() {},
		})
		r.job.ID = n.Job
		if n.Error != "" {
			r.err = errors.New(n.Error)
		}
		m.all = append(m.all, r)
	}
	return m
}

// place returns the job of a run, without its command, at the site.
func (p *slurmPlan) place(r *slurmRun) (site.Job, error) {
	o := p.s.Slurm
	j := site.Job{
		Name: p.s.Study + "-" + r.name, Folder: r.dir, CPUsPerTask: o.CPUsPerTask, Time: o.Time, Account: o.Account, Partition: o.Partition,
		Reservation: o.Reservation, Dependency: o.Dependency, Output: slurmOutputName("%j"), Signal: o.Signal, Requeue: true,
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
	return j, nil
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
