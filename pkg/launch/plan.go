package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/mpirun"
	"lockstep/pkg/launch/internal/placeholder"
	"lockstep/pkg/launch/internal/queue"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// Where a sweep runs: the values of SweepPlan.On.
const (
	OnLocal = "local"
	OnMPI   = "mpi"
	OnSlurm = "slurm"
)

// SweepPlan describes what a launch of a sweep does: each run with its folder, processes, command,
// environment and resources, and whether it is started. It is a value: Local, MPI and Slurm do what it
// describes, and the separate process of a notebook's sweep receives it and plans nothing again.
// String returns it as text, which is what a dry run shows.
type SweepPlan struct {
	Schema int          `json:"schema"`           // version of the plan and of the sweep's record
	Build  string       `json:"build"`            // build id of the program that made the plan
	On     string       `json:"on"`               // OnLocal, OnMPI or OnSlurm
	Site   string       `json:"site,omitempty"`   // on Slurm: the name of the site profile, or the path of one
	Dir    string       `json:"dir"`              // the study's folder
	Sweep  Sweep        `json:"sweep"`            // with its defaults
	Binary string       `json:"binary,omitempty"` // path of the lockstep command that the workers run
	Runs   []PlannedRun `json:"runs"`             // in the order in which they are executed

	// Warnings lists what would probably not run as intended.
	Warnings []string `json:"warnings,omitempty"`
	// Unchecked lists what could not be checked, because neither Slurm nor the program has to be on the
	// machine that shows a plan.
	Unchecked []string `json:"unchecked,omitempty"`

	dry      bool            // whether nothing will be started
	mpirun   mpirun.Launcher // with OnMPI
	leftOver string          // a note about processes of a killed launcher that were ended; "" if none
	owner    *queue.Record   // of the process that trains runs of the sweep; nil if none
	waits    string          // a line about the sweep that this one would wait for; "" if none, and if it is about to start
	jobs     jobPlan         // with OnSlurm
}

// Actions of a planned run.
const (
	ActionStart    = "start"
	ActionContinue = "continue"
	ActionNone     = "none"
)

// reasonDone is the Reason of a run that was done before.
const reasonDone = "done"

// PlannedRun is one run of a SweepPlan.
type PlannedRun struct {
	Name    string `json:"name"` // of the run folder
	Dir     string `json:"dir"`  // the run folder
	Series  string `json:"series"`
	Label   string `json:"label,omitempty"` // of the series, in the workers' lines; "" if there is only one
	Workers int    `json:"workers"`
	Seed    int64  `json:"seed"`
	Program bool   `json:"program,omitempty"` // whether it runs Sweep.Command instead of Lockstep's training

	Action string `json:"action"`           // ActionStart, ActionContinue or ActionNone
	Reason string `json:"reason,omitempty"` // why there is nothing to do, such as "done"

	// Processes is the number of processes. Each contains Workers/Processes workers, usually one.
	Processes int `json:"processes"`
	// Command is the command of each process, without the options that continue a run.
	Command []string `json:"command"`
	// TFConfig reports whether the processes find their ranks in TF_CONFIG instead of RANK and WORLD_SIZE.
	TFConfig bool `json:"tf_config,omitempty"`
	// Environment lists the variables that the launcher adds to the environment of the first process. PORT
	// and SECRET stand for a free port and a new secret.
	Environment []string       `json:"environment,omitempty"`
	Binding     *runs.Binding  `json:"binding,omitempty"`    // the CPUs of the workers on this machine; nil elsewhere
	JobID       string         `json:"job_id,omitempty"`     // of the job of Slurm, once it was submitted
	Job         *site.Job      `json:"job,omitempty"`        // the job of Slurm; nil elsewhere, and if there is nothing to do
	Config      map[string]any `json:"config,omitempty"`     // as in run.json; nil for another program
	Epochs      int            `json:"epochs,omitempty"`     // 0 if unknown
	StudyLogs   string         `json:"study_logs,omitempty"` // the folder for the run's study log; "" if none is written
}

// Plan returns the plan of a sweep. on says where the sweep is to run: local, mpi, or slurm:SITE with the
// name of a site profile or the path of one. Plan starts nothing and writes nothing. It returns the
// error that Local, MPI or Slurm would return. Only with slurm:SITE does it work away from the cluster
// too, and lists what could not be checked there.
func Plan(ctx context.Context, on string, s Sweep) (*SweepPlan, error) {
	kind, profile, err := ParseOn(on)
	if err != nil {
		return nil, err
	}
	return planSweep(ctx, kind, profile, s, true)
}

