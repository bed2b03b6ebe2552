package launch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/mpirun"
	"lockstep/pkg/launch/internal/output"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// The values of SweepPlan.On: where a sweep runs.
const (
	OnLocal = "local"
	OnMPI   = "mpi"
	OnSlurm = "slurm"
)

// SweepPlan describes what launching a sweep does: each run with its folder, processes, command,
// environment and resources, and whether it will be started. Local, MPI and Slurm do exactly what
// the plan describes. A notebook's kernel sends the plan to the separate process of the sweep,
// which plans nothing again. String returns the text of a dry run.
type SweepPlan struct {
	Schema int          `json:"schema"`           // version of the plan and of the sweep's record
	Build  string       `json:"build"`            // build id of the program that made the plan
	On     string       `json:"on"`               // OnLocal, OnMPI or OnSlurm
	Site   string       `json:"site,omitempty"`   // on Slurm: the name of the site profile, or the path of one
	Dir    string       `json:"dir"`              // the study's folder
	Sweep  Sweep        `json:"sweep"`            // with its defaults
	Binary string       `json:"binary,omitempty"` // path of the lockstep command that the workers run
	Runs   []PlannedRun `json:"runs"`             // in the order in which they are executed

	// GPUsPerWorker is the number of GPUs that the launcher provides for each worker of another
	// program, and GPUReason says why.
	GPUsPerWorker int    `json:"gpus_per_worker,omitempty"`
	GPUReason     string `json:"gpu_reason,omitempty"`

	// Warnings lists what would probably not run as intended.
	Warnings []string `json:"warnings,omitempty"`
	// Unchecked lists what could not be checked on this machine, because it lacks Slurm or the
	// program. A plan can be shown without them.
	Unchecked []string `json:"unchecked,omitempty"`

	dry      bool               // whether nothing will be started
	mpirun   mpirun.Launcher    // with OnMPI
	leftOver string             // a note about processes of a killed launcher that were ended; "" if none
	owner    *queue.SweepRecord // of the process that trains runs of the sweep; nil if none
	waits    string             // a line about the sweep that this one would wait for; "" if none, and if it is about to start
	jobs     slurmJobPlan       // with OnSlurm

	claimed   []int  // CPUs that the started sweep has taken; nil if users do not share the machine by CPUs
	disturbed string // why sweeps of other users disturb the started sweep; "" if they do not
}

// Plan returns the plan of a sweep without starting or writing anything. on is where the sweep is
// to run: local, mpi, or slurm:SITE with the name or the path of a site profile. Plan returns the
// error that Local, MPI or Slurm would return. With slurm:SITE it also works away from the cluster;
// the plan then lists what could not be checked.
func Plan(ctx context.Context, on string, s Sweep) (*SweepPlan, error) {
	kind, profile, err := ParseOn(on)
	if err != nil {
		return nil, err
	}
	return planSweep(ctx, kind, profile, s, true)
}

// ParseOn parses the parameter on of Plan. kind is OnLocal, OnMPI or OnSlurm. profile is the site
// profile on Slurm, by default generic.
func ParseOn(on string) (kind, profile string, err error) {
	kind, profile, _ = strings.Cut(on, ":")
	switch kind {
	case OnLocal, OnMPI:
		if profile != "" {
			err = &train.UsageError{Err: fmt.Errorf("invalid --on %q: %s has no site", on, kind)}
		}
	case OnSlurm:
		profile = cmp.Or(profile, "generic")
	default:
		err = &train.UsageError{Err: fmt.Errorf("unknown back end %q%s: use local, mpi or slurm:SITE", on, nearest.Hint(kind, []string{OnLocal, OnMPI, OnSlurm}))}
	}
	return kind, profile, err
}

// planSweep implements Plan. profile is the site profile on Slurm. If dry is false, the sweep is
// about to be started. Then planSweep also creates the logs folder if necessary, and the study's
// folder on this machine, and ends the processes that a killed launcher has left behind in the run
// folders.
func planSweep(ctx context.Context, on, profile string, s Sweep, dry bool) (*SweepPlan, error) {
	p := &SweepPlan{Schema: queue.RecordSchema, Build: buildid.ID, On: on, Site: profile, Sweep: s, dry: dry}
	if on == OnSlurm {
		if err := p.loadSite(); err != nil {
			return nil, &train.UsageError{Err: err}
		}
	}
	if err := s.validateForLauncher(on); err != nil {
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: %w", err)}
	}
	p.Sweep = s.withDefaults()
	if on == OnSlurm {
		p.Sweep.Oversubscribe = false // it compares with the cores of this machine
	}
	if err := p.computePlan(ctx); err != nil {
		return nil, fmt.Errorf("launch %s: %w", p.Sweep.Study, err)
	}
	return p, nil
}

// threadsPerWorker is the least number of threads of a worker of Lockstep: Go's runtime and the training.
const threadsPerWorker = 8

