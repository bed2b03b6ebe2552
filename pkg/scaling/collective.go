package scaling

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/runs"
)

// gradientBytes is the size of a gradient in the collective: float32.
const gradientBytes = 4

// CollectiveRow is the all-reduce of a run.
type CollectiveRow struct {
	Run             string
	Workers         int
	Bytes           float64 // of the gradients that are reduced in a step
	Seconds, Fitted float64 // a step: measured, and by the model
}

// CollectiveFit is the latency and the bandwidth of a series' all-reduce. A
// cell shows it as a table.
//
// The model is Hockney's α–β (The communication challenge for MPP, Parallel
// Computing 20, 1994) of the ring all-reduce (Thakur, Rabenseifner and Gropp,
// Optimization of collective communication operations in MPICH, 2005):
// t = 2(N−1)·α + 2(N−1)/N·m·β for m bytes over N workers. With gradients in
// several buckets, α is of all of them together.
type CollectiveFit struct {
	Series         string
	Alpha          Span // seconds a message
	Beta           Span // seconds a byte
	BytesPerSecond Span // 1/Beta
	Rows           []CollectiveRow
	Problems       []runs.Problem
	Sentence       string
	level          float64
}

// Collective fits latency and bandwidth to the time that steps spend in the
// all-reduce, from the step spans of our own runs: in each step that of the
// rank that came last, which waits for nobody, and of these the median. The
// squares are of the relative errors. Four parameters' worth of runs (5) at
// three different numbers of workers are the least.
func (s *Study) Collective(series string) (*CollectiveFit, error) {
	name, err := s.oneSeries(series)
	if err != nil {
		return nil, fmt.Errorf("fit collective: %w", err)
	}
	c := &CollectiveFit{Series: name, level: s.Rule.level()}
	counts := map[int]bool{}
	for i, p := range s.Points {
		if p.Series != name || p.Workers < 2 {
			continue
		}
		for _, r := range s.cells[i].runs {
			if r.Info.Parameters < 1 {
				continue
			}
			if synchronised, _ := r.Info.Config["sync_batchnorm"].(bool); synchronised {
				c.Problems = append(c.Problems, runs.Problem{File: r.Dir, Reason: "its batch norms are synchronised (sync_batchnorm), so that its all_reduce_seconds are not of the gradients alone"})
				continue
			}
			steps, problems := s.stepsOf(r)
			c.Problems = append(c.Problems, problems...)
			var shortest []float64
			for _, step := range steps {
				least := math.Inf(1)
				for _, rank := range step {
					least = min(least, rank.AllReduce)
				}
				if least > 0 && finite(least) {
					shortest = append(shortest, least)
				}
			}
			if len(shortest) == 0 {
				continue
			}
			counts[p.Workers] = true
			c.Rows = append(c.Rows, CollectiveRow{
				Run: r.Dir, Workers: p.Workers, Bytes: gradientBytes * float64(r.Info.Parameters), Seconds: median(shortest),
			})
		}
	}
	if len(c.Rows) < 5 || len(counts) < 3 {
		return nil, fmt.Errorf("fit collective: latency and bandwidth need 5 runs with step spans at 3 or more numbers of workers above 1; series %s has %s at %d; run more (lockstep launch --workers 2,4,8 --seeds 1,2)",
			name, plural(len(c.Rows), "run"), len(counts))
	}
	c.fit()
	return c, nil
}

// terms are what α and β are multiplied with.
func (r CollectiveRow) terms() (alpha, beta float64) {
	n := float64(r.Workers)
	return 2 * (n - 1), 2 * (n - 1) / n * r.Bytes
}

// fit solves the least squares of (fitted − measured)/measured. Neither
// parameter is below 0: where one would be, it is 0 and the other is alone.
func (c *CollectiveFit) fit() {
	alpha, beta, inverse := c.solve(true, true)
	switch {
	case alpha < 0:
		_, beta, inverse = c.solve(false, true)
		alpha = 0
	case beta < 0:
		alpha, _, inverse = c.solve(true, false)
		beta = 0
	}
	rss := 0.0
	for i, r := range c.Rows {
		a, b := r.terms()
		c.Rows[i].Fitted = alpha*a + beta*b
		d := c.Rows[i].Fitted/r.Seconds - 1
		rss += d * d
	}
	free := float64(len(c.Rows) - 2)
	student := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: free}.Quantile(1 - (1-c.level)/2)
	span := func(v float64, i int) Span {
		half := student * math.Sqrt(rss/free*inverse.At(i, i))
		return Span{Value: v, Min: v, Max: v, Low: max(0, v-half), High: v + half, N: len(c.Rows)}
	}
	c.Alpha, c.Beta = span(alpha, 0), span(beta, 1)
	c.BytesPerSecond = Span{Value: 1 / beta, Min: 1 / beta, Max: 1 / beta, Low: 1 / c.Beta.High, High: 1 / c.Beta.Low, N: len(c.Rows)}
	c.Sentence = fmt.Sprintf("%s: a message of the all-reduce takes %s µs to start, and a rank moves %s GB/s", c.Series, short(1e6*alpha), short(1e-9/beta))
	if beta == 0 {
		c.Sentence = fmt.Sprintf("%s: a message of the all-reduce takes %s µs to start; what the bytes cost does not show", c.Series, short(1e6*alpha))
	}
	last := slices.MaxFunc(c.Rows, func(a, b CollectiveRow) int { return a.Workers - b.Workers })
	a, _ := last.terms()
	c.Sentence += fmt.Sprintf("; at %s latency is %s of it.", plural(last.Workers, "worker"), percent(alpha*a/last.Fitted))
}

// solve is the linear least squares for those of α and β that are free, with
// the inverse of the normal matrix (0 for one that is not).
func (c *CollectiveFit) solve(freeAlpha, freeBeta bool) (alpha, beta float64, inverse *mat.Dense) {
	var aa, ab, bb, ay, by float64
	for _, r := range c.Rows {
		a, b := r.terms()
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

func (c *CollectiveFit) grid() grid[CollectiveRow] {
	g := grid[CollectiveRow]{what: "collective", rows: c.Rows, columns: []column[CollectiveRow]{
		{name: "run", brief: true, text: func(r CollectiveRow) string { return r.Run }},
		{name: "workers", brief: true, count: func(r CollectiveRow) int { return r.Workers }},
		{name: "bytes", brief: true, value: func(r CollectiveRow) float64 { return r.Bytes }},
		{name: "seconds", brief: true, value: func(r CollectiveRow) float64 { return r.Seconds }},
		{name: "fitted_seconds", brief: true, value: func(r CollectiveRow) float64 { return r.Fitted }},
	}}
	g.remarks = []string{
		c.Sentence,
		fmt.Sprintf("α = %s s, β = %s s/byte (%s intervals)", c.Alpha, c.Beta, percent(c.level)),
		"model: t = 2(N−1)·α + 2(N−1)/N·bytes·β, the ring all-reduce; of each step the rank that came last, of the steps the median",
	}
	for _, p := range c.Problems {
		g.remarks = append(g.remarks, "problem: "+p.String())
	}
	return g
}

// Table has a row a run: run, workers, bytes, seconds, fitted_seconds.
func (c *CollectiveFit) Table() dataframe.DataFrame { return c.grid().table() }

// String is the table for people.
func (c *CollectiveFit) String() string { return c.grid().String() }

// HTML is the table for a notebook's cell.
func (c *CollectiveFit) HTML() string { return c.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (c *CollectiveFit) Write(w io.Writer, format string) error { return c.grid().write(w, format) }
