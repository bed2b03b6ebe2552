package table

import (
	"slices"

	"lockstep/pkg/logread/internal/fields"
)

// rowsDiffer reports whether a column shows that the rows are runs: one that differs between
// them, such as the number of workers, or one that measures complete runs. It returns false if
// an unknown column numbers the rows of each run anew, or several rows have the same seed,
// since the rows may be epochs. text is the text after the header.
func (s *schema) rowsDiffer(text []byte) bool {
	if slices.Contains([]string{joblogKind, wandbKind, mlflowTableKind}, s.kind) || s.has(fields.Trial) {
		return true
	}
	counters := s.unknownCounters()
	groups := map[string]*rowGroup{}
	rows := 0
	for cells, ok := range s.form.rows(text, s.width) {
		if !ok {
			continue
		}
		rows++
		var key []byte
		for _, name := range keyFields() {
			if i, ok := s.at[name]; ok {
				key = append(append(key, cells[i]...), 0)
			}
		}
		group := groups[string(key)]
		if group == nil {
			group = &rowGroup{counts: make([]float64, len(counters)), rising: make([]bool, len(counters))}
			groups[string(key)] = group
		}
		group.add(s, counters, cells)
	}
	if len(groups) == rows {
		return true
	}
	for k := range counters {
		if numbersEpochs(groups, k) && !s.mapsRunTime() {
			return false
		}
	}
	if len(groups) > 1 && !s.has(fields.Run, fields.Seed) { // several rows of one seed are not repeats
		return true
	}
	return s.has(fields.WallSeconds, fields.TrainingSeconds, fields.Energy, fields.Status, fields.Started, fields.Ended, fields.Command)
}

// mapsRunTime reports whether the user has mapped a column to the time of a complete run.
func (s *schema) mapsRunTime() bool {
	return slices.ContainsFunc(s.columns, func(c column) bool {
		return c.mapped && (c.field == fields.WallSeconds || c.field == fields.TrainingSeconds)
	})
}

// unknownCounters returns the indexes of the columns of numbers that have no field.
func (s *schema) unknownCounters() []int {
	var counters []int
	for i := range s.columns {
		if c := &s.columns[i]; c.field == "" && !c.mapped && c.kind != fields.Text && i < maxColumns {
			counters = append(counters, i)
		}
	}
	return counters
}

// rowGroup describes the rows with the same properties of a run.
type rowGroup struct {
	rows   int
	first  []float64 // number in the first row, of each unknown counter
	counts []float64 // number in the last row
	rising []bool    // each number is that of the row before plus one
}

func (g *rowGroup) add(s *schema, counters []int, cells [][]byte) {
	for k, i := range counters {
		v, ok := s.columns[i].form.parse(cells[i])
		g.rising[k] = ok && v == float64(int64(v)) && (g.rows == 0 || g.rising[k] && v == g.counts[k]+1)
		g.counts[k] = v
	}
	if g.rows == 0 {
		g.first = slices.Clone(g.counts)
	}
	g.rows++
}

// numbersEpochs reports whether counter k rises by one from row to row of each group and, if
// there are several groups, starts at the same number in those with several rows. A counter
// that continues from group to group numbers the rows of the table.
func numbersEpochs(groups map[string]*rowGroup, k int) bool {
	starts := map[float64]bool{}
	several := 0
	for _, g := range groups {
		if !g.rising[k] {
			return false
		}
		if g.rows > 1 {
			starts[g.first[k]] = true
			several++
		}
	}
	return len(groups) == 1 || several > 1 && len(starts) < several || several == 1 && (starts[0] || starts[1])
}
