package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"lockstep/pkg/train"
)

func trainCommand() *cobra.Command {
	var w train.Worker
	var check int
	c := &cobra.Command{
		Use:   "train",
		Short: "Train, as one worker",
		Long: `Trains as one worker. Alone it is a world of one; with RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT and LOCKSTEP_TOKEN in the environment
(lockstep launch sets them) it is one of many.

  lockstep train --config unet2d-cells
  lockstep train --config em-membrane --data DIR --epochs 3 --set batch=8

With data.stage the files of the data are copied to a folder of this node before
training, once for all its workers, and removed at the end:

  lockstep train --config em-membrane --data DIR --set data.stage=/dev/shm
  lockstep train --config em-membrane --data DIR --set 'data.stage=$TMPDIR'

Configs: ` + strings.Join(train.Names(), ", ") + `, or a .yaml file.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if check == 0 {
				return work(c, w)
			}
			err := w.Check(c.Context(), check, c.OutOrStdout())
			var wrong *train.UsageError
			if errors.As(err, &wrong) {
				return usage(err)
			}
			return err
		},
	}
	c.Flags().StringVar(&w.Config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	c.Flags().StringVar(&w.Run, "run", "", "run folder (default: logs/<config>/ddp-n<world>-s<seed>)")
	c.Flags().StringVar(&w.Data, "data", "", "the folder of the data; in place of generated cells one with image/ and label/")
	c.Flags().Int64Var(&w.Seed, "seed", 1, "of initial weights, order and augmentation")
	c.Flags().IntVar(&w.Epochs, "epochs", 0, "instead of the config's")
	c.Flags().IntVar(&w.Threads, "threads", 0, "of this worker, instead of the config's")
	c.Flags().BoolVar(&w.Oversubscribe, "oversubscribe", false, "allow more than four threads for each core")
	c.Flags().StringVar(&w.Device, "device", "", "cpu, reference, cuda (the GPU of the local rank) or cuda:1, instead of the config's")
	c.Flags().StringVar(&w.Profile, "profile", "", "FIRST:STEPS, such as 10:5, or epoch=1,steps=0-59: steps that are looked into: on the CPU as trace-<rank>.json of the run folder (Chrome's trace viewer, Perfetto), on a GPU by its profiler (nsys profile -c cudaProfilerApi lockstep train …)")
	c.Flags().BoolVar(&w.Trace, "trace", false, "on a GPU too the time of every kernel in the --profile, as trace-<rank>.json")
	c.Flags().DurationVar(&w.TimeoutCollective, "timeout-collective", 0, "how long a worker waits for another in one exchange, instead of the config's (2m0s where it has none)")
	c.Flags().StringArrayVar(&w.Set, "set", nil, "key=value in the config, repeatable (--set optimizer.learning_rate=0.01)")
	c.Flags().BoolVar(&w.Resume, "resume", false, "go on from the newest checkpoint of the run folder")
	c.Flags().IntVar(&check, "check", 0, "check whether so many workers could train with this config and these data, and print the config; train nothing")
	return c
}

func work(c *cobra.Command, w train.Worker) error {
	w.Out = c.OutOrStdout()
	if w.Run != "" && !train.Launched() {
		noteWrittenPath(c, w.Run)
	}
	err := w.Work(c.Context())
	var wrong *train.UsageError
	switch {
	case errors.As(err, &wrong):
		return usage(err)
	case train.Launched(): // the launcher prints how to continue
		return err
	}
	return adviseResume(c.Context(), err)
}

// atTerminal reports whether standard error is a terminal.
func atTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }
