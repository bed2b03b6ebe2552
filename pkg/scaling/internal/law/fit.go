package law

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/stats"
)

// Parameter is a parameter of a fitted law, with its confidence interval.
type Parameter struct {
	Name, Meaning    string
	Value, Low, High float64
}

// Fit is a scaling law that was fitted to a series.
type Fit struct {
	Law, Formula string
	Parameters   []Parameter // first λ, the throughput of one worker or node
	N            int         // number of runs
	RSS          float64     // residual sum of squares of the logarithms of the throughputs
	R2           float64     // coefficient of determination of the logarithms
	// AICc, Delta and Weight are documented in scaling.Fit.
	AICc, Delta, Weight float64

	law        scalingLaw
	lnLambda   float64
	theta      []float64
	covariance *mat.SymDense // covariance matrix of ln λ and theta
	deviation  float64       // residual standard deviation of the logarithms
	student    float64       // Student's quantile for the intervals
	unit       float64       // throughput at speed-up 1
	largest    int           // largest measured size
}

// Series contains the runs of one series, to which the laws are fitted.
type Series struct {
	Name string
	Unit string        // the unit of sizes: "worker" or "node"
	Runs []Observation // one for each run
	Base float64       // throughput at speed-up 1
	By   stats.Estimator
}

func (s Series) formatSize(n int) string { return english.FormatCount(n, s.Unit) }

// UnfittedLaw names a law that was not fitted, and the reason.
type UnfittedLaw struct {
	Law    string
	TooFew bool // there are too few runs or sizes; otherwise the search found no parameters
	Runs   int  // that the law needs, at Sizes different sizes
	Sizes  int
	Reason string
}

// Fits contains the laws fitted to a series, sorted by ascending AICc.
type Fits struct {
	Rows     []Fit
	Refused  []UnfittedLaw
	Sentence string // summary of the fits

	series    Series
	measured  []Observation // throughput at each size, in ascending order of size
	supported *Fit          // see SupportedLaw
}

// ErrTooFewWorkerCounts reports that a series has too few runs or worker counts for fitting a law.
var ErrTooFewWorkerCounts = errors.New("too few worker counts to fit a law")

// BandPoint is the prediction of a fit at one size; see scaling.BandPoint.
type BandPoint struct {
	Size                    int
	Speedup, Low, High      float64
	Rate, RateLow, RateHigh float64
	Beyond                  bool
}

// exactFitTolerance is the relative error below which a fit is treated as exact, since measurements
// are never that precise.
const exactFitTolerance = 1e-6

// FitLaws fits the scaling laws to a series and ranks them by AICc, as scaling.Study.Fit documents.
// It returns ErrTooFewWorkerCounts if there are too few runs or sizes for every law.
func FitLaws(s Series) (*Fits, error) {
	f := &Fits{series: s, measured: combineRepeats(s)}
	for _, l := range scalingLaws() {
		p := len(l.parameters) + 1 // including λ
		if len(s.Runs) < p+3 || len(f.measured) < p+2 {
			f.Refused = append(f.Refused, UnfittedLaw{Law: l.name, TooFew: true, Runs: p + 3, Sizes: p + 2, Reason: fmt.Sprintf("%s has %s and needs %d runs at %d different %s counts, got %s at %d",
				l.name, english.FormatCount(p, "parameter"), p+3, p+2, s.Unit, english.FormatCount(len(s.Runs), "run"), len(f.measured))})
			continue
		}
		fit, err := newFit(l, s)
		if err != nil {
			f.Refused = append(f.Refused, UnfittedLaw{Law: l.name, Reason: err.Error()})
			continue
		}
		f.Rows = append(f.Rows, fit)
	}
	if len(f.Rows) == 0 {
		return nil, fmt.Errorf("fit series %s: %w: %s; run other %s counts, or more seeds", s.Name, ErrTooFewWorkerCounts, f.Refused[0].Reason, s.Unit)
	}
	f.rankByAICc()
	f.chooseSupportedLaw()
	f.Sentence = f.summarize()
	return f, nil
}

func newFit(l scalingLaw, s Series) (Fit, error) {
	data := s.Runs
	lnLambda, theta, rss, err := l.fitParameters(data)
	if err != nil {
		return Fit{}, err
	}
	n, p := float64(len(data)), float64(1+len(theta))
	f := Fit{Law: l.name, Formula: l.formula, N: len(data), RSS: rss, law: l, lnLambda: lnLambda, theta: theta}
	_, total := scalingLaws()[0].fitLambda(withUnitSizes(data), nil)
	f.R2 = 1 - rss/total
	if total <= n*exactFitTolerance*exactFitTolerance { // all throughputs are equal
		f.R2 = math.NaN()
	}
	k := p + 1
	f.AICc = n*math.Log(max(rss, n*exactFitTolerance*exactFitTolerance)/n) + 2*k + 2*k*(k+1)/(n-k-1)
	f.deviation = math.Sqrt(rss / (n - p))
	f.student = distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - p}.Quantile(1 - (1-s.By.Level)/2)
	if f.covariance, err = l.covariance(data, theta, rss/(n-p)); err != nil {
		return Fit{}, err
	}
	for _, d := range data {
		f.largest = max(f.largest, int(d.Size))
	}
	f.unit = s.Base
	f.Parameters = f.parameters()
	return f, nil
}

