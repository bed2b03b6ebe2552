package scaling

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Span is a value over repeated runs: with the lowest and the highest of them,
// and the interval that holds the true value with the rule's confidence. What
// is not known is NaN; the interval is where fewer than two runs were measured
// (of a ratio: on either side), because one run says nothing of how much the
// next would differ.
type Span struct {
	Value, Min, Max float64
	Low, High       float64 // confidence interval of Value, see Study.IntervalNote
	Std             float64 // standard deviation of the runs (of n−1); NaN for fewer than two; 0 of a ratio
	N               int     // runs that have a value
}

// nothing is a Span that was not measured.
func nothing() Span {
	nan := math.NaN()
	return Span{Value: nan, Min: nan, Max: nan, Low: nan, High: nan, Std: nan}
}

// String is the value with its interval and its runs: 11.97 [11.52, 12.40] n=3.
func (s Span) String() string {
	if math.IsNaN(s.Value) {
		return "not measured"
	}
	text := short(s.Value)
	if !math.IsNaN(s.Low) {
		text += " " + s.interval()
	}
	return fmt.Sprintf("%s n=%d", text, s.N)
}

// interval is the interval for people.
func (s Span) interval() string {
	if math.IsNaN(s.Low) || math.IsNaN(s.High) {
		return "-"
	}
	d := max(decimals(s.Low), decimals(s.High))
	if widest := max(math.Abs(s.Low), math.Abs(s.High)); widest < tiny {
		return fmt.Sprintf("[%s, %s]", short(s.Low), short(s.High))
	}
	return fmt.Sprintf("[%s, %s]", strconv.FormatFloat(s.Low, 'f', d, 64), strconv.FormatFloat(s.High, 'f', d, 64))
}

// NotDrawn returns why a figure does not draw the span's interval as a bar or a
// band, empty if it does or if there is none: two runs leave it so open (at 95 %
// Student's quantile is 12.7, from three runs 4.3) that [0.51, 3.57] would cover
// the figure, and so does one that is wider than the value. Tables have both.
func (s Span) NotDrawn() string {
	switch {
	case math.IsNaN(s.Low) || math.IsNaN(s.High):
		return ""
	case s.N == 2 && s.Low < s.High:
		return "two seeds: no interval drawn"
	case s.High-s.Low > math.Abs(s.Value):
		return "an interval wider than its value is not drawn"
	}
	return ""
}

// withDeviation is the value and its standard deviation for people: 12.30 ± 0.21.
func (s Span) withDeviation() string {
	if math.IsNaN(s.Std) {
		return short(s.Value)
	}
	digits := decimals(s.Value)
	for s.Std > 0 && digits < 6 && s.Std < math.Pow(10, 1-float64(digits)) { // two digits of the deviation
		digits++
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, s.Value, digits, s.Std)
}

// scaled is the span times a positive number.
func (s Span) scaled(by float64) Span {
	return Span{Value: s.Value * by, Min: s.Min * by, Max: s.Max * by, Low: s.Low * by, High: s.High * by, Std: s.Std * by, N: s.N}
}

// tiny is where a number for people gets an exponent.
const tiny = 1e-2

// short is a number for people, about four digits.
func short(v float64) string {
	if a := math.Abs(v); a > 0 && a < tiny {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', decimals(v), 64)
}

// resamples is how often an interval's runs are drawn again.
const resamples = 1000

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
	dice   *dice
}

// sample is the runs of one side, prepared.
type sample struct {
	at      []float64 // values, or their logarithms
	noise   float64   // s/√n
	rolls   *rolls
	scratch []float64
}

