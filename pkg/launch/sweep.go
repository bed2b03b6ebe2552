package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch/internal/placeholder"
	"lockstep/pkg/launch/internal/runfolder"
	"lockstep/pkg/launch/internal/series"
	"lockstep/pkg/logread"
	"lockstep/pkg/train"
)

// Sweep describes the runs to start. Workers and either Config or Command are required; all
// other fields have defaults.
type Sweep struct {
	// Config is the name of a shipped config or a .yaml file that the lockstep command
	// trains.
	Config string
	// Command is another program with its arguments, in place of Config. Local returns an
	// error if the program is not found in PATH. The arguments may have placeholders for the
	// values of each run: {workers}, {seed}, {run} (the run folder), and products and quotients
	// with the number of workers. For a program whose argument is the batch of all workers,
	// {16*workers} is weak scaling. For a program whose argument is the batch of one worker,
	// {64/workers} is strong scaling. {{seed}} stands for the text {seed}.
	Command []string

	// Lines lists templates of the lines that Command prints, such as
	//
	//	Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec
	//
	// They are needed if logread does not know the form of these lines; see
	// logread.Options.Lines. Local adds them to lockstep-logs.yaml in the study's folder, where
	// everything that reads the folder finds them.
	Lines []string

	Workers []int   // worker counts, one run for each
	Seeds   []int64 // each is combined with every worker count; the default is seed 1
	// Threads is the number of threads of each worker in every run of the sweep. 0 means 1.
	Threads int
	// Oversubscribe allows more threads than the machine has cores. The times of such runs
	// do not measure scaling.
	Oversubscribe bool
	// Bind chooses the CPUs on which the workers of a run may run:
	//
	//	cores  each worker gets neighboring cores of one NUMA node, with all their SMT
	//	       siblings: one core for each thread, and up to two more if there are enough
	//	numa   each worker may use all cores of one NUMA node
	//	none   each worker may use all CPUs
	//
	// The workers never get CPUs that the launcher itself may not use. No CPU belongs to two
	// workers, except with Oversubscribe and with numa. The default is cores if the workers of
	// the largest run of the sweep fit on the machine's CPUs, and none otherwise; it is also
	// none for Command, on GPUs, under a CPU quota, and if other processes may be bound to the
	// same CPUs. run.json and out.log contain the CPUs of each worker, or why it has none of
	// its own. Systems other than Linux cannot bind processes.
	Bind string

	// Logs is the logs folder. The default is the folder that runs.ResolveOrCreateLogs finds or
	// creates.
	Logs string
	// Study is the name of the sweep's folder in Logs. The default is the name of the config
	// or of the program.
	Study string
	// Series is the name by which runs are compared. The default is the name of the config's
	// strategy, such as "ddp", or the name of the program.
	Series string

	Data   string   // folder with image/ and label/ in place of the config's data; only with Config
	Epochs int      // number of epochs in place of the config's, unless 0; only with Config
	Set    []string // settings key=value that change the config; only with Config
	// GlobalBatch is the number of samples of all workers in each pass, as in strong scaling:
	// the batch of each worker is GlobalBatch divided by the run's worker count. If it is 0,
	// each worker has the config's batch in every run, as in weak scaling. Only with Config.
	GlobalBatch int
	// Vary lists the settings in which the series of the sweep differ, each as
	// key=value,value…, such as engine.overlap=true,false. There is one series, named for
	// example ddp-overlap-true, for each value or combination of values. Runs to be
	// compared follow each other, because a machine may get slower over time. Only with Config.
	Vary []string
	// Strategies lists the strategies to compare, each a name that may be followed by options
	// as strategy.Parse describes, such as local_sgd:steps=4. There is one series per
	// strategy, with its name in place of the default name; otherwise as with Vary. Only with
	// Config.
	Strategies []string
	// Profile is the range of steps that every worker profiles, as epoch=1,steps=0-9 or
	// FIRST:STEPS (see train.ParseProfile). On the CPU, the trace of rank R is
	// trace-<R>.json in the run folder. Only with Config.
	Profile string
	// StudyLogs is a folder to which each finished run is also written in the form of
	// the U-Net scaling study, for the study's notebooks: as log_<N>.csv, or
	// log_hvd_<N>.csv for the series horovod. Runs with other seeds than the first are in
	// seed<S>/, and runs of several series (Vary) in <series>/. A file of another run is
	// never replaced. If it is DefaultStudyLogs, the folder is study-logs in the study's
	// folder. If it is empty, no such files are written.
	StudyLogs string
	// Resume continues runs that were interrupted. Without it, an unfinished run in the
	// run folder is an error. Finished runs are never run again.
	Resume bool
	// AcceptChangedData lets Resume continue runs with other data than they were trained on.
	// Without it, such runs fail. The run folder records it.
	AcceptChangedData bool
	// Timeout limits the duration of each run; 0 means no limit. Time for which the launcher
	// was stopped (Ctrl-Z) does not count.
	Timeout time.Duration

	// Now starts the sweep even if another sweep of this user is running on this machine.
	// Without it, the sweep waits until the other one has ended, because simultaneous work
	// would distort the measured times. A sweep that is started inside a run (LOCKSTEP_RUN
	// is set) or in a scheduler's job never waits.
	Now bool
	// NoWait makes Local return a *BusyError if the sweep would have to wait.
	NoWait bool
	// Detach lets a sweep continue when the notebook's kernel, or the program that launched
	// it, ends or is killed; Attach finds it again. Without it, the sweep ends with them. Jobs
	// of Slurm always continue.
	Detach bool

	// Slurm contains the options that only Slurm uses.
	Slurm SlurmOptions
	// MPI contains the options that only MPI uses.
	MPI MPIOptions

	// Output receives the lines of all workers, each with a prefix such as
	// "[n2 s1 rank 0] ". If it is nil, the lines are only in the run folders. One
	// goroutine at a time writes to it.
	Output io.Writer `json:"-"`

	// gracePeriod is how long workers may take to shut down before they are killed.
	gracePeriod time.Duration
}

