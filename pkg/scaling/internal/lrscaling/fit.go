package lrscaling

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// resampleQualities resamples the mean or median quality at each learning rate. The result has one
// row per resample, and one column per element of Tried (NaN for rates that diverged). It is nil if
// no rate has two runs.
func (o *Result) resampleQualities() [][]float64 {
	var variance, n float64
	for _, t := range o.Tried {
		if len(t.values) > 1 {
			variance += stat.Variance(t.values, nil)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	pooled := math.Sqrt(variance / n)
	out := make([][]float64, stats.BootstrapResamples)
	for i := range out {
		out[i] = make([]float64, len(o.Tried))
	}
	for k, t := range o.Tried {
		if !observe.IsFinite(t.Quality.Value) {
			for i := range out {
				out[i][k] = math.NaN()
			}
			continue
		}
		for i, v := range o.by.ResampleCenters(t.values, pooled, 2+k) { // independent of the draws for other rates
			out[i][k] = v
		}
	}
	return out
}

// triedRateRange returns the indices of the rates of a batch: Tried[from:to].
func (o *Result) triedRateRange(batch int) (from, to int) {
	from = slices.IndexFunc(o.Tried, func(t TriedRate) bool { return t.GlobalBatch == batch })
	for to = from; to < len(o.Tried) && o.Tried[to].GlobalBatch == batch; to++ {
	}
	return from, to
}

// findBestRate finds the best learning rate of a batch size. quality returns the quality of
// Tried[k]. log2 is the base-2 logarithm of the interpolated best rate, and index the position in
// Tried of the best rate tried (−1 if all rates diverged). bound is BoundHighest, BoundLowest or
// BoundOnly if the best rate is at an end of the rates tried, else "".
func (o *Result) findBestRate(batch int, quality func(k int) float64) (log2 float64, index int, bound string) {
	from, to := o.triedRateRange(batch)
	score := func(k int) float64 {
		v := quality(k)
		switch {
		case math.IsNaN(v):
			return math.Inf(-1)
		case o.higher:
			return v
		}
		return -v
	}
	index = -1
	for k := from; k < to; k++ {
		if !math.IsInf(score(k), -1) && (index < 0 || score(k) > score(index)) {
			index = k
		}
	}
	if index < 0 {
		return math.NaN(), -1, ""
	}
	x := func(k int) float64 { return math.Log2(o.Tried[k].LearningRate) }
	switch {
	case to-from == 1:
		return x(index), index, BoundOnly
	case index == from:
		return x(index), index, BoundLowest
	case index == to-1:
		return x(index), index, BoundHighest
	case math.IsInf(score(index-1), -1) || math.IsInf(score(index+1), -1): // a neighbor that diverged limits the best rate, but has no quality for the interpolation
		return x(index), index, ""
	}
	var xs, scores []float64
	for k := max(from, index-parabolaNeighbors); k <= min(to-1, index+parabolaNeighbors); k++ {
		if !math.IsInf(score(k), -1) {
			xs, scores = append(xs, x(k)-x(index)), append(scores, score(k))
		}
	}
	return x(index) + min(max(parabolaVertex(xs, scores), x(index-1)-x(index)), x(index+1)-x(index)), index, ""
}

// parabolaNeighbors is the number of rates on each side of the best rate that the parabola is
// fitted to. With noisy data, two instead of one halve the error of the scaling exponent. If the
// scores are asymmetric around the best rate, the parabola's maximum is shifted, but by the same
// factor at every batch size.
const parabolaNeighbors = 2

// parabolaVertex fits a parabola to at least three points by least squares (the second-order model
// of Box and Wilson, On the Experimental Attainment of Optimum Conditions, Journal of the Royal
// Statistical Society B 13, 1951). It returns the x of the maximum, or 0 if the parabola has none.
func parabolaVertex(x, y []float64) float64 {
	var s [5]float64 // sums of powers of x
	var t [3]float64 // sums of powers of x times y
	for i, v := range x {
		power := 1.0
		for k := range s {
			s[k] += power
			if k < len(t) {
				t[k] += power * y[i]
			}
			power *= v
		}
	}
	// Cramer's rule for the normal equations; the common denominator cancels.
	det := func(a, b, c [3]float64) float64 {
		return a[0]*(b[1]*c[2]-b[2]*c[1]) - b[0]*(a[1]*c[2]-a[2]*c[1]) + c[0]*(a[1]*b[2]-a[2]*b[1])
	}
	one, linear, square := [3]float64(s[0:3]), [3]float64(s[1:4]), [3]float64(s[2:5])
	whole := det(one, linear, square)
	slope, bend := det(one, t, square)/whole, det(one, linear, t)/whole
	if !(bend < 0) {
		return 0
	}
	return -slope / (2 * bend)
}

// computeRows sets Rows, with one row per batch size, and then Good and Falls. draws is the result
// of resampleQualities. It returns an error if all rates diverged at the smallest batch size.
func (o *Result) computeRows(batches []int, draws [][]float64) error {
	tried := func(k int) float64 { return o.Tried[k].Quality.Value }
	var base *TriedRate
	var baseRate float64
	for _, batch := range batches {
		row := RateRow{GlobalBatch: batch, Best: stats.UnknownEstimate(), Quality: stats.UnknownEstimate(), Change: stats.UnknownEstimate(), Constant: math.NaN(), Sqrt: math.NaN(), Linear: math.NaN()}
		from, to := o.triedRateRange(batch)
		row.Rates = to - from
		for _, t := range o.Tried[from:to] {
			row.Runs, row.Diverged = row.Runs+t.Runs, row.Diverged+t.Diverged
		}
		log2, at, bound := o.findBestRate(batch, tried)
		if at < 0 {
			if base == nil {
				return errors.New("every learning rate diverged at the smallest batch: run lower rates")
			}
			o.Rows = append(o.Rows, row)
			continue
		}
		t := &o.Tried[at]
		row.Bound, row.Quality = bound, t.Quality
		row.Best.Value, row.Best.N = math.Exp2(log2), t.Runs
		if draws != nil {
			around := make([]float64, len(draws))
			for i, d := range draws {
				around[i], _, _ = o.findBestRate(batch, func(k int) float64 { return d[k] })
				around[i] -= log2
			}
			low, high := o.by.WidenInterval(around, o.degreesOfFreedom(batch))
			row.Best.Low, row.Best.High = math.Exp2(log2+low), math.Exp2(log2+high)
		}
		if base == nil {
			base, baseRate = t, row.Best.Value
		}
		row.Change.Value = t.Quality.Value - base.Quality.Value
		if t != base {
			row.Change.Low, row.Change.High = o.by.DifferenceInterval(t.values, base.values)
		}
		for i, to := range []*float64{&row.Constant, &row.Sqrt, &row.Linear} {
			*to = rateRules()[i].learningRate(batch, base.GlobalBatch, baseRate)
		}
		o.Rows = append(o.Rows, row)
	}
	o.findQualityDrop()
	return nil
}

// findQualityDrop sets Good to the last batch size before the quality decreases, and Falls to the
// next one.
func (o *Result) findQualityDrop() {
	for _, r := range o.Rows {
		if !observe.IsFinite(r.Quality.Value) || o.worsensQuality(r.Change) {
			o.Falls = r.GlobalBatch
			return
		}
		o.Good = r.GlobalBatch
	}
}

// worsensQuality reports whether a change makes the quality worse by more than noise.
func (o *Result) worsensQuality(change stats.Estimate) bool {
	if o.higher {
		return change.High < 0
	}
	return change.Low > 0
}

// degreesOfFreedom returns the degrees of freedom of the pooled standard deviation at the given
// batch sizes: the sum of the number of runs minus 1 over all rates, but at least 1.
func (o *Result) degreesOfFreedom(batches ...int) float64 {
	n := 0
	for _, t := range o.Tried {
		if slices.Contains(batches, t.GlobalBatch) {
			n += max(0, len(t.values)-1)
		}
	}
	return float64(max(1, n))
}

// fitExponent fits Exponent to the batch sizes whose best rate is neither the highest nor the
// lowest tried. draws is the result of resampleQualities.
func (o *Result) fitExponent(draws [][]float64) {
	o.Exponent = stats.UnknownEstimate()
	var x []float64
	for _, r := range o.Rows {
		if r.Bound == "" && observe.IsFinite(r.Best.Value) && (o.Falls == 0 || r.GlobalBatch < o.Falls) {
			o.fitted = append(o.fitted, r.GlobalBatch)
			x = append(x, math.Log2(float64(r.GlobalBatch)))
		}
	}
	if len(x) < 2 {
		return
	}
	slope := func(quality func(k int) float64) (p float64, atEnd bool) {
		y := make([]float64, len(x))
		for i, batch := range o.fitted {
			var bound string
			y[i], _, bound = o.findBestRate(batch, quality)
			atEnd = atEnd || bound != ""
		}
		_, p = stat.LinearRegression(x, y, nil, false)
		return p, atEnd
	}
	o.Exponent.N = len(x)
	o.Exponent.Value, _ = slope(func(k int) float64 { return o.Tried[k].Quality.Value })
	if draws == nil {
		return
	}
	distances := make([]float64, len(draws))
	for i, d := range draws {
		p, atEnd := slope(func(k int) float64 { return d[k] })
		distances[i] = p - o.Exponent.Value
		if atEnd {
			o.edgeShare += 1 / float64(len(draws))
		}
	}
	low, high := o.by.WidenInterval(distances, o.degreesOfFreedom(o.fitted...))
	o.Exponent.Low, o.Exponent.High = o.Exponent.Value+low, o.Exponent.Value+high
}

// maxRateDifference is the largest relative difference at which a tried rate counts as equal to the
// rate that a rule predicts.
const maxRateDifference = 0.05

// compareRateRules sets Rules. Each rule predicts a learning rate for every other batch size from the
// best rate at the smallest one. The quality at the predicted rate is compared with that at the
// best rate tried.
func (o *Result) compareRateRules() {
	tried := func(k int) float64 { return o.Tried[k].Quality.Value }
	_, base, _ := o.findBestRate(o.Rows[0].GlobalBatch, tried)
	first := o.Tried[base]
	for _, rule := range rateRules() {
		row := RuleRow{Rule: rule.name, words: rule.words, Exponent: rule.exponent, Worst: stats.UnknownEstimate()}
		for _, r := range o.Rows[1:] {
			_, best, _ := o.findBestRate(r.GlobalBatch, tried)
			from, to := o.triedRateRange(r.GlobalBatch)
			want := rule.learningRate(r.GlobalBatch, first.GlobalBatch, first.LearningRate)
			for k := from; k < to && best >= 0; k++ {
				t := o.Tried[k]
				if math.Abs(t.LearningRate/want-1) > maxRateDifference {
					continue
				}
				row.Batches = append(row.Batches, r.GlobalBatch)
				row.addBatchComparison(o, t, o.Tried[best])
				break
			}
		}
		o.Rules = append(o.Rules, row)
	}
}

// addBatchComparison adds the comparison at one batch to the row. predicted is the tried rate that the rule
// predicts.
func (r *RuleRow) addBatchComparison(o *Result, predicted, best TriedRate) {
	loss := stats.Estimate{Value: predicted.Quality.Value - best.Quality.Value, Low: math.NaN(), High: math.NaN(), N: predicted.Runs}
	rejected := predicted.Diverged > 0
	switch {
	case rejected:
		loss.Value = math.Inf(-1)
		if !o.higher {
			loss.Value = math.Inf(1)
		}
	case predicted.LearningRate != best.LearningRate:
		loss.Low, loss.High = o.by.DifferenceInterval(predicted.values, best.values)
		rejected = o.worsensQuality(loss)
	default:
		loss.Low, loss.High = 0, 0
	}
	if math.IsNaN(r.Worst.Value) || math.Abs(loss.Value) > math.Abs(r.Worst.Value) {
		r.Worst, r.WorstBatch = loss, predicted.GlobalBatch
	}
	if r.Rejected = r.Rejected || rejected; !r.Rejected {
		r.Holds = predicted.GlobalBatch
	}
}
