package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// Sweep says which runs to start. Config or Command, and Workers, are needed;
// the rest has defaults.
type Sweep struct {
	// Config is a shipped config's name or a .yaml file: what the lockstep
	// command trains.
	Config string
	// Command is a program that is not ours, with its arguments, in place of
	// Config. One that is not found by PATH is an error before anything starts.
	Command []string

	Workers []int   // worker counts, each a run
	Seeds   []int64 // each with every worker count; empty: 1
	// Threads is the number of threads of each worker, the same in every run of
	// a sweep; 0: 1.
	Threads int
	// Oversubscribe allows more threads than the machine has cores. Times
	// measured that way say nothing about scaling.
	Oversubscribe bool

	// Logs is the folder of all logs; empty: as runs.ResolveLogs finds it.
	Logs string
	// Study is the folder of the sweep in Logs; empty: the config's or the
	// program's name.
	Study string
	// Series says what is compared; empty: "ddp", or the program's name.
	Series string

	Data   string   // a folder with image/ and label/ in place of the config's data; Config only
	Epochs int      // in place of the config's; 0: the config's; Config only
	Set    []string // key=value in the config; Config only
	// Vary is what the series of the sweep differ in, each as key=value,value…,
	// such as engine.overlap=true,false: a series for every value, or for every
	// combination of values, named ddp-overlap-true. Runs to compare follow each
	// other, so that a machine that gets slower does so for all. Config only.
	Vary []string
	// Profile is a window of steps that every worker looks into, as
	// epoch=1,steps=0-9 or FIRST:STEPS (see train.ParseProfile); on the CPU rank
	// R's trace is trace-<R>.json of the run folder. Config only.
	Profile string
	// StudyLogs is a folder into which each finished run is also written in the
	// form of the U-Net scaling study, so that the study's notebooks read it:
	// log_<N>.csv, or log_hvd_<N>.csv for the series horovod; runs of other seeds
	// than the first in seed<S>/, and of several series (Vary) in <series>/. A
	// file of another run is never replaced. DefaultStudyLogs is study-logs in the
	// study's folder; empty: none.
	StudyLogs string
	// Resume goes on with runs that were interrupted. Without it the folder of an
	// unfinished run is an error. Finished runs are never run again.
	Resume bool
	// Timeout bounds each run; 0: no bound. The time for which the launcher was
	// stopped (Ctrl-Z) does not count.
	Timeout time.Duration

	// Now starts the sweep though another sweep of this user runs on this machine.
	// Without it the sweep waits until that has ended: times that are measured
	// beside other work are wrong. A sweep in a run of another (LOCKSTEP_RUN is
	// set) or in a scheduler's job never waits.
	Now bool
	// NoWait makes Local return a *BusyError where the sweep would have to wait.
	NoWait bool
	// Detach lets a sweep that a notebook launched go on when the notebook's kernel
	// has ended or was restarted; Attach finds it again. Without it the sweep ends
	// with the kernel.
	Detach bool

	// Output gets every worker's lines, with "[n2 s1 rank 0] " in front. nil:
	// they are only in the run folders. It is written to by one goroutine at a
	// time.
	Output io.Writer `json:"-"`

	// grace is how long workers may take to end in order.
	grace time.Duration
}

// defaultGrace is enough for a training step and a look at the context.
const defaultGrace = 10 * time.Second

// foreign says whether the workers are not ours.
func (s Sweep) foreign() bool { return len(s.Command) > 0 }

// Validate reports the first thing in s that cannot be, for this machine.
func (s Sweep) Validate() error {
	if err := s.validate(runtime.NumCPU()); err != nil {
		return fmt.Errorf("validate sweep: %w", err)
	}
	return nil
}

