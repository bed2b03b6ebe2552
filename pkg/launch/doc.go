// Package launch starts training runs and looks after them: each worker is a
// process with its rank in its environment, its output is shown line by line,
// all end when one fails, and the error says which and why.
//
//	ctx := notebook.Context()
//	job, err := launch.Local(ctx, launch.Sweep{Config: "unet2d-cells", Workers: []int{1, 2}, Seeds: []int64{1, 2}})
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
// Workers have process groups of their own, so that a notebook's interrupt
// does not reach them; it ends the job through the context.
package launch
