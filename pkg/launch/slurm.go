package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch/internal/estimate"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/internal/slurmsubmit"
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
	// Memory is the memory of each node of a job, as sbatch --mem: a number of MiB, or with a unit,
	// such as 16G. Empty means the partition's default.
	Memory string
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

// slurmPlan contains the jobs of a sweep before their submission.
type slurmPlan struct {
	batch  slurmsubmit.Batch
	binary string // the lockstep command
	sweep  *slurmSweep
	s      *Sweep

	dry       bool          // nothing will be submitted; see SlurmDryRun
	profile   *site.Profile // the profile of the site; with dry, the one in batch has no unknown values
	unknown   []string      // only with dry: the keys of unknown values that the jobs depend on
	unchecked []string      // only with dry: what could not be checked on this machine

	submissions slurmsubmit.Submissions // one for each call of sbatch
	foundLost   bool                    // whether jobs were found that are in no record; see slurmsubmit.FindLostJobs
	warnings    []string                // jobs that would run, but probably not as intended
}

// Slurm submits the runs of s as jobs of Slurm, all at once, and returns without waiting for
// them. name is a site profile, or the path of one. Each run has the same folder and worker
// command as with Local; srun starts the workers. The run folder also has the job script
// (job.sh) and its output. Runs that need the same resources are the tasks of one job array
// (see SlurmOptions.ArraySize); the output of their scripts is in .launch in the study's folder. A
// notebook first shows the scripts, collapsed.
//
// The jobs do not need this process: they continue when ctx, the notebook or its kernel ends,
// and Attach finds them again. Cancel cancels them. Finished runs are not submitted again, and
// for runs whose jobs still wait or run, the returned Job shows these jobs. If Slurm rejects a
// job, the jobs submitted before it are canceled.
//
// No job script contains the secret of the workers. The workers read it from the user's token file,
// so the home folder must be the same on all nodes.
func Slurm(ctx context.Context, name string, s Sweep) (*Job, error) {
	p, err := planSlurm(ctx, name, &s, false)
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
	job := &Job{dir: p.batch.Dir, name: s.Study, sweep: p.sweep, note: strings.Join(append(p.warnings, p.sweep.describeJobs()), "\n")}
	if notebook.InNotebook() {
		return job, notebook.Display(job.note)
	}
	if s.Output != nil {
		output.NewLineWriter(s.Output).WriteLine(job.note)
	}
	return job, nil
}

// SlurmDryRun returns what Slurm would do: each job script and the command that submits it. It
// submits nothing, and works away from the cluster too: it lists what could not be checked there, and
// values that nobody has looked up are comments in the scripts.
func SlurmDryRun(ctx context.Context, name string, s Sweep) (string, error) {
	p, err := planSlurm(ctx, name, &s, true)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, what := range p.unchecked {
		fmt.Fprintf(&b, "# not checked here: %s\n", what)
	}
	if len(p.unknown) > 0 {
		fmt.Fprintf(&b, "# not known: %s of site %s: ask its support; a submission needs them in a copy of the profile (lockstep sites show)\n", english.List(p.unknown), p.profile.Name)
	}
	for _, warning := range p.warnings {
		fmt.Fprintf(&b, "# %s\n", warning)
	}
	for _, r := range p.sweep.all {
		switch {
		case r.skip:
			fmt.Fprintf(&b, "# %s is done: nothing to do\n\n", r.name)
		case r.job.ID != "":
			fmt.Fprintf(&b, "# %s is already submitted as job %s: nothing to do\n\n", r.name, r.job.ID)
		}
	}
	b.WriteString(p.submissions.String())
	for _, r := range p.sweep.all {
		folder, err := r.studyLogFolder()
		if err != nil {
			return "", err
		}
		if folder != "" && !r.skip {
			fmt.Fprintf(&b, "# %s: after the run, the next command or notebook that shows the sweep would write its study log to %s\n", r.name, folder)
		}
	}
	return b.String(), nil
}

// planSlurm checks s, fills in its defaults, and plans its jobs. It submits nothing. If dry is true, nothing
// will be submitted either, so that neither Slurm nor the program has to be on this machine.
func planSlurm(ctx context.Context, name string, s *Sweep, dry bool) (*slurmPlan, error) {
	p := &slurmPlan{s: s, dry: dry, batch: slurmsubmit.Batch{ID: queue.NewID(time.Now()), Site: name}}
	var err error
	if p.profile, err = site.Load(name); err != nil {
		return nil, &train.UsageError{Err: err}
	}
	p.batch.Profile = p.profile
	if dry {
		p.batch.Profile = p.profile.WithoutUnknown()
	}
	if err := s.validate(math.MaxInt); err != nil { // the nodes have other cores than this machine
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: %w", err)}
	}
	if s.MPI != (MPIOptions{}) {
		return nil, &train.UsageError{Err: errors.New("validate sweep: the options of MPI are for launch.MPI (--on mpi): with Slurm, use SlurmOptions.MPI (--mpi)")}
	}
	if s.Bind != "" && s.Bind != BindNone {
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: binding %q is for local sweeps: leave it out (Bind, --bind), because with Slurm srun binds the workers", s.Bind)}
	}
	s.Oversubscribe = false // it compares with the cores of this machine
	if s.Slurm.ArraySize < 0 {
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: got array size %d: use 1 to submit each run as a job of its own, a larger number, or 0 for the default", s.Slurm.ArraySize)}
	}
	*s = s.withDefaults()
	p.batch.Study, p.batch.Threads = s.Study, s.Threads
	if err := p.plan(ctx); err != nil {
		return nil, fmt.Errorf("launch %s: %w", s.Study, err)
	}
	return p, nil
}

