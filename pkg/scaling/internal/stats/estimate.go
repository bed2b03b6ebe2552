// Package stats estimates quantities of repeated runs: the center, an interval by
// the bootstrap, and the tests that tell a difference from chance.
package stats

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/internal/english"
)

// Estimate is a value over repeated runs, as scaling.Estimate documents it.
type Estimate struct {
	Value, Min, Max float64
	Low, High       float64
	Std             float64
	N               int
}

// Unknown returns an Estimate of what was not measured: every number is NaN.
func Unknown() Estimate {
	nan := math.NaN()
	return Estimate{Value: nan, Min: nan, Max: nan, Low: nan, High: nan, Std: nan}
}

// String returns the value with its interval and its runs: 11.97 [11.52, 12.40] n=3.
func (e Estimate) String() string {
	if math.IsNaN(e.Value) {
		return "not measured"
	}
	text := english.Short(e.Value)
	if !math.IsNaN(e.Low) {
		text += " " + e.Interval()
	}
	return fmt.Sprintf("%s n=%d", text, e.N)
}

// Interval formats the interval, "-" if there is none.
func (e Estimate) Interval() string { return english.Interval(e.Low, e.High) }

// Scaled returns the estimate times a positive number.
func (e Estimate) Scaled(by float64) Estimate {
	return Estimate{Value: e.Value * by, Min: e.Min * by, Max: e.Max * by, Low: e.Low * by, High: e.High * by, Std: e.Std * by, N: e.N}
}

// Inverse returns the estimate of 1/x.
func (e Estimate) Inverse() Estimate {
	return Estimate{Value: 1 / e.Value, Min: 1 / e.Max, Max: 1 / e.Min, Low: 1 / e.High, High: 1 / e.Low, N: e.N}
}

// Lost returns the estimate of 1−x: of a ratio of speeds the share that is lost.
func (e Estimate) Lost() Estimate {
	return Estimate{Value: 1 - e.Value, Min: 1 - e.Max, Max: 1 - e.Min, Low: 1 - e.High, High: 1 - e.Low, N: e.N}
}

// Estimator makes estimates of repeated runs by a study's rule. Its draws are
// the same in every program.
type Estimator struct {
	Level float64 // of the intervals
	Mean  bool    // the center is the mean; else the median
	Dice  *Dice
}

// Center returns the mean or the median of values.
func (e Estimator) Center(values []float64) float64 {
	if e.Mean {
		return Mean(values)
	}
	return Median(values)
}

// bootstrap returns the bootstrap of the center. Logs means that values are
// positive and vary by factors, as times do, so that their logarithms are drawn.
func (e Estimator) bootstrap(logs bool) bootstrap {
	b := bootstrap{level: e.Level, center: medianOf, middle: true, logs: logs, dice: e.Dice}
	if e.Mean {
		b.center, b.middle = Mean, false
	}
	return b
}

// Of estimates the center of the values that are not NaN. For logs see
// bootstrap; values that are not positive are drawn as they are.
func (e Estimator) Of(values []float64, logs bool) Estimate {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return Unknown()
	}
	b := e.bootstrap(logs && slices.Min(v) > 0 && !math.IsInf(slices.Max(v), 0))
	out := Estimate{Value: b.center(slices.Clone(v)), Min: slices.Min(v), Max: slices.Max(v), N: len(v)}
	out.Low, out.High, out.Std = math.NaN(), math.NaN(), math.NaN()
	if !math.IsInf(out.Min, 0) && !math.IsInf(out.Max, 0) {
		out.Low, out.High = b.of(v)
		if len(v) > 1 {
			out.Std = stat.StdDev(v, nil)
		}
	}
	return out
}

// Ratio estimates the center of a over the center of b, all positive. Its
// extremes are those of a over the center of b.
func (e Estimator) Ratio(a, b []float64) Estimate {
	a = slices.DeleteFunc(slices.Clone(a), math.IsNaN)
	b = slices.DeleteFunc(slices.Clone(b), math.IsNaN)
	if len(a) == 0 || len(b) == 0 {
		return Unknown()
	}
	boot := e.bootstrap(true)
	base := boot.center(slices.Clone(b))
	out := Estimate{Value: boot.center(slices.Clone(a)) / base, Min: slices.Min(a) / base, Max: slices.Max(a) / base, N: len(a)}
	out.Low, out.High = boot.ratio(a, b)
	return out
}

// Difference returns the interval of the center of values less the center of
// others, NaN if either has fewer than two.
func (e Estimator) Difference(values, others []float64) (low, high float64) {
	if len(others) < 2 {
		return math.NaN(), math.NaN()
	}
	return e.bootstrap(false).run(values, others, true)
}

// Draws returns Resamples resampled centers of values. Side tells draws apart
// that must be independent of each other; 0 and 1 are those of Ratio and
// Difference. A single value varies by the deviation alone.
func (e Estimator) Draws(values []float64, deviation float64, side int) []float64 {
	b := e.bootstrap(false)
	one := b.sample(values)
	if len(values) == 1 {
		one.noise = deviation
	}
	one.rolled(b.dice, side)
	out := make([]float64, Resamples)
	for i := range out {
		out[i] = b.draw(&one, i)
	}
	return out
}

// Widened returns the ends of the interval of resampled distances from a value,
// widened by Student's t with so many degrees of freedom, as in the bootstrap.
// It leaves out distances that are NaN, and returns NaN if none is left.
func (e Estimator) Widened(distances []float64, freedom float64) (low, high float64) {
	distances = slices.DeleteFunc(slices.Clone(distances), math.IsNaN)
	if len(distances) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(distances)
	tail := (1 - e.Level) / 2
	wider := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1-tail) / distuv.UnitNormal.Quantile(1-tail)
	return wider * stat.Quantile(tail, stat.LinInterp, distances, nil), wider * stat.Quantile(1-tail, stat.LinInterp, distances, nil)
}
