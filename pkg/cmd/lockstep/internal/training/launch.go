package training

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/launch"
	"lockstep/pkg/train"
)

func launchCommand() *cobra.Command {
	var s launch.Sweep
	var lines, watched, dryRun bool
	var device, on, task string
	var processes string
	var gpusPerWorker int
	var timeoutCollective time.Duration
	c := &cobra.Command{
		Use:   "launch [flags] [-- COMMAND ARGS…]",
		Short: "Start a sweep of runs, each with its number of workers",
		Long: `Starts training runs one after another, one for each number of workers and each
seed. Each worker is a process with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT and a secret LOCKSTEP_TOKEN in its environment. If a worker fails, its
run ends, and the error names the worker and the cause.

  lockstep launch --config unet2d-cells --workers 1,2 --seeds 1,2
  lockstep launch --config em-membrane --data DIR --workers 1,2
  lockstep launch --config em-membrane --data DIR --workers 1,2,4 --series weak --set batch=16
  lockstep launch --config em-membrane --data DIR --workers 1,2,4 --series strong --global-batch 64
  lockstep launch --workers 1,2 --vary engine.overlap=true,false
  lockstep launch --seeds 1,2,3 --vary batch=4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004
  lockstep launch --workers 1,2 --strategies ddp,zero1,local_sgd:steps=4
  lockstep launch --workers 2 --profile epoch=1,steps=0-9
  lockstep launch --workers 1,2 -- python train.py --epochs 3

After --, any program can follow: it gets the same environment variables and a run
folder (LOCKSTEP_RUN) with its wall time and the output of each worker. lockstep scaling
and the other commands read the epochs from this output, and from files that the program
writes to the folder, if they know the format; see lockstep read --explain. --line
describes other lines: {epoch}, {seconds}, {train_loss}, {samples_per_second} and other
fields as in lockstep read --line. The template is kept in lockstep-logs.yaml in the
study's folder, where all commands find it:

  lockstep launch --workers 1,2 --line 'Epoch {epoch}: loss {train_loss} time {seconds}s' -- python train.py

The arguments of the program may have placeholders for the values of each run:
{workers}, {seed}, {run} (its folder), and products and quotients with the number of
workers. If the program's argument is the batch of all workers, {16*workers} is weak
scaling and 64 strong scaling; if it is the batch of one worker, 16 is weak scaling and
{64/workers} strong scaling. Any other word or calculation in braces is an error; {{seed}}
stands for the text {seed}. Braces after a dollar sign (${HOME}) and braces with other
characters in them, such as JSON, stay as they are:

  lockstep launch --workers 1,2,4,6,8 --study-logs -- python train.py --batch '{16*workers}' --seed '{seed}'
  lockstep launch --workers 1,2,4 --series strong -- python train.py --batch '{64/workers}'

A program that uses several GPUs itself, with MirroredStrategy or DataParallel, is one
process per run: --processes one. It gets the GPUs of all workers ({gpus} is their
number), and the run counts as one with as many workers:

  lockstep launch --processes one --workers 1,2,4 -- python ResNet50.py --n_gpus '{workers}'

Otherwise each worker is a process, which finds its rank in the variables below. A program
always gets the first line's, with MASTER_ADDR and MASTER_PORT; under mpirun and srun it
also has their own. --env tensorflow adds TF_CONFIG. Horovod needs --on mpi, unless it was
built without MPI: then start it by horovodrun. Lockstep's own workers read all of them, in
this order (rank, number of ranks, and both on the machine):

` + rendezvous.VariableTable() + `
--nsys starts one run of a program by nsys profile, each rank with its output in the run
folder.

Workers on one machine exchange gradients through shared memory (on systems other than
Linux, unix sockets), workers on several machines by TCP. LOCKSTEP_COLLECTIVE=shm, unix
or tcp overrides this; mpi uses MPI for lockstep train under mpirun. LOCKSTEP_ALGORITHM is
the algorithm of all-reduce: direct (through memory), ring, halving, tree, hierarchical,
or auto, which measures them at the start.

--bind cores gives each worker neighboring cores of one NUMA node: one for each thread,
and up to two more for the loader and the exchange of gradients. --bind numa gives it all
cores of a node, --bind none all CPUs. The default is cores if workers × threads fit on
the CPUs that lockstep may use (its affinity mask, from a cpuset or from Slurm). It is
none for other programs, on GPUs, under a CPU quota, and where other processes are bound
to the cores or could be without being visible, as in a container. run.json and out.log
have the CPUs of each worker, or the reason; lockstep doctor shows the default here.

One sweep runs at a time: while another sweep of this user runs on this machine, this
one waits, because simultaneous sweeps disturb each other's times. --now starts it
anyway, --no-wait ends with exit code 4. A sweep inside a run of another sweep or
inside a scheduler's job does not wait. lockstep jobs lists the sweeps. Sweeps find
each other in the folder LOCKSTEP_LOCKS (default: $XDG_RUNTIME_DIR/lockstep, else
~/.local/state/lockstep/locks-HOST). Finished runs are not repeated. If another process
is already training these runs, its progress is shown. --detach starts the sweep in a
process of its own and returns: lockstep watch shows it, and lockstep stop ends it in
order.

On a machine of several users whose administrator has set LOCKSTEP_CORES (the path of a
folder), the sweeps of all of them share the cores. A sweep takes the cores of its largest
run, workers × threads, and is bound to them where workers are bound at all; under a quota
of CPU time, the cores are only counted. If too few are free, it waits behind the sweeps
that came before, at most for LOCKSTEP_CORES_WAIT (default 10m), and shows its place. Then
it starts anyway, and its runs count as disturbed. --now and --no-wait apply here too.

--on mpi starts the workers of each run by mpirun of Open MPI or MPICH, on this machine,
on the hosts of --hostfile, or on the nodes of a Slurm allocation. Lockstep's workers
still exchange gradients by their own transports; LOCKSTEP_COLLECTIVE=mpi uses MPI. A
program after -- gets the variables above, and may call MPI itself:

  lockstep launch --on mpi --workers 1,2,4 --mpirun mpirun.openmpi
  lockstep launch --on mpi --workers 4 --hostfile hosts -- python train.py

--on slurm:SITE submits all runs as jobs of Slurm, by a site profile: see lockstep sites,
or write a file of your own. Runs of equal size are one job array (--array-size). The jobs
continue without this command: Ctrl-C only stops showing them, the same command shows them
again, and scancel ends them. Before Slurm preempts a job or its time ends, the workers
save the run, and the job is requeued and continues.
The script (job.sh), its output and the lines of each worker are in the run folder.
On a partition with GPUs, each worker of a program gets one: --gpus-per-worker G asks for
G, 0 for none, and the dry run says what is asked for and why. --gpus-per-node only
changes how many GPUs a job asks for on each node. --one-job executes all runs in one job:

  lockstep launch --on slurm:SITE --processes one --one-job --workers 1,2,4 -- python ResNet50.py --n_gpus '{gpus}'

--dry-run shows the scripts and submits nothing, also where neither Slurm nor the program
is: it lists what it could not check. Without --on, it shows the folder, the environment
and the command of each run, and what is done already:

  lockstep launch --workers 1,2,4 --dry-run
  lockstep launch --on slurm:local-test --workers 1,2,4 --time 30m --dry-run

Ctrl-C ends the run after the current step and saves it, and --resume continues with
the next step; a second Ctrl-C ends it at once. SIGTERM and a closed terminal (SIGHUP)
have the same effect; under nohup, SIGHUP is ignored. Ctrl-Z stops the workers too, and
fg continues them; the time in between does not count for any timeout. SIGUSR2 makes each
worker write its last collective operations, which lockstep read explains. After a kill,
--resume repeats the steps after the last checkpoint: see checkpoint.every and
every_steps in the config. If the data have changed since then, it fails and names both,
unless --accept-changed-data is given. Configs: ` + strings.Join(train.Names(), ", ") + `, or a .yaml file.`,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case watched:
				return serveSweep(c)
			case task != "":
				return runSlurmTask(c, task, args)
			}
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				if lines && strings.Contains(args[0], "{") {
					return cli.AsUsageError(fmt.Errorf("unexpected argument %q: --line describes a line of the program, --lines shows all lines", args[0]))
				}
				return cli.AsUsageError(fmt.Errorf("unexpected argument %q: put the command to launch after --", args[0]))
			}
			if c.Flags().Changed("strategies") && len(s.Strategies) == 0 {
				return cli.AsUsageError(errors.New("--strategies is empty: list strategies, such as ddp,zero1 (see lockstep strategies), or leave the flag out"))
			}
			s.Command = args
			if len(args) == 0 && s.Config == "" {
				s.Config = "unet2d-cells"
			}
			if device != "" {
				if len(args) > 0 {
					return cli.AsUsageError(errors.New("--device is only for Lockstep's training: pass the device to the program after --"))
				}
				s.Set = append([]string{"engine.device=" + train.QuoteYAML(device)}, s.Set...)
			}
			if timeoutCollective != 0 {
				if len(args) > 0 {
					return cli.AsUsageError(errors.New("--timeout-collective is only for Lockstep's training: pass a timeout to the program after --"))
				}
				s.Set = append([]string{"timeout_collective=" + timeoutCollective.String()}, s.Set...)
			}
			switch processes {
			case "one":
				s.OneProcess = true
			case "each":
			default:
				return cli.AsUsageError(fmt.Errorf("unknown --processes %q: use each (a process for each worker) or one (a process for all workers of a run)", processes))
			}
			if s.GPUsPerWorker = gpusPerWorker; c.Flags().Changed("gpus-per-worker") && gpusPerWorker == 0 {
				s.GPUsPerWorker = launch.NoGPUs
			}
			if gpusPerWorker < 0 {
				return cli.AsUsageError(fmt.Errorf("got --gpus-per-worker %d: use at least 1, or 0 for none", gpusPerWorker))
			}
			if _, err := train.ParseProfile(s.Profile); err != nil {
				return cli.AsUsageError(err)
			}
			return runSweepOn(c, on, s, lines, dryRun)
		},
	}
	f := c.Flags()
	f.StringVar(&s.Config, "config", "", "a shipped config or a .yaml file (default unet2d-cells)")
	f.IntSliceVar(&s.Workers, "workers", []int{1}, "worker counts, for example 1,2,4")
	f.Int64SliceVar(&s.Seeds, "seeds", []int64{1}, "seeds, for example 1,2,3")
	f.IntVar(&s.Threads, "threads", 1, "threads per worker, the same in every run")
	f.BoolVar(&s.Oversubscribe, "oversubscribe", false, "allow more workers × threads than cores")
	f.StringVar(&s.Bind, "bind", "", "CPUs of a worker: cores (neighboring cores of its own), numa (all cores of a NUMA node) or none (all); default: see above")
	_ = c.RegisterFlagCompletionFunc("bind", cobra.FixedCompletions([]string{launch.BindCores, launch.BindNUMA, launch.BindNone}, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
	f.StringArrayVar(&s.Lines, "line", nil, "template of a line that the program after -- prints, such as 'Epoch {epoch}: loss {train_loss} time {seconds}s'; repeatable")
	f.StringVar(&s.Study, "study", "", "folder of the runs in logs/ (default: the config's or program's name)")
	f.StringVar(&s.Series, "series", "", "name of the series (default: the config's strategy, such as ddp, or the program's name)")
	f.StringVar(&s.Logs, "logs", "", "folder of all studies (default: logs/, see LOCKSTEP_LOGS)")
	f.StringVar(&s.Data, "data", "", "a folder with image/ and label/, instead of the config's data")
	f.IntVar(&s.Epochs, "epochs", 0, "number of epochs, instead of the config's")
	f.StringVar(&device, "device", "", "cpu, reference, cuda (each worker the GPU of its local rank) or cuda:1, instead of the config's")
	f.StringArrayVar(&s.Set, "set", nil, "key=value to change in the config; repeatable")
	f.IntVar(&s.GlobalBatch, "global-batch", 0, "samples of all workers per pass, divided among them (strong scaling); 0: the config's batch for each worker (weak scaling)")
	f.StringArrayVar(&s.Vary, "vary", nil, "key=value,value…: one series per value; repeatable")
	f.StringSliceVar(&s.Strategies, "strategies", nil, "strategies, one series each, with options as NAME:option=value: for example ddp,zero1,local_sgd:steps=4 (see lockstep strategies)")
	f.StringVar(&s.Profile, "profile", "", "FIRST:STEPS, or epoch=1,steps=0-9: steps that each worker profiles into trace-<rank>.json in its run folder (see lockstep train --help)")
	f.StringVar(&s.StudyLogs, "study-logs", "", "also write each run as log_<N>.csv of the U-Net study, other seeds in seed<S>/: --study-logs for logs/<study>/study-logs, --study-logs=DIR for another folder")
	f.Lookup("study-logs").NoOptDefVal = launch.DefaultStudyLogs
	f.StringVar(&processes, "processes", "each", "each: a process for each worker; one: the program after -- is one process per run, with the GPUs or cores of all workers")
	f.IntVar(&gpusPerWorker, "gpus-per-worker", 0, "GPUs of each worker of the program after --; 0: none (default: on Slurm 1 where the partition has GPUs; with --processes one 1 where this machine has GPUs)")
	f.StringVar(&s.Framework, "env", "", "tensorflow: the program after -- also gets TF_CONFIG")
	f.StringVar(&s.NSys, "nsys", "", "start one run of the program after -- by nsys profile, whose range the program marks by cudaProfilerStart: --nsys for the last run with the first seed, --nsys=RUN for another")
	f.Lookup("nsys").NoOptDefVal = launch.NSysLast
	f.BoolVar(&s.Detach, "detach", false, "return once the sweep is started: it continues after this command, its terminal or kernel has ended; see lockstep watch and lockstep stop")
	f.BoolVar(&s.Resume, "resume", false, "continue from the newest checkpoints of these runs")
	f.BoolVar(&s.AcceptChangedData, "accept-changed-data", false, "let --resume continue runs with other data than they were trained on, and record it")
	f.DurationVar(&s.Timeout, "timeout", 0, "maximum duration of each run, without the time for which it was stopped (Ctrl-Z); 0: none")
	f.DurationVar(&s.TimeoutJoin, "timeout-join", 0, "how long the workers wait until all of them have appeared, instead of the config's (1m0s by default)")
	f.DurationVar(&timeoutCollective, "timeout-collective", 0, "how long a worker waits for the others in one exchange, instead of the config's (2m0s by default)")
	f.BoolVar(&s.Now, "now", false, "start even if another sweep runs on this machine")
	f.BoolVar(&s.NoWait, "no-wait", false, "end with exit code 4 instead of waiting for another sweep")
	f.StringVar(&on, "on", "local", "where to run: local, mpi, or slurm:SITE with the name of a site profile or the path of one")
	f.BoolVar(&dryRun, "dry-run", false, "show the folder, the environment and the command of each run, or with --on slurm:SITE the job scripts, and start nothing")
	f.StringVar(&s.MPI.Command, "mpirun", "", "MPI: name or path of mpirun (default: mpirun, else mpiexec)")
	f.StringVar(&s.MPI.Hostfile, "hostfile", "", "MPI: file with the hosts, in mpirun's format (default: this machine, or the nodes allocated by Slurm)")
	addSlurmFlags(f, &s.Slurm)
	f.StringVar(&task, "task", "", "")
	_ = f.MarkHidden("task") // a hidden flag that only job scripts use; the flag exists, so there is no error
	f.BoolVar(&watched, "watched", false, "")
	_ = f.MarkHidden("watched") // a hidden flag that only a notebook's kernel uses; the flag exists, so there is no error
	f.BoolVar(&lines, "lines", false, "show the workers' lines even in a terminal, instead of one progress bar per run")
	return c
}

type sweepStarter func(context.Context, launch.Sweep) (*launch.Job, error)

// runSweep runs a sweep with a progress bar per run. Without a terminal, or if lines is true, it prints the
// workers' lines, which the run folders contain in any case.
func runSweep(c *cobra.Command, start sweepStarter, s launch.Sweep, lines bool) error {
	end := (*launch.Job).Watch
	if (lines || !cli.IsTerminal(os.Stderr)) && !s.Detach {
		s.Output, end = c.ErrOrStderr(), (*launch.Job).Wait
	}
	if s.Logs != "" {
		cli.PrintWrittenPath(c, s.Logs)
	}
	_, _ = rendezvous.CreateToken(os.Getenv) // workers that srun or mpirun starts later need it; without it, they say so
	job, err := start(c.Context(), s)
	if err != nil {
		return err
	}
	if s.Output == nil && !s.Detach {
		if _, err := fmt.Fprintln(c.ErrOrStderr(), job.Where()); err != nil {
			return err
		}
	}
	if s.Output == nil && job.Note() != "" && !(s.Detach && job.Found()) {
		if _, err := fmt.Fprintln(c.ErrOrStderr(), job.Note()); err != nil {
			return err
		}
	}
	if s.Detach {
		return printDetachedJob(c, job)
	}
	if job.Attached() { // another process shows its lines
		end = (*launch.Job).Watch
	}
	inSlurm := slices.ContainsFunc(job.Status(), func(r launch.RunStatus) bool { return r.Job != "" })
	if !inSlurm && !job.Attached() { // these continue without this process
		cli.OnSecondInterrupt(c.Context(), func() { _ = job.Kill() })
	}
	if err := end(job, c.Context()); err != nil {
		switch {
		case inSlurm && c.Context().Err() != nil:
			return fmt.Errorf("interrupted: %s; the same command shows them again", job.Note())
		case job.Attached() && c.Context().Err() != nil:
			return continuingSweepError(filepath.Base(job.Dir()))
		case inSlurm || len(s.Command) > 0 || job.Attached():
			return err
		}
		return cli.AddResumeAdvice(c.Context(), err)
	}
	if all := job.Status(); len(all) > 0 && len(s.Command) == 0 {
		if b := all[len(all)-1].Binding; b != nil && b.Reason != "" {
			if _, err := fmt.Fprintln(c.ErrOrStderr(), b); err != nil {
				return err
			}
		}
	}
	if len(s.Lines) > 0 && !slices.ContainsFunc(job.Status(), func(r launch.RunStatus) bool { return r.Epoch > 0 }) {
		if _, err := fmt.Fprintf(c.ErrOrStderr(), "note: no epoch was read from the lines of the workers; lockstep read %s --explain shows the line that is nearest to --line\n", job.Dir()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "logs: %s\nnext: lockstep scaling %s\n", job.Dir(), job.Dir())
	return err
}

// continuingSweepError returns the error if a command is interrupted while it shows a sweep that
// another process runs. That sweep continues.
func continuingSweepError(study string) error {
	return &cli.ExitError{Code: cli.ExitInterrupted, Err: fmt.Errorf("interrupted: %s continues; lockstep watch %[1]s shows it again, and lockstep stop %[1]s ends it", study)}
}

// printDetachedJob prints that a sweep was started, or was already running, and that it continues
// after this command.
func printDetachedJob(c *cobra.Command, job *launch.Job) error {
	if job.Ended() {
		return job.Wait(c.Context()) // there was nothing to do, or it failed at once
	}
	name := filepath.Base(job.Dir())
	what := "started " + name
	if job.Found() { // the last note says since when
		notes := strings.Split(job.Note(), "\n")
		for _, note := range notes[:len(notes)-1] {
			fmt.Fprintln(c.ErrOrStderr(), note)
		}
		what = fmt.Sprintf("%s is %s", name, strings.TrimSuffix(notes[len(notes)-1], "; showing it"))
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s, which continues without this command\nlogs: %s\nnext: lockstep watch %s shows it; lockstep stop %[3]s ends it\n", what, job.Dir(), name)
	return err
}

// serveSweep runs a sweep that the kernel of a notebook describes through standard input.
func serveSweep(c *cobra.Command) error {
	job, err := launch.Serve(c.Context(), os.Stdin, c.ErrOrStderr())
	if err != nil {
		return err
	}
	cli.OnSecondInterrupt(c.Context(), func() { _ = job.Kill() }) // ends the sweep of this process
	return job.Wait(c.Context())
}
