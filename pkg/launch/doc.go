// Package launch starts training runs and looks after them: each worker is a
// process with its rank in its environment, its output is shown line by line,
// all end when one fails, and the error says which and why.
//
//	ctx := notebook.Context()
//	job, err := launch.Local(ctx, launch.Sweep{Config: "unet2d-cells", Workers: []int{1, 2}, Seeds: []int64{1, 2}, Resume: true})
//	if err != nil {
//		return err
//	}
//	err = job.Watch(ctx) // a line a run, live
//
// A sweep is a list of runs, one after another: every worker count with the
// first seed, then with the second, so that a machine that gets slower over
// time does so for all counts. What Vary names makes several series of it in one
// sweep. Each run has a folder
//
//	logs/<study>/<series>-n<workers>-s<seed>/
//
// with a worker-<rank>.log for each worker beside what the run itself writes.
//
// A worker is the lockstep command (see Binary), or any other program, which
// finds its place where PyTorch, Horovod and others look for it:
//
//	RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//	LOCKSTEP_TOKEN   the run's secret, for rendezvous.Join
//	LOCKSTEP_RUN     the run folder
//	LOCKSTEP_SEED    the run's seed
//	OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, MKL_NUM_THREADS, GOMAXPROCS   the threads per worker
//
// # Processes
//
// In a notebook each sweep is run by a process of its own, "lockstep launch", and
// the kernel only watches it. An interrupt of a cell does not reach it; Job.Cancel
// ends it. When the kernel ends, by a restart or even kill -9, that process asks
// its workers to end, and kills them after 10 s. With Sweep.Detach it goes on, and
// Attach gives its Job to the next kernel. In the lockstep command and in other Go
// programs the sweep is run by the program itself and ends with Local's context.
//
// The sweeps of a user on a machine run one after another, because times that are
// measured beside other work are wrong: Local returns at once, and the sweep waits
// for its turn. Jobs lists them. They find each other by locks in $LOCKSTEP_LOCKS,
// else $XDG_RUNTIME_DIR/lockstep, else a folder in the temporary directory. What a
// sweep does is written to .launch/ in its study's folder.
package launch
