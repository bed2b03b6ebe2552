// Package stats estimates quantities over repeated runs: the center, its bootstrap interval, and
// significance tests of differences.
package stats

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/internal/english"
)

// Estimate is a quantity measured over repeated runs; see scaling.Estimate.
type Estimate struct {
	Value, Min, Max float64
	Low, High       float64
	Std             float64
	N               int
}

// UnknownEstimate returns an Estimate in which every number is NaN.
func UnknownEstimate() Estimate {
	nan := math.NaN()
	return Estimate{Value: nan, Min: nan, Max: nan, Low: nan, High: nan, Std: nan}
}

// String returns the value, its interval and the number of runs: 11.97 [11.52, 12.40] n=3.
func (e Estimate) String() string {
	if math.IsNaN(e.Value) {
		return "not measured"
	}
	text := english.FormatNumber(e.Value)
	if !math.IsNaN(e.Low) {
		text += " " + e.FormatInterval()
	}
	return fmt.Sprintf("%s n=%d", text, e.N)
}

// FormatInterval returns text such as "[11.52, 12.40]", or "-" without an interval.
func (e Estimate) FormatInterval() string { return english.FormatInterval(e.Low, e.High) }

// Scale returns the estimate multiplied by a positive factor.
func (e Estimate) Scale(by float64) Estimate {
	return Estimate{Value: e.Value * by, Min: e.Min * by, Max: e.Max * by, Low: e.Low * by, High: e.High * by, Std: e.Std * by, N: e.N}
}

// Inverse returns the estimate of 1/x for an estimate of a positive x.
func (e Estimate) Inverse() Estimate {
	return Estimate{Value: 1 / e.Value, Min: 1 / e.Max, Max: 1 / e.Min, Low: 1 / e.High, High: 1 / e.Low, N: e.N}
}

// Complement returns the estimate of 1−x for an estimate of x. If x is a ratio of speeds, 1−x is
// the fraction of speed lost.
func (e Estimate) Complement() Estimate {
	return Estimate{Value: 1 - e.Value, Min: 1 - e.Max, Max: 1 - e.Min, Low: 1 - e.High, High: 1 - e.Low, N: e.N}
}

// Estimator computes estimates over repeated runs according to a study's rule.
type Estimator struct {
	Level float64 // confidence level of intervals
	Mean  bool    // the center is the mean, otherwise the median
	Cache *ResampleCache
}

// MeanOrMedian returns the mean or the median of values, depending on the estimator.
func (e Estimator) MeanOrMedian(values []float64) float64 {
	if e.Mean {
		return Mean(values)
	}
	return Median(values)
}

// newBootstrap returns a bootstrap of the center. If logScale is set, it resamples logarithms, as
// is appropriate for positive values that vary by factors, such as times.
func (e Estimator) newBootstrap(logScale bool) bootstrap {
	b := bootstrap{level: e.Level, center: medianInPlace, middle: true, logs: logScale, cache: e.Cache}
	if e.Mean {
		b.center, b.middle = Mean, false
	}
	return b
}

// Estimate estimates the center of the values that are not NaN. If logScale is set and all values
// are positive and finite, the bootstrap resamples their logarithms.
func (e Estimator) Estimate(values []float64, logScale bool) Estimate {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return UnknownEstimate()
	}
	b := e.newBootstrap(logScale && slices.Min(v) > 0 && !math.IsInf(slices.Max(v), 0))
	out := Estimate{Value: b.center(slices.Clone(v)), Min: slices.Min(v), Max: slices.Max(v), N: len(v)}
	out.Low, out.High, out.Std = math.NaN(), math.NaN(), math.NaN()
	if !math.IsInf(out.Min, 0) && !math.IsInf(out.Max, 0) {
		out.Low, out.High = b.computeInterval(v, nil, false)
		if len(v) > 1 {
			out.Std = stat.StdDev(v, nil)
		}
	}
	return out
}

// Ratio estimates the center of a divided by the center of b. All values must be positive. Min and
// Max are the extremes of a, divided by the center of b.
func (e Estimator) Ratio(a, b []float64) Estimate {
	a = slices.DeleteFunc(slices.Clone(a), math.IsNaN)
	b = slices.DeleteFunc(slices.Clone(b), math.IsNaN)
	if len(a) == 0 || len(b) == 0 {
		return UnknownEstimate()
	}
	boot := e.newBootstrap(true)
	base := boot.center(slices.Clone(b))
	out := Estimate{Value: boot.center(slices.Clone(a)) / base, Min: slices.Min(a) / base, Max: slices.Max(a) / base, N: len(a)}
	out.Low, out.High = boot.computeInterval(a, b, false)
	return out
}

// DifferenceInterval returns the interval of the center of values minus the center of others. Both
// ends are NaN if a side has fewer than two values.
func (e Estimator) DifferenceInterval(values, others []float64) (low, high float64) {
	return e.newBootstrap(false).computeInterval(values, others, true)
}

// ResampleCenters resamples values Resamples times and returns the center of each resample. Draws
// for different values of side are independent; Ratio and DifferenceInterval use 0 and 1. If there
// is only one value, its noise has the given standard deviation.
func (e Estimator) ResampleCenters(values []float64, deviation float64, side int) []float64 {
	b := e.newBootstrap(false)
	one := b.newSample(values)
	if len(values) == 1 {
		one.noise = deviation
	}
	one.setResampleDraws(b.cache, side)
	out := make([]float64, BootstrapResamples)
	for i := range out {
		out[i] = b.resampledCenter(&one, i)
	}
	return out
}

// WidenInterval computes an interval, relative to the measured value, from the distances between
// resampled values and the measured value. As in the bootstrap, it is widened by Student's t with
// the given degrees of freedom. Distances that are NaN are ignored; low and high are NaN if none
// remain.
func (e Estimator) WidenInterval(distances []float64, freedom float64) (low, high float64) {
	distances = slices.DeleteFunc(slices.Clone(distances), math.IsNaN)
	if len(distances) == 0 {
		return math.NaN(), math.NaN()
	}
	return widenInterval(distances, e.Level, freedom)
}
