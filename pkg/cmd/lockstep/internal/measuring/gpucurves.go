package measuring

import (
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/bench/gpu"
)

func gpuCurvesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "curves DIR",
		Short: "Compare training on a GPU with the same training on the CPU",
		Long: `Pairs each GPU run below DIR with the CPU run of the same seed and number of
workers. In every epoch the training loss must be within 5 % of the CPU's (15 % with
TF32, bf16 or fp16), and the final IoU may be at most 0.02 lower. The exit code is 1
if a run fails.

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
				return fmt.Errorf("compare curves: %d of %d GPU runs differ too much from the CPU runs", r.Failed, len(r.Pairs))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
