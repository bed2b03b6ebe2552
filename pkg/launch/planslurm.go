package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch/internal/estimate"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/internal/slurmsubmit"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/notebook"
	"lockstep/pkg/train"
)

// SlurmOptions are the fields of a Sweep that only Slurm uses. The site profile has the defaults.
type SlurmOptions struct {
	Account     string
	Partition   string
	Reservation string
	Dependency  string        // as sbatch --dependency, such as afterok:17
	Time        time.Duration // the time limit of each job
	// TasksPerNode is the largest number of workers on a node. 0 means the site profile's.
	TasksPerNode int
	CPUsPerTask  int // 0 means the number in the site profile
	// GPUsPerNode is the number of GPUs that the job requests on each node. 0 means the sum over
	// the workers on the node; see Sweep.GPUsPerWorker.
	GPUsPerNode int
	// Memory is the memory of each node, as sbatch --mem: a number of MiB, or with a unit, such as
	// 16G. Empty means the partition's default.
	Memory string
	// OneJob submits all runs as one job with the resources of the largest run, which executes them
	// one after another. If it is requeued, it continues with the runs that are not done.
	OneJob bool
	// ArraySize is the largest number of runs in one job array. Runs that need the same nodes,
	// tasks and GPUs, such as those with different seeds, are tasks of one array. 1 submits each
	// run as a job of its own. 0 means 1000, which Slurm's default configuration allows.
	ArraySize int
	// MPI starts the workers by the site's command for MPI programs (mpi_command in its profile),
	// such as srun --mpi=pmi2. Programs that call MPI need it, and LOCKSTEP_COLLECTIVE=mpi.
	MPI bool
	// Signal is the signal that Slurm sends before it preempts a job or its time limit is reached,
	// and how many seconds before, by default USR1@120. The workers then save the run, and the job
	// is requeued and continues. "none" sends no signal.
	Signal string
}

// defaultJobSignal gives the workers two minutes to finish the current step and to save.
const defaultJobSignal = "USR1@120"

type slurmJobPlan struct {
	profile     *site.Profile // the profile of the site; if the sweep is not submitted, batch has no unknown values of it
	batch       slurmsubmit.SweepJobs
	client      slurm.Client
	unknown     []string                // keys of unknown values of the profile that the jobs depend on
	cluster     *site.Cluster           // as Slurm describes it; nil before it was asked, and if it is not on this machine
	clusterRead bool                    // whether Slurm was asked
	added       []*slurmsubmit.Run      // the runs that are to be submitted
	submissions slurmsubmit.Submissions // one for each call of sbatch
	foundLost   bool                    // whether jobs were found that are in no record; see slurmsubmit.FindLostJobs
}

// Slurm submits the runs of s as jobs of Slurm, all at once, and returns without waiting for them.
// name is the name or the path of a site profile. Run folders and worker commands are the same as
// with Local, and srun starts the workers. The run folder also contains the job script (job.sh) and
// its output. Runs that need the same resources become tasks of one job array (see
// SlurmOptions.ArraySize), whose output is in .launch in the study's folder. A notebook first shows
// the scripts, collapsed.
//
// The jobs continue when ctx, the notebook or its kernel ends, and Attach finds them again. Cancel
// cancels them. Finished runs are not submitted again. If some runs have jobs that still wait or
// run, the returned Job shows these jobs. If Slurm rejects a job, the jobs submitted before it are
// canceled.
//
// No job script contains the secret of the workers. The workers read it from the user's token file,
// so the home folder must be the same on all nodes.
func Slurm(ctx context.Context, name string, s Sweep) (*Job, error) {
	p, err := planSweep(ctx, OnSlurm, name, s, false)
	if err != nil {
		return nil, err
	}
	if err := p.showMessage(p.describeStudyFolder()); err != nil {
		return nil, err
	}
	if notebook.InNotebook() && len(p.jobs.submissions) > 0 {
		if err := notebook.Display(p.jobs.submissions); err != nil {
			return nil, fmt.Errorf("launch %s: show job scripts: %w; nothing was submitted", p.Sweep.Study, err)
		}
	}
	m, err := p.submitJobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", p.Sweep.Study, err)
	}
	job := &Job{dir: p.Dir, name: p.Sweep.Study, backend: m, where: p.describeStudyFolder(), note: strings.Join(append(p.notes(), m.describeJobs()), "\n")}
	return job, p.showMessage(job.note)
}

