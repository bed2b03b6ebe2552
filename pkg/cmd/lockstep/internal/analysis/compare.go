package analysis

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/scaling"
)

func compareCommand() *cobra.Command {
	var f studyFlags
	var format string
	c := &cobra.Command{
		Use:   "compare A B [PATH…]",
		Short: "Test whether A is faster than B at each number of workers",
		Long: `Compares the speed of two folders of logs or, if PATHs are given, of two series in
them, at each number of workers that both contain. It prints how many times A is as
fast as B, the confidence interval of this ratio from repeated runs (seeds), Welch's
test of the logarithms, the exact permutation test, and the verdict in a sentence. For
all worker counts together it uses Wilcoxon's signed-rank test, with one pair per
worker count.

  lockstep compare logs/before logs/after
  lockstep compare horovod native logs/unet2d-cells

A single run of each contains no information about noise: the verdict at that worker
count is then "cannot tell". With six or more worker counts there is a pooled answer
without repeated runs.`,
		Args: func(c *cobra.Command, args []string) error {
			return cli.AtLeastOneArg("name two folders, or two series and the folder that has them: lockstep compare A B [PATH…]")(c, args[:max(0, len(args)-1)])
		},
		RunE: func(c *cobra.Command, args []string) error {
			var result *scaling.Comparisons
			if len(args) > 2 {
				s, err := f.readStudy(c, args[2:])
				if err != nil {
					return err
				}
				printReadingNotes(c, s, formatHasNotes(format))
				if result, err = s.CompareSeries(args[0], args[1]); err != nil {
					return err
				}
				return result.Write(c.OutOrStdout(), format)
			}
			a, err := f.readStudy(c, args[:1])
			if err != nil {
				return err
			}
			b, err := f.readStudy(c, args[1:])
			if err != nil {
				return err
			}
			printReadingNotes(c, a, formatHasNotes(format))
			printReadingNotes(c, b, formatHasNotes(format))
			if result, err = scaling.CompareStudies(a, b); err != nil {
				return err
			}
			return result.Write(c.OutOrStdout(), format)
		},
	}
	c.Flags().StringVar(&format, "format", scaling.FormatTable, "table, csv, json, markdown or latex")
	f.addMeasureFlags(c)
	return c
}
