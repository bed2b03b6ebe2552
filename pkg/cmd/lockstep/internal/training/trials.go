package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
	"lockstep/pkg/tune"
)

func trialsCommand() *cobra.Command {
	var config, device, out string
	var threads int
	var set []string
	var o tune.TrialOptions
	c := &cobra.Command{
		Use:   "trials",
		Short: "Find the bottleneck: measure the loader alone, training alone, and both",
		Long: `Measures samples per second of the loader alone (IO), of training on one batch that
is already in memory (SYNTHETIC), and of both (FULL). It prints benchy's lines and a
sentence that states what limits the training, with the numbers as evidence. --out
writes benchy's JSON, which "lockstep read" and "lockstep scaling" can read.

With data.stage in the config it measures the staged copy, then IO and FULL with the
original files, and compares both in a table. Files that were read recently are cached
in memory, so only a slow or cold file system shows a difference.

If RANK, WORLD_SIZE and so on are in the environment, it is one of several workers:

  lockstep trials --config unet2d-cells
  lockstep launch --workers 2 -- lockstep trials --config unet2d-cells`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if device != "" {
				set = append([]string{"engine.device=" + train.QuoteYAML(device)}, set...)
			}
			if threads > 0 {
				set = append([]string{fmt.Sprintf("engine.threads=%d", threads)}, set...)
			}
			cfg, err := train.Named(config, set...)
			if err != nil {
				return cli.AsUsageError(err)
			}
			if err := cli.CheckOutput(out, config, cfg.Data.Path, cfg.Data.TestPath); err != nil {
				return err
			}
			if o.Warmup == 0 {
				o.Warmup = -1 // -1: no warm-up, as the user requested
			}
			return runTrials(c, cfg, o, out)
		},
	}
	f := c.Flags()
	f.StringVar(&config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.IntVar(&o.Batches, "batches", 50, "batches per trial")
	f.IntVar(&o.Trials, "trials", 3, "trials that are counted")
	f.IntVar(&o.Warmup, "warmup", 1, "trials before the counted ones")
	f.StringVar(&out, "out", "", "write benchy's JSON to this `file`")
	f.IntVar(&threads, "threads", 0, "threads of this worker, instead of the config's")
	f.StringVar(&device, "device", "", "cpu, reference or cuda, instead of the config's")
	f.StringArrayVar(&set, "set", nil, "key=value to change in the config; repeatable")
	return c
}

// runTrials runs the trials as one worker of the group in the environment variables. Rank 0 prints the
// results, and writes them to out unless it is "".
func runTrials(c *cobra.Command, cfg train.Config, o tune.TrialOptions, out string) (err error) {
	ctx := c.Context()
	env, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return cli.AsUsageError(err)
	}
	group, err := rendezvous.Join(ctx, env, cfg.JoinOptions())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	o.Line = func(line string) { fmt.Fprintln(c.OutOrStdout(), line) }
	t, err := tune.RunTrials(ctx, cfg, group, o)
	if err != nil || group.Rank() != 0 {
		return err
	}
	if out != "" {
		if err := writeTrials(out, t); err != nil {
			return err
		}
	}
	fmt.Fprint(c.OutOrStdout(), t.Table())
	return printBottleneck(c, cfg, group, t)
}

// writeTrials writes the results in benchy's JSON format.
func writeTrials(path string, t *tune.Trials) error {
	text, err := json.Marshal(t.JSON())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write trials: %w", err)
	}
	return wholefile.WriteBytes(path, append(text, '\n'), 0o644)
}

func printBottleneck(c *cobra.Command, cfg train.Config, group collective.Group, t *tune.Trials) error {
	run := runs.Run{Info: runs.Info{Study: cfg.Name, Series: cfg.Name, Workers: group.Size()}, Trials: t.Results}
	study, err := scaling.FromRuns([]runs.Run{run})
	if err != nil {
		return err
	}
	b, err := study.Bottleneck()
	if err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), b.Rows[0].Sentence)
	return nil
}
