package train

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/model"
)

// Exit codes of Main. The command lockstep uses the same codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// Main turns a program into a worker. It parses the flags of "lockstep train", trains a network on
// the data of cfg, and exits. build builds the network; nil means the network of cfg. With RANK,
// WORLD_SIZE and the other variables of Worker in the environment, the program is one of several
// workers. To start it with "lockstep launch", set LOCKSTEP_BIN to its path:
//
//	func main() { train.Main(cfg, build) }
//
//	go build -o mine . && ./mine --epochs 3
//	LOCKSTEP_BIN=./mine lockstep launch --config mine.yaml --workers 1,2
//
// The program and lockstep must be built from the same sources of this module. The flag
// --config replaces cfg, but not the network of build.
func Main(cfg Config, build model.Builder) {
	os.Exit(runMain(os.Args[1:], cfg, build, os.Stdout, os.Stderr))
}

// runMain does the work of Main and returns the exit code.
func runMain(args []string, cfg Config, build model.Builder, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "version" { // a launcher calls this to compare builds
		err := json.NewEncoder(out).Encode(map[string]string{"build_id": buildid.ID})
		return reportError(context.Background(), err, errs)
	}
	if len(args) > 0 && args[0] == "train" { // the name of the lockstep command
		args = args[1:]
	}
	w := Worker{Own: &cfg, Build: build, Out: out}
	seed, err := readSeed(os.Getenv, cfg.Seed)
	if err != nil {
		return reportError(context.Background(), &UsageError{err}, errs)
	}
	w.Seed = seed
	flags := flag.NewFlagSet(cfg.Name, flag.ContinueOnError)
	flags.SetOutput(errs)
	w.registerFlags(flags)
	check := flags.Int("check", 0, "check whether `N` workers could train and print the config, without training")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage // Parse has printed the error
	case flags.NArg() > 0:
		return reportError(context.Background(), &UsageError{fmt.Errorf("unexpected argument %q: only flags are allowed, see --help", flags.Arg(0))}, errs)
	case *check != 0:
		return reportError(context.Background(), w.Check(context.Background(), *check, out), errs) // a signal ends the process at once
	}
	process.SurviveBrokenPipes()
	ctx, stop := signal.NotifyContext(context.Background(), process.ShutdownSignals()...)
	defer stop()
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP) // a closed terminal sends more than one
		stop()                        // a second interrupt ends the process at once
	})
	return reportError(ctx, w.Train(ctx), errs)
}

// registerFlags defines a flag for each field of w that users may set.
func (w *Worker) registerFlags(f *flag.FlagSet) {
	f.StringVar(&w.Config, "config", w.Config, "a shipped config or a .yaml `file`, in place of this program's")
	f.StringVar(&w.Run, "run", w.Run, "run `folder` (default: logs/<config>/<strategy>-n<world>-s<seed>)")
	f.StringVar(&w.Data, "data", w.Data, "`folder` of the data; a folder with image/ and label/ replaces generated cells")
	f.Int64Var(&w.Seed, "seed", w.Seed, "random seed for initial weights, sample order and augmentation")
	f.IntVar(&w.Epochs, "epochs", w.Epochs, "number of epochs (default: the config's)")
	f.IntVar(&w.Threads, "threads", w.Threads, "number of computing threads of this worker (default: the config's)")
	f.IntVar(&w.Replicas, "replicas", w.Replicas, "number of replicas in this process, with strategy mirrored (default: one per --threads cores)")
	f.BoolVar(&w.Oversubscribe, "oversubscribe", w.Oversubscribe, "allow more than four threads per core")
	f.StringVar(&w.Device, "device", w.Device, "cpu, reference, cuda or cuda:1 (default: the config's)")
	f.DurationVar(&w.TimeoutJoin, "timeout-join", w.TimeoutJoin, "how long to wait for all workers at the start (default: the config's)")
	f.DurationVar(&w.TimeoutCollective, "timeout-collective", w.TimeoutCollective, "how long to wait for another worker in one exchange (default: the config's)")
	f.StringVar(&w.Master, "master", w.Master, "address of rank 0 as `HOST[:PORT]` (default: the launcher's)")
	f.StringVar(&w.Profile, "profile", w.Profile, "steps to profile, as `FIRST:STEPS` or epoch=1,steps=0-59")
	f.BoolVar(&w.Trace, "trace", w.Trace, "also record the time of every kernel of a GPU in the --profile")
	f.Func("set", "`key=value` in the config, repeatable", func(s string) error {
		w.Set = append(w.Set, s)
		return nil
	})
	f.BoolVar(&w.Resume, "resume", w.Resume, "continue from the newest checkpoint of the run folder")
	f.BoolVar(&w.AcceptChangedData, "accept-changed-data", w.AcceptChangedData, "let --resume continue with other data than the run was trained on, and record it")
}

// reportError writes err to errs unless it is nil, and returns the exit code. ctx is done if the
// process was interrupted.
func reportError(ctx context.Context, err error, errs io.Writer) int {
	if err == nil {
		return 0
	}
	interrupted := ctx.Err() != nil
	if interrupted && !StartedByLauncher() {
		err = fmt.Errorf("interrupted: %w; to continue, run the same command again with --resume", err)
	}
	fmt.Fprintln(errs, "lockstep:", err)
	var wrong *UsageError
	switch {
	case errors.As(err, &wrong):
		return exitUsage
	case interrupted:
		return exitInterrupted
	}
	return exitFailed
}
