package figure

import (
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/scaling"
)

// TestTwoSeedsHaveNoBand: two seeds that scatter by 10 % give a 95 % interval of
// the speed-up from about 0.5 to 3.6, as Student's t with few runs does. It
// would cover the figure: the seeds themselves are drawn, and the caption says
// why there is no interval. The table keeps it.
func TestTwoSeedsHaveNoBand(t *testing.T) {
	scattered := func(seeds int) *scaling.Study {
		all := slices.Clone(synthetic(t, []string{"ddp"}, []int{1, 2, 4}, seeds, 4).Runs)
		for i := range all {
			all[i].Epochs = slices.Clone(all[i].Epochs)
			for k := range all[i].Epochs {
				all[i].Epochs[k].Seconds *= 1 + 0.03*float64(all[i].Info.Seed%2)
			}
		}
		s, err := scaling.FromRuns(all)
		check(t, err)
		return s
	}
	two := scattered(2)
	p := two.Points[1].Speedup
	if !(p.Low > 0 && p.High > p.Low) || p.NotDrawnReason() != "two seeds: no interval drawn" {
		t.Fatalf("%v: %q", p, p.NotDrawnReason())
	}
	f, err := Speedup(two)
	check(t, err)
	if !strings.Contains(f.Caption(), "Two seeds: no interval drawn.") || strings.Contains(f.Caption(), "confidence interval") {
		t.Error(f.Caption())
	}
	if f.plot.Y.Max > 5 { // the ideal is 4 at 4 workers
		t.Errorf("the axis reaches to %g", f.plot.Y.Max)
	}
	if !slices.Contains(f.Table().Names(), "speedup_low") || math.IsNaN(f.Table().Col("speedup_low").Float()[1]) {
		t.Errorf("the table lacks the interval: %v", f.Table().Names())
	}
	three, err := Speedup(scattered(3))
	check(t, err)
	if strings.Contains(three.Caption(), "no interval drawn") || !strings.Contains(three.Caption(), "confidence intervals") || !strings.Contains(three.Method(), "smoothed bootstrap") {
		t.Error(three.Caption())
	}
}

// TestNotDrawn: which intervals a figure leaves out.
func TestNotDrawn(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		span scaling.Estimate
		want string
	}{
		{scaling.Estimate{Value: 2, Low: nan, High: nan, N: 1}, ""},
		{scaling.Estimate{Value: 1.35, Low: 0.51, High: 3.57, N: 2}, "two seeds: no interval drawn"},
		{scaling.Estimate{Value: 1.35, Low: 0.51, High: 3.57, N: 3}, "an interval wider than its value is not drawn"},
		{scaling.Estimate{Value: 1.35, Low: 1.2, High: 1.5, N: 3}, ""},
		{scaling.Estimate{Value: 1, Low: 1, High: 1, N: 2}, ""},  // the baseline over itself
		{scaling.Estimate{Value: 9, Low: 8, High: 10, N: 1}, ""}, // a spread that a log has
		{scaling.Estimate{Value: -0.1, Low: -0.2, High: 0.2}, "an interval wider than its value is not drawn"},
	} {
		if got := c.span.NotDrawnReason(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.span, got, c.want)
		}
	}
}
