package observe

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/stats"
)

// RunGroup contains the counted runs of a series at one worker count, and their measurements.
type RunGroup struct {
	Runs     []runs.Run
	Measured []Measurements
}

// Values returns the result of value for each run's measurements.
func (c RunGroup) Values(value func(Measurements) float64) []float64 {
	v := make([]float64, len(c.Measured))
	for i, m := range c.Measured {
		v[i] = value(m)
	}
	return v
}

// RateUnit returns the units of the runs' throughput, joined by "or", or "".
func (c RunGroup) RateUnit() string {
	units := DistinctTexts(c.Measured, func(m Measurements) string { return m.RateUnit })
	slices.Sort(units)
	return english.JoinOr(units)
}

// RateSource describes where the runs' throughput comes from (see Measurements.RateSource). Several
// sources are joined by "or".
func (c RunGroup) RateSource() string {
	return english.JoinOr(DistinctTexts(c.Measured, func(m Measurements) string { return m.RateSource }))
}

// SpeedMeasure is a rate or a time with one value per run, from which speed-up can be computed.
type SpeedMeasure struct {
	Name   string // name of the column
	Words  string // description in sentences
	unit   string // "" for the throughput, whose unit differs between logs
	Value  func(Measurements) float64
	Higher bool // higher values are faster
}

// SpeedMeasures returns the measures of speed, the best first. Throughput needs no assumption. The
// time per epoch assumes that all epochs have the same number of samples. The time of the complete
// job includes start-up and assumes that all jobs train the same number of epochs; it is used only
// if the logs contain no other measure.
func SpeedMeasures() []SpeedMeasure {
	return []SpeedMeasure{
		{"throughput", "throughput", "", func(m Measurements) float64 { return m.Rate }, true},
		{"epoch_seconds", "seconds per epoch", "s", func(m Measurements) float64 { return m.Seconds }, false},
		{"wall_seconds", "seconds of the whole job", "s", func(m Measurements) float64 { return m.Job }, false},
	}
}

// Unit returns the unit of the measure's values in the cell.
func (m SpeedMeasure) Unit(c RunGroup) string {
	return cmp.Or(m.unit, c.RateUnit())
}

// HasValue reports whether any run of the cell has a value of the measure.
func (m SpeedMeasure) HasValue(c RunGroup) bool {
	return slices.ContainsFunc(c.Measured, func(r Measurements) bool { return m.Value(r) > 0 })
}

// PositiveValues returns the positive, finite values of the measure. Only these have meaningful
// ratios.
func (m SpeedMeasure) PositiveValues(c RunGroup) []float64 {
	return slices.DeleteFunc(c.Values(m.Value), func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
}

// Rates returns the positive, finite values of the measure, or their reciprocals if it is a time.
func (m SpeedMeasure) Rates(c RunGroup) []float64 {
	rates := m.PositiveValues(c)
	if !m.Higher {
		for i, v := range rates {
			rates[i] = 1 / v
		}
	}
	return rates
}

// Ratio estimates the speed of a divided by the speed of b. The estimator by computes the interval.
func (m SpeedMeasure) Ratio(by stats.Estimator, a, b RunGroup) stats.Estimate {
	r := by.Ratio(m.PositiveValues(a), m.PositiveValues(b))
	if m.Higher {
		return r
	}
	return r.Inverse() // t(b)/t(a): Min and Max are from the runs of a
}

// ChooseSpeedMeasure returns the measure that most cells have; among equals, it prefers the best.
// The times of jobs that trained different numbers of epochs are not compared. ok is false if no
// cell has any measure.
func ChooseSpeedMeasure(cells []RunGroup) (best SpeedMeasure, ok bool) {
	most := 0
	for _, m := range SpeedMeasures() {
		n := 0
		for _, c := range cells {
			if m.HasValue(c) {
				n++
			}
		}
		if n > most && (m.Name != "wall_seconds" || len(DistinctJobEpochCounts(cells, true)) <= 1) {
			best, most = m, n
		}
	}
	return best, most > 0
}

// DistinctJobEpochCounts returns, as texts in ascending order, the distinct numbers of epochs of the
// runs whose logs have only the time of the whole job. It ignores unknown numbers. Runs with a
// throughput are included only if withRates is set.
func DistinctJobEpochCounts(cells []RunGroup, withRates bool) (texts []string) {
	var numbers []float64
	for _, c := range cells {
		for _, m := range c.Measured {
			if m.Job > 0 && m.JobEpochs > 0 && (withRates || !(m.Rate > 0)) && !slices.Contains(numbers, m.JobEpochs) {
				numbers = append(numbers, m.JobEpochs)
			}
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		texts = append(texts, strconv.FormatFloat(n, 'g', 4, 64))
	}
	return texts
}

// Series contains the runs of one series, including failed ones.
type Series struct {
	Name string
	Runs []runs.Run
}
