package observe

import (
	"math"
	"slices"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/stats"
)

// Cell is the runs of a series at one worker count that count, and what the rule
// makes of each.
type Cell struct {
	Runs     []runs.Run
	Measured []Measured
}

// Values returns one measured value of each run.
func (c Cell) Values(of func(Measured) float64) []float64 {
	v := make([]float64, len(c.Measured))
	for i, m := range c.Measured {
		v[i] = of(m)
	}
	return v
}

// Speed is what a speed-up is made of: a value of each run, of which more is
// faster (a rate) or slower (a time).
type Speed struct {
	Name   string // as the columns have it
	Words  string // for people
	Unit   string
	Value  func(Measured) float64
	Higher bool // more is faster
}

// Speeds returns the measures of speed, the best first: throughput needs no
// assumption; the seconds per epoch assume the same samples in each; the time
// of the whole job assumes the same training, and holds its start-up too.
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

// Positive returns the values of the cell's runs that a ratio can be made of.
func (m Speed) Positive(c Cell) []float64 {
	return slices.DeleteFunc(c.Values(m.Value), func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
}

// Rates returns the speeds of the cell's runs: the measure, or 1/seconds.
func (m Speed) Rates(c Cell) []float64 {
	rates := m.Positive(c)
	if !m.Higher {
		for i, v := range rates {
			rates[i] = 1 / v
		}
	}
	return rates
}

// Ratio estimates how many times a is as fast as b.
func (m Speed) Ratio(by stats.Estimator, a, b Cell) stats.Estimate {
	r := by.Ratio(m.Positive(a), m.Positive(b))
	if m.Higher {
		return r
	}
	return r.Inverse() // t(b)/t(a): the center of the times, the spread of a's
}

// SpeedOf returns the measure that most cells have, of several the best. It is
// not ok if no cell has any.
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

// Series is the runs of one series, failed ones too.
type Series struct {
	Name string
	Runs []runs.Run
}
