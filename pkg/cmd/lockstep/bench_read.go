package main

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
)

func benchReadCommand() *cobra.Command {
	var o bench.ReadOptions
	var out benchOutput
	c := &cobra.Command{
		Use:   "read",
		Short: "Reading and drawing logs beside pandas and matplotlib",
		Long: `Reads a text log (SC21) and a table of numbers (the U-Net study) here and with
pandas, and draws four panels of each here and with matplotlib, in turns; then reads files of each kind on one core,
draws the first figure of a folder of many runs, and reads long files to see how
much memory that takes. These have no peer: what they are compared with is what
is required. All files are made from a seed, in the folder for temporary files,
which must have room for the long one (--long-megabytes).

  lockstep bench read --json
  lockstep bench read --megabytes 0 --long-megabytes 0 -v
  lockstep bench read --long-megabytes 10000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.ReadRuns(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Lines, "lines", 100_000, "of the log that is drawn")
	f.IntVar(&o.Runs, "runs", 1000, "of the folder whose first figure is drawn; 0: not measured")
	f.IntVar(&o.Megabytes, "megabytes", 64, "of a file of each kind; 0: not measured")
	f.IntVar(&o.LongMegabytes, "long-megabytes", 2000, "of the long files; 0: not measured")
	f.IntVar(&o.Repeats, "repeats", 5, "of each measurement")
	f.StringVar(&o.Peer.Scripts, "peers", "", "folder of the peers' scripts (default: environment/peers of the checkout)")
	f.StringVar(&o.Peer.Python, "python", "", "interpreter that has pandas and matplotlib (default: the first python3 that has)")
	out.flags(f)
	return c
}