// withUnitSizes returns a copy of data with all sizes set to 1. The residual sum of squares of a law
// fitted to the copy is the total sum of squares of data.
func withUnitSizes(data []Observation) []Observation {
	out := slices.Clone(data)
	for i := range out {
		out[i].Size = 1
	}
	return out
}

// covariance returns the covariance matrix s²·(JᵀJ)⁻¹, where J contains the derivatives of ln X
// with respect to ln λ and to the parameters. variance is s².
func (l scalingLaw) covariance(data []Observation, theta []float64, variance float64) (*mat.SymDense, error) {
	p := 1 + len(theta)
	information := mat.NewSymDense(p, nil)
	for _, d := range data {
		information.SymRankOne(information, 1, mat.NewVecDense(p, l.gradient(d.Size, theta)))
	}
	var factor mat.Cholesky
	if !factor.Factorize(information) {
		return nil, fmt.Errorf("fit %s: the measurements do not determine its parameters: run other worker counts", l.name)
	}
	out := mat.NewSymDense(p, nil)
	if err := factor.InverseTo(out); err != nil {
		var badly mat.Condition
		if !errors.As(err, &badly) { // an ill-conditioned inverse gives wide intervals, as it should
			return nil, fmt.Errorf("fit %s: %w", l.name, err)
		}
	}
	out.ScaleSym(variance, out)
	return out, nil
}

// gradient returns the derivatives of ln X(n) with respect to ln λ and to each parameter.
func (l scalingLaw) gradient(n float64, theta []float64) []float64 {
	return append([]float64{1}, l.slopes(n, theta)...)
}

// parameters returns λ and the parameters of the law. Their intervals are clipped to the range of
// valid values.
func (f *Fit) parameters() []Parameter {
	lambda := math.Exp(f.lnLambda)
	half := f.student * math.Sqrt(f.covariance.At(0, 0))
	out := []Parameter{{"λ", "throughput at size 1", lambda, lambda * math.Exp(-half), lambda * math.Exp(half)}}
	for i, p := range f.law.parameters {
		half := f.student * math.Sqrt(f.covariance.At(i+1, i+1))
		q := Parameter{p.name, p.meaning, f.theta[i], max(0, f.theta[i]-half), f.theta[i] + half}
		if p.share {
			q.High = min(1, q.High)
		}
		out = append(out, q)
	}
	return out
}

func (f *Fits) rankByAICc() {
	slices.SortStableFunc(f.Rows, func(a, b Fit) int { return cmp.Compare(a.AICc, b.AICc) })
	total := 0.0
	for i := range f.Rows {
		f.Rows[i].Delta = f.Rows[i].AICc - f.Rows[0].AICc
		total += math.Exp(-f.Rows[i].Delta / 2)
	}
	for i := range f.Rows {
		f.Rows[i].Weight = math.Exp(-f.Rows[i].Delta/2) / total
	}
}

// LargestSize returns the largest size that was measured.
func (f *Fit) LargestSize() int { return f.largest }

// Rate returns the fitted throughput at a size.
func (f *Fit) Rate(size float64) float64 { return math.Exp(f.lnLambda) * f.law.g(size, f.theta) }

// Speedup returns the fitted throughput divided by the measured throughput of the baseline.
func (f *Fit) Speedup(size float64) float64 { return f.Rate(size) / f.unit }

// Band returns the prediction at each size, with the interval expected for one more run.
func (f *Fit) Band(sizes []int) []BandPoint {
	out := make([]BandPoint, len(sizes))
	for i, n := range sizes {
		j := mat.NewVecDense(1+len(f.theta), f.law.gradient(float64(n), f.theta))
		spread := f.deviation*f.deviation + mat.Inner(j, f.covariance, j)
		wide := math.Exp(f.student * math.Sqrt(max(0, spread)))
		rate := f.Rate(float64(n))
		out[i] = BandPoint{
			Size: n, Rate: rate, RateLow: rate / wide, RateHigh: rate * wide,
			Speedup: rate / f.unit, Low: rate / wide / f.unit, High: rate * wide / f.unit, Beyond: n > f.largest,
		}
	}
	return out
}

// maxSearchSize is the largest size that HalfGainSize and PeakSize consider.
const maxSearchSize = 1 << 24

// HalfGainSize returns the smallest size at which one more worker adds less than half the
// throughput of a single worker. ok is false if there is none up to maxSearchSize.
func (f *Fit) HalfGainSize() (size int, ok bool) {
	less := func(n int) bool {
		return f.law.g(float64(n+1), f.theta)-f.law.g(float64(n), f.theta) < 0.5
	}
	// The gain of one more worker decreases with the size.
	if size = 1 + sort.Search(maxSearchSize, func(i int) bool { return less(i + 1) }); size > maxSearchSize {
		return 0, false
	}
	return size, true
}

// PeakSize returns the size with the highest throughput, √((1−σ)/κ) (Gunther 2007). ok is false if
// the law has no maximum, or only above maxSearchSize.
func (f *Fit) PeakSize() (size int, ok bool) {
	if f.Law != USL || f.theta[1] <= 0 {
		return 0, false
	}
	at := math.Sqrt((1 - f.theta[0]) / f.theta[1])
	if !(at < maxSearchSize) {
		return 0, false
	}
	return max(1, int(math.Round(at))), true
}