// describeJobScripts writes to b the job scripts of the plan, and what is not checked and not known.
func (p *SweepPlan) describeJobScripts(b *strings.Builder) {
	for _, what := range p.Unchecked {
		fmt.Fprintf(b, "# not checked here: %s\n", what)
	}
	if len(p.jobs.unknown) > 0 {
		fmt.Fprintf(b, "# not known: %s of site %s: ask its support; a submission needs them in a copy of the profile (lockstep sites show)\n", english.JoinAnd(p.jobs.unknown), p.jobs.profile.Name)
	}
	for _, note := range p.notes() {
		fmt.Fprintf(b, "# %s\n", note)
	}
	b.WriteString(p.describeGPUs())
	for i := range p.Runs {
		if r := &p.Runs[i]; r.Action == ActionNone {
			fmt.Fprintf(b, "# %s is %s: nothing to do\n\n", r.Name, r.Reason)
		}
	}
	b.WriteString(p.jobs.submissions.String())
	for i := range p.Runs {
		if r := &p.Runs[i]; r.StudyLogs != "" && r.Reason != reasonRunDone {
			fmt.Fprintf(b, "# %s: after the run, the next command or notebook that shows the sweep would write its study log to %s\n", r.Name, r.StudyLogs)
		}
	}
}

func (p *SweepPlan) loadSite() (err error) {
	j := &p.jobs
	if j.profile, err = site.Load(p.Site); err != nil {
		return err
	}
	j.batch = slurmsubmit.SweepJobs{ID: queue.NewSweepID(time.Now()), Site: p.Site, Profile: j.profile}
	if p.dry {
		j.batch.Profile = j.profile.WithoutUnknown()
	}
	return nil
}

func (s Sweep) validateSlurm() error {
	if s.Bind != "" && s.Bind != BindNone {
		return fmt.Errorf("binding %q is for local sweeps: leave it out (Bind, --bind), because with Slurm srun binds the workers", s.Bind)
	}
	if s.Slurm.OneJob && s.Slurm.ArraySize > 0 {
		return errors.New("got both one job (OneJob, --one-job) and an array size (ArraySize, --array-size): give only one of them")
	}
	if s.Slurm.ArraySize < 0 {
		return fmt.Errorf("got array size %d: use 1 to submit each run as a job of its own, a larger number, or 0 for the default", s.Slurm.ArraySize)
	}
	return nil
}

func (p *SweepPlan) planJobs(ctx context.Context) error {
	p.jobs.batch.Study, p.jobs.batch.Dir, p.jobs.batch.Threads = p.Sweep.Study, p.Dir, p.Sweep.Threads
	if err := p.findSubmittedJobs(ctx); err != nil {
		return err
	}
	return p.planSubmissions(ctx)
}

