package launch

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/launch/internal/placeholder"
	"lockstep/pkg/launch/internal/series"
	"lockstep/pkg/logread"
	"lockstep/pkg/train"
)

// Validate returns an error for the first field of s that is invalid for Local on this machine.
func (s Sweep) Validate() error {
	if err := s.validateForLauncher(OnLocal); err != nil {
		return fmt.Errorf("validate sweep: %w", err)
	}
	return nil
}

// validateForLauncher returns an error for the first field of s that is invalid on OnLocal, OnMPI or OnSlurm.
func (s Sweep) validateForLauncher(on string) error {
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
	if err := s.validateForCores(cores); err != nil {
		return err
	}
	if s.Slurm.OneJob && on != OnSlurm {
		return errors.New("OneJob (--one-job) is for Slurm: use launch.Slurm (--on slurm:SITE); elsewhere the runs are executed one after another anyway")
	}
	return s.validateGPUs(on)
}

// validateForCores returns an error for the first field of s that is invalid on a machine with the given cores.
func (s Sweep) validateForCores(cores int) error {
	switch {
	case s.hasCommand() && s.Config != "":
		return fmt.Errorf("got config %q and command %q: give only one of them", s.Config, strings.Join(s.Command, " "))
	case !s.hasCommand() && s.Config == "":
		return errors.New(`no config and no command: name a config (Config, --config), or give a command (Command, -- CMD)`)
	case s.validateProgramOptions() != nil:
		return s.validateProgramOptions()
	case s.hasCommand() && len(s.configOnlyOptions()) > 0:
		return fmt.Errorf("%s cannot be used with the command %s, because only Lockstep's own training reads them: pass the values to %[2]s as its own arguments, such as --batch '{16*workers}' or --batch '{64/workers}'",
			english.JoinAnd(s.configOnlyOptions()), s.Command[0])
	case !s.hasCommand() && len(s.Lines) > 0:
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
	if !s.hasCommand() {
		if err := train.CheckEnvironment(os.Getenv); err != nil {
			return err
		}
	}
	for _, kv := range s.Set {
		if err := series.ValidateAssignmentKey("set", kv, "key=value"); err != nil {
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

// validateProgramOptions returns an error for the first invalid field of s that only another program uses.
func (s Sweep) validateProgramOptions() error {
	switch {
	case s.OneProcess && (!s.hasCommand() || len(s.Strategies) > 0):
		return errors.New("OneProcess (--processes one) is for another program without strategies: for Lockstep's own training, use the strategy mirrored (--strategies mirrored), whose workers are in one process")
	case s.GPUsPerWorker < NoGPUs:
		return fmt.Errorf("got %d GPUs per worker: use at least 1, or none (NoGPUs, --gpus-per-worker 0)", s.GPUsPerWorker)
	case s.GPUsPerWorker > 1 && !s.hasCommand():
		return fmt.Errorf("got %d GPUs per worker (GPUsPerWorker, --gpus-per-worker): a worker of Lockstep's own training uses one: leave it out", s.GPUsPerWorker)
	case s.Framework != "" && s.Framework != FrameworkTensorFlow:
		return fmt.Errorf("unknown framework %q%s: use %s for TF_CONFIG, or leave it out (Framework, --env): RANK, WORLD_SIZE and the like are always set", s.Framework, nearest.Hint(s.Framework, []string{FrameworkTensorFlow}), FrameworkTensorFlow)
	case s.Framework != "" && !s.hasCommand():
		return errors.New("a framework (Framework, --env) is for another program: Lockstep's own training finds its ranks itself")
	case s.NSys != "" && !s.hasCommand():
		return errors.New("NSys (--nsys) is for another program: Lockstep's own training writes its profile itself (Profile, --profile)")
	case s.TimeoutJoin < 0:
		return fmt.Errorf("invalid TimeoutJoin (--timeout-join) %v: use a positive one, or 0 for the config's", s.TimeoutJoin)
	}
	return nil
}

// configOnlyOptions returns the fields that are set in s but have an effect only with a Config. Each
// is followed by its flag.
func (s Sweep) configOnlyOptions() []string {
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
		{"TimeoutJoin (--timeout-join)", s.TimeoutJoin != 0},
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
				english.FormatCount(s.GlobalBatch, "sample"), english.FormatCount(n, "worker"))
		}
	}
	return nil
}

// validateCounts returns an error if Workers, Threads or Seeds is invalid on a machine with this
// number of cores.
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
			return fmt.Errorf("%s × %s: use at most %d threads on a machine", english.FormatCount(n, "worker"), english.FormatCount(threads, "thread"), engine.MaxThreads)
		case n*threads > cores && !s.Oversubscribe:
			return fmt.Errorf("%s × %s = %d, but this machine has %s: use fewer, or allow it with Oversubscribe (--oversubscribe); the times then do not measure scaling",
				english.FormatCount(n, "worker"), english.FormatCount(threads, "thread"), n*threads, english.FormatCount(cores, "core"))
		}
		if _, err := placeholder.Expand(s.Command, placeholder.Values{Workers: n, GPUs: n * max(1, s.GPUsPerWorker)}); err != nil {
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