// computePlan implements planSweep. The sweep has been validated and has its defaults.
func (p *SweepPlan) computePlan(ctx context.Context) error {
	s := &p.Sweep
	findLogs := runs.PlanLogs
	if !p.dry {
		findLogs = func(path string) (string, error) { return runs.ResolveOrCreateLogs(path, os.Stderr) }
	}
	root, err := findLogs(cmp.Or(s.Logs, "logs"))
	if err != nil {
		return err
	}
	p.Dir = filepath.Join(root, s.Study)
	if p.On == OnLocal {
		threads := threadsPerWorker
		if s.hasCommand() {
			threads = 1
		}
		if err := process.CheckThreadLimit("/proc", slices.Max(s.Workers)*threads); err != nil {
			return fmt.Errorf("start workers: %w", err)
		}
	}
	if err := p.findPrograms(ctx); err != nil {
		return err
	}
	if err := p.planGPUs(ctx); err != nil {
		return err
	}
	if err := p.planRuns(); err != nil {
		return err
	}
	if err := p.planNSys(ctx); err != nil {
		return err
	}
	if !s.hasCommand() {
		if err := p.checkSeriesConfigs(ctx); err != nil {
			return err
		}
	}
	if err := p.planEnvironments(); err != nil {
		return err
	}
	if !p.dry && p.On != OnSlurm { // nothing is submitted to Slurm before all has been checked
		if err := runfolder.MakeDir(filepath.Join(p.Dir, queue.RecordsFolder)); err != nil {
			return err
		}
	}
	if err := p.checkExistingConfigs(); err != nil {
		return err
	}
	if p.On == OnSlurm {
		return p.planJobs(ctx)
	}
	if p.owner, err = p.findRunOwner(); err != nil || p.owner != nil {
		return err
	}
	if err := p.chooseActions(); err != nil {
		if p.leftOver != "" {
			err = fmt.Errorf("%w (%s)", err, p.leftOver)
		}
		return err
	}
	if p.dry {
		p.waits, err = s.describeExpectedWait()
	} else {
		p.noteSharingProblem()
	}
	return err
}

// findPrograms finds the programs that the launch starts: the lockstep command, the program of the
// sweep, and mpirun. Slurm starts the lockstep command for every worker.
func (p *SweepPlan) findPrograms(ctx context.Context) (err error) {
	s := &p.Sweep
	if !s.hasCommand() || p.On == OnSlurm {
		if p.Binary, err = Binary(ctx); err != nil {
			return err
		}
	}
	if s.hasCommand() {
		_, err := exec.LookPath(s.Command[0])
		if err != nil && !p.noteUnchecked(ctx, "the program", err) {
			return err
		}
	}
	if p.On == OnMPI {
		p.mpirun, err = mpirun.Find(ctx, s.MPI.Command)
	}
	return err
}

// describeStudyFolder returns a message with the study's folder. If the folder contains runs that
// are not in the plan, the message also states the number of runs.
func (p *SweepPlan) describeStudyFolder() string {
	text := "folder of the runs: " + p.Dir
	found, err := runs.Find(p.Dir)
	if err != nil {
		return text // it is new
	}
	dirs := p.runDirs()
	older := len(slices.DeleteFunc(found, func(dir string) bool { return slices.Contains(dirs, dir) }))
	if older == 0 {
		return text
	}
	return fmt.Sprintf("%s (%s: %d of this sweep, %d older)", text, english.FormatCount(len(dirs)+older, "run"), len(dirs), older)
}

// showMessage shows a message in the cell of a notebook, or else in the sweep's output, if there is one.
func (p *SweepPlan) showMessage(text string) error {
	switch {
	case text == "":
	case notebook.InNotebook():
		return notebook.Display(text)
	case p.Sweep.Output != nil:
		output.NewLineWriter(p.Sweep.Output).WriteLine(text)
	}
	return nil
}

// notes returns what a user should know of the plan besides its runs.
func (p *SweepPlan) notes() []string {
	notes := slices.Clone(p.Warnings)
	for i := range p.Runs {
		if r := &p.Runs[i]; r.NSys && r.Action != ActionNone {
			notes = append(notes, fmt.Sprintf("note: nsys profiles run %s: its times include the profiler's work", r.Name))
		}
	}
	return notes
}

// noteUnchecked records that what could not be checked because of err, and returns true, if the
// plan is for Slurm and will only be shown. Otherwise it returns false, and the caller must return
// err.
func (p *SweepPlan) noteUnchecked(ctx context.Context, what string, err error) bool {
	if !p.dry || p.On != OnSlurm || ctx.Err() != nil {
		return false
	}
	p.Unchecked = append(p.Unchecked, fmt.Sprintf("%s (%v)", what, err))
	return true
}

func (p *SweepPlan) runDirs() []string {
	dirs := make([]string, len(p.Runs))
	for i := range p.Runs {
		dirs[i] = p.Runs[i].Dir
	}
	return dirs
}

// findRunOwner returns the record of the process that trains, or waits to train, runs of the sweep, or
// nil. If the sweep is about to be started, it first ends the processes that a killed launcher has
// left behind in the run folders.
func (p *SweepPlan) findRunOwner() (*queue.SweepRecord, error) {
	if !p.dry {
		folder, err := queue.FindLocksFolder()
		if err != nil {
			return nil, err
		}
		owner, note, err := findRunOwner(folder, p.Dir, p.runDirs())
		p.leftOver = note
		return owner, err
	}
	for _, r := range queue.ReadRecords(p.Dir) {
		if !r.HasEnded() && r.Site == "" && r.HasLiveProcess() {
			return r, nil
		}
	}
	return findTrainingProcess(p.runDirs())
}
