package scaling

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/law"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
	"lockstep/pkg/scaling/internal/steptime"
)

// Names of the scaling laws: the values of Fit.Law.
const (
	LawLinear    = law.Linear
	LawAmdahl    = law.Amdahl
	LawGustafson = law.Gustafson
	LawUSL       = law.USL
)

// Parameter is a parameter of a fitted law, with its confidence interval.
type Parameter struct {
	Name, Meaning    string
	Value, Low, High float64
}

// Fit is a scaling law fitted to the throughputs of a series.
type Fit struct {
	Law, Formula string
	Parameters   []Parameter // first λ, the throughput of one worker or node
	N            int         // number of runs
	RSS          float64     // residual sum of squares of the logarithms of the throughputs
	R2           float64     // coefficient of determination of the logarithms
	// AICc is Akaike's information criterion, corrected for few observations (Hurvich
	// and Tsai, Regression and time series model selection in small samples, Biometrika
	// 76, 1989); lower is better. Delta is the difference from the lowest AICc of the
	// laws, and Weight the Akaike weight (Burnham and Anderson, 2002).
	AICc, Delta, Weight float64

	fit *law.Fit
}

// Fits contains the laws fitted to a series, sorted by ascending AICc.
//
// Its table has one row per law and parameter: series, law, runs, parameter, value,
// low, high, meaning, aicc, weight, r2, rss.
type Fits struct {
	analysis
	Series, Measure string
	Runs            int // number of runs; each is one observation
	Rows            []Fit
	Sentence        string

	fits *law.Fits
	rule Rule
}

// ErrTooFew reports that a series has too few runs or worker counts for fitting a law.
var ErrTooFew = law.ErrTooFewWorkerCounts

// BandPoint is a fit's prediction at one size. If the law is valid, the interval contains the next
// run with the probability Rule.Confidence.
type BandPoint struct {
	Size                    int
	Speedup, Low, High      float64
	Rate, RateLow, RateHigh float64 // samples per second, or epochs or jobs per second if the logs have no sample counts
	Beyond                  bool    // Size is larger than every measured size
}

// Fit fits scaling laws to a series by least squares of the logarithm of the throughput, with one
// observation per run, and ranks them by AICc. series may be "" if the study has one series. Intervals and
// bands are computed by nonlinear regression with the delta method (Bates and Watts, Nonlinear Regression
// Analysis and Its Applications, 1988, §2.3). A law with p parameters (including λ) needs p+3 runs at p+2
// different sizes. Fit returns ErrTooFew if there are too few for every law. [Fits.SupportedLaw] returns
// the law that the data support, and Sentence describes it, or explains why there is none.
func (s *Study) Fit(series string) (*Fits, error) {
	name, err := s.resolveSeries(series)
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	m, ok := s.measures[name]
	if !ok {
		return nil, fmt.Errorf("fit: no counted run of series %s has a time or a throughput", name)
	}
	data, base := s.collectThroughputs(name, m)
	fits, err := law.FitLaws(law.Series{Name: name, Unit: s.Rule.sizeUnit(), Runs: data, Base: base, By: s.estimator()})
	if err != nil {
		return nil, err
	}
	f := &Fits{Series: name, Measure: m.Name, Runs: len(data), Sentence: fits.Sentence, fits: fits, rule: s.Rule}
	f.analysis = analysis{f}
	for i := range fits.Rows {
		x := &fits.Rows[i]
		row := Fit{Law: x.Law, Formula: x.Formula, N: x.N, RSS: x.RSS, R2: x.R2, AICc: x.AICc, Delta: x.Delta, Weight: x.Weight, fit: x}
		for _, p := range x.Parameters {
			row.Parameters = append(row.Parameters, Parameter(p))
		}
		f.Rows = append(f.Rows, row)
	}
	return f, nil
}

// collectThroughputs returns the size and throughput of each run of a series. base is the
// throughput at which the speed-up is 1: the baseline's or, without a baseline, the throughput of
// the first run at the smallest size.
func (s *Study) collectThroughputs(series string, m observe.SpeedMeasure) (data []law.Observation, base float64) {
	base = math.NaN()
	for i, p := range s.Points {
		if p.Series != series || p.Size < 1 || s.pointLeavesWorkersUnused(i, m) {
			continue
		}
		rates := m.Rates(s.cells[i])
		for _, r := range rates {
			data = append(data, law.Observation{Size: float64(p.Size), Rate: r})
		}
		if p.Size == p.Baseline && len(rates) > 0 { // of equal sizes, the last is the baseline
			base = s.estimator().MeanOrMedian(rates)
		}
	}
	if math.IsNaN(base) && len(data) > 0 {
		base = data[0].Rate
	}
	return data, base
}

// pointLeavesWorkersUnused reports whether another point of the series has more workers on the same
// number of nodes as the i-th point. The throughput of the i-th point is then too low for its
// nodes.
func (s *Study) pointLeavesWorkersUnused(i int, m observe.SpeedMeasure) bool {
	p := s.Points[i]
	for k, q := range s.Points {
		if q.Series == p.Series && q.Size == p.Size && q.Workers > p.Workers && m.HasValue(s.cells[k]) {
			return true
		}
	}
	return false
}

