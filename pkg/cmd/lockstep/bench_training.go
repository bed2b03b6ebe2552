package main

import (
	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
)

func benchOverheadCommand() *cobra.Command {
	var o bench.OverheadOptions
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "overhead",
		Short: "Measure what recording a training costs",
		Long: `Trains a config with and without all that a training records (the run folder
with the times of each step and TensorBoard's events, the load of the machine, the last
collectives, what the workers use), and without the last of these alone (row monitor),
alternating epochs of processes that exist at the same time. Further rows have a tiny
network whose steps take about 1 ms. Each repeat starts the processes anew. Run it on an
idle machine; it takes about 5 minutes.

  lockstep bench overhead
  lockstep bench overhead --workers 1 --repeats 20 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return asUsageError(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.MeasureOverhead(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.IntVar(&o.Workers, "workers", 2, "workers of each training")
	f.IntVar(&o.Repeats, "repeats", 12, "starts of the processes")
	f.IntVar(&o.Epochs, "epochs", 5, "epochs with and without recording after each start")
	out.addFlags(f)
	return c
}

func benchFloodCommand() *cobra.Command {
	var o bench.FloodOptions
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "flood",
		Short: "Measure how strangers who flood a job's port slow it down",
		Long: `Trains while this process connects to the job's port again and again: a third of the
connections sends noise, a third nothing, and a third a wrong proof of the token. Epochs
alternate with epochs without a flood, and with epochs during the same flood of another
port, which shows what the flooder itself costs, since it uses the same cores. Below the
table are the flooder's connections and its processor time. Run it on an idle machine.

  lockstep bench flood
  LOCKSTEP_COLLECTIVE=tcp lockstep bench flood --rate 1000 -v`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return asUsageError(err)
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.MeasureFlood(c.Context(), o)
			return out.write(c, records, err)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.IntVar(&o.Workers, "workers", 2, "workers of the job")
	f.IntVar(&o.Rate, "rate", 300, "connections per second")
	f.IntVar(&o.Repeats, "repeats", 25, "measurements with and without a flood")
	f.IntVar(&o.Epochs, "epochs", 2, "epochs of each measurement")
	out.addFlags(f)
	return c
}
