package law

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/stats"
)

// AllReduceTime is a measured time of an all-reduce; see scaling.CollectiveRow.
type AllReduceTime struct {
	Run             string
	Workers         int
	Bytes           float64
	Seconds, Fitted float64
}

// CollectiveFit contains the latency and the bandwidth of a series' all-reduce by the model that
// scaling.CollectiveFit cites.
type CollectiveFit struct {
	Series         string
	Alpha          stats.Estimate // seconds per message
	Beta           stats.Estimate // seconds per byte
	BytesPerSecond stats.Estimate // 1/Beta
	Rows           []AllReduceTime
	Sentence       string
}

// FitCollective needs at least minTimes times, at minWorkerCounts worker counts above 1 or at
// minSizes message sizes.
const (
	minTimes        = 5
	minWorkerCounts = 3
	minSizes        = 3
)

// FitCollective fits latency and bandwidth by least squares of the relative errors, and sets Fitted
// of each row. It returns an error if there are too few rows, worker counts or sizes.
func FitCollective(series string, rows []AllReduceTime, level float64) (*CollectiveFit, error) {
	counts, sizes := map[int]bool{}, map[float64]bool{}
	for _, r := range rows {
		counts[r.Workers], sizes[r.Bytes] = true, true
	}
	if len(rows) < minTimes || len(counts) < minWorkerCounts && len(sizes) < minSizes {
		return nil, fmt.Errorf("too few runs with step spans: series %s has %s at %d worker counts above 1, want at least %d runs at %d worker counts; run more (lockstep launch --workers 2,4,8 --seeds 1,2), or measure several sizes with nccl-tests or osu_allreduce",
			series, english.FormatCount(len(rows), "run"), len(counts), minTimes, minWorkerCounts)
	}
	c := &CollectiveFit{Series: series, Rows: rows}
	c.fitAlphaBeta(level)
	return c, nil
}

// modelCoefficients returns the coefficients of α and β in the model: 2(N−1) and 2(N−1)/N·m.
func (r AllReduceTime) modelCoefficients() (alpha, beta float64) {
	n := float64(r.Workers)
	return 2 * (n - 1), 2 * (n - 1) / n * r.Bytes
}

// fitAlphaBeta minimizes the sum of the squares of (fitted − measured)/measured. A parameter that would be
// negative is set to 0, and the other one is fitted alone.
func (c *CollectiveFit) fitAlphaBeta(level float64) {
	alpha, beta, inverse := c.solveLeastSquares(true, true)
	switch {
	case alpha < 0:
		_, beta, inverse = c.solveLeastSquares(false, true)
		alpha = 0
	case beta < 0:
		alpha, _, inverse = c.solveLeastSquares(true, false)
		beta = 0
	}
	rss := 0.0
	for i, r := range c.Rows {
		a, b := r.modelCoefficients()
		c.Rows[i].Fitted = alpha*a + beta*b
		d := c.Rows[i].Fitted/r.Seconds - 1
		rss += d * d
	}
	free := float64(len(c.Rows) - 2)
	student := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: free}.Quantile(1 - (1-level)/2)
	span := func(v float64, i int) stats.Estimate {
		half := student * math.Sqrt(rss/free*inverse.At(i, i))
		return stats.Estimate{Value: v, Min: v, Max: v, Low: max(0, v-half), High: v + half, N: len(c.Rows)}
	}
	c.Alpha, c.Beta = span(alpha, 0), span(beta, 1)
	c.BytesPerSecond = stats.Estimate{Value: 1 / beta, Min: 1 / beta, Max: 1 / beta, Low: 1 / c.Beta.High, High: 1 / c.Beta.Low, N: len(c.Rows)}
	c.Sentence = fmt.Sprintf("%s: each message of the all-reduce has a latency of %s µs, and each rank transfers %s GB/s", c.Series, english.FormatNumber(1e6*alpha), english.FormatNumber(1e-9/beta))
	if beta == 0 {
		c.Sentence = fmt.Sprintf("%s: each message of the all-reduce has a latency of %s µs; the measurements show no cost per byte", c.Series, english.FormatNumber(1e6*alpha))
	}
	last := slices.MaxFunc(c.Rows, func(a, b AllReduceTime) int {
		return cmp.Or(cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.Bytes, b.Bytes))
	})
	a, _ := last.modelCoefficients()
	of := english.FormatCount(last.Workers, "worker")
	if slices.ContainsFunc(c.Rows, func(r AllReduceTime) bool { return r.Workers == last.Workers && r.Bytes != last.Bytes }) {
		of += fmt.Sprintf(" and %.0f bytes", last.Bytes)
	}
	c.Sentence += fmt.Sprintf("; with %s, latency is %s of the all-reduce time.", of, english.FormatPercent(alpha*a/last.Fitted))
}

// solveLeastSquares returns the linear least-squares solution for α and β, and the inverse of the normal
// matrix. A parameter whose argument (freeAlpha, freeBeta) is false is fixed at 0, and so are its
// entries in the matrix.
func (c *CollectiveFit) solveLeastSquares(freeAlpha, freeBeta bool) (alpha, beta float64, inverse *mat.Dense) {
	var aa, ab, bb, ay, by float64
	for _, r := range c.Rows {
		a, b := r.modelCoefficients()
		a, b = a/r.Seconds, b/r.Seconds
		aa, ab, bb, ay, by = aa+a*a, ab+a*b, bb+b*b, ay+a, by+b
	}
	inverse = mat.NewDense(2, 2, nil)
	switch {
	case !freeAlpha:
		inverse.Set(1, 1, 1/bb)
		return 0, by / bb, inverse
	case !freeBeta:
		inverse.Set(0, 0, 1/aa)
		return ay / aa, 0, inverse
	}
	det := aa*bb - ab*ab
	inverse = mat.NewDense(2, 2, []float64{bb / det, -ab / det, -ab / det, aa / det})
	return (bb*ay - ab*by) / det, (aa*by - ab*ay) / det, inverse
}
