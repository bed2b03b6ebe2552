package training

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
)

func watchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch [STUDY]",
		Short: "Show a sweep while it runs, on this machine or on Slurm",
		Long: `Shows a sweep that another process runs, or whose runs are jobs of Slurm: a table
of its runs with state, epoch, samples/s, loss, IoU, elapsed time and estimated end,
and the speed-up so far. In a terminal they are redrawn in place; otherwise a line is
printed when something has changed. Without STUDY, it shows the newest sweep that runs
or waits (see lockstep jobs). Ctrl-C ends only this command; the sweep continues, and
lockstep stop ends it. STUDY is the name of a study or the path of its folder.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			job, name, err := attachSweep(strings.Join(args, ""), true)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", clean.EscapeText(job.Dir())); err != nil {
				return err
			}
			err = job.WatchOn(c.Context(), c.OutOrStdout())
			if err != nil && c.Context().Err() != nil {
				return continuingSweepError(name)
			}
			return err
		},
	}
}

func stopCommand() *cobra.Command {
	var kill bool
	c := &cobra.Command{
		Use:   "stop [STUDY]",
		Short: "End a sweep in order, so that it can be continued later",
		Long: `Ends a sweep that another process of yours runs on this machine, or whose runs are
jobs of Slurm, and waits for its end. The workers save their run after the current
step; the same launch with --resume continues it. A program other than Lockstep gets
SIGTERM. Workers that take too long are killed. Without STUDY, it ends the sweep that
runs or waits if there is exactly one, and otherwise lists them.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return stopSweep(c, strings.Join(args, ""), kill)
		},
	}
	c.Flags().BoolVar(&kill, "kill", false, "kill the workers at once; the steps after the last checkpoint are lost")
	return c
}

// attachSweep attaches to the sweep of a study, given by name or path. If study is "", it attaches
// to the newest running or waiting sweep. If newest is false, there must then be only one. name is
// the study's name for messages.
func attachSweep(study string, newest bool) (job *launch.Job, name string, err error) {
	all, err := launch.Jobs()
	if err != nil {
		return nil, "", err
	}
	var active launch.JobList
	for _, j := range all {
		if j.State == launch.StateRunning || j.State == launch.StateWaiting {
			active = append(active, j)
		}
	}
	if study == "" {
		switch {
		case len(active) == 0:
			return nil, "", errors.New("no sweep runs or waits; lockstep jobs lists the last ones")
		case len(active) > 1 && !newest:
			return nil, "", cli.AsUsageError(fmt.Errorf("name the study to stop, one of:\n%s", active))
		}
		job, err = launch.Attach(active[0].Dir)
		return job, active[0].Study, err
	}
	path := study
	if found := findActiveSweep(active, study); found != "" {
		path = found
	}
	job, err = launch.Attach(path)
	return job, study, err
}

// findActiveSweep returns the folder of the active sweep named study. It returns "" if study is a path,
// or if not exactly one sweep has that name. The caller then looks in the logs folder.
func findActiveSweep(active launch.JobList, study string) string {
	if strings.ContainsRune(study, filepath.Separator) {
		return ""
	}
	dir := ""
	for _, j := range active {
		if j.Study != study && filepath.Base(j.Dir) != study {
			continue
		}
		if dir != "" && dir != j.Dir {
			return ""
		}
		dir = j.Dir
	}
	return dir
}

// stopTimeout is how long lockstep stop waits. Any worker ends earlier: Slurm kills the processes of
// a canceled job after KillWait, 30 s by default.
const stopTimeout = 5 * time.Minute

func stopSweep(c *cobra.Command, study string, kill bool) error {
	job, name, err := attachSweep(study, false)
	if err != nil {
		return err
	}
	if job.Ended() {
		return fmt.Errorf("stop %s: no sweep of this study runs or waits; lockstep jobs lists the sweeps", name)
	}
	end := job.Cancel
	if kill {
		end = job.Kill
	}
	if err := end(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.OutOrStdout(), "stopping %s; waiting until its workers have ended\n", name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), stopTimeout)
	defer cancel()
	err = job.Wait(ctx)
	switch {
	case c.Context().Err() != nil:
		return fmt.Errorf("interrupted: %s was asked to end, and ends; lockstep watch %[1]s shows it", name)
	case ctx.Err() != nil:
		return fmt.Errorf("stop %s: it has not ended after %v; lockstep stop --kill %[1]s kills its workers", name, stopTimeout)
	case err != nil && !errors.Is(err, context.Canceled):
		return fmt.Errorf("stop %s: it ended with an error: %w", name, err)
	}
	_, err = fmt.Fprint(c.OutOrStdout(), describeStopped(name, job))
	return err
}

// describeStopped describes the runs of a sweep that has ended, and the command that continues it.
func describeStopped(name string, job *launch.Job) string {
	var b strings.Builder
	done, left, foreign := 0, 0, false
	for _, r := range job.Status() {
		switch {
		case r.State == launch.StateDone:
			done++
		case r.Epoch > 0 && r.Epochs > 0:
			fmt.Fprintf(&b, "  %s: %s after epoch %d of %d\n", r.Name, r.State, r.Epoch, r.Epochs)
			left++
		default:
			fmt.Fprintf(&b, "  %s: %s\n", r.Name, r.State)
			left++
		}
		if read, err := runs.Read(r.Dir); err == nil {
			foreign = foreign || len(read.Info.Command) > 0
		}
	}
	head := fmt.Sprintf("stopped %s: %s done, %d left\n", name, english.FormatCount(done, "run"), left)
	if left == 0 {
		return fmt.Sprintf("%s had finished: %s done\n", name, english.FormatCount(done, "run"))
	}
	next := "next: the same launch with --resume (Resume: true) continues it\n"
	if foreign {
		next = "next: to run it again, delete the folders of the runs that are left, because only runs of a config can be resumed; then launch it again\n"
	}
	return clean.EscapeMultiline(head + b.String() + next)
}
