package scaling

import (
	"fmt"

	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/verdict"
)

// Values of Mode.Scaling.
const (
	ScalingWeak    = verdict.ScalingWeak
	ScalingStrong  = verdict.ScalingStrong
	ScalingUnknown = verdict.ScalingUnknown
)

// Mode describes what stays constant while the number of workers of a series grows.
//
// Weak scaling keeps the work per worker and step: the batch per worker is fixed, and
// the global batch grows (Gustafson, Reevaluating Amdahl's law, 1988; for training,
// Goyal et al., Accurate, Large Minibatch SGD, 2017, §2). Strong scaling keeps the work
// per step: the global batch is fixed and divided among the workers (Amdahl, Validity
// of the single processor approach, 1967). The mode is determined by the batch. If the
// logs do not contain it, the samples per epoch determine the mode: a fixed number per
// worker is weak scaling, a fixed total is strong scaling of the epoch.
//
// Data-parallel training on a fixed data set with a fixed batch per worker, as in the
// U-Net study, is weak scaling of the step. Its epochs still become shorter, because
// the same samples need fewer steps. Speed-up is the ratio of throughputs, which is
// correct for both modes.
type Mode struct {
	Series  string
	Scaling string // "weak", "strong" or "unknown"
	Batch   string // "fixed per worker", "fixed" (global), "varies" or "unknown"
	Samples string // the samples per epoch: same values as Batch
	Why     string // the reason, as a sentence
}

// Modes contains the Mode of each series.
//
// Its table has one row per series: series, scaling, batch, samples, why.
type Modes struct {
	analysis
	Rows []Mode
}

// Modes returns the mode (weak or strong scaling) of each series.
func (s *Study) Modes() *Modes {
	m := &Modes{Rows: s.modes}
	m.analysis = analysis{m}
	return m
}

// Mode returns the mode of a series. Its Scaling is "unknown" for an unknown series.
func (s *Study) Mode(series string) Mode {
	for _, m := range s.modes {
		if m.Series == series {
			return m
		}
	}
	return Mode{Series: series, Scaling: ScalingUnknown, Batch: verdict.FixedUnknown, Samples: verdict.FixedUnknown, Why: "there is no such series"}
}

func (m *Modes) table(maxRows int) resultTable {
	g := grid.Grid[Mode]{What: "modes", Rows: limitRows(m.Rows, maxRows), Columns: []grid.Column[Mode]{
		{Name: "series", Brief: true, Text: func(m Mode) string { return m.Series }},
		{Name: "scaling", Brief: true, Text: func(m Mode) string { return m.Scaling }},
		{Name: "batch", Brief: true, Text: func(m Mode) string { return m.Batch }},
		{Name: "samples", Brief: true, Text: func(m Mode) string { return m.Samples }},
		{Name: "why", Text: func(m Mode) string { return m.Why }},
	}}
	for _, r := range g.Rows {
		g.Remarks = append(g.Remarks, r.String())
	}
	return g
}

// String describes the mode in a sentence.
func (m Mode) String() string { return fmt.Sprintf("series %s: %s", m.Series, m.Why) }

// SettingRow is a setting in which the series of a study differ.
type SettingRow struct {
	Setting string
	Values  []string // one per series, in the order of Settings.Series; "-" if unknown
}

// Settings lists the settings in which the series of a study differ: learning rate, batch,
// optimizer, and other settings in their logs or configs.
//
// Its table has one row per setting and one column per series.
type Settings struct {
	analysis
	Series []string
	Rows   []SettingRow
}

// Settings returns the settings in which the series differ at equal worker counts: first the
// learning rate, the batch and other properties of every run, then keys of the configs.
func (s *Study) Settings() *Settings {
	out := &Settings{Series: s.Series()}
	out.analysis = analysis{out}
	for _, row := range verdict.DifferingSettings(s.groupBySeries()) {
		out.Rows = append(out.Rows, SettingRow(row))
	}
	return out
}

// table has one column for each of the first maxSeries series.
func (s *Settings) table(maxSeries int) resultTable {
	g := grid.Grid[SettingRow]{What: "settings", Rows: s.Rows, Columns: []grid.Column[SettingRow]{
		{Name: "setting", Brief: true, Text: func(r SettingRow) string { return r.Setting }},
	}}
	for i, name := range limitRows(s.Series, maxSeries) {
		g.Columns = append(g.Columns, grid.Column[SettingRow]{Name: name, Brief: true, Text: func(r SettingRow) string { return r.Values[i] }})
	}
	return g
}
