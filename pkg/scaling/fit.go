package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Parameter is one of a fitted law, with its confidence interval.
type Parameter struct {
	Name, Meaning    string
	Value, Low, High float64
}

// Fit is a law fitted to a series.
type Fit struct {
	Law, Formula string
	Parameters   []Parameter // λ first: the throughput of one
	N            int         // runs it was fitted to
	RSS          float64     // of the logarithms of the throughputs
	R2           float64     // of the logarithms
	// AICc is Akaike's information criterion, corrected for few observations
	// (Hurvich and Tsai, Regression and time series model selection in small
	// samples, Biometrika 76, 1989); the lower the better. Delta is over the
	// best law's, Weight the share of the evidence (Burnham and Anderson, 2002).
	AICc, Delta, Weight float64

	law        law
	lnLambda   float64
	theta      []float64
	covariance *mat.SymDense // of λ's logarithm and theta
	deviation  float64       // of a run's logarithm
	student    float64       // quantile for the intervals
	unit       float64       // throughput that speed-up 1 is
	largest    int           // size that was measured
}

// Fits are the laws fitted to a series, the best by AICc first. A cell shows
// them as a table.
type Fits struct {
	Series, Measure string
	Runs            int // that were fitted: an observation each
	Rows            []Fit
	Sentence        string
	refused         []string
	measured        []observation // the study's throughput at each size, ascending
	named           string        // law that Named returns; empty if no law is named
	rule            Rule
}

// ErrTooFew reports that a series has too few worker counts to name a law.
var ErrTooFew = errors.New("too few worker counts to name a law")

// BandPoint is what a fit predicts at a size: the value, and the band in which
// the next run falls with the rule's confidence if the law holds.
type BandPoint struct {
	Size                    int
	Speedup, Low, High      float64
	Rate, RateLow, RateHigh float64 // samples per second (or epochs, or jobs, where the logs tell no samples)
	Beyond                  bool    // more than was measured
}

// exact is a relative error that no clock shows: a fit with smaller residuals
// is as good as one without any.
const exact = 1e-6

// Fit fits the laws of scaling to a series ("" where there is one alone) by
// least squares of the logarithm of the throughput, a run an observation, and
// ranks them by AICc. Intervals and bands are those of nonlinear regression by
// the delta method (Bates and Watts, Nonlinear Regression Analysis and Its
// Applications, 1988, §2.3). A law with p parameters (λ is one of them) needs
// p+3 runs at p+2 different sizes and is left out if there are fewer. Fit
// returns ErrTooFew if no law has enough. [Fits.Named] returns the law that the
// data support, and Sentence says so or says why there is none.
func (s *Study) Fit(series string) (*Fits, error) {
	name, err := s.oneSeries(series)
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	m, ok := s.measures[name]
	if !ok {
		return nil, fmt.Errorf("fit: series %s has no time and no throughput that counts", name)
	}
	data, unit := s.observations(name, m)
	f := &Fits{Series: name, Measure: m.name, Runs: len(data), rule: s.Rule}
	f.measured = s.centers(data)
	for _, l := range laws() {
		p := len(l.parameters) + 1 // with λ
		if len(data) < p+3 || len(f.measured) < p+2 {
			f.refused = append(f.refused, fmt.Sprintf("%s has %s and needs %d runs at %d different %s counts, got %s at %d",
				l.name, plural(p, "parameter"), p+3, p+2, s.Rule.unit(), plural(len(data), "run"), len(f.measured)))
			continue
		}
		fit, err := newFit(l, data, s.Rule.level())
		if err != nil {
			f.refused = append(f.refused, err.Error())
			continue
		}
		fit.unit = unit
		f.Rows = append(f.Rows, fit)
	}
	if len(f.Rows) == 0 {
		return nil, fmt.Errorf("fit series %s: %w: %s; run other %s counts, or more seeds", name, ErrTooFew, f.refused[0], s.Rule.unit())
	}
	f.rank()
	f.name()
	f.Sentence = f.say()
	return f, nil
}

// observations are the rates of a series' runs by size, and the rate that
// speed-up 1 is (that of the baseline, or of the smallest).
func (s *Study) observations(series string, m measure) (data []observation, unit float64) {
	unit = math.NaN()
	for i, p := range s.Points {
		if p.Series != series || p.Size < 1 || s.partOfNode(i, m) {
			continue
		}
		rates := c0(s.cells[i].values(m.value))
		if !m.higher {
			for j, v := range rates {
				rates[j] = 1 / v
			}
		}
		for _, r := range rates {
			data = append(data, observation{float64(p.Size), r})
		}
		if p.Size == p.Baseline && len(rates) > 0 { // of equal sizes the last is the baseline
			unit = s.intervals(true).center(rates)
		}
	}
	if math.IsNaN(unit) && len(data) > 0 {
		unit = data[0].rate
	}
	return data, unit
}

