package scaling

import (
	"fmt"
	"io"
	"math"

	"github.com/go-gota/gota/dataframe"
)

func (o *BatchRule) grid() grid[RateRow] {
	rate := func(name string, value func(RateRow) float64) column[RateRow] {
		return column[RateRow]{name: name, brief: true, value: value, show: func(r RateRow) string { return rateText(value(r)) }}
	}
	g := grid[RateRow]{what: "scaling rule", rows: o.Rows, columns: []column[RateRow]{
		{name: "global_batch", title: "batch", brief: true, count: func(r RateRow) int { return r.GlobalBatch }},
		{name: "rates", brief: true, count: func(r RateRow) int { return r.Rates }},
		{name: "runs", brief: true, count: func(r RateRow) int { return r.Runs }},
		{name: "diverged", brief: true, optional: true, count: func(r RateRow) int { return r.Diverged }},
	}}
	best := spanColumns("best_rate", true, func(r RateRow) Span { return r.Best })
	best[0].title, best[0].show = "best lr", func(r RateRow) string { return rateText(r.Best.Value) }
	best[1].show = func(r RateRow) string { return fmt.Sprintf("[%s, %s]", rateText(r.Best.Low), rateText(r.Best.High)) }
	g.columns = append(g.columns, best...)
	g.columns = append(g.columns, column[RateRow]{name: "bound", title: "of those tried", brief: true, optional: true, text: func(r RateRow) string { return r.Bound }})
	g.columns = append(g.columns, spanColumns(o.Measure, true, func(r RateRow) Span { return r.Quality })...)
	g.columns = append(g.columns, spanColumns("change", true, func(r RateRow) Span { return r.Change })...)
	g.columns = append(g.columns,
		rate(RateConstant, func(r RateRow) float64 { return r.Constant }),
		rate(RateSqrt, func(r RateRow) float64 { return r.Sqrt }),
		rate(RateLinear, func(r RateRow) float64 { return r.Linear }))
	last := func(r RateRow) bool { return r.GlobalBatch == o.Rows[len(o.Rows)-1].GlobalBatch }
	ofAll := func(name string, v float64) column[RateRow] { // of all batches, in the last row
		return column[RateRow]{name: name, value: func(r RateRow) float64 {
			if last(r) {
				return v
			}
			return math.NaN()
		}}
	}
	words := func(name, text string) column[RateRow] {
		return column[RateRow]{name: name, text: func(r RateRow) string {
			if last(r) {
				return text
			}
			return ""
		}}
	}
	g.columns = append(g.columns,
		words("rule", o.Rule), ofAll("exponent", o.Exponent.Value), ofAll("exponent_low", o.Exponent.Low), ofAll("exponent_high", o.Exponent.High),
		words("sentence", o.Sentence), words("next", o.Next()))
	g.remarks = append(g.remarks, o.Sentence)
	if next := o.Next(); next != "" {
		g.remarks = append(g.remarks, "to decide: "+next)
	}
	g.remarks = append(g.remarks,
		fmt.Sprintf("best lr: where the %s is best, between the rates tried; none, sqrt, linear: what the rules make of batch %d's; change: of the %s at the best rate tried, against batch %d",
			o.Measure, o.Rows[0].GlobalBatch, o.Measure, o.Rows[0].GlobalBatch),
		fmt.Sprintf("%s intervals: smoothed bootstrap over the runs of each batch and rate (%d resamples), widened by Student's t", percent(o.rule.level()), resamples))
	for _, p := range o.Problems {
		g.remarks = append(g.remarks, "note: "+p)
	}
	return g
}

// Table has a row a global batch: global_batch, rates, runs, diverged, best_rate,
// bound, the measure, change (each with _low and _high), the rates none, sqrt and
// linear, and in the last row rule, exponent, sentence and next.
func (o *BatchRule) Table() dataframe.DataFrame { return o.grid().table() }

// String is the table for people, with the sentence and what to run next.
func (o *BatchRule) String() string { return o.grid().String() }

// HTML is the table for a notebook's cell.
func (o *BatchRule) HTML() string { return o.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (o *BatchRule) Write(w io.Writer, format string) error { return o.grid().write(w, format) }

// TriedTable has a row a learning rate tried: global_batch, learning_rate, runs,
// diverged and the measure, with _low and _high.
func (o *BatchRule) TriedTable() dataframe.DataFrame {
	g := grid[TriedRate]{what: "learning rates", rows: o.Tried, columns: []column[TriedRate]{
		{name: "global_batch", count: func(t TriedRate) int { return t.GlobalBatch }},
		{name: "learning_rate", value: func(t TriedRate) float64 { return t.LearningRate }},
		{name: "runs", count: func(t TriedRate) int { return t.Runs }},
		{name: "diverged", count: func(t TriedRate) int { return t.Diverged }},
	}}
	g.columns = append(g.columns, spanColumns(o.Measure, true, func(t TriedRate) Span { return t.Quality })...)
	return g.table()
}
