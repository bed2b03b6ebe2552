// Command lockstep trains, launches, reads and plots; see lockstep help.
//
// Exit codes: 0 done; 1 failed; 2 wrong use (flags, config); 3 something that the command needs is missing on
// this machine; 4 another sweep runs (launch --no-wait); 130 interrupted.
//
// Each command has one file, with its flags, its help and what it prints; other packages do the work. The package
// has more files than others, because commands share little: a package per command would only add constructors.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/gpu"
	_ "lockstep/pkg/engine/all" // for training and benchmarks
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch"
	"lockstep/pkg/report"
	"lockstep/pkg/train"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitMissing     = 3
	exitBusy        = 4
	exitInterrupted = 130
)

type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// asUsageError returns err with exitUsage, or nil if err is nil.
func asUsageError(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// asMissingError returns err with exitMissing, or nil if err is nil.
func asMissingError(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitMissing, err}
}

func main() {
	if err := process.CheckThreadLimit("/proc", commandThreads); err != nil {
		fmt.Fprintln(os.Stderr, "lockstep: start threads:", err)
		os.Exit(exitFailed)
	}
	os.Exit(runInterruptible(os.Args[1:]))
}

// commandThreads is the least number of threads that a command starts after main has begun.
const commandThreads = 6

// run runs the command and returns its exit code. Tests call it without a process.
func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	noteMisspelledVariables(os.Environ(), root.ErrOrStderr())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(root.ErrOrStderr(), "lockstep:", clean.Lines(err.Error()))
	var e *exitError
	var usage *train.UsageError
	var busy *launch.BusyError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &busy):
		return exitBusy
	case errors.Is(err, bench.ErrPeerMissing), errors.Is(err, gpu.ErrNoGPU), errors.Is(err, report.ErrNoBrowser):
		return exitMissing
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return asUsageError(err) })
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run", []*cobra.Command{
			ignoreBrokenOutput(trainCommand()), ignoreBrokenOutput(launchCommand()), jobsCommand(), watchCommand(), stopCommand(), ignoreBrokenOutput(trialsCommand()), ignoreBrokenOutput(batchsizeCommand()), ignoreBrokenOutput(tuneCommand()), strategiesCommand(), transfersCommand(),
		}},
		{"analyze", "Analyze", []*cobra.Command{
			analyzesLogs(scalingCommand()), analyzesLogs(compareCommand()), analyzesLogs(plotCommand()), analyzesLogs(reportCommand()), analyzesLogs(readCommand()),
		}},
		{"prove", "Prove", []*cobra.Command{verifyCommand(), analyzesLogs(gateCommand()), benchCommand()}},
		{"course", "Course", []*cobra.Command{courseCommand()}},
		{"data", "Data and models", []*cobra.Command{dataCommand(), modelCommand(), predictCommand()}},
		{"system", "System", []*cobra.Command{doctorCommand(), sitesCommand(), gpuCommand(), kernelCommand(), versionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.id
		}
		root.AddCommand(g.commands...)
	}
	root.AddCommand(columnsTopic())
	requireDecimal(root)
	root.SetHelpCommandGroupID("system")
	root.SetCompletionCommandGroupID("system")
	return root
}

// analyzesLogs prepares c, a command that reads logs. Garbage collection is rarer, because such a command
// usually ends before it would free much, and its readers limit their memory. An interrupt ends it soon.
func analyzesLogs(c *cobra.Command) *cobra.Command {
	c.PreRun = func(c *cobra.Command, _ []string) {
		reduceGC()
		abandonWhenInterrupted(c.Context())
	}
	return c
}

// reduceGC makes garbage collection rarer, unless the user has set GOGC.
func reduceGC() {
	const percent = 400
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
