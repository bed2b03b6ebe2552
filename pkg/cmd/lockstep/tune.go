package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"lockstep/pkg/train"
	"lockstep/pkg/tune"
)

func tuneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tune",
		Short: "Find the best setting of something, by measuring",
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
		Short: "Find the loader's setting for a config and its data, and whether it matters",
		Long: `Measures the loader of a config on its data with every kind (lowmem, inmem) and
0 to 16 workers; then, of the smallest that are as fast as the fastest within
noise, other depths of prefetch and orders of the stages; then the training
with the config's own setting and with the best one, beside the training on data
that is there already. Settings are measured in turns, round by round. The last
line is to be pasted behind "lockstep train" or "launch".

It measures one worker, with the processors that a worker gets. Orders that
would change the batches that are trained on are measured, but never advised.

  lockstep tune loader --config unet2d-cells
  lockstep tune loader --config resnet50v2-cifar10 --data DIR --budget 2m --loader-only`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if device != "" {
				set = append([]string{"engine.device=" + train.Quoted(device)}, set...)
			}
			if threads > 0 {
				set = append([]string{fmt.Sprintf("engine.threads=%d", threads)}, set...)
			}
			cfg, err := train.Worker{Config: config, Data: dataDir, Seed: 1, Set: set}.Resolve()
			if err != nil {
				return usage(err)
			}
			if o.Budget < time.Second {
				return usage(fmt.Errorf("--budget is %v: use at least 1s", o.Budget))
			}
			if verbose {
				o.Line = func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
			}
			t, err := tune.Loader(c.Context(), cfg, o)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(struct {
					*tune.LoaderTuning
					Sentence string   `json:"sentence"`
					Set      []string `json:"set"`
				}{t, t.Sentence(), tune.Overrides(t.Advised())})
			}
			return t.Write(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.StringVar(&dataDir, "data", "", "the folder of the data; in place of generated cells one with image/ and label/")
	f.DurationVar(&o.Budget, "budget", 30*time.Second, "that all measuring aims at")
	f.BoolVar(&o.LoaderOnly, "loader-only", false, "measure no training")
	f.IntVar(&threads, "threads", 0, "of the training worker, instead of the config's")
	f.StringVar(&device, "device", "", "cpu, reference or cuda, instead of the config's")
	f.StringArrayVar(&set, "set", nil, "key=value in the config, repeatable")
	f.BoolVar(&asJSON, "json", false, "the table, the sentence and the setting as a JSON object")
	f.BoolVarP(&verbose, "verbose", "v", false, "each measurement, while it goes on")
	return c
}
