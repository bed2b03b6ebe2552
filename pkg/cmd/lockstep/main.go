// Command lockstep trains, launches, reads and plots; see lockstep help.
//
// Exit codes: 0 done; 1 failed; 2 wrong use (flags, config); 3 something that the command needs is missing on
// this machine; 4 another sweep runs (launch --no-wait); 130 interrupted.
//
// Each command has one file, with its flags, its help and what it prints; other packages do the work. A package
// in internal contains commands that share code, and cli what all commands share.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/gpu"
	"lockstep/pkg/cmd/lockstep/internal/analysis"
	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/cmd/lockstep/internal/measuring"
	"lockstep/pkg/cmd/lockstep/internal/models"
	"lockstep/pkg/cmd/lockstep/internal/training"
	_ "lockstep/pkg/engine/all" // for training and benchmarks
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch"
	"lockstep/pkg/report"
	"lockstep/pkg/train"
)

func main() {
	if err := process.CheckThreadLimit("/proc", minCommandThreads); err != nil {
		fmt.Fprintln(os.Stderr, "lockstep: start threads:", err)
		os.Exit(cli.ExitFailed)
	}
	os.Exit(cli.RunInterruptible(func(ctx context.Context) int { return run(ctx, os.Args[1:]) }))
}

// minCommandThreads is the least number of threads that a command starts after main has begun.
const minCommandThreads = 6

// run runs the command line args and returns the exit code. Tests call it instead of starting a process.
func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	noteMisspelledVariables(os.Environ(), root.ErrOrStderr())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(root.ErrOrStderr(), "lockstep:", clean.EscapeMultiline(err.Error()))
	var e *cli.ExitError
	var usage *train.UsageError
	var busy *launch.BusyError
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &usage):
		return cli.ExitUsage
	case errors.As(err, &busy):
		return cli.ExitBusy
	case errors.Is(err, bench.ErrPeerMissing), errors.Is(err, gpu.ErrNoGPU), errors.Is(err, report.ErrNoBrowser):
		return cli.ExitMissing
	case ctx.Err() != nil:
		return cli.ExitInterrupted
	}
	return cli.ExitFailed
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lockstep",
		Short: "Data-parallel training and its scaling analysis",
		Long: `Lockstep launches data-parallel training runs, reads their folders of logs, and
draws epoch time, throughput, speed-up and IoU.

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 something that is needed is missing
on this machine; 4 another sweep is running (launch --no-wait); 75 the run was saved
after SIGUSR1, which Slurm sends before a job ends; 130 interrupted.
"lockstep gate" has different ones: see its help.`,
		Version:       buildid.Version, // adds the flag --version
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate(versionText())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.AsUsageError(err) })
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run", training.Commands()},
		{"analyze", "Analyze", analysis.Commands()},
		{"prove", "Prove", []*cobra.Command{verifyCommand(), analysis.Gate(), measuring.Bench()}},
		{"course", "Course", []*cobra.Command{courseCommand()}},
		{"data", "Data and models", models.Commands()},
		{"system", "System", []*cobra.Command{doctorCommand(), sitesCommand(), measuring.GPU(), kernelCommand(), versionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.id
		}
		root.AddCommand(g.commands...)
	}
	root.AddCommand(analysis.ColumnsTopic())
	requireDecimalFlags(root)
	root.SetHelpCommandGroupID("system")
	root.SetCompletionCommandGroupID("system")
	return root
}