// defaultGracePeriod is enough time for a training step and a check of the context.
const defaultGracePeriod = 10 * time.Second

// isForeign reports whether the workers run Command instead of the lockstep command.
func (s Sweep) isForeign() bool { return len(s.Command) > 0 }

// Validate returns an error for the first field of s that is invalid for Local, given this machine's
// cores.
func (s Sweep) Validate() error {
	if err := s.validateOn(OnLocal); err != nil {
		return fmt.Errorf("validate sweep: %w", err)
	}
	return nil
}

// validateOn returns an error for the first field of s that is invalid for a sweep on OnLocal, OnMPI or OnSlurm.
func (s Sweep) validateOn(on string) error {
	if on != OnMPI && s.MPI != (MPIOptions{}) {
		next := "use launch.MPI (--on mpi)"
		if on == OnSlurm {
			next = "with Slurm, use SlurmOptions.MPI (--mpi)"
		}
		return fmt.Errorf("the options of MPI are only for sweeps that mpirun starts: %s", next)
	}
	cores := runtime.NumCPU()
	switch on {
	case OnMPI:
		if err := s.validateMPI(); err != nil {
			return err
		}
		if s.mayUseSeveralHosts() {
			cores = math.MaxInt
		}
	case OnSlurm:
		if err := s.validateSlurm(); err != nil {
			return err
		}
		cores = math.MaxInt // the nodes have other cores than this machine
	}
	return s.validate(cores)
}

// validate returns an error for the first invalid field of s for a machine with the given number of cores.
func (s Sweep) validate(cores int) error {
	switch {
	case s.isForeign() && s.Config != "":
		return fmt.Errorf("got config %q and command %q: give only one of them", s.Config, strings.Join(s.Command, " "))
	case !s.isForeign() && s.Config == "":
		return errors.New(`no config and no command: name a config (Config, --config), or give a command (Command, -- CMD)`)
	case s.isForeign() && len(s.trainingOptions()) > 0:
		return fmt.Errorf("%s cannot be used with the command %s, because only Lockstep's own training reads them: pass the values to %[2]s as its own arguments, such as --batch '{16*workers}' or --batch '{64/workers}'",
			english.List(s.trainingOptions()), s.Command[0])
	case !s.isForeign() && len(s.Lines) > 0:
		return errors.New("lines (Lines, --line) describe what another program prints: give a command (Command, -- CMD)")
	case logread.Options{Lines: s.Lines}.Validate() != nil:
		return logread.Options{Lines: s.Lines}.Validate()
	case s.AcceptChangedData && !s.Resume:
		return errors.New("AcceptChangedData (--accept-changed-data) needs Resume (--resume): a new run may have any data")
	case s.Epochs < 0:
		return fmt.Errorf("got %d epochs: use at least 1", s.Epochs)
	case s.Now && s.NoWait:
		return errors.New("got both Now (--now) and NoWait (--no-wait): give only one of them")
	case s.validateBind() != nil:
		return s.validateBind()
	case s.Timeout < 0:
		return fmt.Errorf("invalid time-out %v: use a positive one, or 0 for none", s.Timeout)
	}
	if !s.isForeign() {
		if err := train.CheckEnvironment(os.Getenv); err != nil {
			return err
		}
	}
	for _, kv := range s.Set {
		if err := series.ValidateKey("set", kv, "key=value"); err != nil {
			return err
		}
	}
	if err := s.validateGlobalBatch(); err != nil {
		return err
	}
	if err := s.withDefaults().seriesAxes().Validate(); err != nil {
		return err
	}
	for _, name := range []string{s.Study, s.Series} {
		if name != "" && !series.IsPlain(name) {
			return fmt.Errorf("invalid name %q of study or series: use letters, digits, '.', '_' and '-', beginning with a letter or digit", name)
		}
	}
	return s.validateCounts(cores)
}

