package suggest

import (
	"slices"
	"testing"
)

// TestColumns checks proposals for single columns beside a column epoch or, if
// alone is set, without one.
func TestColumns(t *testing.T) {
	allowed := []string{epochField, workersField, secondsField, rateField, trainLossField, valLossField, accuracyField, elapsedField}
	epoch := Column{Name: "epoch", Field: epochField, Whole: true, Values: []float64{1, 2, 3, 4}}
	for _, test := range []struct {
		column Column
		alone  bool
		want   string
	}{
		{Column{Name: "cost", Values: []float64{4, 3, 2, 1}}, false, trainLossField},
		{Column{Name: "dev cost", Values: []float64{4, 3, 2, 1}}, false, valLossField},
		{Column{Name: "fehler_train", Values: []float64{4, 3, 2, 1}}, false, trainLossField},
		{Column{Name: "fehler_train", Values: []float64{1, 2, 3, 4}}, false, ""},
		{Column{Name: "fehler", Values: []float64{4, 3, 2, 1}}, false, ""},
		{Column{Name: "thr (img/s)", Values: []float64{100, 101, 99, 100}}, false, rateField},
		{Column{Name: "dur_ms", Values: []float64{100, 101, 99, 100}}, false, secondsField},
		{Column{Name: "time_s", Values: []float64{10, 20, 31, 40}}, false, elapsedField},
		{Column{Name: "top1", Values: []float64{10, 20, 31, 40}}, false, accuracyField},
		{Column{Name: "cards", Whole: true, Values: []float64{1, 2, 4, 8}}, true, workersField},
		{Column{Name: "cards", Whole: true, Values: []float64{1, 2, 4, 8}}, false, ""},
		{Column{Name: "runde", Whole: true, Values: []float64{1, 2, 3, 4}}, true, epochField},
		{Column{Name: "loss", Text: true}, false, ""},
	} {
		columns := []Column{epoch, test.column}
		if test.alone {
			columns = []Column{test.column}
		}
		fields := Columns(columns, allowed)
		if got := fields[len(fields)-1]; got.Name != test.want || got.Name != "" && got.Why == "" {
			t.Errorf("%s: got %+v, want %q", test.column.Name, got, test.want)
		}
		if !test.alone && fields[0].Name != "" {
			t.Errorf("%s: the known column is proposed as %q", test.column.Name, fields[0].Name)
		}
	}
	if fields := Columns([]Column{epoch, {Name: "cost", Values: []float64{2, 1}}}, nil); slices.ContainsFunc(fields, func(f Field) bool { return f.Name != "" }) {
		t.Errorf("fields that are not allowed: %+v", fields)
	}
}
