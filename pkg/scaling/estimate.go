package scaling

import (
	"fmt"
	"math"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/stats"
)

// Estimate is a quantity measured over repeated runs. Low and High are the confidence interval of
// the true value, at the confidence level of the study's Rule. Unknown numbers are NaN. Low and
// High are NaN for fewer than two runs (of a ratio: on either side), because a single run does not
// show how much another run would differ.
type Estimate struct {
	Value, Min, Max float64
	Low, High       float64 // confidence interval of Value, see Study.IntervalNote
	Std             float64 // sample standard deviation of the runs (n−1); NaN for fewer than two runs; 0 for a ratio
	N               int     // number of runs with a value
}

func unknownEstimate() Estimate { return Estimate(stats.UnknownEstimate()) }

// String returns the value, its interval and the number of runs: 11.97 [11.52, 12.40] n=3.
func (e Estimate) String() string { return stats.Estimate(e).String() }

// formatInterval returns text such as "[11.52, 12.40]", or "-" without an interval.
func (e Estimate) formatInterval() string { return english.FormatInterval(e.Low, e.High) }

func (e Estimate) scale(by float64) Estimate { return Estimate(stats.Estimate(e).Scale(by)) }

// NotDrawnReason returns why a figure does not draw the interval as an error bar or a band. It
// returns "" if the interval is drawn or if there is none. An interval from two runs is not drawn
// because it can be so wide that it covers the figure: at 95 %, Student's quantile is 12.7 for two
// runs, but 4.3 for three. An interval that is wider than its value is not drawn either. Tables
// contain all intervals.
func (e Estimate) NotDrawnReason() string {
	switch {
	case math.IsNaN(e.Low) || math.IsNaN(e.High):
		return ""
	case e.N == 2 && e.Low < e.High:
		return "two seeds: no interval drawn"
	case e.High-e.Low > math.Abs(e.Value):
		return "an interval wider than its value is not drawn"
	}
	return ""
}

// formatWithDeviation formats the value and its standard deviation, as in "12.30 ± 0.21".
func (e Estimate) formatWithDeviation() string {
	if math.IsNaN(e.Std) {
		return english.FormatNumber(e.Value)
	}
	digits := english.DecimalPlaces(e.Value)
	for e.Std > 0 && digits < 6 && e.Std < math.Pow(10, 1-float64(digits)) { // two significant digits of the deviation
		digits++
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, e.Value, digits, e.Std)
}

func (s *Study) estimator() stats.Estimator {
	return stats.Estimator{Level: s.Rule.confidenceLevel(), Mean: s.Rule.Repeats == Mean, Cache: s.draws}
}

// estimate combines the values that are not NaN according to the study's Rule. Set logScale for
// positive values that vary by factors, such as times: the bootstrap then resamples their
// logarithms.
func (s *Study) estimate(values []float64, logScale bool) Estimate {
	return Estimate(s.estimator().Estimate(values, logScale))
}

// IntervalNote describes in a sentence how the intervals of the study are computed.
func (s *Study) IntervalNote() string {
	return fmt.Sprintf("intervals: %s, smoothed bootstrap over repeated runs (%d resamples; for ratios, numerator and baseline independently), widened by Student's t; no interval if a side has a single run",
		english.FormatPercent(s.Rule.confidenceLevel()), stats.BootstrapResamples)
}

// estimateColumns returns the columns for one Estimate per row: its value; the formatted interval,
// shown in text and HTML if any row has one; and the interval's bounds, written only to files. The
// function estimate gets the Estimate of a row.
func estimateColumns[T any](name string, estimate func(T) Estimate) []grid.Column[T] {
	value := func(suffix string, pick func(Estimate) float64) grid.Column[T] {
		return grid.Column[T]{Name: name + suffix, Value: func(r T) float64 { return pick(estimate(r)) }}
	}
	first := value("", func(e Estimate) float64 { return e.Value })
	first.Brief, first.Optional = true, true
	first.Half = func(r T) float64 { return estimate(r).halfWidth() }
	shown := grid.Column[T]{
		Name: name + "_interval", Title: "interval", Brief: true, Optional: true, People: true, Interval: true,
		Value: func(r T) float64 { return estimate(r).Low },
		Show:  func(r T) string { return estimate(r).formatInterval() },
	}
	return []grid.Column[T]{
		first, shown,
		value("_low", func(e Estimate) float64 { return e.Low }), value("_high", func(e Estimate) float64 { return e.High }),
	}
}

func (e Estimate) halfWidth() float64 { return (e.High - e.Low) / 2 }
