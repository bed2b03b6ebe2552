package scaling

import (
	"fmt"
	"math"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/stats"
)

// Estimate is a value over repeated runs: with the lowest and the highest of
// them, and the interval that holds the true value with the rule's confidence.
// What is not known is NaN; the interval is where fewer than two runs were
// measured (of a ratio: on either side), because one run says nothing of how
// much the next would differ.
type Estimate struct {
	Value, Min, Max float64
	Low, High       float64 // confidence interval of Value, see Study.IntervalNote
	Std             float64 // standard deviation of the runs (of n−1); NaN for fewer than two; 0 of a ratio
	N               int     // runs that have a value
}

// unknown returns an Estimate of what was not measured.
func unknown() Estimate { return Estimate(stats.Unknown()) }

// String returns the value with its interval and its runs: 11.97 [11.52, 12.40] n=3.
func (e Estimate) String() string { return stats.Estimate(e).String() }

// interval formats the interval for people, "-" if there is none.
func (e Estimate) interval() string { return english.Interval(e.Low, e.High) }

func (e Estimate) scaled(by float64) Estimate { return Estimate(stats.Estimate(e).Scaled(by)) }

// NotDrawn returns why a figure does not draw the interval as a bar or a band,
// empty if it does or if there is none: two runs leave it so open (at 95 %
// Student's quantile is 12.7, from three runs 4.3) that [0.51, 3.57] would cover
// the figure, and so does one that is wider than the value. Tables have both.
func (e Estimate) NotDrawn() string {
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

// withDeviation formats the value and its standard deviation: 12.30 ± 0.21.
func (e Estimate) withDeviation() string {
	if math.IsNaN(e.Std) {
		return english.Short(e.Value)
	}
	digits := english.Decimals(e.Value)
	for e.Std > 0 && digits < 6 && e.Std < math.Pow(10, 1-float64(digits)) { // two digits of the deviation
		digits++
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, e.Value, digits, e.Std)
}

// estimator makes the estimates of the study by its rule.
func (s *Study) estimator() stats.Estimator {
	return stats.Estimator{Level: s.Rule.level(), Mean: s.Rule.Repeats == Mean, Dice: s.dice}
}

// estimate aggregates what is known of values by the rule. Logs says that they
// are positive and vary by factors, as times do.
func (s *Study) estimate(values []float64, logs bool) Estimate {
	return Estimate(s.estimator().Of(values, logs))
}

// IntervalNote returns how the intervals of the study were made, in a sentence.
func (s *Study) IntervalNote() string {
	return fmt.Sprintf("intervals: %s, smoothed bootstrap over repeated runs (%d resamples, for ratios of numerator and baseline independently), widened by Student's t; none where a side has one run",
		english.Percent(s.Rule.level()), stats.Resamples)
}

// estimateColumns returns the columns of an Estimate: its value (brief), the interval
// for people where there is one, and the ends of the interval for files.
func estimateColumns[T any](name string, of func(T) Estimate) []grid.Column[T] {
	value := func(suffix string, pick func(Estimate) float64) grid.Column[T] {
		return grid.Column[T]{Name: name + suffix, Value: func(r T) float64 { return pick(of(r)) }}
	}
	first := value("", func(e Estimate) float64 { return e.Value })
	first.Brief, first.Optional = true, true
	shown := grid.Column[T]{
		Name: name + "_interval", Title: "interval", Brief: true, Optional: true, People: true,
		Value: func(r T) float64 { return of(r).Low },
		Show:  func(r T) string { return of(r).interval() },
	}
	return []grid.Column[T]{
		first, shown,
		value("_low", func(e Estimate) float64 { return e.Low }), value("_high", func(e Estimate) float64 { return e.High }),
	}
}