// rolled gives the sample its draws.
func (s *sample) rolled(d *dice, side int) {
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

// draw is the centre of the i-th resample.
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

// of is the interval of the centre of values, NaN for fewer than two.
func (b bootstrap) of(values []float64) (low, high float64) { return b.run(values, nil, false) }

// ratio is the interval of the centre of numerator over that of denominator,
// which are resampled independently. NaN where either has fewer than two.
func (b bootstrap) ratio(numerator, denominator []float64) (low, high float64) {
	if len(denominator) < 2 {
		return math.NaN(), math.NaN()
	}
	return b.run(numerator, denominator, false)
}

// difference is the interval of the centre of values less that of others.
func (b bootstrap) difference(values, others []float64) (low, high float64) {
	if len(others) < 2 {
		return math.NaN(), math.NaN()
	}
	return b.run(values, others, true)
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
	distances := make([]float64, resamples)
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

// welch is the degrees of freedom of a difference of means (Welch, The
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

// IntervalNote says how the intervals of the study were made, in a sentence.
func (s *Study) IntervalNote() string {
	return fmt.Sprintf("intervals: %s, smoothed bootstrap over repeated runs (%d resamples, for ratios of numerator and baseline independently), widened by Student's t; none where a side has one run",
		percent(s.Rule.level()), resamples)
}

// intervals is the bootstrap by the study's rule.
func (s *Study) intervals(logs bool) bootstrap {
	b := bootstrap{level: s.Rule.level(), center: medianOf, middle: true, logs: logs, dice: s.dice}
	if s.Rule.Repeats == Mean {
		b.center, b.middle = meanOf, false
	}
	return b
}

// span aggregates what is known of values by the rule. Logs says that they
// are positive and vary by factors, as times do.
func (s *Study) span(values []float64, logs bool) Span {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return nothing()
	}
	b := s.intervals(logs && slices.Min(v) > 0 && !math.IsInf(slices.Max(v), 0))
	out := Span{Value: b.center(slices.Clone(v)), Min: slices.Min(v), Max: slices.Max(v), N: len(v)}
	out.Low, out.High, out.Std = math.NaN(), math.NaN(), math.NaN()
	if !math.IsInf(out.Min, 0) && !math.IsInf(out.Max, 0) {
		out.Low, out.High = b.of(v)
		if len(v) > 1 {
			out.Std = stat.StdDev(v, nil)
		}
	}
	return out
}

// ratioSpan is the centre of a over the centre of b. Its extremes are those of
// a over the centre of b; all values must be positive.
func (s *Study) ratioSpan(a, b []float64) Span {
	a = slices.DeleteFunc(slices.Clone(a), math.IsNaN)
	b = slices.DeleteFunc(slices.Clone(b), math.IsNaN)
	if len(a) == 0 || len(b) == 0 {
		return nothing()
	}
	boot := s.intervals(true)
	base := boot.center(slices.Clone(b))
	out := Span{Value: boot.center(slices.Clone(a)) / base, Min: slices.Min(a) / base, Max: slices.Max(a) / base, N: len(a)}
	out.Low, out.High = boot.ratio(a, b)
	return out
}

// median is the middle value, or the mean of the two middle ones.
func median(values []float64) float64 { return medianOf(slices.Clone(values)) }

// medianOf is the median of values, which it reorders.
func medianOf(values []float64) float64 {
	lo, hi := middleOf(values)
	return (lo + hi) / 2
}

// middleOf is the two middle values, the same one twice of an odd number. It
// reorders them; a bootstrap asks for those of few values very often.
func middleOf(values []float64) (lo, hi float64) {
	n := len(values)
	if n <= 12 {
		for i := 1; i < n; i++ { // by insertion
			v, k := values[i], i
			for ; k > 0 && values[k-1] > v; k-- {
				values[k] = values[k-1]
			}
			values[k] = v
		}
		return values[(n-1)/2], values[n/2]
	}
	place(values, n/2)
	hi = values[n/2]
	if n%2 == 1 {
		return hi, hi
	}
	return slices.Max(values[:n/2]), hi
}

// place puts the value that would be at k if values were sorted there, those
// that are no greater before it and the others behind it (Hoare, Algorithm 65:
// Find, Communications of the ACM 4, 1961).
func place(values []float64, k int) {
	for l, r := 0, len(values)-1; l < r; {
		a, b, c := values[l], values[(l+r)/2], values[r]
		pivot := max(min(a, b), min(max(a, b), c)) // the middle one of three
		i, j := l, r
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			r = j
		case k >= i:
			l = i
		default:
			return
		}
	}
}

func meanOf(values []float64) float64 { return stat.Mean(values, nil) }
