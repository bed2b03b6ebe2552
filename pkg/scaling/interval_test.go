package scaling

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// TestMeanAndDeviation checks that the table shows mean ± standard deviation if Repeats is
// "mean". For 10, 11 and 14 s these are 35/3 and √(13/3): the deviations from the mean are
// −5/3, −2/3 and 7/3, the sum of their squares is 78/9, divided by n−1 = 2.
func TestMeanAndDeviation(t *testing.T) {
	s := study(t, seeds("ddp", 1, 10, 11, 14), seeds("ddp", 2, 7))
	if text := s.String(); strings.Contains(text, "±") {
		t.Errorf("medians have no ±:\n%s", text)
	}
	rule := DefaultRule()
	rule.Repeats = Mean
	s, err := s.WithRule(rule)
	check(t, err)
	near(t, "mean", s.Points[0].EpochSeconds.Value, 35.0/3)
	near(t, "deviation", s.Points[0].EpochSeconds.Std, math.Sqrt(13.0/3))
	if !math.IsNaN(s.Points[1].EpochSeconds.Std) || s.Points[0].Speedup.Std != 0 {
		t.Errorf("one run, or a ratio, has a deviation: %+v", s.Points[1].EpochSeconds)
	}
	if text := s.String(); !strings.Contains(text, "11.67 ± 2.08") || !strings.Contains(text, "mean ± standard deviation over repeated runs") || !strings.Contains(text, " 7.000 ") {
		t.Error(text)
	}
	var b bytes.Buffer
	check(t, s.Write(&b, FormatCSV))
	header, _, _ := strings.Cut(b.String(), "\n")
	if !strings.Contains(header, "threads_per_worker,epoch_seconds_std,throughput_std,iou_std") || strings.Contains(b.String(), "±") {
		t.Error(b.String())
	}
	for _, c := range []struct {
		span Estimate
		want string
	}{
		{Estimate{Value: 12.3456, Std: 0.00789}, "12.3456 ± 0.0079"},
		{Estimate{Value: 1234.5, Std: 66}, "1234 ± 66"},
		{Estimate{Value: 5, Std: 0}, "5.000 ± 0.000"},
		{Estimate{Value: 0.91, Std: math.NaN()}, "0.910"},
	} {
		if got := c.span.formatWithDeviation(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.span, got, c.want)
		}
	}
}