// plan implements planSlurm for a sweep that has been validated and has its defaults.
func (p *slurmPlan) plan(ctx context.Context) (err error) {
	if p.batch.Dir, err = p.s.findStudyFolder(); err == nil {
		p.batch.Dir, err = filepath.Abs(p.batch.Dir)
	}
	if err != nil {
		return err
	}
	if p.binary, err = Binary(ctx); err != nil {
		return err
	}
	l := &localSweep{all: p.s.planRuns(p.batch.Dir)}
	if p.s.isForeign() {
		if _, err := exec.LookPath(p.s.Command[0]); err != nil {
			if !p.note(ctx, "the program", err) {
				return err
			}
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

// checkSite returns an error if Slurm would refuse a job of the plan or let it wait for ever. Otherwise
// it plans the submissions of the jobs.
func (p *slurmPlan) checkSite(ctx context.Context) (err error) {
	var cluster *site.Cluster // nil also if Slurm is not on this machine
	asked := false
	var found, warnings slurmsubmit.Problems
	var added []*slurmsubmit.Run
	var finished []estimate.Finished
	if p.s.Slurm.Time > 0 {
		finished = estimate.ReadFinished(p.batch.Dir)
	}
	for _, r := range p.sweep.all {
		if r.skip || r.job.ID != "" {
			continue
		}
		j, err := p.place(r)
		if err != nil {
			return err
		}
		j.Command = p.command(r)
		planned := &slurmsubmit.Run{Name: r.name, Dir: r.dir, Series: r.variant.Series, Workers: r.workers, Ranks: r.replicasPerProcess(), Seed: r.seed, Command: r.command}
		j = p.batch.CompleteJob(j, planned)
		if p.dry {
			j = p.addUnknown(j)
		}
		if !r.resume {
			j.Estimate, j.Source = r.toEstimate().Time(finished)
		}
		if !asked {
			asked = true
			if cluster, err = p.readCluster(ctx); err != nil && !p.note(ctx, "partitions, accounts and their limits", err) {
				return err
			}
		}
		added = append(added, planned)
		r.planned = planned
		for _, problem := range p.batch.Profile.Check(j, cluster) {
			if problem.Warning {
				warnings.Add(r.name, problem.String())
			} else {
				found.Add(r.name, problem.String())
			}
		}
		if !found.IsEmpty() {
			continue
		}
		if err := p.batch.MakeScript(j, planned); err != nil {
			return err
		}
	}
	for _, line := range warnings.Lines() {
		p.warnings = append(p.warnings, "warning: "+line)
	}
	problems := found.Lines()
	for _, problem := range cluster.CheckCount(len(added), p.s.Slurm.Account) {
		problems = append(problems, problem.String())
	}
	if len(problems) > 0 {
		return &train.UsageError{Err: fmt.Errorf("%s; nothing was submitted", strings.Join(problems, "\n"))}
	}
	p.submissions, err = p.batch.PlanSubmissions(added, p.s.Slurm.ArraySize)
	return err
}

// readCluster asks Slurm for the partitions and for the limits of the user's accounts. If the limits
// cannot be read, it only adds a warning, because Slurm applies them at submission.
func (p *slurmPlan) readCluster(ctx context.Context) (*site.Cluster, error) {
	cluster, err := p.sweep.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.sweep.client.AddAccounts(ctx, cluster); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		p.warnings = append(p.warnings, fmt.Sprintf("warning: the limits of your account cannot be checked before the submission, but Slurm applies them: %v", err))
	}
	return cluster, nil
}

// note records that something could not be checked because of err, if nothing will be submitted. It returns
// false if err must be returned instead.
func (p *slurmPlan) note(ctx context.Context, what string, err error) bool {
	if !p.dry || ctx.Err() != nil {
		return false
	}
	p.unchecked = append(p.unchecked, fmt.Sprintf("%s (%v)", what, err))
	return true
}

// addUnknown records the keys of the profile whose values are unknown and that j depends on. It returns j
// with a comment for each of them at the beginning of its script.
func (p *slurmPlan) addUnknown(j site.Job) site.Job {
	var lines []string
	for _, key := range p.profile.Unknown(j) {
		if !slices.Contains(p.unknown, key) {
			p.unknown = append(p.unknown, key)
		}
		lines = append(lines, fmt.Sprintf("# %s: %s", key, site.Unknown))
	}
	if j.Begin != "" {
		lines = append(lines, j.Begin)
	}
	j.Begin = strings.Join(lines, "\n")
	return j
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
	var ids, dirs []string
	for _, r := range p.sweep.all {
		dirs = append(dirs, r.dir)
	}
	lost, err := slurmsubmit.FindLostJobs(ctx, p.sweep.client, dirs)
	if err != nil && !p.note(ctx, "jobs that an earlier launch has submitted", err) {
		return err
	}
	p.foundLost = len(lost) > 0
	for _, r := range p.sweep.all {
		if r.job.ID = cmp.Or(slurmsubmit.ReadJob(r.dir), lost[r.dir]); r.job.ID != "" {
			ids = append(ids, r.job.ID)
		}
	}
	jobs, err := p.sweep.client.Jobs(ctx, ids)
	if err != nil && !p.note(ctx, "the state of submitted jobs", err) {
		return err
	}
	folders := make([]*run, len(p.sweep.all))
	for i, r := range p.sweep.all {
		folders[i] = r.run
	}
	if err := checkSeparateFolders(folders); err != nil {
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
		Name: p.s.Study + "-" + r.name, Folder: r.dir, CPUsPerTask: o.CPUsPerTask, Memory: o.Memory, Time: o.Time, Account: o.Account, Partition: o.Partition,
		Reservation: o.Reservation, Dependency: o.Dependency, Output: slurmsubmit.OutputName("%j"), Signal: o.Signal, Requeue: true, MPI: o.MPI,
	}
	switch j.Signal {
	case "":
		j.Signal = defaultSignal
	case "none":
		j.Signal = ""
	}
	j, err := p.batch.Profile.Place(j, r.workers, r.replicasPerProcess(), strings.HasPrefix(r.device(), "cuda") || o.GPUsPerNode > 0)
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

// submit submits the jobs of the runs that are to be done. If that fails, it cancels the jobs that it
// has submitted and removes what it has written.
func (p *slurmPlan) submit(ctx context.Context) error {
	for _, r := range p.sweep.all {
		if r.skip { // perhaps no process was attached to the sweep when the run ended
			if err := r.writeStudyLog(); err != nil {
				return err
			}
		}
	}
	switch {
	case len(p.submissions) > 0:
	case p.foundLost: // from now on, Attach finds them
		return p.createRecord()
	default:
		return nil
	}
	if _, err := rendezvous.CreateToken(os.Getenv); err != nil {
		return err
	}
	if err := p.batch.Submit(ctx, p.sweep.client, p.submissions); err != nil {
		return err
	}
	for _, r := range p.sweep.all {
		if r.planned != nil {
			r.job.ID = r.planned.ID
		}
	}
	err := p.s.saveLineTemplates(p.batch.Dir)
	if err == nil {
		err = p.createRecord()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w; the jobs were canceled", err), p.batch.Withdraw(ctx, p.sweep.client, p.submissions))
	}
	return nil
}

// createRecord writes the record of the sweep, by which Attach finds it.
func (p *slurmPlan) createRecord() error {
	if err := runfolder.Make(filepath.Join(p.batch.Dir, queue.RecordsFolder)); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p.sweep.record = &queue.Record{
		ID: p.batch.ID, Study: p.s.Study, Dir: p.batch.Dir, Host: host, Started: time.Now(), Detach: true, Site: p.batch.Site, Path: queue.RecordPath(p.batch.Dir, p.batch.ID),
	}
	p.sweep.saveRecord()
	if _, err := queue.ReadRecord(p.sweep.record.Path); err != nil {
		return err
	}
	if err := queue.AddToSlurmList(p.sweep.record); err != nil {
		p.warnings = append(p.warnings, fmt.Sprintf("warning: lockstep jobs does not show this sweep: %v", err))
	}
	return nil
}

// ExitRequeue is the exit code of a worker that has saved the run after SIGUSR1, which Slurm sends
// before it ends the job. If the workers end with this code, the job is requeued. The value is 75,
// EX_TEMPFAIL of sysexits.h.
const ExitRequeue = slurmsubmit.ExitRequeue

// RunTask implements "lockstep launch --task". srun starts this process for the run in the folder
// dir, and RunTask runs a program other than lockstep with the environment variables of a worker.
// On rank 0 it also writes the run folder, as Local does. code is the exit code of the program.
func RunTask(ctx context.Context, dir string, command []string) (code int, err error) {
	return slurmsubmit.RunTask(ctx, dir, command)
}

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
