package scaling

import (
	"fmt"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

type epochRow struct {
	Series  string
	Workers int
	Seed    int64
	Dir     string
	Counted bool // the rule counts it for time and throughput
	// ElapsedSeconds is the sum of Seconds until the end of this epoch, without validation. It is
	// NaN after an epoch without a time.
	ElapsedSeconds float64
	// ClockSeconds is like ElapsedSeconds, but includes validation.
	ClockSeconds float64
	runs.Epoch
}

// Epochs returns one row per epoch of each run, including failed runs, by series, and within a series in
// the order in which the runs were read. The columns:
//
//	series, workers, seed, run   the run (column run: its folder or file)
//	epoch                        from 1
//	counted                      true if the rule counts it for time and throughput
//	seconds, val_seconds         time of training and of validation
//	elapsed_seconds              training time until the end of the epoch
//	clock_seconds                likewise, with validation; NaN from the first epoch on whose validation time is unknown
//	samples                      of all workers together, padding included
//	samples_per_second           of all workers together, without padding
//	train_loss, val_loss, iou, dice, lr
func (s *Study) Epochs() dataframe.DataFrame {
	n := 0
	for _, r := range s.Runs {
		n += len(r.Epochs)
	}
	rows := make([]epochRow, 0, n)
	for _, g := range s.groupBySeries() {
		for _, r := range g.Runs {
			elapsed, clock, counts := 0.0, 0.0, s.Rule.toMeasurementRule().CountedEpochFilter(r)
			for i, e := range r.Epochs {
				elapsed += e.Seconds
				clock += e.Seconds + e.ValSeconds
				rows = append(rows, epochRow{
					Series: g.Name, Workers: r.Info.Workers, Seed: r.Info.Seed, Dir: r.Dir,
					Counted: !observe.HasFailed(r) && e.Seconds > 0 && counts(i), ElapsedSeconds: elapsed, ClockSeconds: clock, Epoch: e,
				})
			}
		}
	}
	return grid.Grid[epochRow]{Rows: rows, Columns: []grid.Column[epochRow]{
		{Name: "series", Text: func(r epochRow) string { return r.Series }},
		{Name: "workers", Count: func(r epochRow) int { return r.Workers }},
		{Name: "seed", Count: func(r epochRow) int { return int(r.Seed) }},
		{Name: "run", Text: func(r epochRow) string { return r.Dir }},
		{Name: "epoch", Count: func(r epochRow) int { return r.Epoch.Epoch }},
		{Name: "counted", Flag: func(r epochRow) bool { return r.Counted }},
		{Name: "seconds", Value: func(r epochRow) float64 { return r.Seconds }},
		{Name: "val_seconds", Value: func(r epochRow) float64 { return r.ValSeconds }},
		{Name: "elapsed_seconds", Value: func(r epochRow) float64 { return r.ElapsedSeconds }},
		{Name: "clock_seconds", Value: func(r epochRow) float64 { return r.ClockSeconds }},
		{Name: "samples", Count: func(r epochRow) int { return r.Samples }},
		{Name: "samples_per_second", Value: func(r epochRow) float64 { return observe.SamplesPerSecond(r.Epoch) }},
		{Name: "train_loss", Value: func(r epochRow) float64 { return r.TrainLoss }},
		{Name: "val_loss", Value: func(r epochRow) float64 { return r.ValLoss }},
		{Name: "iou", Value: func(r epochRow) float64 { return r.IoU }},
		{Name: "dice", Value: func(r epochRow) float64 { return r.Dice }},
		{Name: "lr", Value: func(r epochRow) float64 { return r.LearningRate }},
	}}.Table()
}

// EpochSpread describes how much the counted epochs of a point's runs vary. It is not a confidence
// interval: it can be computed for a single run, does not become narrower with more epochs, and
// does not show how much another run would differ.
type EpochSpread struct {
	Series  string
	Workers int
	Size    int // workers, or nodes if Rule.Per is "node"
	Runs    int
	Epochs  int // counted epochs with a time, of all runs together

	Seconds    Spread // training time per epoch
	Throughput Spread // samples per second of all workers together; NaN if the logs have no sample counts
}

// Spread contains the median and a central interval of values. At a confidence level of 0.95, the
// interval is from the 2.5th to the 97.5th percentile, interpolated between neighboring values. All
// fields are NaN for fewer than two values.
type Spread struct{ Median, Low, High float64 }

// EpochSpreads contains the spread of the epochs of each point.
//
// Its table has one row per point: series, workers, size, runs, epochs, and median,
// spread_low and spread_high of epoch_seconds and of throughput.
type EpochSpreads struct {
	analysis
	Rows []EpochSpread
	rule Rule
}

// EpochSpreads returns the spread of each point's epochs. It omits points with fewer than two
// counted epochs with a time.
func (s *Study) EpochSpreads() *EpochSpreads {
	out := &EpochSpreads{rule: s.Rule}
	out.analysis = analysis{out}
	for i, p := range s.Points {
		var seconds, rates []float64
		for _, r := range s.cells[i].Runs {
			counts := s.Rule.toMeasurementRule().CountedEpochFilter(r)
			for k := range r.Epochs {
				e := &r.Epochs[k]
				if !counts(k) || !(e.Seconds > 0) || math.IsInf(e.Seconds, 0) {
					continue
				}
				seconds = append(seconds, e.Seconds)
				if n := s.Rule.toMeasurementRule().SamplesInEpoch(e); n > 0 {
					rates = append(rates, n/e.Seconds)
				}
			}
		}
		if len(seconds) < 2 {
			continue
		}
		row := EpochSpread{Series: p.Series, Workers: p.Workers, Size: p.Size, Runs: p.Runs, Epochs: len(seconds)}
		row.Seconds, row.Throughput = newSpread(seconds, s.Rule.confidenceLevel()), newSpread(rates, s.Rule.confidenceLevel())
		out.Rows = append(out.Rows, row)
	}
	return out
}

// newSpread returns the median of values and the central interval that contains the given share of
// them. It sorts values in place.
func newSpread(values []float64, share float64) Spread {
	if len(values) < 2 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(values)
	tail := (1 - share) / 2
	return Spread{
		Median: stats.Median(values),
		Low:    stat.Quantile(tail, stat.LinInterp, values, nil),
		High:   stat.Quantile(1-tail, stat.LinInterp, values, nil),
	}
}

func (r Rule) spreadNote() string {
	return fmt.Sprintf("spread: the middle %s of the counted epochs of all runs of a point; it is not a confidence interval, because it does not show how much another run would differ", english.FormatPercent(r.confidenceLevel()))
}

func (e *EpochSpreads) table(maxRows int) resultTable {
	g := grid.Grid[EpochSpread]{What: "epoch spreads", Rows: limitRows(e.Rows, maxRows), Columns: []grid.Column[EpochSpread]{
		{Name: "series", Brief: true, Text: func(r EpochSpread) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r EpochSpread) int { return r.Workers }},
		{Name: "size", Count: func(r EpochSpread) int { return r.Size }},
		{Name: "runs", Brief: true, Count: func(r EpochSpread) int { return r.Runs }},
		{Name: "epochs", Brief: true, Count: func(r EpochSpread) int { return r.Epochs }},
		{Name: "epoch_seconds_median", Brief: true, Value: func(r EpochSpread) float64 { return r.Seconds.Median }},
		{Name: "epoch_seconds_spread_low", Brief: true, Title: "spread_low", Value: func(r EpochSpread) float64 { return r.Seconds.Low }},
		{Name: "epoch_seconds_spread_high", Brief: true, Title: "spread_high", Value: func(r EpochSpread) float64 { return r.Seconds.High }},
		{Name: "throughput_median", Brief: true, Optional: true, Value: func(r EpochSpread) float64 { return r.Throughput.Median }},
		{Name: "throughput_spread_low", Brief: true, Optional: true, Title: "spread_low", Value: func(r EpochSpread) float64 { return r.Throughput.Low }},
		{Name: "throughput_spread_high", Brief: true, Optional: true, Title: "spread_high", Value: func(r EpochSpread) float64 { return r.Throughput.High }},
	}}
	g.Remarks = []string{"rule: " + e.rule.describeCountedEpochs(), e.rule.spreadNote()}
	if len(e.Rows) == 0 {
		g.Remarks = append(g.Remarks, "no point has two counted epochs with a time")
	}
	return g
}
