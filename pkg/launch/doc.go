// Package launch starts training runs and supervises them. Each worker is a process that finds
// its rank in its environment, and the launcher shows its output line by line. When one worker
// fails, the launcher ends all others, and the error names the failed rank and the cause.
//
//	ctx := notebook.Context()
//	job, err := launch.Local(ctx, launch.Sweep{Config: "unet2d-cells", Workers: []int{1, 2}, Seeds: []int64{1, 2}, Resume: true})
//	if err != nil {
//		return err
//	}
//	err = job.Watch(ctx) // shows a live table, and the speed-up so far
//
// A sweep is a list of runs that are executed one after another: every worker count with
// the first seed, then every worker count with the second seed, and so on. This order makes
// the results comparable on a machine that gets slower over time. With Vary, a sweep
// contains several series. Each run has a folder
//
//	logs/<study>/<series>-n<workers>-s<seed>/
//
// with a worker-<rank>.log for each worker, in addition to the files of the run itself. If
// the workers run another program, reading the folder also reads these logs and the files
// that the program writes to the folder. The epochs of such a run come from there; the
// launcher itself measures only the wall time of the run.
//
// A worker is the lockstep command (see Binary) or any other program. It finds its rank in
// the environment variables that PyTorch, Horovod and others use:
//
//	RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//	LOCKSTEP_TOKEN   the run's secret, for rendezvous.Join
//	LOCKSTEP_RUN     the run folder
//	LOCKSTEP_SEED    the run's seed
//	LOCKSTEP_BINDING the CPUs of all workers, for the lockstep command
//	LOCKSTEP_LAUNCHER the process that started the worker: the next launch of the run ends
//	                 what it left behind if it was killed
//	OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, MKL_NUM_THREADS, GOMAXPROCS   the threads per worker
//	TF_CONFIG        the addresses of all workers, with Sweep.Framework
//	CUDA_VISIBLE_DEVICES  the GPUs of all workers, with Sweep.OneProcess
//
// # Replay
//
// Replay shows a recorded or published sweep as if it were being trained, any number of times as fast:
//
//	job, err := launch.Replay(ctx, "resnet-cifar10-power", 30)
//
// # Plan
//
// Plan returns what a launch would do, as a value: each run with its folder, processes, command,
// environment and resources. Local, MPI and Slurm make the same plan and carry it out.
//
// # Cores
//
// By default, each worker of a run is bound to cores of one NUMA node, and no core belongs to
// two workers; see Sweep.Bind. The launcher reads the topology from /sys/devices/system, uses
// only CPUs of its own affinity mask, and leaves out cores that other processes are bound to.
//
// # Processes
//
// In a notebook, a separate process "lockstep launch" runs each sweep, and the kernel only watches
// it. An interrupt of a cell does not reach the process; Job.Cancel ends it. When the kernel ends, by
// a restart or even by kill -9, the process asks its workers to end, and kills them after 10 s. The
// next kernel's Attach shows which runs ended with it, and which were not started. With Sweep.Detach
// the process continues, and Attach returns its Job in the next kernel. In the lockstep command and
// in other Go programs, the program itself runs the sweep, which ends with Local's context, unless
// Detach is set. Job.Cancel and lockstep stop end a sweep from any process of the user.
//
// The sweeps of a user on a machine run one after another, because other work on the
// machine would distort the measured times. Local returns at once, and the sweep waits in a
// queue; Jobs lists the sweeps. Their processes find each other by locks in
// $LOCKSTEP_LOCKS, else $XDG_RUNTIME_DIR/lockstep, else a folder for this machine in
// ~/.local/state/lockstep, else a folder in the temporary directory; none is used unless it is
// private to the user. The state of each sweep is written to .launch/ in the folder of its study.
//
// # Several users
//
// The sweeps of several users share the cores of a machine if the variable LOCKSTEP_CORES names a
// folder for that, as in the JupyterHub of environment/jupyterhub. Before its first run, a sweep
// then takes as many free cores as its largest run has threads, and its workers are bound to these
// cores. If too few are free, it waits, in the order in which the sweeps have come, at most for the
// time in LOCKSTEP_CORES_WAIT (default 10m). Then it starts without them: its workers are not
// bound, run.json has a note, and scaling counts the runs as disturbed. Where workers are not
// bound, as under a quota of CPU time, the cores are counted in the same way. Sweeps inside a run,
// inside a scheduler's job and on several hosts take no cores.
//
// # MPI
//
// MPI is like Local, but mpirun of Open MPI or MPICH starts the workers of each run, on this machine
// or on several. For each rank, mpirun starts this executable, which starts the worker with its
// output in the worker's log, and reports its failure.
//
// # Slurm
//
// Slurm submits each run as a job, by the profile of a site; see package site. The workers have
// the same command and run folder, which also contains the job script (job.sh):
//
//	job, err := launch.Slurm(ctx, "local-test", launch.Sweep{Config: "unet2d-cells", Workers: []int{1, 2, 4}})
//
// Once submitted, the jobs need no process on this machine, and Attach finds them again. srun
// starts the workers, which read the secret from the user's token file. Slurm sends SIGUSR1
// before it ends a job. The workers then save the run and end with ExitRequeue, the job script
// requeues the job, and the run continues with the next step. After a node has failed, the run
// continues from the newest checkpoint. "environment/cluster start" starts a private Slurm on this
// machine.
//
// # Files
//
// The package is larger than others because a sweep, its plan and its job are types that notebooks use,
// and their methods are the launch itself. What does not need them is in internal: queue, cores,
// binding, child, slurm and others.
package launch
