package suggest

import (
	"slices"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/table"
)

// FindWallTimeColumn returns the index of the column that contains the duration of the complete run
// in seconds, or -1 if there is none. It must be the only column of times in the table, and its
// values must decrease with the number of workers.
func FindWallTimeColumn(columns []table.ColumnInfo) int {
	workers, found := -1, -1
	for i, c := range columns {
		field := c.Field
		if n := resolveName(splitWords(c.Name), ""); field == "" && n.field != nil && !c.Text {
			field = n.field.Name
		}
		switch {
		case c.Field == fields.Workers:
			workers = i
		case slices.Contains([]string{fields.Epoch, fields.Step, fields.Rank}, c.Field), c.Field == fields.WallSeconds:
			return -1
		case field == fields.Time || field == fields.WallSeconds:
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	if workers < 0 || found < 0 {
		return -1
	}
	shorter, longer := false, false
	for i, v := range columns[found].Values {
		for j, w := range columns[found].Values[:i] {
			d := (v - w) * (columns[workers].Values[i] - columns[workers].Values[j])
			shorter, longer = shorter || d < 0, longer || d > 0
		}
	}
	if !shorter || longer {
		return -1
	}
	return found
}
