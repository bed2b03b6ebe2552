package suggest

import (
	"testing"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/table"
)

// TestWallTime checks which column of a table is the time of the run: the only time, if it is shorter with more
// workers.
func TestWallTime(t *testing.T) {
	workers := table.ColumnInfo{Name: "workers", Field: fields.Workers, Values: []float64{1, 2, 2, 4}}
	threads := table.ColumnInfo{Name: "t", Values: []float64{4, 3, 2, 1}}
	seconds := table.ColumnInfo{Name: "time_s", Field: fields.Time, Values: []float64{40, 22.5, 26, 15.9}}
	wall := table.ColumnInfo{Name: "t_wall", Values: []float64{40, 22.5, 26, 15.9}}
	for _, test := range []struct {
		name    string
		columns []table.ColumnInfo
		want    int
	}{
		{"a time", []table.ColumnInfo{threads, workers, seconds}, 2},
		{"a time with a name that package table does not know", []table.ColumnInfo{wall, workers}, 0},
		{"two times", []table.ColumnInfo{workers, seconds, wall}, -1},
		{"no workers", []table.ColumnInfo{threads, seconds}, -1},
		{"longer with more workers", []table.ColumnInfo{workers, {Name: "time_s", Field: fields.Time, Values: []float64{40, 22.5, 26, 45.9}}}, -1},
		{"ranks", []table.ColumnInfo{workers, seconds, {Name: "rank", Field: fields.Rank, Values: []float64{0, 1, 2, 3}}}, -1},
		{"a latency", []table.ColumnInfo{workers, {Name: "latency_us", Values: []float64{4, 3, 2, 1}}}, -1},
		{"texts", []table.ColumnInfo{workers, {Name: "t_wall", Text: true, Values: []float64{4, 3, 2, 1}}}, -1},
	} {
		if got := FindWallTimeColumn(test.columns); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}
