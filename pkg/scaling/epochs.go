package scaling

import (
	"math"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

// EpochRow is an epoch of a run, as Study.EpochRows lists them.
type EpochRow struct {
	Series  string
	Workers int
	Seed    int64
	Dir     string
	Failed  bool
	Counted bool // by the rule, for time and throughput
	// ElapsedSeconds is the training time up to this epoch's end: the sum of
	// Seconds, validation not included. NaN after an epoch without a time.
	ElapsedSeconds float64
	runs.Epoch
}

// EpochRows lists every epoch of every run, in the order of the series, then
// by workers as read.
func (s *Study) EpochRows() []EpochRow {
	n := 0
	for _, r := range s.Runs {
		n += len(r.Epochs)
	}
	rows := make([]EpochRow, 0, n)
	for _, g := range s.grouped() {
		for _, r := range g.Runs {
			elapsed, counts := 0.0, s.Rule.observed().Counting(r)
			for i, e := range r.Epochs {
				elapsed += e.Seconds
				rows = append(rows, EpochRow{
					Series: g.Name, Workers: r.Info.Workers, Seed: r.Info.Seed, Dir: r.Dir, Failed: observe.Failed(r),
					Counted: !observe.Failed(r) && e.Seconds > 0 && counts(i), ElapsedSeconds: elapsed, Epoch: e,
				})
			}
		}
	}
	return rows
}

// Epochs has a row for each epoch of each run, failed runs too. The columns:
//
//	series, workers, seed, run   which run (run: its folder or file)
//	epoch                        from 1
//	counted                      whether the rule counts it for time and throughput
//	seconds, val_seconds         of training, of validation
//	elapsed_seconds              of training up to the epoch's end
//	samples, samples_per_second  of all workers together, padding included
//	train_loss, val_loss, iou, dice, lr
func (s *Study) Epochs() dataframe.DataFrame {
	rows := s.EpochRows()
	texts := func(name string, value func(EpochRow) string) series.Series {
		v := make([]string, len(rows))
		for i, r := range rows {
			v[i] = value(r)
		}
		return series.New(v, series.String, name)
	}
	counts := func(name string, value func(EpochRow) int) series.Series {
		v := make([]int, len(rows))
		for i, r := range rows {
			v[i] = value(r)
		}
		return series.New(v, series.Int, name)
	}
	values := func(name string, value func(EpochRow) float64) series.Series {
		v := make([]float64, len(rows))
		for i, r := range rows {
			v[i] = value(r)
		}
		return series.New(v, series.Float, name)
	}
	counted := make([]bool, len(rows))
	for i, r := range rows {
		counted[i] = r.Counted
	}
	return dataframe.New(
		texts("series", func(r EpochRow) string { return r.Series }),
		counts("workers", func(r EpochRow) int { return r.Workers }),
		counts("seed", func(r EpochRow) int { return int(r.Seed) }),
		texts("run", func(r EpochRow) string { return r.Dir }),
		counts("epoch", func(r EpochRow) int { return r.Epoch.Epoch }),
		series.New(counted, series.Bool, "counted"),
		values("seconds", func(r EpochRow) float64 { return r.Seconds }),
		values("val_seconds", func(r EpochRow) float64 { return r.ValSeconds }),
		values("elapsed_seconds", func(r EpochRow) float64 { return r.ElapsedSeconds }),
		counts("samples", func(r EpochRow) int { return r.Samples }),
		values("samples_per_second", func(r EpochRow) float64 { return rate(r) }),
		values("train_loss", func(r EpochRow) float64 { return r.TrainLoss }),
		values("val_loss", func(r EpochRow) float64 { return r.ValLoss }),
		values("iou", func(r EpochRow) float64 { return r.IoU }),
		values("dice", func(r EpochRow) float64 { return r.Dice }),
		values("lr", func(r EpochRow) float64 { return r.LearningRate }),
	)
}

// rate is the row's own, or what its samples and seconds give.
func rate(r EpochRow) float64 {
	if math.IsNaN(r.SamplesPerSecond) && r.Samples > 0 {
		return float64(r.Samples) / r.Seconds
	}
	return r.SamplesPerSecond
}
