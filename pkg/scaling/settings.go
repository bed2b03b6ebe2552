package scaling

import (
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/verdict"
)

// SettingRow is a setting that the series of a study do not have in common.
type SettingRow struct {
	Setting string
	Values  []string // one per series, in the order of Settings.Series; "-" where unknown
}

// Settings are what differs between the series of a study: learning rate, batch,
// optimizer, whatever their logs or configs say.
//
// Its table has one row per setting and one column per series.
type Settings struct {
	analysis
	Series []string
	Rows   []SettingRow
}

// Settings returns the settings in which series differ at equal worker counts:
// first the learning rate, batch and what else every run has, then the keys of
// the configs. A study of one series has none.
func (s *Study) Settings() *Settings {
	out := &Settings{Series: s.Series()}
	out.analysis = analysis{out}
	for _, row := range verdict.Settings(s.grouped()) {
		out.Rows = append(out.Rows, SettingRow(row))
	}
	return out
}

// table is the settings of the first series.
func (s *Settings) table(most int) table {
	g := grid.Grid[SettingRow]{What: "settings", Rows: s.Rows, Columns: []grid.Column[SettingRow]{
		{Name: "setting", Brief: true, Text: func(r SettingRow) string { return r.Setting }},
	}}
	for i, name := range first(s.Series, most) {
		g.Columns = append(g.Columns, grid.Column[SettingRow]{Name: name, Brief: true, Text: func(r SettingRow) string { return r.Values[i] }})
	}
	return g
}
