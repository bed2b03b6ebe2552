package scaling

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/runs"
)

// SettingRow is a setting that the series of a study do not have in common.
type SettingRow struct {
	Setting string
	Values  []string // one per series, in the order of Settings.Series; "-" where unknown
}

// Settings are what differs between the series of a study: learning rate, batch,
// optimizer, whatever their logs or configs say. A cell shows it as a table.
type Settings struct {
	Series []string
	Rows   []SettingRow
}

// Settings returns the settings in which series differ at equal worker counts:
// first the learning rate, batch and what else every run has, then the keys of
// the configs. A study of one series has none.
func (s *Study) Settings() *Settings {
	out := &Settings{Series: s.Series()}
	groups := s.grouped()
	if len(groups) < 2 {
		return out
	}
	traits := append([]trait{
		{"learning rate", func(r runs.Run) string { return shortRate(learningRate(r)) }},
		batchOfWorker(),
		{"global batch", func(r runs.Run) string { _, global := batches(r); return known(global) }},
		{"engine", func(r runs.Run) string { return r.Info.Engine }},
		{"strategy", func(r runs.Run) string { return r.Info.Strategy }},
	}, work()...)
	traits = slices.DeleteFunc(traits, func(t trait) bool { return t.what == "model" || t.what == "data" }) // by their keys, below
	first, varies := map[string]string{}, map[string]bool{}
	for _, g := range groups {
		for _, r := range g.runs {
			for key, v := range flatConfig(r) {
				if _, seen := first[key]; !seen {
					first[key] = v
				}
				if first[key] != v && len(varies) < mostVaries {
					varies[key] = true
				}
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(varies), runs.NaturalCompare) {
		traits = append(traits, trait{key, func(r runs.Run) string { return flatConfig(r)[key] }})
	}
	for _, t := range traits {
		if row, differs := t.row(groups); differs {
			out.Rows = append(out.Rows, row)
		}
	}
	return out
}

// shortRate is a learning rate in four digits, empty if it is unknown.
func shortRate(rate float64) string {
	if !(rate > 0) {
		return ""
	}
	return rateText(rate)
}

// row returns the values of each series and reports whether any two series
// differ at a worker count that both have, or, if they have none in common, at all.
func (c trait) row(groups []seriesRuns) (SettingRow, bool) {
	row := SettingRow{Setting: c.what}
	byWorkers := make([]map[int][]runs.Run, len(groups))
	for i, g := range groups {
		byWorkers[i] = map[int][]runs.Run{}
		for _, r := range g.runs {
			byWorkers[i][r.Info.Workers] = append(byWorkers[i][r.Info.Workers], r)
		}
		text := strings.Join(c.values(g.runs), ", ")
		if text == "" {
			text = "-"
		}
		row.Values = append(row.Values, text)
	}
	differ := func(a, b []runs.Run) bool {
		x, y := c.values(a), c.values(b)
		return len(x) > 0 && len(y) > 0 && !slices.Equal(x, y)
	}
	for i := range groups {
		for j := range i {
			shared := false
			for n, a := range byWorkers[i] {
				if b := byWorkers[j][n]; len(b) > 0 {
					shared = true
					if differ(a, b) {
						return row, true
					}
				}
			}
			if !shared && differ(groups[i].runs, groups[j].runs) {
				return row, true
			}
		}
	}
	return row, false
}

// mostVaries bounds the keys of configs that are looked at: logs of other
// programs may have a thousand settings for each run.
const mostVaries = 100

// ownKeys are keys of a config that name the run, or are its results.
var ownKeys = []string{"name", "seed", "workers", "series", "study", "training_seconds", "test_seconds", "learning_rate", "lr", "batch", "batch_size"}

// flatConfig returns the config's numbers, words and switches by their key, such
// as optimizer.learning_rate.
func flatConfig(r runs.Run) map[string]string {
	out := map[string]string{}
	var walk func(prefix string, part map[string]any)
	walk = func(prefix string, part map[string]any) {
		for key, v := range part {
			switch v := v.(type) {
			case map[string]any:
				walk(prefix+key+".", v)
			case float64:
				out[prefix+key] = strconv.FormatFloat(v, 'g', 6, 64)
			case string:
				if len(v) <= 40 {
					out[prefix+key] = cmp.Or(v, `""`)
				}
			case bool, int, int64:
				out[prefix+key] = fmt.Sprint(v)
			}
		}
	}
	walk("", r.Info.Config)
	for _, key := range append([]string{"optimizer.learning_rate", "engine.threads"}, ownKeys...) { // rows of their own, above
		delete(out, key)
	}
	return out
}

func (s *Settings) grid() grid[SettingRow] {
	g := grid[SettingRow]{what: "settings", rows: s.Rows, columns: []column[SettingRow]{
		{name: "setting", brief: true, text: func(r SettingRow) string { return r.Setting }},
	}}
	for i, name := range s.Series {
		g.columns = append(g.columns, column[SettingRow]{name: name, brief: true, text: func(r SettingRow) string { return r.Values[i] }})
	}
	return g
}

// Table has one row per setting and one column per series.
func (s *Settings) Table() dataframe.DataFrame { return s.grid().table() }

// String is the table for people.
func (s *Settings) String() string { return s.grid().String() }

// HTML is the table for a notebook's cell.
func (s *Settings) HTML() string { return s.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (s *Settings) Write(w io.Writer, format string) error { return s.grid().write(w, format) }
