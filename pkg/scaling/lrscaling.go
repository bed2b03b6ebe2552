package scaling

import (
	"fmt"
	"math"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/lrscaling"
	"lockstep/pkg/scaling/internal/stats"
)

// RateRow summarizes the learning rates at one global batch.
type RateRow struct {
	GlobalBatch    int
	Rates          int // number of learning rates tried
	Runs, Diverged int
	// Best is the best learning rate. It is the maximum of a parabola fitted to the quality as a
	// function of the logarithm of the rate, at the best rate tried and up to two rates on each
	// side. If Bound is set, it is the best rate tried.
	Best  Estimate
	Bound string
	// Quality is the quality at the best rate tried, and Change its difference from the quality at
	// the smallest batch.
	Quality, Change Estimate
	// Constant, Sqrt and Linear are the learning rates that these rules derive from the smallest
	// batch's best rate.
	Constant, Sqrt, Linear float64
}

// TriedRate is a learning rate that was tried at a global batch. Its Quality is NaN if the loss of
// any run diverged.
type TriedRate struct {
	GlobalBatch    int
	LearningRate   float64 // initial rate after warm-up, scaled to the workers
	Runs, Diverged int
	Quality        Estimate
}

// RuleRow compares one scaling rule with the measurements. The rule predicts a learning rate for
// each batch size from the best rate at the smallest one. If the predicted rate was tried, its
// quality is compared with that of the best rate tried at the same batch size.
type RuleRow struct {
	Rule     string
	Exponent float64
	Batches  []int // batches above the smallest at which the rule's rate was tried
	// Worst is the largest loss of quality, as a difference. It occurs at the batch size
	// WorstBatch.
	Worst      Estimate
	WorstBatch int
	Rejected   bool // the interval of the loss excludes 0 at some batch
	Holds      int  // largest batch up to which the rule is not rejected; 0 if its rates were not tried
}

// LRScaling describes which rule relates the best learning rate to the global batch, and up to
// which global batch the quality is maintained.
//
// Its table has one row per global batch, with the columns global_batch, rates, runs,
// diverged and bound; best_rate, the measure and change, each with _low and _high; none,
// sqrt and linear, the learning rates by these rules; and, only in the last row, rule,
// exponent and sentence.
type LRScaling struct {
	analysis
	Measure string // quality measure: iou, dice, val_accuracy, accuracy, test_loss, val_loss or train_loss
	Rows    []RateRow
	Tried   []TriedRate // by batch, then by rate
	Rules   []RuleRow

	// Exponent is p in best rate = c·batch^p, by least squares of the logarithms. It is fitted to
	// the batch sizes whose best rate is neither the highest nor the lowest tried and whose quality
	// is not below that of the smallest batch size. It is NaN for fewer than two such batch sizes.
	Exponent Estimate
	Rule     string // "none", "sqrt", "linear" or "other"; empty if the runs do not decide
	How      string // the basis of the decision: "best rates" or "quality"; empty if Rule is empty
	// Good is the largest batch size up to which the quality at the best rate tried is no worse,
	// beyond noise, than at the smallest batch size. Falls is the first batch size with a worse
	// quality, or 0 if there is none.
	Good, Falls int
	Sentence    string
	Problems    []string

	rule Rule
}

// ScalingRule determines how the best learning rate depends on the global batch. It needs
// runs at several global batches, preferably with several learning rates at each batch.
// This command starts such runs:
//
//	lockstep launch --seeds 1,2,3 --vary batch=4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008
//
// Runs are grouped by their global batch and their initial learning rate, scaled to the
// workers; the series are ignored. measure is one of the measures of Quality; "" selects
// the first measure that most runs have.
//
// Intervals are bootstrapped over the runs (seeds) of each batch and rate. A rate with
// a single run uses the pooled standard deviation of the others. If fewer than two
// batches have a best rate that is neither the highest nor the lowest tried, the rules
// are compared by the quality at the rates that they predict. Runs with the same number of
// epochs take fewer steps at a larger batch; ScalingRule does not correct for this. It is
// an error if all runs have the same batch, or none has a learning rate.
func (s *Study) ScalingRule(measure string) (*LRScaling, error) {
	fit, err := lrscaling.FindRateRule(s.Runs, measure, s.estimator())
	if err != nil {
		return nil, fmt.Errorf("find scaling rule: %w", err)
	}
	o := &LRScaling{
		Measure: fit.Measure, Exponent: Estimate(fit.Exponent), Rule: fit.Rule, How: fit.How, Good: fit.Good, Falls: fit.Falls,
		Sentence: fit.Sentence, Problems: fit.Problems, rule: s.Rule,
	}
	o.analysis = analysis{o}
	for _, r := range fit.Rows {
		o.Rows = append(o.Rows, RateRow{
			GlobalBatch: r.GlobalBatch, Rates: r.Rates, Runs: r.Runs, Diverged: r.Diverged, Best: Estimate(r.Best), Bound: r.Bound,
			Quality: Estimate(r.Quality), Change: Estimate(r.Change), Constant: r.Constant, Sqrt: r.Sqrt, Linear: r.Linear,
		})
	}
	for _, t := range fit.Tried {
		o.Tried = append(o.Tried, TriedRate{
			GlobalBatch: t.GlobalBatch, LearningRate: t.LearningRate, Runs: t.Runs, Diverged: t.Diverged, Quality: Estimate(t.Quality),
		})
	}
	for _, r := range fit.Rules {
		o.Rules = append(o.Rules, RuleRow{
			Rule: r.Rule, Exponent: r.Exponent, Batches: r.Batches, Worst: Estimate(r.Worst), WorstBatch: r.WorstBatch,
			Rejected: r.Rejected, Holds: r.Holds,
		})
	}
	return o, nil
}

