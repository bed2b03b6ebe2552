package scaling

import (
	"fmt"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/law"
	"lockstep/pkg/scaling/internal/stats"
	"lockstep/pkg/scaling/internal/steptime"
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
//
// Its table has a row a run: run, workers, bytes, seconds, fitted_seconds.
type CollectiveFit struct {
	analysis
	Series         string
	Alpha          Estimate // seconds a message
	Beta           Estimate // seconds a byte
	BytesPerSecond Estimate // 1/Beta
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
	c.analysis = analysis{c}
	var rows []law.AllReduce
	for i, p := range s.Points {
		if p.Series != name || p.Workers < 2 {
			continue
		}
		for _, r := range s.cells[i].Runs {
			if r.Info.Parameters < 1 {
				continue
			}
			if synchronised, _ := r.Info.Config["sync_batchnorm"].(bool); synchronised {
				c.Problems = append(c.Problems, runs.Problem{File: r.Dir, Reason: "its batch norms are synchronised (sync_batchnorm), so that its all_reduce_seconds are not of the gradients alone"})
				continue
			}
			steps, problems := steptime.Read(r, s.Rule.observed()).Complete()
			c.Problems = append(c.Problems, problems...)
			if shortest := steptime.AllReduces(steps); len(shortest) > 0 {
				rows = append(rows, law.AllReduce{
					Run: r.Dir, Workers: p.Workers, Bytes: gradientBytes * float64(r.Info.Parameters), Seconds: stats.Median(shortest),
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

func (c *CollectiveFit) table(most int) table {
	g := grid.Grid[CollectiveRow]{What: "collective", Rows: first(c.Rows, most), Columns: []grid.Column[CollectiveRow]{
		{Name: "run", Brief: true, Text: func(r CollectiveRow) string { return r.Run }},
		{Name: "workers", Brief: true, Count: func(r CollectiveRow) int { return r.Workers }},
		{Name: "bytes", Brief: true, Value: func(r CollectiveRow) float64 { return r.Bytes }},
		{Name: "seconds", Brief: true, Value: func(r CollectiveRow) float64 { return r.Seconds }},
		{Name: "fitted_seconds", Brief: true, Value: func(r CollectiveRow) float64 { return r.Fitted }},
	}}
	g.Remarks = []string{
		c.Sentence,
		fmt.Sprintf("α = %s s, β = %s s/byte (%s intervals)", c.Alpha, c.Beta, english.Percent(c.level)),
		"model: t = 2(N−1)·α + 2(N−1)/N·bytes·β, the ring all-reduce; of each step the rank that came last, of the steps the median",
	}
	for _, p := range c.Problems {
		g.Remarks = append(g.Remarks, "problem: "+p.String())
	}
	return g
}
