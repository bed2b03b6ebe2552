package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/scaling"
)

// analysisFlags choose what lockstep scaling shows of a study, in place of its
// table.
type analysisFlags struct {
	series                                                          []string
	explain, overhead, without, timeTo, scalingRule                 string
	fit, breakdown, timeUse, stragglers, bottleneck, quality, modes bool
	collective, epochSpread                                         bool
	cost, budget                                                    float64
	chosen                                                          func(name string) bool
}

func (a *analysisFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringArrayVar(&a.series, "series", nil, "show this series alone; may be repeated")
	fs.StringVar(&a.explain, "explain", "", "how a number came about: METRIC@WORKERS, such as speedup@14")
	fs.BoolVar(&a.fit, "fit", false, "the laws of scaling, fitted to each series, with what they say")
	fs.BoolVar(&a.collective, "collective", false, "latency and bandwidth of the all-reduce, fitted to step spans")
	fs.BoolVar(&a.breakdown, "breakdown", false, "where the time of a step goes, and what of the communication is exposed")
	fs.BoolVar(&a.timeUse, "time-use", false, "the same from step spans and traces, with intervals")
	fs.BoolVar(&a.stragglers, "stragglers", false, "which rank comes last to the collective, and what it costs")
	fs.BoolVar(&a.bottleneck, "bottleneck", false, "input or computation, from the trials IO, SYNTHETIC and FULL")
	fs.StringVar(&a.overhead, "overhead", "", "what communication costs this series, from the one of --without")
	fs.StringVar(&a.without, "without", "", "the series of --overhead without its communication")
	fs.BoolVar(&a.quality, "quality", false, "IoU, accuracy and loss against workers and global batch")
	fs.StringVar(&a.scalingRule, "scaling-rule", "", "how the best learning rate grows with the global batch, and up to which, by the first measure of quality that the runs tell or by =MEASURE")
	fs.Lookup("scaling-rule").NoOptDefVal = firstMeasure
	fs.StringVar(&a.timeTo, "time-to", "", "when each run reached a target: METRIC=VALUE, such as val_loss=0.0075")
	fs.Float64Var(&a.cost, "cost", 0, "cost against time, for this price of a device-hour (0: hours alone)")
	fs.Float64Var(&a.budget, "budget", 0, "how many workers for so many device-hours")
	fs.BoolVar(&a.modes, "modes", false, "weak or strong scaling of each series, and why")
	fs.BoolVar(&a.epochSpread, "epoch-spread", false, "how much the epochs scatter, of single runs too")
	a.chosen = fs.Changed
}

// firstMeasure stands for the first measure of quality that the runs tell.
const firstMeasure = "auto"

// validate refuses two analyses at once.
func (a *analysisFlags) validate() error {
	var given []string
	for _, name := range []string{"explain", "fit", "collective", "breakdown", "time-use", "stragglers", "bottleneck", "overhead", "quality", "scaling-rule", "time-to", "cost", "budget", "modes", "epoch-spread"} {
		if a.chosen(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return usage(fmt.Errorf("%s show different things: give one of them", strings.Join(given, " and ")))
	}
	return nil
}

// result is what an analysis gives: it writes itself.
type result interface {
	Write(w io.Writer, format string) error
}

// results are those of the flag that was given, none where there was none.
// What a part of the series does not have is told to notes.
func (a *analysisFlags) results(s *scaling.Study, notes io.Writer) ([]result, error) {
	one := func(r result, err error) ([]result, error) {
		if err != nil {
			return nil, err
		}
		return []result{r}, nil
	}
	switch {
	case a.chosen("explain"):
		metric, n, ok := strings.Cut(a.explain, "@")
		workers, err := strconv.Atoi(n)
		if !ok || err != nil {
			return nil, usage(fmt.Errorf("--explain %q: expected METRIC@WORKERS, such as speedup@14", a.explain))
		}
		e, err := s.Explain(metric, workers)
		return one(e, err)
	case a.fit:
		return fits(s, notes, func(series string) (result, error) { return s.Fit(series) })
	case a.collective:
		return fits(s, notes, func(series string) (result, error) { return s.Collective(series) })
	case a.timeUse:
		return one(s.TimeUse(), nil)
	case a.stragglers:
		return one(s.Stragglers(), nil)
	case a.bottleneck:
		b, err := s.Bottleneck()
		return one(b, err)
	case a.chosen("overhead"):
		if a.without == "" {
			return nil, usage(fmt.Errorf("--overhead %q: name the series without communication too, --without SERIES", a.overhead))
		}
		o, err := s.Overhead(a.overhead, a.without)
		return one(o, err)
	case a.quality:
		return one(s.Quality(), nil)
	case a.chosen("scaling-rule"):
		r, err := scalingRule(s, a.scalingRule)
		return one(r, err)
	case a.chosen("time-to"):
		metric, value, ok := strings.Cut(a.timeTo, "=")
		target, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return nil, usage(fmt.Errorf("--time-to %q: expected METRIC=VALUE, such as val_loss=0.0075", a.timeTo))
		}
		t, err := s.TimeTo(metric, target)
		return one(t, err)
	case a.chosen("cost"):
		r, err := s.Cost(a.cost)
		return one(r, err)
	case a.chosen("budget"):
		b, err := s.Budget(a.budget)
		return one(b, err)
	case a.epochSpread:
		return one(s.EpochSpreads(), nil)
	case a.modes:
		return one(s.Modes(), nil)
	}
	return nil, nil
}

// fits are the fits of every series that has enough points; it is an error
// that none has.
func fits(s *scaling.Study, notes io.Writer, fit func(series string) (result, error)) ([]result, error) {
	var out []result
	var refused []error
	for _, name := range s.Series() {
		f, err := fit(name)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, errors.Join(refused...)
	}
	for _, err := range refused {
		fmt.Fprintln(notes, "note: not fitted:", err)
	}
	return out, nil
}

// writeResults writes results one after the other. Of several in csv each has
// its header.
func writeResults(c *cobra.Command, results []result, format string) error {
	for i, r := range results {
		if i > 0 && format == scaling.FormatTable {
			fmt.Fprintln(c.OutOrStdout())
		}
		if err := r.Write(c.OutOrStdout(), format); err != nil {
			return err
		}
	}
	return nil
}
