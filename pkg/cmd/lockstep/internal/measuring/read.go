package measuring

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
)

func benchReadCommand() *cobra.Command {
	var o bench.ReadOptions
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "read",
		Short: "Compare reading and drawing logs with pandas and matplotlib",
		Long: `Reads a text log (SC21) and a table of numbers (the U-Net study) with Lockstep and
with pandas, and draws four panels of each with Lockstep and with matplotlib,
alternating. Then it reads files of each format on one core, draws the first figure of a
folder of many runs, and measures the peak memory of reading long files. These
measurements have no peer and are compared with required values. All files are
generated from a seed in the folder for temporary files, which must have enough free
space for the long files (--long-megabytes).

  lockstep bench read --json
  lockstep bench read --megabytes 0 --long-megabytes 0 -v
  lockstep bench read --long-megabytes 10000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runBench(c, &o, &o.Output, out, bench.MeasureReading)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Lines, "lines", 100_000, "lines of the log that is parsed and drawn")
	f.IntVar(&o.Runs, "runs", 1000, "runs in the folder whose first figure is drawn; 0: not measured")
	f.IntVar(&o.Megabytes, "megabytes", 64, "size of a file of each kind in MB; 0: not measured")
	f.IntVar(&o.LongMegabytes, "long-megabytes", 2000, "size of the long files in MB; 0: not measured")
	f.IntVar(&o.Repeats, "repeats", 5, "repeats of each measurement")
	addPeerFlags(f, &o.Peer, "pandas and matplotlib", "them")
	out.addFlags(f)
	return c
}