// planSubmissions plans the submissions. It returns an error if Slurm would refuse one of the jobs
// or let it wait for ever.
func (p *SweepPlan) planSubmissions(ctx context.Context) (err error) {
	var found, warnings slurmsubmit.RunProblems
	var finished []estimate.FinishedRun
	if p.Sweep.Slurm.Time > 0 {
		finished = estimate.ReadFinishedRuns(p.Dir)
	}
	batch := &p.jobs.batch
	for i := range p.Runs {
		r := &p.Runs[i]
		if r.Action == ActionNone {
			continue
		}
		j, err := p.newSiteJob(r)
		if err != nil {
			return err
		}
		j.Command = p.taskCommand(r)
		planned := &slurmsubmit.Run{Name: r.Name, Dir: r.Dir, Series: r.Series, Workers: r.Workers, Ranks: r.workersPerProcess(), Seed: r.Seed}
		if r.Program {
			planned.Command, planned.TFConfig, planned.IsOneProcess, planned.GPUs = r.Command, r.TFConfig, p.Sweep.OneProcess, r.GPUs
		}
		if r.NSys {
			planned.Profiler = nsysProgram
		}
		j = batch.AddCommonSettings(j, planned)
		if p.dry {
			j = p.noteUnknownProfileKeys(j)
		}
		j.Part = p.Sweep.Slurm.OneJob
		if r.Action == ActionStart {
			j.Estimate, j.Source = p.toPendingRun(r).EstimateDuration(finished)
		}
		cluster, err := p.readClusterOnce(ctx)
		if err != nil {
			return err
		}
		p.jobs.added = append(p.jobs.added, planned)
		r.Job, r.Environment = &j, j.Environment
		for _, problem := range batch.Profile.Check(j, cluster) {
			if problem.Warning {
				warnings.Add(r.Name, problem.String())
			} else {
				found.Add(r.Name, problem.String())
			}
		}
		if !found.IsEmpty() {
			continue
		}
		if err := batch.SetJobScript(j, planned); err != nil {
			return err
		}
	}
	for _, line := range warnings.Lines() {
		p.Warnings = append(p.Warnings, "warning: "+line)
	}
	problems := found.Lines()
	count := len(p.jobs.added)
	if p.Sweep.Slurm.OneJob {
		count = min(count, 1)
	}
	for _, problem := range p.jobs.cluster.CheckCount(count, p.Sweep.Slurm.Account) {
		problems = append(problems, problem.String())
	}
	if p.Sweep.Slurm.OneJob && len(problems) == 0 {
		return p.planSharedJob(ctx)
	}
	if len(problems) > 0 {
		return &train.UsageError{Err: fmt.Errorf("%s; nothing was submitted", strings.Join(problems, "\n"))}
	}
	p.jobs.submissions, err = batch.PlanSubmissions(p.jobs.added, p.Sweep.Slurm.ArraySize)
	return err
}

// planSharedJob plans the job that executes all runs one after another. Its nodes, and the tasks, CPUs
// and GPUs on each node, are the largest numbers that any run needs.
func (p *SweepPlan) planSharedJob(ctx context.Context) error {
	batch := &p.jobs.batch
	var all site.Job
	cpus := 0 // of a node
	for i := range p.Runs {
		if p.Runs[i].Job == nil {
			continue
		}
		part := batch.Profile.Complete(*p.Runs[i].Job)
		part.Nodes, part.TasksPerNode = max(all.Nodes, part.Nodes), max(all.TasksPerNode, part.TasksPerNode)
		cpus = max(cpus, p.Runs[i].Job.TasksPerNode*part.CPUsPerTask)
		part.GPUsPerNode, part.GPUsPerTask = max(all.GPUsPerNode, part.GPUsPerNode), max(all.GPUsPerTask, part.GPUsPerTask)
		part.Estimate += all.Estimate
		all = part
	}
	if all.Nodes == 0 {
		return nil
	}
	all.Tasks, all.CPUsPerTask = all.Nodes*all.TasksPerNode, (cpus+all.TasksPerNode-1)/all.TasksPerNode
	all.Environment, all.Begin, all.Part = nil, "", false
	cluster, err := p.readClusterOnce(ctx)
	if err != nil {
		return err
	}
	for _, problem := range batch.Profile.Check(all, cluster) {
		if !problem.Warning {
			return &train.UsageError{Err: fmt.Errorf("the job for all runs: %s; nothing was submitted", problem)}
		}
		if problem.Field == "Time" {
			p.Warnings = append(p.Warnings, "warning: the job for all runs: "+problem.String())
		}
	}
	p.jobs.submissions, err = batch.PlanOneJob(p.jobs.added, all)
	return err
}

// readClusterOnce returns the cluster as Slurm describes it, which it asks once. It returns nil if Slurm is
// not on this machine and the plan is only to be shown.
func (p *SweepPlan) readClusterOnce(ctx context.Context) (*site.Cluster, error) {
	if p.jobs.clusterRead {
		return p.jobs.cluster, nil
	}
	cluster, err := p.readCluster(ctx)
	if err != nil && !p.noteUnchecked(ctx, "partitions, accounts and their limits", err) {
		return nil, err
	}
	p.jobs.cluster, p.jobs.clusterRead = cluster, true
	return cluster, nil
}

