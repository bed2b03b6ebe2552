package bench

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/scaling"
)

// TestQualityRecords compares by hand-made values: an accuracy of 0.9 with the interval
// [0.8, 1] has room for 0.85 and not for 0.7; a loss of 0.5 is 1.25 times as good as
// one of 0.625.
func TestQualityRecords(t *testing.T) {
	span := func(v, low, high float64) scaling.Estimate {
		return scaling.Estimate{Value: v, Min: v, Max: v, Low: low, High: high, N: 3}
	}
	accuracy := &scaling.Quality{Measure: "val_accuracy", Rows: []scaling.QualityRow{
		{Workers: 1, Runs: 3, ValAccuracy: span(0.9, 0.8, 1)},
		{Workers: 2, Runs: 3, ValAccuracy: span(0.85, 0, 1)},
		{Workers: 4, Runs: 3, ValAccuracy: span(0.7, 0, 1)},
	}}
	got, err := compareQuality(accuracy, Record{Name: "twin"})
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := got[0]; !r.MeetsTarget() || r.Name != "twin, 2 workers" || r.Unit != "val_accuracy" || r.PeerValue != 0.9 || r.Ratio != 0.85/0.9 || r.Repeats != 3 {
		t.Errorf("%+v", r)
	}
	if r := got[1]; r.MeetsTarget() || r.Name != "twin, 4 workers" || r.Value != 0.7 {
		t.Errorf("%+v", r)
	}
	var text bytes.Buffer
	if err := Write(&text, got, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.8 … 1, reached", "0.8 … 1, missed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	loss := &scaling.Quality{Measure: "test_loss", Rows: []scaling.QualityRow{
		{Workers: 1, TestLoss: span(0.625, 0.55, 0.7)}, {Workers: 2, TestLoss: span(0.5, 0, 1)},
	}}
	// Better than the interval is outside of it, too: the quality depends on the workers.
	if got, err = compareQuality(loss, Record{}); err != nil || got[0].Ratio != 1.25 || got[0].MeetsTarget() {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := compareQuality(&scaling.Quality{Measure: "train_loss", Rows: loss.Rows}, Record{}); err == nil {
		t.Error("the loss of training was taken for held-out quality")
	}
}

func TestTwinOptions(t *testing.T) {
	for _, c := range []struct {
		o    TwinOptions
		want string
	}{
		{TwinOptions{Seeds: []int64{1, 2, 3}}, "want counts above 1"},
		{TwinOptions{Workers: []int{1, 2}, Seeds: []int64{1, 2, 3}}, "want counts above 1"},
		{TwinOptions{Workers: []int{2}, Seeds: []int64{1, 2}}, "got 2 seeds, want at least 3"},
	} {
		if err := c.o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	if names := laptopConfigs(); len(names) != 13 || !slices.Contains(names, "resnet50v2-cifar10-laptop") || slices.Contains(names, "unet2d-cells") {
		t.Errorf("twins are %v", names)
	}
}
