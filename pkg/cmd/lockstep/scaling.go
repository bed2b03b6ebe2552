package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// ruleFlags select the measurements of a study that count, and the information that is
// taken from file names.
type ruleFlags struct {
	rule scaling.Rule
	as   []string
}

// add adds the flags of a command that shows one study.
func (f *ruleFlags) add(c *cobra.Command) {
	f.addMeasures(c)
	c.Flags().StringVar(&f.rule.Baseline, "baseline", scaling.BaselineSmallest, "what speed-up compares with: smallest (the fewest of a series), one, or a number")
	c.Flags().StringVar(&f.rule.Per, "per", scaling.PerWorker, "what is counted: worker or node")
}

// addMeasures adds the flags that are also useful without a speed-up.
func (f *ruleFlags) addMeasures(c *cobra.Command) {
	f.rule = scaling.DefaultRule()
	c.Flags().IntVar(&f.rule.DropFirst, "drop-first", f.rule.DropFirst, "epochs at a run's start that do not count")
	c.Flags().StringVar(&f.rule.Epochs, "epochs", "mean", "how counted epochs become one: mean, median, or the number of the only epoch that counts")
	c.Flags().StringVar(&f.rule.Repeats, "repeats", "median", "how repeated runs become one: median or mean")
	c.Flags().IntVar(&f.rule.SamplesPerEpoch, "samples-per-epoch", 0, "for logs that do not tell it, so that they have a throughput")
	c.Flags().Float64Var(&f.rule.Confidence, "confidence", 0.95, "level of the intervals")
	c.Flags().StringArrayVar(&f.as, "as", nil, "what paths tell, such as 'log_hvd_{workers}.csv=PyTorch Horovod'; may be repeated")
}

func (f *ruleFlags) read(c *cobra.Command, paths []string) (*scaling.Study, error) {
	if err := f.rule.Validate(); err != nil {
		return nil, usage(err)
	}
	var options logread.Options
	for _, text := range f.as {
		p, err := logread.ParsePattern(text)
		if err != nil {
			return nil, usage(err)
		}
		options.As = append(options.As, p)
	}
	noteReadPaths(c, paths...)
	s, err := scaling.ReadWith(c.Context(), options, paths...)
	if err != nil {
		return nil, err
	}
	return s.WithRule(f.rule)
}

func scalingCommand() *cobra.Command {
	var f ruleFlags
	var a analysisFlags
	var format string
	c := &cobra.Command{
		Use:   "scaling PATH…",
		Short: "Epoch time, throughput, speed-up, efficiency and IoU of a folder of logs",
		Long: `Reads run folders, and the logs of other programs (lockstep read --explain says
which), under each PATH, and prints a row a series and number of workers, then
the rule by which they were made, and what a reader must know. Intervals are
bootstrapped over repeated runs (seeds).

  lockstep scaling logs/unet2d-cells --format csv
  lockstep scaling results --as 'log_hvd_{workers}.csv=PyTorch Horovod' --epochs 5
  lockstep scaling results --per node --baseline one

Other views of the same runs, each a value of --show, which may be repeated;
--show help explains them all:

  lockstep scaling logs/unet2d-cells --show explain=speedup@14   # where a number comes from
  lockstep scaling logs/unet2d-cells --show fit                  # which law of scaling the runs follow
  lockstep scaling logs/unet2d-cells --show breakdown            # where a step's time goes
  lockstep scaling logs/unet2d-cells --show cost=2.5 --show budget=100 --format json

Several views in json are one object keyed by name; in csv they are one file
each, in the folder of --out.

The scaling rule is that of a sweep over batches and learning rates, such as

  lockstep launch --seeds 1,2,3 --vary batch=2,4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008

What overlap gives is seen beside a series without it:

  lockstep launch --workers 1,2
  lockstep launch --workers 2 --series ddp-no-overlap --set engine.overlap=false
  lockstep scaling logs/unet2d-cells --show breakdown`,
		Args: func(c *cobra.Command, args []string) error {
			if a.asksHelp() {
				return nil
			}
			return someArgs("name folders of logs, for example logs/unet2d-cells")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if a.asksHelp() {
				return writeHelp(c.OutOrStdout())
			}
			shown, err := a.parse(format)
			if err != nil {
				return err
			}
			s, err := f.read(c, args)
			if err != nil {
				return err
			}
			if len(a.series) > 0 {
				if s, err = s.Only(a.series...); err != nil {
					return usage(err)
				}
			}
			if len(shown) > 0 {
				return a.write(c, s, shown, format)
			}
			if old, _ := a.old.given(); old != nil { // parse has already checked for errors
				return a.old.write(c, old, s, format)
			}
			if err := s.Write(c.OutOrStdout(), format); err != nil {
				return err
			}
			if format == scaling.FormatTable { // the table itself ends with notes and problems
				return powerCut(s.Problems)
			}
			writeProblems(c.ErrOrStderr(), s)
			return powerCut(s.Problems)
		},
	}
	c.Flags().StringVar(&format, "format", scaling.FormatTable, "table, csv or json")
	f.add(c)
	a.add(c)
	return c
}

// writeProblems writes the notes and the problems of a result, which its CSV and JSON
// forms omit.
func writeProblems(w io.Writer, r result) {
	var notes []string
	var problems []runs.Problem
	switch r := r.(type) {
	case *scaling.Study:
		notes, problems = r.Notes, r.Problems
	case *scaling.Breakdown:
		problems = r.Problems
	}
	for _, n := range notes {
		fmt.Fprintln(w, "note:", clean.Text(n))
	}
	for _, p := range problems {
		fmt.Fprintln(w, "problem:", p)
	}
}