// readCluster asks Slurm for the partitions and for the limits of the user's accounts. If it cannot
// read the limits, it only adds a warning, because Slurm applies them at submission.
func (p *SweepPlan) readCluster(ctx context.Context) (*site.Cluster, error) {
	cluster, err := p.jobs.client.ReadCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.jobs.client.AddAccounts(ctx, cluster); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("warning: the limits of your account cannot be checked before the submission, but Slurm applies them: %v", err))
	}
	return cluster, nil
}

// noteUnknownProfileKeys records which keys that j depends on are unknown in the site profile. It returns j
// with a comment for each of them at the beginning of the job script.
func (p *SweepPlan) noteUnknownProfileKeys(j site.Job) site.Job {
	var lines []string
	for _, key := range p.jobs.profile.Unknown(j) {
		if !slices.Contains(p.jobs.unknown, key) {
			p.jobs.unknown = append(p.jobs.unknown, key)
		}
		lines = append(lines, fmt.Sprintf("# %s: %s", key, site.Unknown))
	}
	if j.Begin != "" {
		lines = append(lines, j.Begin)
	}
	j.Begin = strings.Join(lines, "\n")
	return j
}

func (p *SweepPlan) toPendingRun(r *PlannedRun) estimate.PendingRun {
	e := estimate.PendingRun{Workers: r.Workers, Epochs: r.Epochs, Config: r.Config, GlobalBatch: p.Sweep.GlobalBatch > 0, Threads: p.Sweep.Threads}
	if r.Program {
		e.Command = r.Command
	}
	return e
}

// findSubmittedJobs finds the jobs that an earlier launch has submitted. For the other runs, it
// decides from the run folders what to do.
func (p *SweepPlan) findSubmittedJobs(ctx context.Context) error {
	lost, err := slurmsubmit.FindLostJobs(ctx, p.jobs.client, p.runDirs())
	if err != nil && !p.noteUnchecked(ctx, "jobs that an earlier launch has submitted", err) {
		return err
	}
	p.jobs.foundLost = len(lost) > 0
	var ids []string
	for i := range p.Runs {
		r := &p.Runs[i]
		if r.JobID = cmp.Or(slurmsubmit.ReadJobID(r.Dir), lost[r.Dir]); r.JobID != "" {
			ids = append(ids, r.JobID)
		}
	}
	jobs, err := p.jobs.client.QueryJobs(ctx, ids)
	if err != nil && !p.noteUnchecked(ctx, "the state of submitted jobs", err) {
		return err
	}
	if err := checkSeparateFolders(p.Runs); err != nil {
		return err
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		if j := jobs[r.JobID]; r.JobID != "" && j.IsKnown() && !j.HasEnded() {
			r.Action, r.Reason = ActionNone, "already submitted as job "+r.JobID
			continue
		}
		r.JobID = ""
		if err := p.chooseAction(r); err != nil {
			return err
		}
	}
	return nil
}

// newSiteJob returns the job of r at the site, without its command.
func (p *SweepPlan) newSiteJob(r *PlannedRun) (site.Job, error) {
	o := p.Sweep.Slurm
	j := site.Job{
		Name: p.Sweep.Study + "-" + r.Name, Folder: r.Dir, CPUsPerTask: o.CPUsPerTask, Memory: o.Memory, Time: o.Time, Account: o.Account, Partition: o.Partition,
		Reservation: o.Reservation, Dependency: o.Dependency, Output: slurmsubmit.JobOutputName("%j"), Signal: o.Signal, Requeue: true, MPI: o.MPI,
	}
	switch j.Signal {
	case "":
		j.Signal = defaultJobSignal
	case "none":
		j.Signal = ""
	}
	gpusPerWorker := p.GPUsPerWorker
	if !r.Program && p.Sweep.GPUsPerWorker != NoGPUs && (strings.HasPrefix(r.device(), "cuda") || o.GPUsPerNode > 0) {
		gpusPerWorker = 1
	}
	j, err := p.jobs.batch.Profile.Place(j, r.Workers, r.workersPerProcess(), gpusPerWorker)
	if err != nil {
		return j, err
	}
	if o.TasksPerNode > 0 {
		j.TasksPerNode = min(o.TasksPerNode, j.Tasks)
		j.Nodes = (j.Tasks + j.TasksPerNode - 1) / j.TasksPerNode
		j.GPUsPerNode = j.TasksPerNode * j.GPUsPerTask
	}
	if o.GPUsPerNode > 0 {
		j.GPUsPerNode = o.GPUsPerNode
	}
	if p.Sweep.OneProcess && gpusPerWorker == 0 && o.CPUsPerTask == 0 {
		j.CPUsPerTask = r.Workers * p.Sweep.Threads
	}
	return j, nil
}

