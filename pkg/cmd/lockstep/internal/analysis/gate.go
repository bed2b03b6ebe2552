package analysis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/scaling"
)

// Exit codes of lockstep gate. 0 means that the candidate passed. A regression has its own code, so
// that CI can distinguish it from other failures.
const (
	exitRegression = 1
	exitCannotTell = 2
)

func gateCommand() *cobra.Command {
	var f studyFlags
	var baseline, candidate, limit, format string
	c := &cobra.Command{
		Use:   "gate --baseline A --candidate B",
		Short: "Fail if a candidate is slower than a baseline by more than noise",
		Long: `Compares the speed of a candidate's runs with a baseline's for each series and
number of workers, and distinguishes noise from changes: it fails only if the
complete confidence interval of the loss of speed, from the repeated runs (seeds)
of both, is above the allowed loss.

  lockstep gate --baseline logs/main --candidate logs/branch --max-regression 5%

Exit codes: 0 pass: no worker count loses more than allowed. 1 regression: a
worker count loses more than allowed, beyond noise. 2 cannot tell: too few runs
(use 3 seeds or more), too much noise (the output shows how many runs would be
enough), no runs of the candidate for a worker count of the baseline, logs that
cannot be read, or wrong usage. 130 interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := f.compareSpeed(c, baseline, candidate, limit, format)
			if err == nil {
				err = g.Write(c.OutOrStdout(), format)
			}
			switch {
			case c.Context().Err() != nil:
				return c.Context().Err()
			case err != nil:
				return &cli.ExitError{Code: exitCannotTell, Err: err}
			case g.Outcome == scaling.OutcomeRegression:
				return &cli.ExitError{Code: exitRegression, Err: errors.New(g.Sentence)}
			case g.Outcome != scaling.OutcomePass:
				return &cli.ExitError{Code: exitCannotTell, Err: errors.New(g.Sentence)}
			}
			return nil
		},
	}
	c.Flags().StringVar(&baseline, "baseline", "", "folder of the runs to compare with")
	c.Flags().StringVar(&candidate, "candidate", "", "folder of the runs to check")
	c.Flags().StringVar(&limit, "max-regression", "5%", "allowed loss of speed")
	c.Flags().StringVar(&format, "format", scaling.FormatTable, "table, csv, json, markdown or latex")
	f.addMeasureFlags(c)
	return c
}

// compareSpeed compares the candidate's speed with the baseline's. limit is the value of the flag,
// and format the output format.
func (f *studyFlags) compareSpeed(c *cobra.Command, baseline, candidate, limit, format string) (*scaling.GateResult, error) {
	if baseline == "" || candidate == "" {
		return nil, errors.New("--baseline or --candidate is missing: use lockstep gate --baseline A --candidate B")
	}
	share, err := parseFraction(limit)
	if err != nil {
		return nil, fmt.Errorf("--max-regression %w", err)
	}
	a, err := f.readStudy(c, []string{baseline})
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	b, err := f.readStudy(c, []string{candidate})
	if err != nil {
		return nil, fmt.Errorf("candidate: %w", err)
	}
	printReadingNotes(c, a, formatHasNotes(format))
	printReadingNotes(c, b, formatHasNotes(format))
	return scaling.Gate(a, b, share)
}

// parseFraction parses a fraction such as 5% or 0.05.
func parseFraction(text string) (float64, error) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v < 1) {
		return 0, fmt.Errorf("%q: want a fraction such as 5%% or 0.05", text)
	}
	return v, nil
}
