package training

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
	"lockstep/pkg/tune"
)

// usableMemoryFraction is the fraction of a machine's memory for the workers. The remainder is for the
// system, and for memory that Go's garbage collector has not released yet.
const usableMemoryFraction = 0.8

func batchsizeCommand() *cobra.Command {
	var config, memory, device, logs string
	var workers int
	var set []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "batchsize",
		Short: "Find the largest batch that fits into memory, with the evidence",
		Long: `Finds the largest batch per worker that fits into memory: by powers of 2 until
one does not fit, then by bisection between the last that fits and the first
that does not. Each line shows a batch and the memory that it needs. On the CPU
the memory plan determines what a batch needs (activations, parameters,
gradients, the optimizer's state, the loader's batches), and the result is
checked by loading it; on a GPU each batch is loaded and trains one step.
Workers on one machine share its memory.

  lockstep batchsize --config unet2d-cells
  lockstep batchsize --config unet2d-study --memory 16GiB --workers 2
  lockstep batchsize --logs DIR

With --logs it tries no batches, but reads the logs of jobs that have run (also
their error files: messages of PyTorch, TensorFlow and CUDA, and Slurm's
oom-kill). For each series it prints the largest batch that trained and the
smallest that ran out of memory, with the files and lines of the evidence.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("logs") {
				for _, name := range []string{"config", "memory", "workers", "device", "set"} {
					if c.Flags().Changed(name) {
						return cli.AsUsageError(fmt.Errorf("--logs and --%s cannot be combined: with --logs no batches are tried; omit --%s", name, name))
					}
				}
				return printBatchLimits(c, logs, asJSON)
			}
			if device != "" {
				set = append([]string{"engine.device=" + train.QuoteYAML(device)}, set...)
			}
			cfg, err := train.Named(config, set...)
			if err != nil {
				return cli.AsUsageError(err)
			}
			if workers < 1 {
				return cli.AsUsageError(fmt.Errorf("invalid --workers %d: use at least 1", workers))
			}
			o := tune.BatchOptions{Workers: workers, Memory: int64(usableMemoryFraction * float64(runs.DescribeHost().MemoryBytes))}
			if memory != "" {
				n, err := humanize.ParseBytes(memory)
				if err != nil || n < 1 || n > math.MaxInt64 {
					return cli.AsUsageError(fmt.Errorf("invalid size %q: use a number with KiB, MiB, GiB, MB or GB, such as 8GiB", memory))
				}
				o.Memory = int64(n)
			}
			if !asJSON {
				o.Tried = func(t tune.BatchTest) { fmt.Fprintln(c.OutOrStdout(), t) }
			}
			s, err := tune.FindLargestBatch(c.Context(), cfg, o)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(s)
			}
			fmt.Fprintln(c.OutOrStdout(), s.Verdict())
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.StringVar(&memory, "memory", "", "memory of all workers together, such as 8GiB (default: 80 % of this machine's); not used on a GPU")
	f.IntVar(&workers, "workers", 1, "workers on this machine, which share the memory")
	f.StringVar(&device, "device", "", "cpu or cuda, instead of the config's")
	f.StringArrayVar(&set, "set", nil, "key=value to change in the config; repeatable")
	f.StringVar(&logs, "logs", "", "read the evidence from the logs under this folder; try no batches")
	f.BoolVar(&asJSON, "json", false, "the result and the evidence as a JSON object")
	return c
}

// printBatchLimits prints, for each series in the logs below path, the batch sizes that trained and those
// that ran out of memory.
func printBatchLimits(c *cobra.Command, path string, asJSON bool) error {
	place, err := runs.LocateLogs(path)
	if err != nil {
		return err
	}
	read, err := logread.Options{}.Read(c.Context(), place)
	if err != nil {
		return err
	}
	limits := logread.BatchLimits(read.Runs)
	if len(limits) == 0 {
		return fmt.Errorf("find batches in %s: no job ran out of memory or trained with a known batch size, such as bs64 in its file's name; lockstep read --explain describes each file", place)
	}
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(limits)
	}
	for _, l := range limits {
		fmt.Fprint(c.OutOrStdout(), l)
	}
	return nil
}
