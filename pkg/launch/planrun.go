package launch

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/launch/internal/binding"
	"lockstep/pkg/launch/internal/placeholder"
	"lockstep/pkg/launch/site"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// The values of PlannedRun.Action.
const (
	ActionStart    = "start"
	ActionContinue = "continue"
	ActionNone     = "none"
)

const reasonRunDone = "done"

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

	// Processes is the number of processes, each of Workers/Processes workers, usually one.
	Processes int `json:"processes"`
	// Command is the command of each process, without the options that continue a run.
	Command []string `json:"command"`
	GPUs    int      `json:"gpus,omitempty"` // of all workers of another program, if the launcher provides them
	NSys    bool     `json:"nsys,omitempty"` // whether nsys profile starts each process
	// TFConfig reports whether the processes get TF_CONFIG. Lockstep's own training then gets it
	// instead of RANK and WORLD_SIZE, and another program in addition to them.
	TFConfig bool `json:"tf_config,omitempty"`
	// Environment lists the variables that the launcher adds to the environment of the first
	// process. PORT and SECRET stand for a free port and a new secret.
	Environment []string       `json:"environment,omitempty"`
	Binding     *runs.Binding  `json:"binding,omitempty"`    // the CPUs of the workers on this machine; nil elsewhere
	JobID       string         `json:"job_id,omitempty"`     // of the job of Slurm, once it was submitted
	Job         *site.Job      `json:"job,omitempty"`        // the job of Slurm; nil elsewhere, and if there is nothing to do
	Config      map[string]any `json:"config,omitempty"`     // as in run.json; nil for another program
	Epochs      int            `json:"epochs,omitempty"`     // 0 if unknown
	StudyLogs   string         `json:"study_logs,omitempty"` // the folder for the run's study log; "" if none is written
}

// planRuns sets the runs in the order of execution. Runs of Lockstep's own training have no config yet.
func (p *SweepPlan) planRuns() error {
	s := &p.Sweep
	for _, seed := range s.Seeds {
		for _, n := range s.Workers {
			for _, v := range s.seriesAxes().Variants() {
				name := fmt.Sprintf("%s-n%d-s%d", v.Series, n, seed)
				r := PlannedRun{
					Name: name, Dir: filepath.Join(p.Dir, name), Series: v.Series, Label: v.Label, Workers: n, Seed: seed,
					Program: s.hasCommand(), Action: ActionStart, Processes: n, Epochs: s.Epochs,
				}
				var err error
				if r.StudyLogs, err = s.studyLogFolder(&r); err != nil {
					return err
				}
				if r.Program {
					if r.GPUs = n * p.GPUsPerWorker; s.OneProcess {
						r.Processes = 1
					}
					r.TFConfig = s.Framework == FrameworkTensorFlow
					r.Command, err = placeholder.Expand(s.Command, placeholder.Values{Workers: n, GPUs: r.GPUs, Seed: seed, Run: r.Dir})
					if err != nil {
						err = &train.UsageError{Err: err}
					}
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

// trainArguments returns the arguments with which the lockstep command trains r. settings contains
// the settings of r's series, which are added to s.Set.
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
	if s.TimeoutJoin > 0 {
		args = append(args, "--set", "timeout_join="+s.TimeoutJoin.String())
	}
	return args
}

const nsysProgram = "nsys"

// nsysCommand returns the nsys command that profiles a process, to be put before the process's own
// command. nsys replaces %q{RANK} with the value of RANK. It profiles from cudaProfilerStart to
// cudaProfilerStop; the program then continues. dir is the run folder.
func nsysCommand(dir string) []string {
	output := filepath.Join(strings.ReplaceAll(dir, "%", "%%"), "nsys-%q{RANK}")
	return []string{nsysProgram, "profile", "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true", "--output=" + output}
}

func (p *SweepPlan) planNSys(ctx context.Context) error {
	name := p.Sweep.NSys
	if name == "" {
		return nil
	}
	if _, err := exec.LookPath(nsysProgram); err != nil && !p.noteUnchecked(ctx, "nsys for --nsys", err) {
		return fmt.Errorf("profile run %s: %w: install NVIDIA Nsight Systems, load the cluster's module, or leave --nsys (NSys) out", name, err)
	}
	var names []string
	last := -1
	for i := range p.Runs {
		r := &p.Runs[i]
		if names = append(names, r.Name); r.Name == name || name == NSysLast && r.Seed == p.Sweep.Seeds[0] {
			last = i
		}
	}
	if last < 0 {
		return &train.UsageError{Err: fmt.Errorf("no run %q for --nsys (NSys)%s: use %s, or last", name, nearest.Hint(name, names), english.JoinOr(names))}
	}
	p.Runs[last].NSys = true
	return nil
}

// processCommand returns the command of each process of r. If the run is to be continued, the
// command has the options for that.
func (p *SweepPlan) processCommand(r *PlannedRun) []string {
	if r.NSys {
		return slices.Concat(nsysCommand(r.Dir), r.Command)
	}
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

func (r *PlannedRun) workersPerProcess() int { return r.Workers / r.Processes }

// setConfig sets the config of the run and what follows from it. It returns an error if the
// strategy cannot be used with this number of workers.
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

// placeholderPort stands for a free port in PlannedRun.Environment, and placeholderSecret for the
// run's secret.
const (
	placeholderPort   = "PORT"
	placeholderSecret = "SECRET"
)

func placeholderPorts(n int) []string { return slices.Repeat([]string{placeholderPort}, n) }

// planEnvironments sets the environment of the first process of each run, and its CPUs on this
// machine. It returns an error if the workers cannot be bound to CPUs as the user asks.
func (p *SweepPlan) planEnvironments() (err error) {
	if p.On == OnSlurm {
		return nil // the job script sets it; see planJobs
	}
	var cpus binding.CPUState
	if p.On == OnLocal {
		cpus = binding.ReadCPUState()
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		if p.On == OnMPI {
			if r.Environment, err = p.Sweep.mpiVariables(placeholderPort, placeholderSecret); err == nil {
				_, err = p.mpiArguments(r, placeholderPorts(r.Processes))
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