func (o *LRScaling) table(maxRows int) resultTable {
	rate := func(name string, value func(RateRow) float64) grid.Column[RateRow] {
		return grid.Column[RateRow]{Name: name, Brief: true, Value: value, Show: func(r RateRow) string { return lrscaling.FormatRate(value(r)) }}
	}
	g := grid.Grid[RateRow]{What: "scaling rule", Rows: limitRows(o.Rows, maxRows), Columns: []grid.Column[RateRow]{
		{Name: "global_batch", Title: "batch", Brief: true, Count: func(r RateRow) int { return r.GlobalBatch }},
		{Name: "rates", Brief: true, Count: func(r RateRow) int { return r.Rates }},
		{Name: "runs", Brief: true, Count: func(r RateRow) int { return r.Runs }},
		{Name: "diverged", Brief: true, Optional: true, Count: func(r RateRow) int { return r.Diverged }},
	}}
	best := estimateColumns("best_rate", func(r RateRow) Estimate { return r.Best })
	best[0].Title, best[0].Show = "best lr", func(r RateRow) string { return lrscaling.FormatRate(r.Best.Value) }
	best[1].Show = func(r RateRow) string {
		return fmt.Sprintf("[%s, %s]", lrscaling.FormatRate(r.Best.Low), lrscaling.FormatRate(r.Best.High))
	}
	g.Columns = append(g.Columns, best...)
	g.Columns = append(g.Columns, grid.Column[RateRow]{Name: "bound", Title: "of those tried", Brief: true, Optional: true, Text: func(r RateRow) string { return r.Bound }})
	g.Columns = append(g.Columns, estimateColumns(o.Measure, func(r RateRow) Estimate { return r.Quality })...)
	g.Columns = append(g.Columns, estimateColumns("change", func(r RateRow) Estimate { return r.Change })...)
	g.Columns = append(g.Columns,
		rate(lrscaling.RuleConstant, func(r RateRow) float64 { return r.Constant }),
		rate(lrscaling.RuleSqrt, func(r RateRow) float64 { return r.Sqrt }),
		rate(lrscaling.RuleLinear, func(r RateRow) float64 { return r.Linear }))
	last := func(r RateRow) bool { return r.GlobalBatch == o.Rows[len(o.Rows)-1].GlobalBatch }
	ofAll := func(name string, v float64) grid.Column[RateRow] { // of all batches, in the last row
		return grid.Column[RateRow]{Name: name, Value: func(r RateRow) float64 {
			if last(r) {
				return v
			}
			return math.NaN()
		}}
	}
	words := func(name, text string) grid.Column[RateRow] {
		return grid.Column[RateRow]{Name: name, Text: func(r RateRow) string {
			if last(r) {
				return text
			}
			return ""
		}}
	}
	g.Columns = append(g.Columns,
		words("rule", o.Rule), ofAll("exponent", o.Exponent.Value), ofAll("exponent_low", o.Exponent.Low), ofAll("exponent_high", o.Exponent.High),
		words("sentence", o.Sentence))
	g.Remarks = append(g.Remarks, o.Sentence)
	g.Remarks = append(g.Remarks,
		fmt.Sprintf("best lr: the rate with the best %s, interpolated between the rates tried; none, sqrt, linear: the rates that these rules derive from batch %d; change: of the %s at the best rate tried, relative to batch %d",
			o.Measure, o.Rows[0].GlobalBatch, o.Measure, o.Rows[0].GlobalBatch),
		fmt.Sprintf("%s intervals: smoothed bootstrap over the runs of each batch and rate (%d resamples), widened by Student's t", english.FormatPercent(o.rule.confidenceLevel()), stats.BootstrapResamples))
	for _, p := range o.Problems {
		g.Remarks = append(g.Remarks, "note: "+p)
	}
	return g
}

// TriedTable returns a table with one row per learning rate that was tried: global_batch,
// learning_rate, runs, diverged, and the measure with its bounds (suffixes _low and _high).
func (o *LRScaling) TriedTable() dataframe.DataFrame {
	g := grid.Grid[TriedRate]{What: "learning rates", Rows: o.Tried, Columns: []grid.Column[TriedRate]{
		{Name: "global_batch", Count: func(t TriedRate) int { return t.GlobalBatch }},
		{Name: "learning_rate", Value: func(t TriedRate) float64 { return t.LearningRate }},
		{Name: "runs", Count: func(t TriedRate) int { return t.Runs }},
		{Name: "diverged", Count: func(t TriedRate) int { return t.Diverged }},
	}}
	g.Columns = append(g.Columns, estimateColumns(o.Measure, func(t TriedRate) Estimate { return t.Quality })...)
	return g.Table()
}
