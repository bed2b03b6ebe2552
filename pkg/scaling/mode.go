package scaling

import (
	"fmt"
	"io"
	"math"

	"github.com/go-gota/gota/dataframe"
)

// Values of Mode.Scaling.
const (
	ScalingWeak    = "weak"
	ScalingStrong  = "strong"
	ScalingUnknown = "unknown"
)

// Values of Mode.Batch and Mode.Samples.
const (
	perWorkerFixed = "fixed per worker"
	totalFixed     = "fixed"
	neitherFixed   = "varies"
	unknownFixed   = "unknown"
)

// Mode says what stays the same while the workers of a series grow.
//
// Weak scaling keeps the work of a worker and step: the batch per worker is
// fixed, the global batch grows (Gustafson, Reevaluating Amdahl's law, 1988;
// for training, Goyal et al., Accurate, Large Minibatch SGD, 2017, §2). Strong
// scaling keeps the work of a step: the global batch is fixed and is divided
// (Amdahl, Validity of the single processor approach, 1967). The batch
// decides. Where the logs do not tell it, the samples of an epoch do: as many
// per worker is weak, as many in all is strong scaling of the epoch.
//
// Data-parallel training on a fixed data set with a fixed batch per worker, as
// in the U-Net study, is weak scaling of the step, and its epoch still gets
// shorter: the same samples take fewer steps. Speed-up is the ratio of
// throughputs, which is right for both.
type Mode struct {
	Series  string
	Scaling string // "weak", "strong" or "unknown"
	Batch   string // "fixed per worker", "fixed" (global), "varies" or "unknown"
	Samples string // of an epoch, the same words
	Why     string // a sentence
}

// Modes is the Mode of each series. A cell shows it as a table.
type Modes struct{ Rows []Mode }

// Modes says of each series whether it scales weakly or strongly.
func (s *Study) Modes() *Modes { return &Modes{Rows: s.modes} }

// Mode is that of a series; "unknown" for one that there is not.
func (s *Study) Mode(series string) Mode {
	for _, m := range s.modes {
		if m.Series == series {
			return m
		}
	}
	return Mode{Series: series, Scaling: ScalingUnknown, Batch: unknownFixed, Samples: unknownFixed, Why: "there is no such series"}
}

// modeOf tells weak and strong scaling apart.
func modeOf(g seriesRuns) Mode {
	m := Mode{Series: g.name, Scaling: ScalingUnknown}
	var batch, samples []sized
	counts := map[int]bool{}
	for _, r := range g.runs {
		if failed(r) {
			continue
		}
		n := r.Info.Workers
		counts[n] = true
		if _, global := batches(r); global > 0 {
			batch = append(batch, sized{n, global})
		}
		if s := samplesOf(r); s > 0 {
			samples = append(samples, sized{n, s})
		}
	}
	m.Batch = constancy(batch, 0)
	// Padding of the last batch makes the samples of an epoch differ a little.
	m.Samples = constancy(samples, 0.1)
	switch {
	case len(counts) < 2:
		m.Why = "no two of its runs differ in their workers: nothing scales"
	case m.Batch == perWorkerFixed && m.Samples == totalFixed:
		m.Scaling, m.Why = ScalingWeak, "the batch per worker is fixed and the global batch grows with the workers (weak scaling); the data set is fixed, so an epoch takes fewer steps"
	case m.Batch == perWorkerFixed:
		m.Scaling, m.Why = ScalingWeak, "the batch per worker is fixed and the global batch grows with the workers (weak scaling)"
	case m.Batch == totalFixed:
		m.Scaling, m.Why = ScalingStrong, "the global batch is fixed and divided among the workers (strong scaling)"
	case m.Batch == neitherFixed:
		m.Why = "neither the batch per worker nor the global batch is fixed"
	case m.Samples == perWorkerFixed:
		m.Scaling, m.Why = ScalingWeak, "the logs tell no batch; the samples of an epoch grow with the workers (weak scaling)"
	case m.Samples == totalFixed:
		m.Scaling, m.Why = ScalingStrong, "the logs tell no batch; every epoch has the same samples (strong scaling of the epoch)"
	case len(samples) > 0 && m.Samples == neitherFixed:
		m.Why = "the logs tell no batch, and the samples of an epoch are neither fixed nor in proportion to the workers"
	default:
		m.Why = "the logs of several worker counts tell neither batch nor samples"
	}
	return m
}

// sized is a quantity at a number of workers.
type sized struct{ workers, total int }

// constancy says what of the quantity is fixed while the workers change, up to
// a share of tolerance.
func constancy(all []sized, tolerance float64) string {
	if len(all) == 0 {
		return unknownFixed
	}
	least, most := math.Inf(1), 0.0
	leastEach, mostEach := math.Inf(1), 0.0
	counts := map[int]bool{}
	for _, x := range all {
		counts[x.workers] = true
		total, each := float64(x.total), float64(x.total)/float64(x.workers)
		least, most = min(least, total), max(most, total)
		leastEach, mostEach = min(leastEach, each), max(mostEach, each)
	}
	switch {
	case len(counts) < 2:
		return unknownFixed
	case mostEach <= leastEach*(1+tolerance):
		return perWorkerFixed
	case most <= least*(1+tolerance):
		return totalFixed
	}
	return neitherFixed
}

func (m *Modes) grid() grid[Mode] {
	g := grid[Mode]{what: "modes", rows: m.Rows, columns: []column[Mode]{
		{name: "series", brief: true, text: func(m Mode) string { return m.Series }},
		{name: "scaling", brief: true, text: func(m Mode) string { return m.Scaling }},
		{name: "batch", brief: true, text: func(m Mode) string { return m.Batch }},
		{name: "samples", brief: true, text: func(m Mode) string { return m.Samples }},
		{name: "why", text: func(m Mode) string { return m.Why }},
	}}
	for _, r := range m.Rows {
		g.remarks = append(g.remarks, r.String())
	}
	return g
}

// String is the mode in a sentence.
func (m Mode) String() string { return fmt.Sprintf("series %s: %s", m.Series, m.Why) }

// Table has a row a series: series, scaling, batch, samples, why.
func (m *Modes) Table() dataframe.DataFrame { return m.grid().table() }

// String is the table for people.
func (m *Modes) String() string { return m.grid().String() }

// HTML is the table for a notebook's cell.
func (m *Modes) HTML() string { return m.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (m *Modes) Write(w io.Writer, format string) error { return m.grid().write(w, format) }