// ParseOn splits the place where a sweep is to run, as for Plan, into OnLocal, OnMPI or OnSlurm, and the
// site on Slurm, which is generic by default.
func ParseOn(on string) (kind, profile string, err error) {
	kind, profile, _ = strings.Cut(on, ":")
	switch kind {
	case OnLocal, OnMPI:
		if profile != "" {
			err = &train.UsageError{Err: fmt.Errorf("invalid --on %q: %s has no site", on, kind)}
		}
	case OnSlurm:
		if profile == "" {
			profile = "generic"
		}
	default:
		err = &train.UsageError{Err: fmt.Errorf("unknown back end %q%s: use local, mpi or slurm:SITE", on, nearest.Hint(kind, []string{OnLocal, OnMPI, OnSlurm}))}
	}
	return kind, profile, err
}

// planSweep implements Plan. profile is the site with OnSlurm. If dry is false, the sweep is about to be
// started: planSweep then creates the logs folder if there is none, and ends the processes that a
// killed launcher has left behind in the run folders. On this machine it also creates the study's folder.
func planSweep(ctx context.Context, on, profile string, s Sweep, dry bool) (*SweepPlan, error) {
	p := &SweepPlan{Schema: queue.Schema, Build: buildid.ID, On: on, Site: profile, Sweep: s, dry: dry}
	if on == OnSlurm {
		if err := p.loadSite(); err != nil {
			return nil, &train.UsageError{Err: err}
		}
	}
	if err := s.validateOn(on); err != nil {
		return nil, &train.UsageError{Err: fmt.Errorf("validate sweep: %w", err)}
	}
	p.Sweep = s.withDefaults()
	if on == OnSlurm {
		p.Sweep.Oversubscribe = false // it compares with the cores of this machine
	}
	if err := p.plan(ctx); err != nil {
		return nil, fmt.Errorf("launch %s: %w", p.Sweep.Study, err)
	}
	return p, nil
}

// threadsPerWorker is the number of threads that a worker of Lockstep has at least: Go's runtime and
// the thread that trains.
const threadsPerWorker = 8

// plan implements planSweep for a sweep that has been validated and has its defaults.
func (p *SweepPlan) plan(ctx context.Context) error {
	s := &p.Sweep
	findLogs := runs.PlanLogs
	if !p.dry {
		findLogs = func(path string) (string, error) { return runs.ResolveOrCreateLogs(path, os.Stderr) }
	}
	root, err := findLogs(s.logsFolder())
	if err != nil {
		return err
	}
	p.Dir = filepath.Join(root, s.Study)
	if p.On == OnLocal {
		threads := threadsPerWorker
		if s.isForeign() {
			threads = 1
		}
		if err := process.CheckThreadLimit("/proc", slices.Max(s.Workers)*threads); err != nil {
			return fmt.Errorf("start workers: %w", err)
		}
	}
	if err := p.findPrograms(ctx); err != nil {
		return err
	}
	if err := p.planRuns(); err != nil {
		return err
	}
	if !s.isForeign() {
		if err := p.checkConfigs(ctx); err != nil {
			return err
		}
	}
	if err := p.planEnvironments(); err != nil {
		return err
	}
	if !p.dry && p.On != OnSlurm { // nothing is submitted to Slurm before all has been checked
		if err := runfolder.Make(filepath.Join(p.Dir, queue.RecordsFolder)); err != nil {
			return err
		}
	}
	if err := p.checkSameConfigs(); err != nil {
		return err
	}
	if p.On == OnSlurm {
		return p.planJobs(ctx)
	}
	if p.owner, err = p.findOwner(); err != nil || p.owner != nil {
		return err
	}
	if err := p.checkFolders(); err != nil {
		if p.leftOver != "" {
			err = fmt.Errorf("%w (%s)", err, p.leftOver)
		}
		return err
	}
	if p.dry {
		p.waits, err = s.describeWait()
	}
	return err
}

// findPrograms finds the programs that the launch starts: the lockstep command, which Slurm starts for any
// worker, the program of the sweep, and mpirun.
func (p *SweepPlan) findPrograms(ctx context.Context) (err error) {
	s := &p.Sweep
	if !s.isForeign() || p.On == OnSlurm {
		if p.Binary, err = Binary(ctx); err != nil {
			return err
		}
	}
	if s.isForeign() {
		_, err := exec.LookPath(s.Command[0])
		if err != nil && !p.note(ctx, "the program", err) {
			return err
		}
	}
	if p.On == OnMPI {
		p.mpirun, err = mpirun.Find(ctx, s.MPI.Command)
	}
	return err
}