// partOfNode says whether another point of the series has more workers on as
// many nodes: then this one is of nodes that are not full, and no measure of a
// node.
func (s *Study) partOfNode(i int, m measure) bool {
	p := s.Points[i]
	for k, q := range s.Points {
		if q.Series == p.Series && q.Size == p.Size && q.Workers > p.Workers && m.known(s.cells[k]) {
			return true
		}
	}
	return false
}

// newFit fits one law.
func newFit(l law, data []observation, level float64) (Fit, error) {
	lnLambda, theta, rss, err := l.fit(data)
	if err != nil {
		return Fit{}, err
	}
	n, p := float64(len(data)), float64(1+len(theta))
	f := Fit{Law: l.name, Formula: l.formula, N: len(data), RSS: rss, law: l, lnLambda: lnLambda, theta: theta}
	_, total := laws()[0].lambda(flat(data), nil)
	f.R2 = 1 - rss/total
	if total <= n*exact*exact { // the same throughput at every size
		f.R2 = math.NaN()
	}
	k := p + 1
	f.AICc = n*math.Log(max(rss, n*exact*exact)/n) + 2*k + 2*k*(k+1)/(n-k-1)
	f.deviation = math.Sqrt(rss / (n - p))
	f.student = distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - p}.Quantile(1 - (1-level)/2)
	if f.covariance, err = l.covariance(data, theta, rss/(n-p)); err != nil {
		return Fit{}, err
	}
	for _, d := range data {
		f.largest = max(f.largest, int(d.size))
	}
	f.Parameters = f.parameters()
	return f, nil
}

// flat takes the sizes out of data, so that a linear law explains nothing: its
// squares are the total.
func flat(data []observation) []observation {
	out := slices.Clone(data)
	for i := range out {
		out[i].size = 1
	}
	return out
}

// covariance is s²·(JᵀJ)⁻¹, with the derivatives J of the logarithm of the
// throughput by ln λ and the parameters.
func (l law) covariance(data []observation, theta []float64, variance float64) (*mat.SymDense, error) {
	p := 1 + len(theta)
	information := mat.NewSymDense(p, nil)
	for _, d := range data {
		information.SymRankOne(information, 1, mat.NewVecDense(p, l.gradient(d.size, theta)))
	}
	var factor mat.Cholesky
	if !factor.Factorize(information) {
		return nil, fmt.Errorf("fit %s: the points do not tell its parameters apart; run other numbers of workers", l.name)
	}
	out := mat.NewSymDense(p, nil)
	if err := factor.InverseTo(out); err != nil {
		var badly mat.Condition
		if !errors.As(err, &badly) { // an ill-conditioned inverse gives wide intervals, which is the truth
			return nil, fmt.Errorf("fit %s: %w", l.name, err)
		}
	}
	out.ScaleSym(variance, out)
	return out, nil
}

// gradient is the derivative of ln X by ln λ and the parameters.
func (l law) gradient(n float64, theta []float64) []float64 {
	return append([]float64{1}, l.slopes(n, theta)...)
}