// Best returns the law with the lowest AICc, or nil if none was fitted. Unlike SupportedLaw, it
// ignores whether the data contradict the law.
func (f *Fits) Best() *Fit {
	if len(f.Rows) == 0 {
		return nil
	}
	return &f.Rows[0]
}

// Law returns the fit of the named law, or nil if it was not fitted.
func (f *Fits) Law(name string) *Fit {
	i := slices.IndexFunc(f.Rows, func(x Fit) bool { return x.Law == name })
	if i < 0 {
		return nil
	}
	return &f.Rows[i]
}

// SupportedLaw returns the law that the data support, or nil if there is none. It is the law
// with the lowest AICc among those with a positive R² whose speed-ups agree with the
// measured ones: within 10 % from the smallest to the largest size, and within 30 %
// between any two sizes. With 6 or more different sizes, its residuals must also have
// no trend (Spearman's rank correlation with the size, p ≥ 0.05).
func (f *Fits) SupportedLaw() *Fit {
	if named := f.fits.SupportedLaw(); named != nil {
		return f.Law(named.Law)
	}
	return nil
}

// RefusalReason returns why the named law was not fitted. It returns "" if the law was fitted or
// does not exist.
func (f *Fits) RefusalReason(law string) string {
	for _, r := range f.fits.Refused {
		if r.Law == law {
			return r.Reason
		}
	}
	return ""
}

// Rate returns the fitted throughput at a size.
func (f *Fit) Rate(size float64) float64 { return f.fit.Rate(size) }

// Speedup returns the fitted throughput divided by the measured throughput of the baseline, to
// compare with measured speed-ups.
func (f *Fit) Speedup(size float64) float64 { return f.fit.Speedup(size) }

// Band returns the prediction at each size, with the interval expected for one more run.
func (f *Fit) Band(sizes []int) []BandPoint {
	out := make([]BandPoint, len(sizes))
	for i, p := range f.fit.Band(sizes) {
		out[i] = BandPoint(p)
	}
	return out
}

// HalfGainSize returns the smallest size at which one more worker adds less than half the
// throughput of a single worker. ok is false if there is none.
func (f *Fit) HalfGainSize() (size int, ok bool) { return f.fit.HalfGainSize() }

// PeakSize returns the size with the highest throughput, √((1−σ)/κ) (Gunther 2007). ok is false if
// the law has no maximum, or only at an unrealistically large size.
func (f *Fit) PeakSize() (size int, ok bool) { return f.fit.PeakSize() }

type fitRow struct {
	Fit
	Parameter
}

func (f *Fits) table(maxRows int) resultTable {
	g := grid.Grid[fitRow]{What: "fits", Columns: []grid.Column[fitRow]{
		{Name: "series", Text: func(fitRow) string { return f.Series }},
		{Name: "law", Brief: true, Text: func(r fitRow) string { return r.Law }},
		{Name: "runs", Count: func(r fitRow) int { return r.N }},
		{Name: "parameter", Brief: true, Text: func(r fitRow) string { return r.Name }},
		{Name: "value", Brief: true, Value: func(r fitRow) float64 { return r.Value }},
		{
			Name: "interval", Brief: true, People: true, Value: func(r fitRow) float64 { return r.Low },
			Show: func(r fitRow) string { return english.FormatInterval(r.Low, r.High) },
		},
		{Name: "low", Value: func(r fitRow) float64 { return r.Low }},
		{Name: "high", Value: func(r fitRow) float64 { return r.High }},
		{Name: "meaning", Text: func(r fitRow) string { return r.Meaning }},
		{Name: "aicc", Brief: true, Value: func(r fitRow) float64 { return r.AICc }},
		{Name: "weight", Brief: true, Value: func(r fitRow) float64 { return r.Weight }},
		{Name: "r2", Brief: true, Value: func(r fitRow) float64 { return r.R2 }},
		{Name: "rss", Value: func(r fitRow) float64 { return r.RSS }},
	}}
	for _, fit := range limitRows(f.Rows, maxRows) {
		for _, p := range fit.Parameters {
			g.Rows = append(g.Rows, fitRow{fit, p})
		}
	}
	g.Remarks = append(g.Remarks, f.Sentence, fmt.Sprintf("series %s: least squares of the logarithm of %s over %s; chosen by AICc; %s intervals by the delta method",
		f.Series, rateDescriptions[f.Measure], english.FormatCount(f.Runs, "run"), english.FormatPercent(f.rule.confidenceLevel())))
	for _, r := range f.Rows {
		g.Remarks = append(g.Remarks, r.Law+": "+r.Formula)
	}
	for _, r := range f.fits.Refused {
		g.Remarks = append(g.Remarks, "not fitted: "+r.Reason)
	}
	return g
}

// rateDescriptions maps each measure of speed to a description of the throughput that is computed
// from it.
var rateDescriptions = map[string]string{"throughput": "throughput", "epoch_seconds": "1/(seconds per epoch)", "wall_seconds": "1/(seconds of the job)"}

