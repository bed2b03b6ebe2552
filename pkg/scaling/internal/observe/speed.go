package observe

import (
	"math"
	"slices"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/stats"
)

// Cell contains the counted runs of a series at one worker count, and the measurements
// of each.
type Cell struct {
	Runs     []runs.Run
	Measured []Measured
}

// Values returns one measured value per run.
func (c Cell) Values(of func(Measured) float64) []float64 {
	v := make([]float64, len(c.Measured))
	for i, m := range c.Measured {
		v[i] = of(m)
	}
	return v
}

// Speed is a measure from which speed-up is computed: one value per run, either a rate
// or a time.
type Speed struct {
	Name   string // name of the column
	Words  string // description for people
	Unit   string
	Value  func(Measured) float64
	Higher bool // higher values are faster
}

// Speeds returns the measures of speed, the best first. Throughput needs no assumption.
// The time per epoch assumes the same samples in each epoch. The time of the whole job
// assumes the same training, and includes start-up.
func Speeds() []Speed {
	return []Speed{
		{"throughput", "throughput", "samples/s", func(m Measured) float64 { return m.Rate }, true},
		{"epoch_seconds", "seconds per epoch", "s", func(m Measured) float64 { return m.Seconds }, false},
		{"wall_seconds", "seconds of the whole job", "s", func(m Measured) float64 { return m.Wall }, false},
	}
}

// Known reports whether any run of the cell has the measure.
func (m Speed) Known(c Cell) bool {
	return slices.ContainsFunc(c.Measured, func(r Measured) bool { return m.Value(r) > 0 })
}

// Positive returns the values of the cell's runs that are positive and finite, so that
// ratios can be computed from them.
func (m Speed) Positive(c Cell) []float64 {
	return slices.DeleteFunc(c.Values(m.Value), func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
}

// Rates returns the speeds of the cell's runs: the values, or their reciprocals if the
// measure is a time.
func (m Speed) Rates(c Cell) []float64 {
	rates := m.Positive(c)
	if !m.Higher {
		for i, v := range rates {
			rates[i] = 1 / v
		}
	}
	return rates
}

// Ratio estimates the speed of a divided by the speed of b.
func (m Speed) Ratio(by stats.Estimator, a, b Cell) stats.Estimate {
	r := by.Ratio(m.Positive(a), m.Positive(b))
	if m.Higher {
		return r
	}
	return r.Inverse() // t(b)/t(a): Min and Max are from the runs of a
}

// SpeedOf returns the measure that the most cells have; if several do, the best of
// them. ok is false if no cell has any.
func SpeedOf(cells []Cell) (best Speed, ok bool) {
	most := 0
	for _, m := range Speeds() {
		n := 0
		for _, c := range cells {
			if m.Known(c) {
				n++
			}
		}
		if n > most {
			best, most = m, n
		}
	}
	return best, most > 0
}

// Series contains the runs of one series, including failed ones.
type Series struct {
	Name string
	Runs []runs.Run
}
