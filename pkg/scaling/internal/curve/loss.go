// Package curve computes the values of runs over epochs, steps and time.
package curve

import (
	"cmp"
	"math"
	"slices"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// LossCurve contains the losses of a series at one worker count; see scaling.LossCurve.
type LossCurve struct {
	Series  string
	Workers int
	Runs    int

	Epoch              []float64
	Elapsed, Clock     []float64
	Train, Val         []float64
	TrainMin, TrainMax []float64
}

// NewLossCurve combines the losses of repeated runs, epoch by epoch.
func NewLossCurve(all []*runs.Run) LossCurve {
	if len(all) == 1 && areEpochsAscending(all[0].Epochs) {
		return newSingleRunLossCurve(all[0].Epochs)
	}
	rows := lossRows(all)
	c := LossCurve{Runs: len(all)}
	c.reserveEpochs(len(rows)/len(all) + 1)
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].epoch == rows[0].epoch {
			n++
		}
		c.addEpoch(rows[:n])
		rows = rows[n:]
	}
	return c
}

// newSingleRunLossCurve returns the loss curve of one run. It avoids grouping, which is slow for very
// many epochs.
func newSingleRunLossCurve(epochs []runs.Epoch) LossCurve {
	c := LossCurve{Runs: 1}
	c.reserveEpochs(len(epochs))
	elapsed, clock := 0.0, 0.0
	for i := range epochs {
		e := &epochs[i]
		elapsed += e.Seconds
		clock += e.Seconds + e.ValSeconds
		c.Epoch = append(c.Epoch, float64(e.Epoch))
		c.Elapsed, c.Clock = append(c.Elapsed, finiteOrNaN(elapsed)), append(c.Clock, finiteOrNaN(clock))
		c.Train, c.Val = append(c.Train, finiteOrNaN(e.TrainLoss)), append(c.Val, finiteOrNaN(e.ValLoss))
	}
	c.TrainMin, c.TrainMax = c.Train, c.Train
	return c
}

type lossRow struct {
	epoch                      int
	elapsed, clock, train, val float64 // as in scaling.LossCurve
}

// lossRows returns the epochs of several runs, sorted by epoch number and then in the order of the runs.
func lossRows(all []*runs.Run) []lossRow {
	n := 0
	for _, r := range all {
		n += len(r.Epochs)
	}
	rows := make([]lossRow, 0, n)
	for _, r := range all {
		elapsed, clock := 0.0, 0.0
		for i := range r.Epochs {
			e := &r.Epochs[i]
			elapsed += e.Seconds
			clock += e.Seconds + e.ValSeconds
			rows = append(rows, lossRow{e.Epoch, elapsed, clock, e.TrainLoss, e.ValLoss})
		}
	}
	slices.SortStableFunc(rows, func(a, b lossRow) int { return cmp.Compare(a.epoch, b.epoch) })
	return rows
}

func (c *LossCurve) reserveEpochs(n int) {
	for _, v := range []*[]float64{&c.Epoch, &c.Elapsed, &c.Clock, &c.Train, &c.Val} {
		*v = make([]float64, 0, n)
	}
}

// addEpoch appends the losses of one epoch. rows contains this epoch of each run.
func (c *LossCurve) addEpoch(rows []lossRow) {
	middle := func(value func(lossRow) float64) (mid, lo, hi float64) {
		var v []float64
		for _, r := range rows {
			if x := value(r); observe.IsFinite(x) {
				v = append(v, x)
			}
		}
		if len(v) == 0 {
			return math.NaN(), math.NaN(), math.NaN()
		}
		slices.Sort(v)
		return stats.Median(v), v[0], v[len(v)-1]
	}
	elapsed, _, _ := middle(func(r lossRow) float64 { return r.elapsed })
	clock, _, _ := middle(func(r lossRow) float64 { return r.clock })
	train, lo, hi := middle(func(r lossRow) float64 { return r.train })
	val, _, _ := middle(func(r lossRow) float64 { return r.val })
	c.Epoch = append(c.Epoch, float64(rows[0].epoch))
	c.Elapsed, c.Clock = append(c.Elapsed, elapsed), append(c.Clock, clock)
	c.Train, c.Val = append(c.Train, train), append(c.Val, val)
	c.TrainMin, c.TrainMax = append(c.TrainMin, lo), append(c.TrainMax, hi)
}

func areEpochsAscending(epochs []runs.Epoch) bool {
	for i := 1; i < len(epochs); i++ {
		if epochs[i].Epoch <= epochs[i-1].Epoch {
			return false
		}
	}
	return true
}

func finiteOrNaN(v float64) float64 {
	if observe.IsFinite(v) {
		return v
	}
	return math.NaN()
}