// bytesPerGradientValue is the size of one gradient value (float32) in the all-reduce.
const bytesPerGradientValue = 4

// CollectiveRow is the all-reduce time of one run, or of one message size of a benchmark.
type CollectiveRow struct {
	Run             string
	Workers         int
	Bytes           float64 // size of the gradients that are reduced in one step, or of the benchmark's buffer
	Seconds, Fitted float64 // seconds per step, or per all-reduce of a benchmark: measured, and predicted by the model
}

// CollectiveFit contains the latency and the bandwidth of a series' all-reduce.
//
// The model combines Hockney's α–β model (The communication challenge for MPP, Parallel
// Computing 20, 1994) with the ring all-reduce (Thakur, Rabenseifner and Gropp,
// Optimization of collective communication operations in MPICH, 2005): t = 2(N−1)·α +
// 2(N−1)/N·m·β for m bytes over N workers. If the gradients are in several buckets, α
// is the sum over the buckets.
//
// Its table has one row per run, or per message size of a benchmark: run, workers, bytes, seconds,
// fitted_seconds.
type CollectiveFit struct {
	analysis
	Series         string
	Alpha          Estimate // seconds per message
	Beta           Estimate // seconds per byte
	BytesPerSecond Estimate // 1/Beta
	Rows           []CollectiveRow
	Problems       []runs.Problem
	Sentence       string
	level          float64
}

// Collective fits the latency and bandwidth of the all-reduce to measured times. For Lockstep's
// runs, the time of a step is taken from the spans of the rank that starts the all-reduce last,
// because this rank does not wait for others; the time of a run is the median over its steps. For
// nccl-tests and the OSU micro-benchmarks, each message size gives one time. The fit minimizes the
// squares of the relative errors. It needs at least 5 times, at 3 different worker counts above 1
// or at 3 different message sizes.
func (s *Study) Collective(series string) (*CollectiveFit, error) {
	name, err := s.resolveSeries(series)
	if err != nil {
		return nil, fmt.Errorf("fit collective: %w", err)
	}
	c := &CollectiveFit{Series: name, level: s.Rule.confidenceLevel()}
	c.analysis = analysis{c}
	var rows []law.AllReduceTime
	for i, p := range s.Points {
		if p.Series != name || p.Workers < 2 {
			continue
		}
		for _, r := range s.cells[i].Runs {
			for _, a := range r.AllReduces {
				rows = append(rows, law.AllReduceTime{Run: r.Dir, Workers: p.Workers, Bytes: a.Bytes, Seconds: a.Seconds})
			}
			if r.Info.Parameters < 1 {
				continue
			}
			if synchronised, _ := r.Info.Config["sync_batchnorm"].(bool); synchronised {
				c.Problems = append(c.Problems, runs.Problem{File: r.Dir, Reason: "its batch norms are synchronized (sync_batchnorm), so its all_reduce_seconds include more than the gradients"})
				continue
			}
			steps, problems := steptime.ReadCountedSteps(r, s.Rule.toMeasurementRule()).CompleteSteps()
			c.Problems = append(c.Problems, problems...)
			if shortest := steptime.AllReduceTimes(steps); len(shortest) > 0 {
				rows = append(rows, law.AllReduceTime{
					Run: r.Dir, Workers: p.Workers, Bytes: bytesPerGradientValue * float64(r.Info.Parameters), Seconds: stats.Median(shortest),
				})
			}
		}
	}
	fit, err := law.FitCollective(name, rows, c.level)
	if err != nil {
		return nil, fmt.Errorf("fit collective: %w", err)
	}
	c.Alpha, c.Beta, c.BytesPerSecond = Estimate(fit.Alpha), Estimate(fit.Beta), Estimate(fit.BytesPerSecond)
	c.Sentence = fit.Sentence
	for _, r := range fit.Rows {
		c.Rows = append(c.Rows, CollectiveRow(r))
	}
	return c, nil
}

func (c *CollectiveFit) table(maxRows int) resultTable {
	g := grid.Grid[CollectiveRow]{What: "collective", Rows: limitRows(c.Rows, maxRows), Columns: []grid.Column[CollectiveRow]{
		{Name: "run", Brief: true, Text: func(r CollectiveRow) string { return r.Run }},
		{Name: "workers", Brief: true, Count: func(r CollectiveRow) int { return r.Workers }},
		{Name: "bytes", Brief: true, Value: func(r CollectiveRow) float64 { return r.Bytes }},
		{Name: "seconds", Brief: true, Value: func(r CollectiveRow) float64 { return r.Seconds }},
		{Name: "fitted_seconds", Brief: true, Value: func(r CollectiveRow) float64 { return r.Fitted }},
	}}
	g.Remarks = []string{
		c.Sentence,
		fmt.Sprintf("α = %s s, β = %s s/byte (%s intervals)", c.Alpha, c.Beta, english.FormatPercent(c.level)),
		"model: t = 2(N−1)·α + 2(N−1)/N·bytes·β (ring all-reduce); the time of a step is that of the rank that arrives last, and the time of a run is the median over its steps",
	}
	g.Remarks = append(g.Remarks, problemLines(c.Problems)...)
	return g
}
