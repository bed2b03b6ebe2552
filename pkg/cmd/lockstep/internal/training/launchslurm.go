package training

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/launch"
)

func addSlurmFlags(f *pflag.FlagSet, o *launch.SlurmOptions) {
	f.StringVar(&o.Account, "account", "", "Slurm: the account to charge")
	f.StringVar(&o.Partition, "partition", "", "Slurm: the partition (default: the site's)")
	f.StringVar(&o.Reservation, "reservation", "", "Slurm: the reservation")
	f.StringVar(&o.Dependency, "dependency", "", "Slurm: jobs to wait for, such as afterok:17")
	f.DurationVar(&o.Time, "time", 0, "Slurm: the time limit of each job (default: the partition's)")
	f.IntVar(&o.TasksPerNode, "tasks-per-node", 0, "Slurm: the largest number of workers on a node (default: the site's)")
	f.IntVar(&o.CPUsPerTask, "cpus-per-task", 0, "Slurm: CPUs of each worker (default: the site's)")
	f.StringVar(&o.Memory, "mem", "", "Slurm: memory of each node, such as 16G (default: the partition's)")
	f.IntVar(&o.GPUsPerNode, "gpus-per-node", 0, "Slurm: GPUs that the job asks for on each node (default: the sum over the workers of a node, see --gpus-per-worker)")
	f.IntVar(&o.ArraySize, "array-size", 0, "Slurm: the largest number of runs in one job array; 1: each run is a job of its own (default 1000)")
	f.BoolVar(&o.OneJob, "one-job", false, "Slurm: execute all runs in one job, one after another, with the resources of the largest; a requeued job does the rest")
	f.BoolVar(&o.MPI, "mpi", false, "Slurm: start the workers by the site's command for MPI programs, such as srun --mpi=pmi2")
	f.StringVar(&o.Signal, "signal", "", "Slurm: signal before a job ends, and how many seconds before (default USR1@120); none: no signal")
}

func runSweepOn(c *cobra.Command, on string, s launch.Sweep, lines, dryRun bool) error {
	kind, site, err := launch.ParseOn(on)
	switch {
	case err != nil:
		return cli.AsUsageError(err)
	case kind != launch.OnMPI && s.MPI != launch.MPIOptions{}:
		return cli.AsUsageError(errors.New("--mpirun and --hostfile are for MPI: add --on mpi"))
	case kind != launch.OnSlurm && s.Slurm != launch.SlurmOptions{}:
		return cli.AsUsageError(errors.New("--account, --partition, --reservation, --dependency, --time, --tasks-per-node, --cpus-per-task, --mem, --gpus-per-node, --array-size, --one-job, --mpi and --signal are for Slurm: add --on slurm:SITE"))
	}
	start := launch.Local
	switch kind {
	case launch.OnMPI:
		start = launch.MPI
	case launch.OnSlurm:
		start = func(ctx context.Context, s launch.Sweep) (*launch.Job, error) { return launch.Slurm(ctx, site, s) }
	}
	if !dryRun {
		return runSweep(c, start, s, lines)
	}
	plan, err := launch.Plan(c.Context(), on, s)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.OutOrStdout(), plan)
	return err
}

// runTask runs a program as a worker of a job; see launch.RunTask.
func runSlurmTask(c *cobra.Command, dir string, command []string) error {
	if len(command) == 0 {
		return cli.AsUsageError(errors.New("--task needs a program after --; only job scripts use it"))
	}
	code, err := launch.RunTask(c.Context(), dir, command)
	switch {
	case err == nil && code != 0:
		err = fmt.Errorf("%s ended with exit code %d", command[0], code)
	case err != nil && code == 0:
		code = cli.ExitFailed
	}
	if err != nil {
		return &cli.ExitError{Code: code, Err: err}
	}
	return nil
}
