package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/launch"
	"lockstep/pkg/train"
)

// addSlurmFlags adds the flags that only --on slurm:SITE uses.
func addSlurmFlags(f *pflag.FlagSet, o *launch.SlurmOptions) {
	f.StringVar(&o.Account, "account", "", "Slurm: the account to charge")
	f.StringVar(&o.Partition, "partition", "", "Slurm: the partition (default: the site's)")
	f.StringVar(&o.Reservation, "reservation", "", "Slurm: the reservation")
	f.StringVar(&o.Dependency, "dependency", "", "Slurm: jobs to wait for, such as afterok:17")
	f.DurationVar(&o.Time, "time", 0, "Slurm: the time limit of each job (default: the partition's)")
	f.IntVar(&o.TasksPerNode, "tasks-per-node", 0, "Slurm: the largest number of workers on a node (default: the site's)")
	f.IntVar(&o.CPUsPerTask, "cpus-per-task", 0, "Slurm: CPUs of each worker (default: the site's)")
	f.StringVar(&o.Memory, "mem", "", "Slurm: memory of each node, such as 16G (default: the partition's)")
	f.IntVar(&o.GPUsPerNode, "gpus-per-node", 0, "Slurm: GPUs on each node (default: one per worker on GPUs)")
	f.IntVar(&o.ArraySize, "array-size", 0, "Slurm: the largest number of runs in one job array; 1: each run is a job of its own (default 1000)")
	f.BoolVar(&o.MPI, "mpi", false, "Slurm: start the workers by the site's command for MPI programs, such as srun --mpi=pmi2")
	f.StringVar(&o.Signal, "signal", "", "Slurm: signal before a job ends, and how many seconds before (default USR1@120); none: no signal")
}

// runSweepOn runs a sweep on the back end that --on names.
func runSweepOn(c *cobra.Command, on string, s launch.Sweep, lines, dryRun bool) error {
	kind, site, _ := strings.Cut(on, ":")
	switch kind {
	case "local", "mpi":
		switch {
		case site != "":
			return asUsageError(fmt.Errorf("invalid --on %q: %s has no site", on, kind))
		case kind == "local" && s.MPI != launch.MPIOptions{}:
			return asUsageError(errors.New("--mpirun and --hostfile are for MPI: add --on mpi"))
		case s.Slurm != launch.SlurmOptions{}:
			return asUsageError(errors.New("--account, --partition, --reservation, --dependency, --time, --tasks-per-node, --cpus-per-task, --mem, --gpus-per-node, --array-size, --mpi and --signal are for Slurm: add --on slurm:SITE"))
		}
		start, describe := launch.Local, launch.LocalDryRun
		if kind == "mpi" {
			start, describe = launch.MPI, launch.MPIDryRun
		} else if err := s.Validate(); err != nil {
			return asUsageError(err)
		}
		if dryRun {
			return showDryRun(c, describe, s)
		}
		return runSweep(c, start, s, lines)
	case "slurm":
		if site == "" {
			site = "generic"
		}
		if s.MPI != (launch.MPIOptions{}) {
			return asUsageError(errors.New("--mpirun and --hostfile are for MPI: add --on mpi"))
		}
	default:
		return asUsageError(fmt.Errorf("unknown back end %q%s: use local, mpi or slurm:SITE", on, nearest.Hint(kind, []string{"local", "mpi", "slurm"})))
	}
	if !dryRun {
		return runSweep(c, func(ctx context.Context, s launch.Sweep) (*launch.Job, error) { return launch.Slurm(ctx, site, s) }, s, lines)
	}
	return showDryRun(c, func(ctx context.Context, s launch.Sweep) (string, error) { return launch.SlurmDryRun(ctx, site, s) }, s)
}

// showDryRun prints what describe returns for a sweep.
func showDryRun(c *cobra.Command, describe func(context.Context, launch.Sweep) (string, error), s launch.Sweep) error {
	text, err := describe(c.Context(), s)
	var wrong *train.UsageError
	if errors.As(err, &wrong) {
		return asUsageError(err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.OutOrStdout(), text)
	return err
}

// runTask runs a program as a worker of a job; see launch.RunTask.
func runTask(c *cobra.Command, dir string, command []string) error {
	if len(command) == 0 {
		return asUsageError(errors.New("--task needs a program after --; only job scripts use it"))
	}
	code, err := launch.RunTask(c.Context(), dir, command)
	switch {
	case err == nil && code != 0:
		err = fmt.Errorf("%s ended with exit code %d", command[0], code)
	case err != nil && code == 0:
		code = exitFailed
	}
	if err != nil {
		return &exitError{code, err}
	}
	return nil
}
