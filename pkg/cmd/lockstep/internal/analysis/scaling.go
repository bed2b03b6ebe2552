package analysis

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// studyFlags are the flags that say which measurements of a study count, and how to read its log files.
type studyFlags struct {
	rule scaling.Rule
	logs logFlags
}

func (f *studyFlags) addTo(c *cobra.Command) {
	f.addMeasureFlags(c)
	c.Flags().StringVar(&f.rule.Baseline, "baseline", scaling.BaselineSmallest, "baseline of the speed-up: smallest (the smallest worker count of a series), one, or a number")
	c.Flags().StringVar(&f.rule.Per, "per", "", "unit of the worker count: worker (default) or node")
}

// addMeasureFlags adds the flags that select the epochs that count, and how epochs and runs are averaged.
func (f *studyFlags) addMeasureFlags(c *cobra.Command) {
	f.rule = scaling.DefaultRule()
	c.Flags().IntVar(&f.rule.DropFirst, "drop-first", f.rule.DropFirst, "number of epochs at the start of each run that are not counted")
	c.Flags().StringVar(&f.rule.Epochs, "epochs", "mean", "how epochs are combined: mean, median, or the number of a single epoch")
	c.Flags().StringVar(&f.rule.Repeats, "repeats", "median", "how repeated runs are combined: median or mean")
	c.Flags().IntVar(&f.rule.SamplesPerEpoch, "samples-per-epoch", 0, "samples per epoch of logs that do not contain it, for their throughput")
	c.Flags().Float64Var(&f.rule.Confidence, "confidence", 0.95, "confidence level of the intervals")
	f.logs.addTo(c)
}

// readStudy reads the logs at the paths as a study. Invalid flags are a usage error.
func (f *studyFlags) readStudy(c *cobra.Command, paths []string) (*scaling.Study, error) {
	if err := f.rule.Validate(); err != nil {
		return nil, cli.AsUsageError(err)
	}
	options, err := f.logs.options()
	if err != nil {
		return nil, cli.AsUsageError(err)
	}
	cli.PrintReadPaths(c, paths...)
	s, err := scaling.ReadWith(c.Context(), options, paths...)
	if err != nil {
		return nil, err
	}
	return s.WithRule(f.rule)
}

// printReadingNotes prints to stderr how the logs were read, for output formats that do not contain
// the study's notes. If hasCautions is true, it omits the cautions, because the output contains them.
func printReadingNotes(c *cobra.Command, s *scaling.Study, hasCautions bool) {
	notes := s.ReadingNotes()
	if hasCautions {
		notes = notes[len(s.Cautions()):]
	}
	for _, n := range notes {
		fmt.Fprintln(c.ErrOrStderr(), "note:", clean.EscapeText(n))
	}
}

func scalingCommand() *cobra.Command {
	var f studyFlags
	var a analysisFlags
	var format string
	c := &cobra.Command{
		Use:   "scaling PATH…",
		Short: "Print epoch time, throughput, speed-up, efficiency and IoU of a folder of logs",
		Long: `Reads run folders and the logs of other programs (lockstep read --explain lists
them) under each PATH, and prints one row per series and number of workers, then
the rule by which the rows were computed, and notes. Intervals are bootstrapped
over repeated runs (seeds). Runs of a series with equally many workers are repeats
only if they agree in what is known about them; otherwise they become separate
series, and a note states why. Notes also state what was assumed from names.

  lockstep scaling logs/unet2d-cells --format csv
  lockstep scaling results --as 'log_hvd_{workers}.csv=PyTorch Horovod' --epochs 5
  lockstep scaling results --per node --baseline one

Other views of the same runs are values of --show, which is repeatable; --show help
explains them all:

  lockstep scaling logs/unet2d-cells --show explain=speedup@14   # where a number comes from
  lockstep scaling logs/unet2d-cells --show fit                  # which law of scaling the runs follow
  lockstep scaling logs/unet2d-cells --show breakdown            # where a step's time goes
  lockstep scaling logs/unet2d-cells --show cost=2.5 --show budget=100 --format json

Several views in json are one object keyed by name; in csv each view is one file in
the folder of --out.

The view scaling-rule needs a sweep over batches and learning rates, such as

  lockstep launch --seeds 1,2,3 --vary batch=2,4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008

To see the gain of overlap, compare with a series without it:

  lockstep launch --workers 1,2
  lockstep launch --workers 2 --series ddp-no-overlap --set engine.overlap=false
  lockstep scaling logs/unet2d-cells --show breakdown`,
		Args: func(c *cobra.Command, args []string) error {
			if a.requestsHelp() {
				return nil
			}
			return cli.AtLeastOneArg("name folders of logs, for example logs/unet2d-cells")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if a.requestsHelp() {
				return writeViewHelp(c.OutOrStdout())
			}
			shown, err := a.parseViews(format)
			if err != nil {
				return err
			}
			a.logs = args
			s, err := f.readStudy(c, args)
			if err != nil {
				return err
			}
			if len(a.series) > 0 {
				if s, err = s.Only(a.series...); err != nil {
					return cli.AsUsageError(err)
				}
			}
			if len(shown) > 0 {
				printReadingNotes(c, s, false)
				return a.writeViews(c, s, shown, format)
			}
			if err := s.Write(c.OutOrStdout(), format); err != nil {
				return err
			}
			if formatHasNotes(format) { // the table itself ends with notes and problems
				return powerCutError(s.Problems)
			}
			writeNotesAndProblems(c.ErrOrStderr(), s)
			return powerCutError(s.Problems)
		},
	}
	c.Flags().StringVar(&format, "format", scaling.FormatTable, "table, csv, json, markdown or latex")
	f.addTo(c)
	a.addTo(c)
	return c
}

// writeNotesAndProblems writes a result's notes and problems, which CSV and JSON output does not contain.
func writeNotesAndProblems(w io.Writer, r viewResult) {
	var notes []string
	var problems []runs.Problem
	switch r := r.(type) {
	case *scaling.Study:
		notes, problems = r.Notes, r.Problems
	case *scaling.Breakdown:
		problems = r.Problems
	}
	for _, n := range notes {
		fmt.Fprintln(w, "note:", clean.EscapeText(n))
	}
	for _, p := range problems {
		fmt.Fprintln(w, "problem:", p)
	}
}
