package training

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/train"
	"lockstep/pkg/tune"
)

func tuneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tune",
		Short: "Find the best settings by measuring",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(tuneLoaderCommand())
	return c
}

func tuneLoaderCommand() *cobra.Command {
	var config, dataDir, device string
	var threads int
	var set []string
	var o tune.LoaderOptions
	var asJSON, verbose bool
	c := &cobra.Command{
		Use:   "loader",
		Short: "Find the best loader settings for a config and its data, and whether they matter",
		Long: `Measures the loader of a config on its data with every kind (lowmem, inmem) and 0 to
16 loader workers. For the smallest settings that are as fast as the fastest within
noise, it then measures other prefetch depths and orders of the stages. Finally it
measures training with the config's own settings, with the best settings, and on data
that are already in memory. The settings are measured in rounds. The last line contains
the flags to append to "lockstep train" or "lockstep launch".

It measures one worker, with the processors that a worker gets. Orders of the stages
that would change the training batches are measured, but never recommended.

  lockstep tune loader --config unet2d-cells
  lockstep tune loader --config resnet50v2-cifar10 --data DIR --budget 2m --loader-only`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := train.Worker{Config: config, Data: dataDir, Seed: 1, Device: device, Threads: threads, Set: set}.Resolve()
			if err != nil {
				return cli.AsUsageError(err)
			}
			if o.Budget < time.Second {
				return cli.AsUsageError(fmt.Errorf("invalid --budget %v: use at least 1s", o.Budget))
			}
			if verbose {
				o.Line = func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
			}
			t, err := tune.MeasureLoader(c.Context(), cfg, o)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(struct {
					*tune.LoaderTuning
					Sentence string   `json:"sentence"`
					Set      []string `json:"set"`
				}{t, t.Sentence(), tune.FormatOverrides(t.AdvisedSetting())})
			}
			return t.Write(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.StringVar(&dataDir, "data", "", "folder of the data; for configs with generated cells, a folder with image/ and label/")
	f.DurationVar(&o.Budget, "budget", 30*time.Second, "approximate time for all measurements")
	f.BoolVar(&o.LoaderOnly, "loader-only", false, "measure only the loader, not training")
	f.IntVar(&threads, "threads", 0, "threads of the training worker, instead of the config's")
	f.StringVar(&device, "device", "", "cpu, reference or cuda, instead of the config's")
	f.StringArrayVar(&set, "set", nil, "key=value to change in the config; repeatable")
	f.BoolVar(&asJSON, "json", false, "print the table, the sentence and the settings as a JSON object")
	f.BoolVarP(&verbose, "verbose", "v", false, "print each measurement")
	return c
}
