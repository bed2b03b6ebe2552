package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// BootstrapResamples is the number of bootstrap resamples for an interval.
const BootstrapResamples = 1000

// bootstrap computes confidence intervals of a statistic.
//
// The method is the smoothed percentile bootstrap (Efron, Bootstrap methods: another look
// at the jackknife, Annals of Statistics 7, 1979; Efron and Tibshirani, An Introduction to
// the Bootstrap, 1993). Runs are drawn with replacement, and noise N(0, s²/n) is added to
// each drawn value. The noise restores the variance s², because drawing from n values alone
// gives only (n−1)/n·s² (Hesterberg, What Teachers Should Know About the Bootstrap, The
// American Statistician 69, 2015, §4). With few runs, s itself is uncertain. Therefore the
// distances of the interval's ends from the measured value are multiplied by t/z: Student's
// quantile with Welch's degrees of freedom, divided by the normal quantile. Positive
// quantities are drawn as logarithms, so that the interval of an inverted ratio is the
// inverted interval, and it never reaches 0.
type bootstrap struct {
	level  float64
	center func([]float64) float64 // may reorder its argument
	middle bool                    // center is the median
	logs   bool                    // values are positive; resample their logarithms
	cache  *ResampleCache
}

// bootstrapSample contains the values of one side of a comparison, prepared for resampling.
type bootstrapSample struct {
	at      []float64 // values, or their logarithms
	noise   float64   // s/√n
	draws   *resampleDraws
	scratch []float64
}

// setResampleDraws gets the sample's random draws from the cache. side is 0 for the numerator of a ratio
// and 1 for the denominator; see resampleKey.
func (s *bootstrapSample) setResampleDraws(c *ResampleCache, side int) {
	s.draws, s.scratch = c.draws(side, len(s.at)), make([]float64, len(s.at))
}

func (b bootstrap) newSample(values []float64) bootstrapSample {
	s := bootstrapSample{at: slices.Clone(values)}
	if b.logs {
		for i, v := range s.at {
			s.at[i] = math.Log(v)
		}
	}
	s.noise = stat.StdDev(s.at, nil) / math.Sqrt(float64(len(s.at)))
	return s
}

// resampledCenter returns the mean or median of the i-th resample of s.
func (b bootstrap) resampledCenter(s *bootstrapSample, i int) float64 {
	n := len(s.at)
	pick, noise := s.draws.pick[i*n:(i+1)*n], s.draws.noise[i*n:(i+1)*n]
	for k := range s.scratch {
		s.scratch[k] = s.at[pick[k]] + s.noise*noise[k]
	}
	if b.middle { // Exp preserves the order, so only the two middle values are needed
		lo, hi := middleTwo(s.scratch)
		if b.logs {
			lo, hi = math.Exp(lo), math.Exp(hi)
		}
		return (lo + hi) / 2
	}
	if b.logs {
		for k, x := range s.scratch {
			s.scratch[k] = math.Exp(x)
		}
	}
	return b.center(s.scratch)
}

// computeInterval returns the confidence interval of the center (mean or median) of values. If
// others is not nil, it is the interval of the ratio of both centers, or of their difference if
// minus is set. The two sides are resampled independently. The bounds are NaN if a side has fewer
// than two values.
func (b bootstrap) computeInterval(values, others []float64, minus bool) (low, high float64) {
	if len(values) < 2 || others != nil && len(others) < 2 {
		return math.NaN(), math.NaN()
	}
	against := func(x, y float64) float64 {
		switch {
		case others == nil:
			return x
		case minus:
			return x - y
		}
		return x / y
	}
	top, bottom, other := b.newSample(values), bootstrapSample{}, 0.0
	if others != nil {
		bottom, other = b.newSample(others), b.center(slices.Clone(others))
	}
	center := against(b.center(slices.Clone(values)), other)
	if top.noise == 0 && bottom.noise == 0 {
		return center, center
	}
	top.setResampleDraws(b.cache, 0)
	if others != nil {
		bottom.setResampleDraws(b.cache, 1)
	}
	distances := make([]float64, BootstrapResamples)
	for i := range distances {
		v := b.resampledCenter(&top, i)
		if others != nil {
			v = against(v, b.resampledCenter(&bottom, i))
		}
		if b.logs {
			distances[i] = math.Log(v / center)
		} else {
			distances[i] = v - center
		}
	}
	low, high = widenInterval(distances, b.level, welchDegreesOfFreedom(top, bottom))
	if b.logs {
		return center * math.Exp(low), center * math.Exp(high)
	}
	return center + low, center + high
}

// widenInterval returns the interval of distances from a measured value, widened by Student's t
// with the given degrees of freedom. It sorts distances in place.
func widenInterval(distances []float64, level, freedom float64) (low, high float64) {
	slices.Sort(distances)
	tail := (1 - level) / 2
	wider := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1-tail) / distuv.UnitNormal.Quantile(1-tail)
	return wider * stat.Quantile(tail, stat.LinInterp, distances, nil), wider * stat.Quantile(1-tail, stat.LinInterp, distances, nil)
}

// welchDegreesOfFreedom returns Welch's degrees of freedom of a difference of means
// (Welch, The generalization of Student's problem when several different population
// variances are involved, Biometrika 34, 1947), or of the mean of a if b is empty.
func welchDegreesOfFreedom(a, b bootstrapSample) float64 {
	va, vb := a.noise*a.noise, b.noise*b.noise
	down := va * va / float64(len(a.at)-1)
	if len(b.at) > 1 {
		down += vb * vb / float64(len(b.at)-1)
	}
	if down == 0 {
		return math.Inf(1)
	}
	return (va + vb) * (va + vb) / down
}
