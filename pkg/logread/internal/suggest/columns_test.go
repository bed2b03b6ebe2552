package suggest

import (
	"testing"

	"lockstep/pkg/logread/internal/fields"
)

// TestColumns checks proposals for single columns beside a column epoch, or beside other columns.
func TestColumns(t *testing.T) {
	epoch := Column{Name: "epoch", Field: fields.Epoch, Whole: true, Values: []float64{1, 2, 3, 4}}
	workers := Column{Name: "workers", Field: fields.Workers, Whole: true, Values: []float64{1, 2, 2, 4}}
	for _, test := range []struct {
		column Column
		beside []Column
		want   string
	}{
		{Column{Name: "cost", Values: []float64{4, 3, 2, 1}}, []Column{epoch}, fields.TrainLoss},
		{Column{Name: "dev cost", Values: []float64{4, 3, 2, 1}}, []Column{epoch}, fields.ValLoss},
		{Column{Name: "cost", Values: []float64{52, 51, 52, 51}}, []Column{epoch}, ""},
		{Column{Name: "fehler_train", Values: []float64{4, 3, 2, 1}}, []Column{epoch}, ""},
		{Column{Name: "thr (img/s)", Values: []float64{100, 101, 99, 100}}, []Column{epoch}, fields.SamplesPerSecond},
		{Column{Name: "img/s per gpu", Values: []float64{100, 101, 99, 100}}, []Column{epoch}, ""},
		{Column{Name: "dur_ms", Values: []float64{100, 101, 99, 100}}, []Column{epoch}, fields.EpochSeconds},
		{Column{Name: "took", Values: []float64{10, 20, 31, 40}}, []Column{epoch}, fields.Elapsed},
		{Column{Name: "latency_us", Values: []float64{10, 20, 31, 40}}, []Column{epoch}, ""},
		{Column{Name: "t_wait", Values: []float64{10, 11, 10, 10}}, []Column{epoch}, ""},
		{Column{Name: "val top1", Values: []float64{10, 20, 31, 40}}, []Column{epoch}, fields.ValAccuracy},
		{Column{Name: "runde", Whole: true, Values: []float64{1, 2, 3, 4}}, nil, fields.Epoch},
		{Column{Name: "p", Whole: true, Values: []float64{1, 2, 3, 4}}, nil, ""},
		{Column{Name: "cards", Whole: true, Values: []float64{1, 2, 4, 8}}, nil, fields.Workers},
		{Column{Name: "cards", Whole: true, Values: []float64{1, 2, 4, 8}}, []Column{epoch}, ""},
		{Column{Name: "time_s", Field: fields.Time, Values: []float64{40, 22.5, 26, 15.9}}, []Column{workers}, fields.WallSeconds},
		{Column{Name: "time_s", Field: fields.Time, Values: []float64{40, 22.5, 26, 45.9}}, []Column{workers}, ""},
		{Column{Name: "t", Whole: true, Values: []float64{4, 3, 2, 1}}, []Column{workers}, ""},
		{Column{Name: "loss", Text: true, Values: []float64{1, 1, 1, 1}}, []Column{epoch}, ""},
	} {
		found := Columns(append(test.beside[:len(test.beside):len(test.beside)], test.column))
		if got := found[len(found)-1]; got.Name != test.want || got.Name != "" && got.Why == "" {
			t.Errorf("%s: got %+v, want %q", test.column.Name, got, test.want)
		}
		if len(found) > 1 && found[0].Name != "" {
			t.Errorf("%s: the known column is proposed as %q", test.column.Name, found[0].Name)
		}
	}
}
