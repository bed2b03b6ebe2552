package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Resamples is how often an interval's runs are drawn again.
const Resamples = 1000

// bootstrap draws a statistic's interval.
//
// The method is the smoothed percentile bootstrap (Efron, Bootstrap methods:
// another look at the jackknife, Annals of Statistics 7, 1979; Efron and
// Tibshirani, An Introduction to the Bootstrap, 1993): runs are drawn with
// replacement, and to each value drawn noise N(0, s²/n) is added, which gives
// the draws the variance s² that drawing from n values alone would make
// (n−1)/n·s² (Hesterberg, What Teachers Should Know About the Bootstrap, The
// American Statistician 69, 2015, §4). The few runs of a study make s itself
// uncertain: the distances from the value are widened by t/z, Student's
// quantile with Welch's degrees of freedom over the normal one. Of positive
// quantities the logarithm is drawn, so that the interval of a ratio is the
// reciprocal one when the ratio is turned over, and never reaches 0.
type bootstrap struct {
	level  float64
	center func([]float64) float64 // of what may be reordered
	middle bool                    // center is the median
	logs   bool                    // values are positive; draw their logarithm
	dice   *Dice
}

// sample is the runs of one side, prepared.
type sample struct {
	at      []float64 // values, or their logarithms
	noise   float64   // s/√n
	rolls   *rolls
	scratch []float64
}

// rolled gives the sample its draws.
func (s *sample) rolled(d *Dice, side int) {
	s.rolls, s.scratch = d.of(side, len(s.at)), make([]float64, len(s.at))
}

func (b bootstrap) sample(values []float64) sample {
	s := sample{at: slices.Clone(values)}
	if b.logs {
		for i, v := range s.at {
			s.at[i] = math.Log(v)
		}
	}
	s.noise = stat.StdDev(s.at, nil) / math.Sqrt(float64(len(s.at)))
	return s
}

// draw returns the center of the i-th resample.
func (b bootstrap) draw(s *sample, i int) float64 {
	n := len(s.at)
	pick, noise := s.rolls.pick[i*n:(i+1)*n], s.rolls.noise[i*n:(i+1)*n]
	for k := range s.scratch {
		s.scratch[k] = s.at[pick[k]] + s.noise*noise[k]
	}
	if b.middle { // the same two are in the middle before and after Exp
		lo, hi := middleOf(s.scratch)
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

// of returns the interval of the center of values, NaN for fewer than two.
func (b bootstrap) of(values []float64) (low, high float64) { return b.run(values, nil, false) }

// ratio returns the interval of the center of numerator over that of denominator,
// which are resampled independently. NaN if either has fewer than two.
func (b bootstrap) ratio(numerator, denominator []float64) (low, high float64) {
	if len(denominator) < 2 {
		return math.NaN(), math.NaN()
	}
	return b.run(numerator, denominator, false)
}

// run draws the centre of values, or where there are others its ratio to (or
// its difference from) theirs.
func (b bootstrap) run(values, others []float64, minus bool) (low, high float64) {
	if len(values) < 2 {
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
	top, bottom, other := b.sample(values), sample{}, 0.0
	if others != nil {
		bottom, other = b.sample(others), b.center(slices.Clone(others))
	}
	center := against(b.center(slices.Clone(values)), other)
	if top.noise == 0 && bottom.noise == 0 {
		return center, center
	}
	top.rolled(b.dice, 0)
	if others != nil {
		bottom.rolled(b.dice, 1)
	}
	distances := make([]float64, Resamples)
	for i := range distances {
		v := b.draw(&top, i)
		if others != nil {
			v = against(v, b.draw(&bottom, i))
		}
		if b.logs {
			distances[i] = math.Log(v / center)
		} else {
			distances[i] = v - center
		}
	}
	slices.Sort(distances)
	tail := (1 - b.level) / 2
	wider := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: welch(top, bottom)}.Quantile(1-tail) / distuv.UnitNormal.Quantile(1-tail)
	low = wider * stat.Quantile(tail, stat.LinInterp, distances, nil)
	high = wider * stat.Quantile(1-tail, stat.LinInterp, distances, nil)
	if b.logs {
		return center * math.Exp(low), center * math.Exp(high)
	}
	return center + low, center + high
}

// welch returns the degrees of freedom of a difference of means (Welch, The
// generalization of Student's problem when several different population
// variances are involved, Biometrika 34, 1947), or of one mean.
func welch(a, b sample) float64 {
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