// trainingOptions returns the names of the fields of s that are set and that only a Config can use,
// each with its flag.
func (s Sweep) trainingOptions() []string {
	var names []string
	for _, o := range []struct {
		name  string
		isSet bool
	}{
		{"Data (--data)", s.Data != ""},
		{"Epochs (--epochs)", s.Epochs != 0},
		{"Set (--set)", len(s.Set) > 0},
		{"GlobalBatch (--global-batch)", s.GlobalBatch != 0},
		{"Vary (--vary)", len(s.Vary) > 0},
		{"Strategies (--strategies)", len(s.Strategies) > 0},
		{"Profile (--profile)", s.Profile != ""},
		{"AcceptChangedData (--accept-changed-data)", s.AcceptChangedData},
	} {
		if o.isSet {
			names = append(names, o.name)
		}
	}
	return names
}

// validateGlobalBatch returns an error if GlobalBatch cannot be divided among the workers of each
// run, or if the batch is also set or varied.
func (s Sweep) validateGlobalBatch() error {
	switch {
	case s.GlobalBatch == 0:
		return nil
	case s.GlobalBatch < 0:
		return fmt.Errorf("got a global batch of %d: use at least 1 sample per worker", s.GlobalBatch)
	}
	for _, kv := range slices.Concat(s.Set, s.Vary) {
		if key, _, _ := strings.Cut(kv, "="); key == "batch" {
			return errors.New("batch is set or varied, but GlobalBatch (--global-batch) divides the batch among the workers: give only one of them")
		}
	}
	for _, n := range s.Workers {
		if n > 0 && s.GlobalBatch%n != 0 {
			return fmt.Errorf("a global batch of %s cannot be divided among %s: use a multiple of each worker count",
				english.Count(s.GlobalBatch, "sample"), english.Count(n, "worker"))
		}
	}
	return nil
}

// validateCounts checks Workers, Threads and Seeds for a machine with the given number of
// cores.
func (s Sweep) validateCounts(cores int) error {
	if len(s.Workers) == 0 {
		return errors.New("no workers: give at least one worker count (Workers, --workers 1,2)")
	}
	if s.Threads < 0 {
		return fmt.Errorf("got %d threads per worker: use at least 1", s.Threads)
	}
	threads := s.withDefaults().Threads
	counts := map[int]bool{}
	for _, n := range s.Workers {
		switch {
		case n < 1:
			return fmt.Errorf("got %d workers: use at least 1", n)
		case counts[n]:
			return fmt.Errorf("duplicate worker count %d: give each count once", n)
		case n > engine.MaxThreads/threads:
			return fmt.Errorf("%s × %s: use at most %d threads on a machine", english.Count(n, "worker"), english.Count(threads, "thread"), engine.MaxThreads)
		case n*threads > cores && !s.Oversubscribe:
			return fmt.Errorf("%s × %s = %d, but this machine has %s: use fewer, or allow it with Oversubscribe (--oversubscribe); the times then do not measure scaling",
				english.Count(n, "worker"), english.Count(threads, "thread"), n*threads, english.Count(cores, "core"))
		}
		if _, err := placeholder.Expand(s.Command, placeholder.Values{Workers: n}); err != nil {
			return err
		}
		counts[n] = true
	}
	seeds := map[int64]bool{}
	for _, seed := range s.Seeds {
		switch {
		case seed < 0:
			return fmt.Errorf("got the seed %d: use a whole number from 0", seed)
		case seeds[seed]:
			return fmt.Errorf("duplicate seed %d: give each seed once", seed)
		}
		seeds[seed] = true
	}
	return nil
}

// seriesAxes returns the fields of s from which its series follow.
func (s Sweep) seriesAxes() series.Axes {
	return series.Axes{Series: s.Series, Strategies: s.Strategies, Vary: s.Vary, Set: s.Set}
}

// withDefaults returns s with the defaults of empty fields filled in.
func (s Sweep) withDefaults() Sweep {
	if s.Threads == 0 {
		s.Threads = 1
	}
	if len(s.Seeds) == 0 {
		s.Seeds = []int64{1}
	}
	if s.gracePeriod == 0 {
		s.gracePeriod = defaultGracePeriod
	}
	name := series.PlainName(s.Config)
	if s.isForeign() {
		name = series.ProgramName(s.Command)
	}
	if s.Study == "" {
		s.Study = name
	}
	switch {
	case s.Series != "" || len(s.Strategies) > 0: // each strategy names a series
	case s.isForeign():
		s.Series = name
	default:
		s.Series = train.Worker{Config: s.Config, Set: s.Set}.StrategyName()
	}
	return s
}

// logsFolder returns Logs or its default.
func (s Sweep) logsFolder() string { return cmp.Or(s.Logs, "logs") }

// saveLineTemplates adds the templates of lines to the rules for reading the logs in the study's
// folder dir.
func (s Sweep) saveLineTemplates(dir string) error {
	if len(s.Lines) == 0 {
		return nil
	}
	_, err := logread.Rules{Lines: s.Lines}.Save(dir)
	return runfolder.WrapWriteError("keep the line templates", err)
}
