package main

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure Lockstep beside what it is compared with"}
	var o bench.ScalingOptions
	var asJSON, verbose bool
	scaling := &cobra.Command{
		Use:   "scaling",
		Short: "Weak scaling: throughput of N workers over that of one",
		Long: `Measures throughput with a fixed batch per worker at each number of workers,
interleaved, and reports the median of the ratios. Run it on an idle machine.

  lockstep bench scaling --workers 1,2 --repeats 5 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.ScalingRuns(c.Context(), o)
			if err != nil {
				return err
			}
			return bench.Write(c.OutOrStdout(), records, asJSON)
		},
	}
	f := scaling.Flags()
	f.StringVar(&o.Config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.IntSliceVar(&o.Workers, "workers", []int{1, 2}, "numbers of workers; the first is the baseline")
	f.IntVar(&o.Repeats, "repeats", 5, "runs of each number of workers")
	f.IntVar(&o.Epochs, "epochs", 4, "of each run; the first is left out")
	f.IntVar(&o.Threads, "threads", 1, "per worker")
	f.BoolVar(&asJSON, "json", false, "as a JSON array")
	f.BoolVarP(&verbose, "verbose", "v", false, "show the workers' lines")
	c.AddCommand(scaling)
	return c
}
