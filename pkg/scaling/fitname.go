package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// trendCounts is the number of different sizes from which the residuals of a
	// law are tested for a trend: with fewer, the test finds next to nothing.
	trendCounts = 6
	// trendP is the p below which residuals have a trend.
	trendP = 0.05
	// endsAgree is how far the speed-up from the smallest to the largest size may
	// be from the measured one, as a factor. It keeps "every further worker buys
	// about as much as the first" away from a table that says 66 % of the ideal.
	endsAgree = 1.1
	// sizesAgree is the same for any two sizes.
	sizesAgree = 1.3
)

// Named returns the law that the data support, nil if there is none: the law
// with the lowest AICc of those that have a positive R², whose speed-ups agree
// with the measured ones (from the smallest to the largest size within 10 %,
// between any two sizes within 30 %), and, from 6 different sizes up, whose
// residuals have no trend (Spearman's rank correlation with the size, p ≥ 0.05).
func (f *Fits) Named() *Fit {
	if f.named == "" {
		return nil
	}
	return f.Law(f.named)
}

// Unnamed returns why no law is named, empty if one is.
func (f *Fits) Unnamed() string {
	if f.named != "" || len(f.Rows) == 0 {
		return ""
	}
	return f.doubt(f.Best())
}

// name chooses the law that Named returns. The rows are ranked.
func (f *Fits) name() {
	for i := range f.Rows {
		if f.doubt(&f.Rows[i]) == "" {
			f.named = f.Rows[i].Law
			return
		}
	}
}

// doubt returns why a law must not be named, empty if it may be.
func (f *Fits) doubt(law *Fit) string {
	if !(law.R2 > 0) {
		if math.IsNaN(law.R2) {
			return "throughput is the same at every count"
		}
		return fmt.Sprintf("its R² is %s: it explains the measurements no better than one throughput for all of them", short(law.R2))
	}
	residuals := make([]float64, len(f.measured))
	sizes := make([]float64, len(f.measured))
	for i, m := range f.measured {
		sizes[i], residuals[i] = m.size, math.Log(m.rate/law.Rate(m.size))
	}
	first, last := 0, len(residuals)-1
	if math.Abs(residuals[last]-residuals[first]) > math.Log(endsAgree) {
		return f.disagrees(law, first, last)
	}
	low, high := 0, 0
	for i, r := range residuals {
		if r < residuals[low] {
			low = i
		}
		if r > residuals[high] {
			high = i
		}
	}
	if residuals[high]-residuals[low] > math.Log(sizesAgree) {
		return f.disagrees(law, min(low, high), max(low, high))
	}
	if len(sizes) < trendCounts || residuals[high]-residuals[low] < exact {
		return ""
	}
	if rho, p := spearman(sizes, residuals); p < trendP {
		return fmt.Sprintf("its residuals have a trend over the %s counts (Spearman's ρ = %s, p %s)", f.rule.unit(), short(rho), pIs(p))
	}
	return ""
}

// disagrees returns that the measured speed-up between two sizes is not the law's.
func (f *Fits) disagrees(law *Fit, from, to int) string {
	a, b := f.measured[from], f.measured[to]
	return fmt.Sprintf("from %g to %s the measured speed-up is %s, the law's %s",
		a.size, f.rule.units(int(b.size)), short(b.rate/a.rate), short(law.Rate(b.size)/law.Rate(a.size)))
}

// centers returns the throughput at each size as the study's rule makes one of
// repeated runs, in ascending order of the sizes.
func (s *Study) centers(data []observation) []observation {
	rates := map[float64][]float64{}
	for _, d := range data {
		rates[d.size] = append(rates[d.size], d.rate)
	}
	var out []observation
	for size, r := range rates {
		out = append(out, observation{size, s.intervals(true).center(r)})
	}
	slices.SortFunc(out, func(a, b observation) int { return cmp.Compare(a.size, b.size) })
	return out
}

// spearman returns Spearman's rank correlation of x and y and its two-sided p by
// Student's t with n−2 degrees of freedom (Kendall, Rank Correlation Methods,
// 1948, ch. 4), as scipy.stats.spearmanr computes it. Ties get the mean of their
// ranks. It needs three values or more; of equal values p is 1.
func spearman(x, y []float64) (rho, p float64) {
	rho = stat.Correlation(ranks(x), ranks(y), nil)
	n := float64(len(x))
	switch {
	case math.IsNaN(rho):
		return 0, 1
	case math.Abs(rho) >= 1-1e-12:
		return rho, 0
	}
	t := math.Abs(rho) * math.Sqrt((n-2)/(1-rho*rho))
	return rho, 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 2}.Survival(t)
}

// ranks returns the ranks of values from 1, ties with the mean of their ranks.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	out := make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j+1) / 2 // the mean of ranks i+1 to j
		}
		i = j
	}
	return out
}
