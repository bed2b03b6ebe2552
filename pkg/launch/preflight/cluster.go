package preflight

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch"
	"lockstep/pkg/launch/internal/slurm"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// Options configures a check. The zero value suits most sites.
type Options struct {
	Nodes     int // 0 means 2, or 1 if the partition has only one
	Partition string
	Account   string
	// Reservation is the name of the reservation in which the job runs. Empty means the site
	// profile's.
	Reservation string
	Time        time.Duration // limit of the job; 0 means 5 minutes
	// GPUs is the number of GPUs that the job requests on each node. 0 means gpus_per_node of the
	// site profile, and -1 means no GPUs.
	GPUs int
	// Progress, unless it is nil, receives a line whenever the state of the job changes.
	Progress io.Writer
}

const (
	defaultNodes = 2
	defaultTime  = 5 * time.Minute

	pollInterval   = 2 * time.Second // administrators ask for few requests per user
	repeatInterval = time.Minute     // after which the progress shows an unchanged state again
	// outputTimeout is how long the end of the output may take to arrive here after the job has
	// ended: clients of a network file system keep an old length of a file for seconds.
	outputTimeout = 10 * time.Second

	scriptName = "job.sh"
	outputName = "output.txt"
)

type siteCheck struct {
	site   string
	o      Options
	id     string
	client slurm.Client
	logs   string // the folder that the nodes must share with this machine
	folder string // of the job, in logs; also the marker of logs
	job    site.Job
	script string
}

// Slurm checks nodes of a cluster by a job and waits for its end. name is a site profile, or the
// path of one. It submits nothing, and returns an error, if the profile has unknown values or the
// job would be refused or wait for ever. If ctx ends, it cancels the job.
func Slurm(ctx context.Context, name string, o Options) (*Report, error) {
	p, err := planCheck(ctx, name, o)
	if err != nil {
		return nil, err
	}
	r, err := p.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("check site %s: %w", name, err)
	}
	return r, nil
}