// parameters are λ and the law's, with their intervals cut to their ranges.
func (f *Fit) parameters() []Parameter {
	lambda := math.Exp(f.lnLambda)
	half := f.student * math.Sqrt(f.covariance.At(0, 0))
	out := []Parameter{{"λ", "throughput of one", lambda, lambda * math.Exp(-half), lambda * math.Exp(half)}}
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

// rank sorts by AICc and sets the weights.
func (f *Fits) rank() {
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

// Best returns the law with the lowest AICc, nil if none was fitted. The data
// may contradict even the best law; Named leaves such a law out.
func (f *Fits) Best() *Fit {
	if len(f.Rows) == 0 {
		return nil
	}
	return &f.Rows[0]
}

// Law is the fit of a law by its name, nil where it was not fitted.
func (f *Fits) Law(name string) *Fit {
	i := slices.IndexFunc(f.Rows, func(x Fit) bool { return x.Law == name })
	if i < 0 {
		return nil
	}
	return &f.Rows[i]
}

// Refused is why a law was not fitted, empty where it was or where there is no
// such law.
func (f *Fits) Refused(law string) string {
	for _, why := range f.refused {
		if strings.HasPrefix(why, law+" ") || strings.HasPrefix(why, "fit "+law+":") {
			return why
		}
	}
	return ""
}

// Rate is the fitted throughput at a size.
func (f *Fit) Rate(size float64) float64 { return math.Exp(f.lnLambda) * f.law.g(size, f.theta) }

// Speedup is the fitted throughput over that of the baseline as measured, so
// that it lies on the measured speed-ups.
func (f *Fit) Speedup(size float64) float64 { return f.Rate(size) / f.unit }

// Band is the prediction at each size, with the band for one more run there.
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

// farthest is as far as a fit is asked.
const farthest = 1 << 24

// Half is the size beyond which another worker adds less than half of what one
// worker alone does. It is not ok where that never comes.
func (f *Fit) Half() (size int, ok bool) {
	less := func(n int) bool {
		return f.law.g(float64(n+1), f.theta)-f.law.g(float64(n), f.theta) < 0.5
	}
	if !less(farthest) {
		return 0, false
	}
	low, high := 1, farthest // what a worker adds only ever falls
	for low < high {
		middle := (low + high) / 2
		if less(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low, true
}

// Peak is the size with the highest throughput, √((1−σ)/κ) (Gunther 2007). It
// is not ok for a law that has none, or one beyond any size.
func (f *Fit) Peak() (size int, ok bool) {
	if f.Law != LawUSL || f.theta[1] <= 0 {
		return 0, false
	}
	at := math.Sqrt((1 - f.theta[0]) / f.theta[1])
	if !(at < farthest) {
		return 0, false
	}
	return max(1, int(math.Round(at))), true
}

// fitRow is a fit's parameter in the table.
type fitRow struct {
	Fit
	Parameter
}

func (f *Fits) grid() grid[fitRow] {
	g := grid[fitRow]{what: "fits", columns: []column[fitRow]{
		{name: "series", text: func(fitRow) string { return f.Series }},
		{name: "law", brief: true, text: func(r fitRow) string { return r.Law }},
		{name: "runs", count: func(r fitRow) int { return r.N }},
		{name: "parameter", brief: true, text: func(r fitRow) string { return r.Name }},
		{name: "value", brief: true, value: func(r fitRow) float64 { return r.Value }},
		{
			name: "interval", brief: true, people: true, value: func(r fitRow) float64 { return r.Low },
			show: func(r fitRow) string { return Span{Low: r.Low, High: r.High}.interval() },
		},
		{name: "low", value: func(r fitRow) float64 { return r.Low }},
		{name: "high", value: func(r fitRow) float64 { return r.High }},
		{name: "meaning", text: func(r fitRow) string { return r.Meaning }},
		{name: "aicc", brief: true, value: func(r fitRow) float64 { return r.AICc }},
		{name: "weight", brief: true, value: func(r fitRow) float64 { return r.Weight }},
		{name: "r2", brief: true, value: func(r fitRow) float64 { return r.R2 }},
		{name: "rss", value: func(r fitRow) float64 { return r.RSS }},
	}}
	for _, fit := range f.Rows {
		for _, p := range fit.Parameters {
			g.rows = append(g.rows, fitRow{fit, p})
		}
	}
	g.remarks = append(g.remarks, f.Sentence, fmt.Sprintf("series %s: least squares of the logarithm of %s over %s; chosen by AICc; %s intervals by the delta method",
		f.Series, rateWords(f.Measure), plural(f.Runs, "run"), percent(f.rule.level())))
	for _, r := range f.Rows {
		g.remarks = append(g.remarks, r.Law+": "+r.Formula)
	}
	for _, r := range f.refused {
		g.remarks = append(g.remarks, "not fitted: "+r)
	}
	return g
}

// rateWords names what X is.
func rateWords(measure string) string {
	switch measure {
	case "epoch_seconds":
		return "1/(seconds per epoch)"
	case "wall_seconds":
		return "1/(seconds of the job)"
	}
	return measure
}

// Table has a row a law and parameter: series, law, runs, parameter, value,
// low, high, meaning, aicc, weight, r2, rss.
func (f *Fits) Table() dataframe.DataFrame { return f.grid().table() }

// String is the table for people, with what the fit says in a sentence.
func (f *Fits) String() string { return f.grid().String() }

// HTML is the table for a notebook's cell.
func (f *Fits) HTML() string { return f.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (f *Fits) Write(w io.Writer, format string) error { return f.grid().write(w, format) }
