package training

import (
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

func trainCommand() *cobra.Command {
	var w train.Worker
	var check int
	c := &cobra.Command{
		Use:   "train",
		Short: "Train, as one worker",
		Long: `Trains as one worker. If a launcher has started it, it is one of several workers;
otherwise it is the only one.

  lockstep train --config unet2d-cells
  lockstep train --config em-membrane --data DIR --epochs 3 --set batch=8
  srun lockstep train --config em-membrane --data DIR
  mpirun -np 4 lockstep train --master node1 --config em-membrane --data DIR

The rank and the number of workers come from the first of: RANK and WORLD_SIZE (set by
lockstep launch, torchrun, or you), Open MPI, MPICH (PMI), a step of Slurm (srun), and
TF_CONFIG. lockstep doctor shows which. --master, or MASTER_ADDR and MASTER_PORT, is the
address of rank 0, which mpirun on several machines does not tell, except in a job of
Slurm, where rank 0 is on the job's first node. All workers need the
same secret: LOCKSTEP_TOKEN, or the file ~/.local/state/lockstep/token, which lockstep
launch writes and only you may read. Without a secret, all workers must be on one machine.

With data.stage, the data files are copied to a folder on this node before training,
once for all its workers, and removed at the end:

  lockstep train --config em-membrane --data DIR --set data.stage=/dev/shm
  lockstep train --config em-membrane --data DIR --set 'data.stage=$TMPDIR'

Configs: ` + strings.Join(train.Names(), ", ") + `, or a .yaml file.

Strategies, by which workers make one update together (--set strategy=NAME): ` + strings.Join(strategy.Names(), ", ") + `;
lockstep strategies explains them.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if check == 0 {
				return runWorker(c, w)
			}
			return w.Check(c.Context(), check, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&w.Config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	c.Flags().StringVar(&w.Run, "run", "", "run folder (default: logs/<config>/<strategy>-n<world>-s<seed>)")
	c.Flags().StringVar(&w.Data, "data", "", "folder of the data; for configs with generated cells, a folder with image/ and label/")
	c.Flags().Int64Var(&w.Seed, "seed", 1, "seed of the initial weights, the order of samples and the augmentation")
	c.Flags().IntVar(&w.Epochs, "epochs", 0, "number of epochs, instead of the config's")
	c.Flags().IntVar(&w.Threads, "threads", 0, "threads of this worker, instead of the config's")
	c.Flags().IntVar(&w.Replicas, "replicas", 0, "number of replicas in this process, with strategy mirrored (default: one per --threads cores)")
	c.Flags().BoolVar(&w.Oversubscribe, "oversubscribe", false, "allow more than four threads per core")
	c.Flags().StringVar(&w.Device, "device", "", "cpu, reference, cuda (the GPU of the local rank) or cuda:1, instead of the config's")
	c.Flags().StringVar(&w.Master, "master", "", "address of rank 0 as HOST or HOST:PORT, instead of MASTER_ADDR and MASTER_PORT or the launcher's")
	c.Flags().StringVar(&w.Profile, "profile", "", "steps to profile as FIRST:STEPS, such as 10:5, or as epoch=1,steps=0-59: on the CPU into trace-<rank>.json in the run folder (for Chrome's trace viewer or Perfetto), on a GPU by its profiler (nsys profile -c cudaProfilerApi lockstep train …)")
	c.Flags().BoolVar(&w.Trace, "trace", false, "on a GPU, also write the time of every kernel in the --profile to trace-<rank>.json")
	c.Flags().DurationVar(&w.TimeoutJoin, "timeout-join", 0, "how long a worker waits for all workers at the start, instead of the config's (1m0s by default)")
	c.Flags().DurationVar(&w.TimeoutCollective, "timeout-collective", 0, "how long a worker waits for the others in one exchange, instead of the config's (2m0s by default)")
	c.Flags().StringArrayVar(&w.Set, "set", nil, "key=value to change in the config; repeatable (--set optimizer.learning_rate=0.01)")
	c.Flags().BoolVar(&w.Resume, "resume", false, "continue from the newest checkpoint of the run folder")
	c.Flags().BoolVar(&w.AcceptChangedData, "accept-changed-data", false, "let --resume continue with other data than the run was trained on, and record it")
	c.Flags().IntVar(&check, "check", 0, "check whether this number of workers could train with this config and these data, print the config, and do not train")
	return c
}

// runWorker trains as the worker w. Without a launcher, the error of an interrupted training says how to
// resume.
func runWorker(c *cobra.Command, w train.Worker) error {
	w.Out = c.OutOrStdout()
	if w.Run != "" && !train.StartedByLauncher() {
		cli.PrintWrittenPath(c, w.Run)
	}
	err := w.Train(c.Context())
	if train.StartedByLauncher() { // the launcher prints how to continue
		return err
	}
	return cli.AddResumeAdvice(c.Context(), err)
}
