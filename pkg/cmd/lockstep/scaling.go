package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/logread"
	"lockstep/pkg/scaling"
)

// ruleFlags change which measurements of a study count, and what its files'
// names tell.
type ruleFlags struct {
	rule scaling.Rule
	as   []string
}

// add makes the flags of a command that shows one study.
func (f *ruleFlags) add(c *cobra.Command) {
	f.addMeasures(c)
	c.Flags().StringVar(&f.rule.Baseline, "baseline", scaling.BaselineSmallest, "what speed-up compares with: smallest (the fewest of a series), one, or a number")
	c.Flags().StringVar(&f.rule.Per, "per", scaling.PerWorker, "what is counted: worker or node")
}

// addMeasures makes the flags that have a meaning without a speed-up too.
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
	sayRead(c, paths...)
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

One of these flags shows something else of the same runs:

  --explain speedup@14   how a number came about: formula, runs, file and line of each input
  --fit                  Amdahl's, Gustafson's and the universal scalability law, the best by AICc
  --collective           latency and bandwidth of the all-reduce, from the step spans of 3 or more numbers of workers
  --breakdown            where a step's time goes, from the step spans of every rank
  --time-use             the same of step spans and traces: data, compute, exposed and hidden communication, idle
  --stragglers           which rank the others wait for, and what it costs
  --bottleneck           input or computation, from the trials IO, SYNTHETIC and FULL
  --overhead A --without B   what communication costs series A, from B without it
  --quality              IoU, accuracy and loss against workers and global batch
  --scaling-rule         the rule between learning rate and batch (none, √, linear), and up to which batch
  --time-to iou=0.8      when each run reached a target
  --cost 2.50            device-hours and their price against time, and the Pareto front
  --budget 100           how many workers for so many device-hours
  --epoch-spread         how much the epochs scatter, of single runs too
  --modes                weak or strong scaling, and why

The scaling rule is that of a sweep over batches and learning rates, such as

  lockstep launch --seeds 1,2,3 --vary batch=2,4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008

What overlap gives is seen beside a series without it:

  lockstep launch --workers 1,2
  lockstep launch --workers 2 --series ddp-no-overlap --set engine.overlap=false
  lockstep scaling logs/unet2d-cells --breakdown`,
		Args: someArgs("name folders of logs, for example logs/unet2d-cells"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.validate(); err != nil {
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
			if a.breakdown {
				return writeBreakdown(c, s.Breakdown(), format)
			}
			shown, err := a.results(s, c.ErrOrStderr())
			if err != nil {
				return err
			}
			if len(shown) > 0 {
				return writeResults(c, shown, format)
			}
			if err := s.Write(c.OutOrStdout(), format); err != nil {
				return err
			}
			if format == scaling.FormatTable { // it ends with notes and problems itself
				return powerCut(s.Problems)
			}
			for _, n := range s.Notes {
				fmt.Fprintln(c.ErrOrStderr(), "note:", clean.Text(n))
			}
			for _, p := range s.Problems {
				fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
			}
			return powerCut(s.Problems)
		},
	}
	c.Flags().StringVar(&format, "format", scaling.FormatTable, "table, csv or json")
	f.add(c)
	a.add(c)
	return c
}

func writeBreakdown(c *cobra.Command, b *scaling.Breakdown, format string) error {
	if err := b.Write(c.OutOrStdout(), format); err != nil || format == scaling.FormatTable {
		return err
	}
	for _, p := range b.Problems {
		fmt.Fprintln(c.ErrOrStderr(), "problem:", p)
	}
	return nil
}