// submitJobs submits the jobs of the runs that are to be done, and returns the sweep. On failure, it
// cancels the jobs and removes what it has written.
func (p *SweepPlan) submitJobs(ctx context.Context) (*slurmSweep, error) {
	for i := range p.Runs {
		if r := &p.Runs[i]; r.Reason == reasonRunDone { // perhaps no process was attached to the sweep when the run ended
			if err := r.writeStudyLog(); err != nil {
				return nil, err
			}
		}
	}
	batch := &p.jobs.batch
	if len(p.jobs.submissions) == 0 {
		m := newSlurmSweep(p)
		if p.jobs.foundLost { // from now on, Attach finds them
			return m, p.createRecord(m)
		}
		return m, nil
	}
	if _, err := rendezvous.CreateToken(os.Getenv); err != nil {
		return nil, err
	}
	if err := batch.Submit(ctx, p.jobs.client, p.jobs.submissions); err != nil {
		return nil, err
	}
	for _, added := range p.jobs.added {
		for i := range p.Runs {
			if p.Runs[i].Dir == added.Dir {
				p.Runs[i].JobID = added.ID
			}
		}
	}
	m := newSlurmSweep(p)
	err := p.Sweep.saveLineTemplates(p.Dir)
	if err == nil {
		err = p.createRecord(m)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w; the jobs were canceled", err), batch.Withdraw(ctx, p.jobs.client, p.jobs.submissions))
	}
	return m, nil
}

// createRecord writes the record of the sweep m, by which Attach finds it.
func (p *SweepPlan) createRecord(m *slurmSweep) error {
	if err := runfolder.MakeDir(filepath.Join(p.Dir, queue.RecordsFolder)); err != nil {
		return err
	}
	m.record = p.newRecord(p.jobs.batch.ID)
	m.record.Detach, m.record.Site = true, p.Site
	m.saveRecord()
	if _, err := queue.ReadRecord(m.record.Path); err != nil {
		return err
	}
	if err := queue.AddToSlurmList(m.record); err != nil {
		p.Warnings = append(p.Warnings, fmt.Sprintf("warning: lockstep jobs does not show this sweep: %v", err))
	}
	return nil
}

// ExitRequeue is the exit code of a worker that has saved the run after SIGUSR1, which Slurm sends
// before it ends the job. The job is then requeued. The value is 75, EX_TEMPFAIL of sysexits.h.
const ExitRequeue = slurmsubmit.ExitRequeue

// RunTask implements "lockstep launch --task", which srun starts for the run in the folder dir. It
// runs a program other than lockstep with the environment variables of a worker, and on rank 0 also
// writes the run folder, as Local does. code is the program's exit code.
func RunTask(ctx context.Context, dir string, command []string) (code int, err error) {
	return slurmsubmit.RunTask(ctx, dir, command)
}

func (p *SweepPlan) taskCommand(r *PlannedRun) []string {
	if r.Program {
		return append([]string{p.Binary, "launch", "--task", r.Dir, "--"}, p.processCommand(r)...)
	}
	args := p.processCommand(r)
	if r.Action == ActionStart { // the job continues the run when it was requeued
		args = append(args, "--resume")
	}
	return args
}
