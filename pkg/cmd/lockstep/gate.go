package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/scaling"
)

// The exit codes of lockstep gate other than 0 for a pass. CI must distinguish
// "slower" from all other failures.
const (
	exitRegression = 1
	exitCannotTell = 2
)

func gateCommand() *cobra.Command {
	var f ruleFlags
	var baseline, candidate, limit, format string
	c := &cobra.Command{
		Use:   "gate --baseline A --candidate B",
		Short: "Fail where a candidate is slower than a baseline beyond noise",
		Long: `Compares the speed of a candidate's runs with a baseline's at each series and
number of workers, and knows noise from change: it fails only where the whole
interval of what is lost, from the repeated runs (seeds) of both, lies above
what is allowed.

  lockstep gate --baseline logs/main --candidate logs/branch --max-regression 5%

Exit codes: 0 pass: nowhere more than that is lost. 1 regression: somewhere
more is lost, beyond noise. 2 cannot tell: too few runs (give each 3 seeds or
more) or too much noise (the output says how many runs would do), no runs of
the candidate where the baseline has some, logs that cannot be read, or wrong
use. 130 interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := f.gate(c, baseline, candidate, limit)
			if err == nil {
				err = g.Write(c.OutOrStdout(), format)
			}
			switch {
			case c.Context().Err() != nil:
				return c.Context().Err()
			case err != nil:
				return &exitError{exitCannotTell, err}
			case g.Outcome == scaling.OutcomeRegression:
				return &exitError{exitRegression, errors.New(g.Sentence)}
			case g.Outcome != scaling.OutcomePass:
				return &exitError{exitCannotTell, errors.New(g.Sentence)}
			}
			return nil
		},
	}
	c.Flags().StringVar(&baseline, "baseline", "", "folder of the runs to compare with")
	c.Flags().StringVar(&candidate, "candidate", "", "folder of the runs to judge")
	c.Flags().StringVar(&limit, "max-regression", "5%", "share of the speed that may be lost")
	c.Flags().StringVar(&format, "format", scaling.FormatTable, "table, csv or json")
	f.addMeasures(c)
	return c
}

// gate reads the baseline and the candidate and compares them.
func (f *ruleFlags) gate(c *cobra.Command, baseline, candidate, limit string) (*scaling.GateResult, error) {
	if baseline == "" || candidate == "" {
		return nil, errors.New("name both folders: lockstep gate --baseline A --candidate B")
	}
	share, err := parseShare(limit)
	if err != nil {
		return nil, fmt.Errorf("--max-regression %w", err)
	}
	a, err := f.read(c, []string{baseline})
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	b, err := f.read(c, []string{candidate})
	if err != nil {
		return nil, fmt.Errorf("candidate: %w", err)
	}
	return scaling.Gate(a, b, share)
}

// parseShare parses a fraction such as 5% or 0.05.
func parseShare(text string) (float64, error) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v < 1) {
		return 0, fmt.Errorf("%q: expected a share such as 5%% or 0.05", text)
	}
	return v, nil
}
