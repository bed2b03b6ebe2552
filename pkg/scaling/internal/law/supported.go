package law

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/stats"
)

const (
	// minTrendSizes is the number of different sizes from which on residuals are tested for a
	// trend. With fewer, the test has almost no power.
	minTrendSizes = 6
	// maxTrendP is the p-value below which residuals are considered to have a trend.
	maxTrendP = 0.05
	// maxEndsFactor is the largest factor between the fitted and the measured speed-up from the
	// smallest to the largest size. Without it, "every additional worker adds about as much
	// throughput as the first" could appear with a table that shows 66 % of the ideal speed-up.
	maxEndsFactor = 1.1
	// maxPairFactor is the largest factor between the fitted and the measured speed-up for any two sizes.
	maxPairFactor = 1.3
)

// SupportedLaw returns the law that the data support, or nil; see scaling.Fits.SupportedLaw.
func (f *Fits) SupportedLaw() *Fit { return f.supported }

// chooseSupportedLaw stores the result of SupportedLaw in f. The fits must be sorted by AICc.
func (f *Fits) chooseSupportedLaw() {
	for i := range f.Rows {
		if f.unsupportedReason(&f.Rows[i]) == "" {
			f.supported = &f.Rows[i]
			return
		}
	}
}

// unsupportedReason returns why the data do not support a law, or "" if they do.
func (f *Fits) unsupportedReason(law *Fit) string {
	if !(law.R2 > 0) {
		if math.IsNaN(law.R2) {
			return "throughput is the same at every count"
		}
		return fmt.Sprintf("its R² is %s: it explains the measurements no better than a constant throughput", english.FormatNumber(law.R2))
	}
	residuals := make([]float64, len(f.measured))
	sizes := make([]float64, len(f.measured))
	for i, m := range f.measured {
		sizes[i], residuals[i] = m.Size, math.Log(m.Rate/law.Rate(m.Size))
	}
	first, last := 0, len(residuals)-1
	if math.Abs(residuals[last]-residuals[first]) > math.Log(maxEndsFactor) {
		return f.describeDisagreement(law, first, last)
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
	if residuals[high]-residuals[low] > math.Log(maxPairFactor) {
		return f.describeDisagreement(law, min(low, high), max(low, high))
	}
	if len(sizes) < minTrendSizes || residuals[high]-residuals[low] < exactFitTolerance {
		return ""
	}
	if rho, p := stats.SpearmanTest(sizes, residuals); p < maxTrendP {
		return fmt.Sprintf("its residuals have a trend over the %s counts (Spearman's ρ = %s, p %s)", f.series.Unit, english.FormatNumber(rho), english.FormatPValueWithOperator(p))
	}
	return ""
}

// describeDisagreement compares the measured speed-up between two sizes with the law's. from and to
// are the indices of the sizes.
func (f *Fits) describeDisagreement(law *Fit, from, to int) string {
	a, b := f.measured[from], f.measured[to]
	return fmt.Sprintf("from %g to %s, the measured speed-up is %s, but the law predicts %s",
		a.Size, f.series.formatSize(int(b.Size)), english.FormatNumber(b.Rate/a.Rate), english.FormatNumber(law.Rate(b.Size)/law.Rate(a.Size)))
}

// combineRepeats returns the throughput at each size, combined over repeated runs, by ascending size.
func combineRepeats(s Series) []Observation {
	rates := map[float64][]float64{}
	for _, d := range s.Runs {
		rates[d.Size] = append(rates[d.Size], d.Rate)
	}
	var out []Observation
	for size, r := range rates {
		out = append(out, Observation{size, s.By.MeanOrMedian(r)})
	}
	slices.SortFunc(out, func(a, b Observation) int { return cmp.Compare(a.Size, b.Size) })
	return out
}
