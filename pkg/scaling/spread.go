package scaling

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/stat"
)

// EpochSpread is how much the counted epochs of a point's runs scatter. It is
// there for a single run too, which has no confidence interval. It is no such
// interval: it does not get narrower with more epochs, and says nothing of how
// much another run would differ.
type EpochSpread struct {
	Series  string
	Workers int
	Size    int // workers, or nodes with Rule.Per "node"
	Runs    int
	Epochs  int // counted ones with a time, of all runs together

	Seconds    Spread // of training, an epoch
	Throughput Spread // samples per second of all workers together; NaN where the logs tell no samples
}

// Spread is the middle of values by the rule's confidence: at 0.95 from the
// 2.5th to the 97.5th percentile, interpolated between neighbours. NaN for
// fewer than two.
type Spread struct{ Median, Low, High float64 }

// EpochSpreads has a row a point. A cell shows it as a table.
type EpochSpreads struct {
	Rows []EpochSpread
	rule Rule
}

// EpochSpreads says how much the epochs of each point scatter, of those points
// that have two counted epochs with a time.
func (s *Study) EpochSpreads() *EpochSpreads {
	out := &EpochSpreads{rule: s.Rule}
	for i, p := range s.Points {
		var seconds, rates []float64
		for _, r := range s.cells[i].runs {
			counts := s.counting(r)
			for k := range r.Epochs {
				e := &r.Epochs[k]
				if !counts(k) || !(e.Seconds > 0) || math.IsInf(e.Seconds, 0) {
					continue
				}
				seconds = append(seconds, e.Seconds)
				if n := s.samplesIn(e); n > 0 {
					rates = append(rates, n/e.Seconds)
				}
			}
		}
		if len(seconds) < 2 {
			continue
		}
		row := EpochSpread{Series: p.Series, Workers: p.Workers, Size: p.Size, Runs: p.Runs, Epochs: len(seconds)}
		row.Seconds, row.Throughput = s.Rule.spread(seconds), s.Rule.spread(rates)
		out.Rows = append(out.Rows, row)
	}
	return out
}

// spread is the middle of values, which it sorts.
func (r Rule) spread(values []float64) Spread {
	if len(values) < 2 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(values)
	tail := (1 - r.level()) / 2
	return Spread{
		Median: median(values),
		Low:    stat.Quantile(tail, stat.LinInterp, values, nil),
		High:   stat.Quantile(1-tail, stat.LinInterp, values, nil),
	}
}

// SpreadNote says what a spread is, in a sentence.
func (s *Study) SpreadNote() string { return s.Rule.spreadNote() }

func (r Rule) spreadNote() string {
	return fmt.Sprintf("spread: the middle %s of the counted epochs, of all runs of a point together; no confidence interval, for it says nothing of how much another run would differ", percent(r.level()))
}

func (e *EpochSpreads) grid() grid[EpochSpread] {
	g := grid[EpochSpread]{what: "epoch spreads", rows: e.Rows, columns: []column[EpochSpread]{
		{name: "series", brief: true, text: func(r EpochSpread) string { return r.Series }},
		{name: "workers", brief: true, count: func(r EpochSpread) int { return r.Workers }},
		{name: "size", count: func(r EpochSpread) int { return r.Size }},
		{name: "runs", brief: true, count: func(r EpochSpread) int { return r.Runs }},
		{name: "epochs", brief: true, count: func(r EpochSpread) int { return r.Epochs }},
		{name: "epoch_seconds_median", brief: true, value: func(r EpochSpread) float64 { return r.Seconds.Median }},
		{name: "epoch_seconds_spread_low", brief: true, title: "spread_low", value: func(r EpochSpread) float64 { return r.Seconds.Low }},
		{name: "epoch_seconds_spread_high", brief: true, title: "spread_high", value: func(r EpochSpread) float64 { return r.Seconds.High }},
		{name: "throughput_median", brief: true, optional: true, value: func(r EpochSpread) float64 { return r.Throughput.Median }},
		{name: "throughput_spread_low", brief: true, optional: true, title: "spread_low", value: func(r EpochSpread) float64 { return r.Throughput.Low }},
		{name: "throughput_spread_high", brief: true, optional: true, title: "spread_high", value: func(r EpochSpread) float64 { return r.Throughput.High }},
	}}
	g.remarks = []string{"rule: " + e.rule.counting(), e.rule.spreadNote()}
	if len(e.Rows) == 0 {
		g.remarks = append(g.remarks, "no point has two counted epochs with a time")
	}
	return g
}

// Table has a row a point: series, workers, size, runs, epochs, and median,
// spread_low and spread_high of epoch_seconds and of throughput.
func (e *EpochSpreads) Table() dataframe.DataFrame { return e.grid().table() }

// String is the table for people.
func (e *EpochSpreads) String() string { return e.grid().String() }

// HTML is the table for a notebook's cell.
func (e *EpochSpreads) HTML() string { return e.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (e *EpochSpreads) Write(w io.Writer, format string) error { return e.grid().write(w, format) }