// note records that something could not be checked because of err, if the plan is only to be shown. Elsewhere than
// for Slurm, and if the sweep is about to be started, it returns false: the caller must return err.
func (p *SweepPlan) note(ctx context.Context, what string, err error) bool {
	if !p.dry || p.On != OnSlurm || ctx.Err() != nil {
		return false
	}
	p.Unchecked = append(p.Unchecked, fmt.Sprintf("%s (%v)", what, err))
	return true
}

// planRuns sets the runs in the order in which they are executed. Those of Lockstep's own training have no
// config yet.
func (p *SweepPlan) planRuns() error {
	s := &p.Sweep
	for _, seed := range s.Seeds {
		for _, n := range s.Workers {
			for _, v := range s.seriesAxes().Variants() {
				name := fmt.Sprintf("%s-n%d-s%d", v.Series, n, seed)
				r := PlannedRun{
					Name: name, Dir: filepath.Join(p.Dir, name), Series: v.Series, Label: v.Label, Workers: n, Seed: seed,
					Program: s.isForeign(), Action: ActionStart, Processes: n, Epochs: s.Epochs,
				}
				var err error
				if r.StudyLogs, err = s.studyLogFolder(&r); err != nil {
					return err
				}
				if r.Program {
					r.Command, err = placeholder.Expand(s.Command, placeholder.Values{Workers: n, Seed: seed, Run: r.Dir})
				} else {
					r.Command = append([]string{p.Binary}, s.trainArguments(&r, v.Set)...)
				}
				if err != nil {
					return err
				}
				p.Runs = append(p.Runs, r)
			}
		}
	}
	return nil
}

// trainArguments returns the arguments with which the lockstep command trains the run r. settings are the
// settings of its series, in addition to s.Set.
func (s *Sweep) trainArguments(r *PlannedRun, settings []string) []string {
	args := []string{
		"train", "--config", s.Config, "--seed", strconv.FormatInt(r.Seed, 10),
		"--threads", strconv.Itoa(s.Threads), "--run", r.Dir,
	}
	if s.Oversubscribe && r.Workers*s.Threads > train.ThreadsPerCore*runtime.NumCPU() { // a process may contain all workers
		args = append(args, "--oversubscribe")
	}
	if s.Data != "" {
		args = append(args, "--data", s.Data)
	}
	if s.Epochs > 0 {
		args = append(args, "--epochs", strconv.Itoa(s.Epochs))
	}
	for _, kv := range slices.Concat(s.Set, settings) {
		args = append(args, "--set", kv)
	}
	if s.GlobalBatch > 0 {
		args = append(args, "--set", "batch="+strconv.Itoa(s.GlobalBatch/r.Workers))
	}
	if s.Profile != "" {
		args = append(args, "--profile", s.Profile)
	}
	return args
}

// arguments returns the command of each process of the run r, with the options that continue the run if it
// is to be continued.
func (p *SweepPlan) arguments(r *PlannedRun) []string {
	args := slices.Clone(r.Command)
	if r.Action != ActionContinue {
		return args
	}
	args = append(args, "--resume")
	if p.Sweep.AcceptChangedData {
		args = append(args, "--accept-changed-data")
	}
	return args
}

// workersPerProcess returns how many workers of the run each of its processes contains.
func (r *PlannedRun) workersPerProcess() int { return r.Workers / r.Processes }

// setConfig sets the config of the run and what follows from it. It returns an error if the run's strategy
// cannot be used with its number of workers.
func (r *PlannedRun) setConfig(config map[string]any) error {
	method, err := train.StrategyOf(config)
	if err != nil {
		return err
	}
	if err := method.CheckWorkers(r.Workers); err != nil {
		return &train.UsageError{Err: err}
	}
	r.Config, r.TFConfig = config, method.Name == strategy.NameMultiWorker
	r.Processes = r.Workers / max(1, method.ReplicasPerProcess(r.Workers))
	if n, ok := config["epochs"].(float64); ok { // as decoded from JSON
		r.Epochs = int(n)
	}
	if method.Name == strategy.NameMirrored {
		r.Command = append(r.Command, "--replicas", strconv.Itoa(r.Workers))
	}
	return nil
}

// device returns the device of the run's engine, or "" for a program other than lockstep.
func (r *PlannedRun) device() string {
	engine, _ := r.Config["engine"].(map[string]any)
	device, _ := engine["device"].(string)
	return device
}

