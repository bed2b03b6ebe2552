package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"lockstep/pkg/logread"
)

func readCommand() *cobra.Command {
	var format, what string
	c := &cobra.Command{
		Use:   "read PATH…",
		Short: "Every measured value of a folder of logs as tidy rows",
		Long: `Reads run folders, and the CSV logs of the U-Net scaling study, under each
PATH, and prints a row a measured value, with the columns

  run, series, workers, seed, rank, epoch, step, name, value

as they are read, always in the same order. Rank, epoch and step are empty
(null in JSON) where the value is of all ranks, of the run, or of the epoch.
What could not be used goes to stderr.

  lockstep read logs/unet2d-cells
  lockstep read logs/unet2d-cells --what steps --format json`,
		Args: someArgs("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, f := range []struct {
				flag, got string
				known     []string
			}{
				{"format", format, []string{logread.FormatCSV, logread.FormatJSON}},
				{"what", what, []string{logread.Epochs, logread.Steps, logread.All}},
			} {
				if !slices.Contains(f.known, f.got) {
					return usage(fmt.Errorf("--%s %q is not known; use one of %q", f.flag, f.got, f.known))
				}
			}
			problems, err := logread.Write(c.OutOrStdout(), format, what, args...)
			for _, p := range problems {
				fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
			}
			return err
		},
	}
	c.Flags().StringVar(&format, "format", logread.FormatCSV, "csv or json")
	c.Flags().StringVar(&what, "what", logread.Epochs, "epochs, steps or all")
	return c
}
