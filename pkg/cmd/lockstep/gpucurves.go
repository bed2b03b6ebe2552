package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/bench/gpu"
)

func gpuCurvesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "curves DIR",
		Short: "Judge training on a GPU by the same training on the CPU",
		Long: `Pairs each run on a GPU below DIR with the run on the CPU of the same seed and
number of workers. In every epoch its training loss must lie within a band around
the CPU's (5 % in fp32 without TF32, else 15 %), and its final IoU may be 0.02
less. The exit code is 1 when one does not.

  lockstep gpu curves logs/gpu-train`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := gpu.CompareCurves(args[0])
			if err != nil {
				return err
			}
			if err := r.Write(c.OutOrStdout(), asJSON); err != nil {
				return err
			}
			if r.Failed > 0 {
				return fmt.Errorf("compare curves: %d of %d runs do not keep to the CPU's", r.Failed, len(r.Pairs))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}