// In PlannedRun.Environment, placeholderPort stands for a free port, and placeholderSecret for the secret of
// the run.
const (
	placeholderPort   = "PORT"
	placeholderSecret = "SECRET"
)

// placeholderPorts returns placeholderPort for each of n processes.
func placeholderPorts(n int) []string { return slices.Repeat([]string{placeholderPort}, n) }

// planEnvironments sets the environment of the first process of each run, and its CPUs on this machine.
// It returns an error if the workers cannot be bound to CPUs as the user asks.
func (p *SweepPlan) planEnvironments() (err error) {
	if p.On == OnSlurm {
		return nil // the job script sets it; see planJobs
	}
	var cpus binding.State
	if p.On == OnLocal {
		cpus = binding.Read()
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		if p.On == OnMPI {
			if r.Environment, err = p.Sweep.mpiVariables(placeholderPort, placeholderSecret); err == nil {
				_, err = p.mpiArguments(r)
			}
			if err != nil {
				return err
			}
			continue
		}
		b, err := p.planBinding(r, cpus)
		if err != nil {
			return err
		}
		r.Binding = &b.Binding
		r.Environment, _ = p.workerVariables(r, 0, placeholderPorts(r.Processes), placeholderSecret)
	}
	return nil
}

// runDirs returns the folders of all runs.
func (p *SweepPlan) runDirs() []string {
	dirs := make([]string, len(p.Runs))
	for i := range p.Runs {
		dirs[i] = p.Runs[i].Dir
	}
	return dirs
}

// isDone reports whether there is nothing to do: all runs are done, and no study logs are to be written.
func (p *SweepPlan) isDone() bool {
	return !slices.ContainsFunc(p.Runs, func(r PlannedRun) bool { return r.Action != ActionNone || r.StudyLogs != "" })
}

// checkFolders decides from the content of each run folder whether the run is started, continued or
// done. It returns an error if the sweep cannot use a folder.
func (p *SweepPlan) checkFolders() error {
	if err := checkSeparateFolders(p.Runs); err != nil {
		return err
	}
	for i := range p.Runs {
		if err := p.checkFolder(&p.Runs[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkFolder implements checkFolders for one run.
func (p *SweepPlan) checkFolder(r *PlannedRun) error {
	r.Action, r.Reason = ActionStart, ""
	before, err := runs.Read(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r.checkStudyLog(runs.Info{})
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", r.Name, err)
	}
	if err := p.checkSameConfig(r, before.Info); err != nil {
		return err
	}
	if err := r.checkStudyLog(before.Info); err != nil {
		return fmt.Errorf("run %s: %w", r.Name, err)
	}
	switch {
	case before.Info.Status == runs.StatusDone && len(before.Epochs) >= r.Epochs:
		r.Action, r.Reason = ActionNone, reasonDone
	case r.Program:
		return fmt.Errorf("run %s: the run in %s is unfinished, and only runs of a config can be resumed: delete the folder to run it again", r.Name, r.Dir)
	case !p.Sweep.Resume:
		return fmt.Errorf("run %s: %s already contains an unfinished run: resume it (Resume, --resume), choose another series or seed (--series, --seeds), or delete the folder", r.Name, r.Dir)
	default:
		r.Action = ActionContinue
	}
	return nil
}

// checkSeparateFolders returns an error if two of the runs have the same folder, because one is a
// link to the other, or both are links to a third folder.
func checkSeparateFolders(all []PlannedRun) error {
	byTarget := map[string]string{}
	for i := range all {
		r := &all[i]
		target, err := filepath.EvalSymlinks(r.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
		if other := byTarget[target]; other != "" {
			return fmt.Errorf("runs %s and %s have the same folder, %s: remove one of the links, so that each run has a folder of its own", other, r.Dir, target)
		}
		byTarget[target] = r.Dir
	}
	return nil
}

// findOwner returns the record of the process that is already training, or waits to train, runs of
// the sweep, or nil if there is none. If the sweep is about to be started, it first ends the processes
// that a killed launcher has left behind in the run folders.
func (p *SweepPlan) findOwner() (*queue.Record, error) {
	if !p.dry {
		folder, err := queue.Folder()
		if err != nil {
			return nil, err
		}
		owner, note, err := findOwner(folder, p.Dir, p.runDirs())
		p.leftOver = note
		return owner, err
	}
	for _, r := range queue.ReadRecords(p.Dir) {
		if !r.HasEnded() && r.Site == "" && r.IsAlive() {
			return r, nil
		}
	}
	return findTrainer(p.runDirs())
}