// SlurmDryRun returns the job script that Slurm would submit. It submits nothing.
func SlurmDryRun(ctx context.Context, name string, o Options) (string, error) {
	p, err := planCheck(ctx, name, o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(p.folder, scriptName)
	return fmt.Sprintf("# would write %s\n%s\n# and submit it:\n# %s\n", path, p.script, strings.Join(slurm.SubmitCommand(process.QuoteShellArgument(path)), " ")), nil
}

// planCheck plans the job of a check, but does not submit it. It returns an error if the site's
// profile or Slurm would refuse the job.
func planCheck(ctx context.Context, name string, o Options) (*siteCheck, error) {
	profile, err := site.Load(name)
	if err != nil {
		return nil, &train.UsageError{Err: err}
	}
	p := &siteCheck{site: name, o: o, id: rand.Text()}
	if p.logs, err = runs.ResolveLogs("logs"); err != nil {
		return nil, err
	}
	p.folder = filepath.Join(p.logs, markerName(p.id))
	if p.job, err = p.newJob(ctx, profile); err != nil {
		return nil, err
	}
	// First check only the profile, so that unknown values are reported even if there is no Slurm here.
	if err := joinProblems(profile.Check(p.job, nil)); err != nil {
		return nil, err
	}
	cluster, err := p.client.ReadCluster(ctx)
	if err != nil {
		return nil, fmt.Errorf("check site %s: %w", name, err)
	}
	if err := p.client.AddAccounts(ctx, cluster); err != nil {
		p.reportProgress("warning: the limits of your account cannot be checked before the submission, but Slurm applies them: %v", err)
	}
	if part := cluster.Partition(profile.Complete(p.job).Partition); o.Nodes == 0 && part != nil && part.Nodes == 1 {
		p.o.Nodes = 1
		if p.job, err = p.newJob(ctx, profile); err != nil {
			return nil, err
		}
	}
	if err := joinProblems(profile.Check(p.job, cluster)); err != nil {
		return nil, err
	}
	p.script, err = profile.Script(p.job)
	return p, err
}

// joinProblems returns an error with the problems that would keep the job from running, or nil.
func joinProblems(problems []site.Problem) error {
	var found []string
	for _, problem := range problems {
		if !problem.Warning {
			found = append(found, problem.String())
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &train.UsageError{Err: fmt.Errorf("%s; nothing was submitted", strings.Join(found, "\n"))}
}

// newJob returns the job of the check. It has one task on each node, or two tasks on a single node,
// so that there is a connection to measure. A single node gets only one task if it has one GPU, or
// if the site starts programs without srun.
func (p *siteCheck) newJob(ctx context.Context, profile *site.Profile) (site.Job, error) {
	j := site.Job{
		Name: "lockstep-doctor", Folder: p.folder, Output: outputName, Nodes: p.o.Nodes, TasksPerNode: 1,
		Account: p.o.Account, Partition: p.o.Partition, Reservation: p.o.Reservation, Time: p.o.Time,
		// If one task ends, the others continue, but srun ends a task that hangs.
		Environment: []string{"SLURM_KILL_BAD_EXIT=0", fmt.Sprintf("SLURM_WAIT=%.0f", hangTimeout.Seconds())},
	}
	j.Time = cmp.Or(j.Time, defaultTime)
	if j.Nodes == 0 {
		j.Nodes = defaultNodes
		if profile.Start == site.StartPlain {
			j.Nodes = 1
		}
	}
	if j.Nodes == 1 && profile.Start != site.StartPlain {
		j.TasksPerNode = 2
	}
	j.Tasks = j.Nodes * j.TasksPerNode
	switch {
	case p.o.GPUs > 0:
		j.GPUsPerNode = p.o.GPUs
	case p.o.GPUs == 0:
		j.GPUsPerNode = max(0, int(profile.GPUsPerNode))
	}
	if j.TasksPerNode > 1 && j.GPUsPerNode == 1 {
		j.TasksPerNode, j.Tasks = 1, 1 // two tasks would need a GPU each
	}
	j.GPUsPerTask = j.GPUsPerNode / j.TasksPerNode
	binary, err := launch.Binary(ctx)
	if err != nil {
		return j, err
	}
	node, err := NodeOptions{ID: p.id, Logs: p.logs, Interface: profile.NetworkInterface, Site: p.site, GPUs: j.GPUsPerNode}.encodeArgument()
	j.Command = []string{binary, "doctor", "--node", node}
	return j, err
}

func (p *siteCheck) reportProgress(format string, args ...any) {
	if p.o.Progress != nil {
		_, _ = fmt.Fprintf(p.o.Progress, format+"\n", args...) // the check does not depend on it
	}
}

func (p *siteCheck) run(ctx context.Context) (_ *Report, err error) {
	remove, err := writeFolderMarkers(p.folder, p.id)
	defer remove()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.folder, scriptName)
	if err := os.WriteFile(path, []byte(p.script), 0o700); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("interrupted before the submission: %w", err)
	}
	submitted := time.Now()
	id, err := p.client.Submit(ctx, path)
	if err != nil {
		return nil, err
	}
	p.reportProgress("job %s was submitted; Ctrl-C cancels it", id)
	j, err := p.waitForJob(ctx, id)
	if err != nil {
		if cerr := p.client.Cancel(context.WithoutCancel(ctx), []string{id}, false); cerr != nil {
			return nil, errors.Join(err, cerr)
		}
		return nil, &interruptedError{job: id, cause: err}
	}
	r, err := p.readReport(ctx, j)
	if err != nil {
		return nil, err
	}
	r.Site, r.Job = p.site, id
	if !j.Started.IsZero() && !j.Ended.IsZero() {
		r.QueueSeconds = max(0, j.Started.Sub(submitted.Truncate(time.Second)).Seconds()) // Slurm's times are whole seconds
		r.RunSeconds = j.Ended.Sub(j.Started).Seconds()
	}
	return r, nil
}

// writeFolderMarkers creates the folder of the job in the logs folder, and a file in the folder of the
// user's secret. The nodes recognize the two shared folders by them. remove removes both.
func writeFolderMarkers(folder, id string) (remove func(), err error) {
	remove = func() {}
	token, err := rendezvous.CreateToken(os.Getenv)
	if err != nil {
		return remove, err
	}
	home := filepath.Join(filepath.Dir(token), markerName(id))
	remove = func() {
		_ = os.RemoveAll(folder) // a task that is still running may write there
		_ = os.Remove(home)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return remove, fmt.Errorf("create folder for the check: %w; set LOCKSTEP_LOGS to a folder where you may write", err)
	}
	return remove, os.WriteFile(home, nil, 0o600)
}

// waitForJob waits for the end of the job and reports its state at each change. The error is the cause of
// the end of ctx.
func (p *siteCheck) waitForJob(ctx context.Context, id string) (slurm.Job, error) {
	reported := ""
	begin := time.Now()
	var last time.Time // of the last report
	for {
		jobs, err := p.client.QueryJobs(ctx, []string{id})
		j := jobs[id]
		var text string
		switch {
		case ctx.Err() != nil:
			return j, context.Cause(ctx)
		case err != nil:
			text = fmt.Sprintf("the state of job %s is unknown, and Lockstep asks again: %v", id, err)
		case !j.IsKnown() || j.HasEnded():
			return j, nil
		case j.IsPending():
			text = fmt.Sprintf("job %s waits: %s", id, j.DescribeWait())
		default:
			text = fmt.Sprintf("job %s runs on %s", id, j.Nodes)
		}
		if text != reported || time.Since(last) > repeatInterval {
			p.reportProgress("%s (%v after the submission)", text, time.Since(begin).Round(time.Second))
			reported, last = text, time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

type interruptedError struct {
	job   string
	cause error
}

func (e *interruptedError) Error() string {
	return fmt.Sprintf("interrupted: job %s was canceled", e.job)
}
func (e *interruptedError) Unwrap() error { return e.cause }

func (p *siteCheck) readReport(ctx context.Context, j slurm.Job) (*Report, error) {
	var names []string
	if p.job.Tasks == p.job.Nodes {
		names, _ = p.client.ExpandHostNames(ctx, j.Nodes) // without it, missing nodes have no name
	}
	var ranks map[int]*rankOutput
	var others []string
	path := filepath.Join(p.folder, outputName)
	for deadline := time.Now().Add(outputTimeout); ; {
		f, err := os.Open(path)
		if err == nil {
			ranks, others = readRankOutputs(f, p.id)
			err = f.Close()
		}
		if err == nil && (countEnded(ranks) == p.job.Tasks || !j.Succeeded()) {
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			if err != nil && j.Succeeded() {
				return nil, fmt.Errorf("read the output of job %s: %w: the compute nodes probably do not share the folder %s with this machine: set LOCKSTEP_LOGS to a folder that all nodes share", j.ID, err, p.logs)
			}
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	r := newReport(p.job.Tasks, names, ranks, others)
	if !j.Succeeded() && (j.IsKnown() || countEnded(ranks) < p.job.Tasks) {
		reason, _, _ := strings.Cut(j.DescribeEnd(strings.Join(others, "\n")), ": ") // advice for runs follows
		r.addJobProblem(reason, others)
	}
	return r, nil
}

func countEnded(ranks map[int]*rankOutput) int {
	n := 0
	for _, o := range ranks {
		if o.facts != nil && o.facts.Ended != 0 {
			n++
		}
	}
	return n
}
