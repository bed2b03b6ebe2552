package figure

import (
	"math"
	"slices"

	"lockstep/pkg/scaling"
)

// curve is the losses of a series at a number of workers.
type curve struct {
	series  string
	workers int
	epochs  []epochLoss
}

// epochLoss is an epoch over the repeated runs: medians, and the extremes of
// the training loss.
type epochLoss struct {
	epoch                     int
	elapsed, clock            float64 // seconds, without and with validation
	train, val                float64
	lowestTrain, highestTrain float64
}

// curves gathers the epochs of the runs that did not fail.
func curves(rows []scaling.EpochRow) []curve {
	var out []curve
	clocks := clock(rows)
	for _, r := range rows {
		if r.Failed {
			continue
		}
		same := func(c curve) bool { return c.series == r.Series && c.workers == r.Workers }
		if !slices.ContainsFunc(out, same) {
			out = append(out, curve{series: r.Series, workers: r.Workers})
		}
	}
	for i := range out {
		its := func(r scaling.EpochRow) bool {
			return !r.Failed && r.Series == out[i].series && r.Workers == out[i].workers
		}
		n := 0
		for _, r := range rows {
			if its(r) {
				n++
			}
		}
		own := make([]scaling.EpochRow, 0, n)
		for _, r := range rows {
			if its(r) {
				own = append(own, r)
			}
		}
		out[i].epochs = make([]epochLoss, 0, len(own))
		slices.SortStableFunc(own, func(a, b scaling.EpochRow) int { return a.Epoch.Epoch - b.Epoch.Epoch })
		for len(own) > 0 {
			n, same := own[0].Epoch.Epoch, 1
			for same < len(own) && own[same].Epoch.Epoch == n {
				same++
			}
			repeats := own[:same]
			own = own[same:]
			e := epochLoss{epoch: n}
			e.elapsed, _, _ = middle(repeats, func(r scaling.EpochRow) float64 { return r.ElapsedSeconds })
			e.clock, _, _ = middle(repeats, func(r scaling.EpochRow) float64 { return clocks[clockKey{r.Dir, n}] })
			e.train, e.lowestTrain, e.highestTrain = middle(repeats, func(r scaling.EpochRow) float64 { return r.TrainLoss })
			e.val, _, _ = middle(repeats, func(r scaling.EpochRow) float64 { return r.ValLoss })
			out[i].epochs = append(out[i].epochs, e)
		}
	}
	slices.SortStableFunc(out, func(a, b curve) int {
		if a.series != b.series {
			return 0 // already in the study's order
		}
		return a.workers - b.workers
	})
	return out
}

// clockKey is an epoch of a run.
type clockKey struct {
	run   string
	epoch int
}

// clock is the time since a run's first epoch began at each epoch's end,
// validation included; NaN from where that is not known.
func clock(rows []scaling.EpochRow) map[clockKey]float64 {
	out := map[clockKey]float64{}
	at, run := 0.0, ""
	for _, r := range rows {
		if r.Dir != run {
			at, run = 0, r.Dir
		}
		at += r.Seconds + r.ValSeconds
		out[clockKey{r.Dir, r.Epoch.Epoch}] = at
	}
	return out
}

// middle is the median of what is finite, and the extremes; NaN for nothing.
func middle(rows []scaling.EpochRow, value func(scaling.EpochRow) float64) (median, lo, hi float64) {
	if len(rows) == 1 { // as most are
		x := value(rows[0])
		if !finite(x) {
			x = math.NaN()
		}
		return x, x, x
	}
	var v []float64
	for _, r := range rows {
		if x := value(r); finite(x) {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, v[0], v[len(v)-1]
}
