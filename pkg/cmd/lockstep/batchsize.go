package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
	"lockstep/pkg/tune"
)

// memoryShare is the fraction of a machine's memory that the workers may use. The rest
// is for the system and for memory that Go's garbage collector has not released yet.
const memoryShare = 0.8

func batchsizeCommand() *cobra.Command {
	var config, memory, device, logs string
	var workers, most int
	var set []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "batchsize",
		Short: "Find the largest batch that memory takes, with the evidence",
		Long: `Finds the largest batch per worker that the memory takes: by powers of 2 until
one does not fit, then by bisection between the last that fits and the first
that does not. Each line says what was tried and what it needs. On the CPU a
batch is weighed by the memory plan (activations, parameters, gradients, the
optimiser's slots, the loader's batches) and the result by loading it; on a GPU
each batch is loaded and does one step. Workers of one machine share its memory.

  lockstep batchsize --config unet2d-cells
  lockstep batchsize --config unet2d-study --memory 16GiB --workers 2
  lockstep batchsize --logs DIR

With --logs it reads the logs of jobs that were run instead (their error files
too: PyTorch's, TensorFlow's and CUDA's messages, and Slurm's oom-kill), and
names for each series the last batch that trained and the first that ran out of
memory, with the files and lines that show it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("logs") {
				for _, name := range []string{"config", "memory", "workers", "most", "device", "set"} {
					if c.Flags().Changed(name) {
						return usage(fmt.Errorf("--logs and --%s: --logs reads what jobs left and tries nothing; leave --%s out", name, name))
					}
				}
				return batchLimits(c, logs, asJSON)
			}
			if device != "" {
				set = append([]string{"engine.device=" + train.Quoted(device)}, set...)
			}
			cfg, err := train.Named(config, set...)
			if err != nil {
				return usage(err)
			}
			if workers < 1 {
				return usage(fmt.Errorf("--workers is %d: use at least 1", workers))
			}
			o := tune.BatchOptions{Workers: workers, Most: most, Memory: int64(memoryShare * float64(runs.CollectHost().MemoryBytes))}
			if memory != "" {
				if o.Memory, err = parseBytes(memory); err != nil {
					return usage(err)
				}
			}
			if !asJSON {
				o.Tried = func(t tune.BatchTest) { fmt.Fprintln(c.OutOrStdout(), t) }
			}
			s, err := tune.LargestBatch(c.Context(), cfg, o)
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
	f.StringVar(&memory, "memory", "", "of all workers together, such as 8GiB (default: 80 % of this machine's); a GPU knows its own")
	f.IntVar(&workers, "workers", 1, "on this machine, which share the memory")
	f.IntVar(&most, "most", 0, "largest batch to try (default: as many samples as each worker gets)")
	f.StringVar(&device, "device", "", "cpu or cuda, instead of the config's")
	f.StringArrayVar(&set, "set", nil, "key=value in the config, repeatable")
	f.StringVar(&logs, "logs", "", "take the evidence from the logs under this folder, instead of trying batches")
	f.BoolVar(&asJSON, "json", false, "the result and the evidence as a JSON object")
	return c
}

// batchLimits prints the batch sizes with which the jobs below a folder trained, and
// those with which they ran out of memory.
func batchLimits(c *cobra.Command, path string, asJSON bool) error {
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
		return fmt.Errorf("find batches in %s: no job trained an epoch or ran out of memory; lockstep read --explain says what each file is", place)
	}
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(limits)
	}
	for _, l := range limits {
		fmt.Fprint(c.OutOrStdout(), l)
	}
	return nil
}

// parseBytes parses a size such as 8GiB, 512MiB, 16GB or 1000000.
func parseBytes(s string) (int64, error) {
	units := []struct {
		suffix string
		size   float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if n := v * u.size; err == nil && n >= 1 && n < math.MaxInt64 {
			return int64(n), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is no size: use a number with KiB, MiB, GiB, MB or GB, such as 8GiB", s)
}