func (s Sweep) validate(cores int) error {
	switch {
	case s.foreign() && s.Config != "":
		return fmt.Errorf("config %q and command %q: give one of the two", s.Config, strings.Join(s.Command, " "))
	case !s.foreign() && s.Config == "":
		return errors.New(`nothing to run: name a config (Config, --config), or give a command (Command, -- CMD)`)
	case s.foreign() && (s.Data != "" || s.Epochs != 0 || len(s.Set) > 0 || len(s.Vary) > 0 || s.Profile != ""):
		return fmt.Errorf("data, epochs, set, vary and profile belong to a config: pass them to %s as its own arguments", s.Command[0])
	case s.Epochs < 0:
		return fmt.Errorf("%d epochs: use at least 1", s.Epochs)
	case s.Now && s.NoWait:
		return errors.New("now and no-wait: give one of the two")
	case s.Timeout < 0:
		return fmt.Errorf("time-out is %v: use a positive one, or 0 for none", s.Timeout)
	}
	for _, kv := range s.Set {
		if err := validateKey("set", kv, "key=value"); err != nil {
			return err
		}
	}
	if err := s.validateVary(); err != nil {
		return err
	}
	for _, name := range []string{s.Study, s.Series} {
		if name != "" && !plainName.MatchString(name) {
			return fmt.Errorf("study or series %q: use letters, digits, '.', '_' and '-', a letter or digit first", name)
		}
	}
	return s.validateCounts(cores)
}

// plainName is what may be a folder's name and is easily typed.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func (s Sweep) validateCounts(cores int) error {
	if len(s.Workers) == 0 {
		return errors.New("no workers: give at least one worker count (Workers, --workers 1,2)")
	}
	if s.Threads < 0 {
		return fmt.Errorf("%d threads per worker: use at least 1", s.Threads)
	}
	threads := s.withDefaults().Threads
	counts := map[int]bool{}
	for _, n := range s.Workers {
		switch {
		case n < 1:
			return fmt.Errorf("%d workers: use at least 1", n)
		case counts[n]:
			return fmt.Errorf("duplicate worker count %d", n)
		case n > engine.MaxThreads/threads:
			return fmt.Errorf("%s × %s: use at most %d threads on a machine", count(n, "worker"), count(threads, "thread"), engine.MaxThreads)
		case n*threads > cores && !s.Oversubscribe:
			return fmt.Errorf("%s × %s = %d, but this machine has %s: use fewer, or allow it with Oversubscribe (--oversubscribe); times are then no measure of scaling",
				count(n, "worker"), count(threads, "thread"), n*threads, count(cores, "core"))
		}
		counts[n] = true
	}
	seeds := map[int64]bool{}
	for _, seed := range s.Seeds {
		if seeds[seed] {
			return fmt.Errorf("duplicate seed %d", seed)
		}
		seeds[seed] = true
	}
	return nil
}

func count(n int, noun string) string { return english.Count(n, noun) }

func (s Sweep) withDefaults() Sweep {
	if s.Threads == 0 {
		s.Threads = 1
	}
	if len(s.Seeds) == 0 {
		s.Seeds = []int64{1}
	}
	if s.grace == 0 {
		s.grace = defaultGrace
	}
	name, series := stem(s.Config), strategy.NameDDP
	if s.foreign() {
		name = programName(s.Command)
		series = name
	}
	if s.Study == "" {
		s.Study = name
	}
	if s.Series == "" {
		s.Series = series
	}
	return s
}

// stem is a file's name without folder and extension, made a plain name.
func stem(path string) string {
	base := filepath.Base(path)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	base = strings.TrimLeft(notPlain.ReplaceAllString(base, "-"), "._-")
	if base == "" {
		return "run"
	}
	return base
}

var (
	notPlain    = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	interpreter = regexp.MustCompile(`^(python[0-9.]*|sh|bash|julia|Rscript|perl|ruby)$`)
)

// programName is what people call a command: for "python train.py" it is train.
func programName(command []string) string {
	if interpreter.MatchString(filepath.Base(command[0])) {
		for _, arg := range command[1:] {
			if arg == "-c" {
				break // what follows is a program, not its name
			}
			if !strings.HasPrefix(arg, "-") {
				return stem(arg)
			}
		}
	}
	return stem(command[0])
}

// dir returns the study's folder. The folder of logs is made if there is none.
func (s Sweep) dir() (string, error) {
	root := s.Logs
	if root == "" {
		root = "logs"
	}
	root, err := runs.MakeLogs(root, os.Stderr)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, s.Study), nil
}
