package scaling

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestEpochSpreads compares with values computed by hand for counted epochs of 10, 11, …,
// 110 s. The q-quantile of n sorted values (gonum's LinInterp; Hyndman and Fan 1996, type 4)
// is interpolated between x_⌊nq⌋ and the next value by the fraction of nq: for n = 101,
// 0.025·101 = 2.525 gives 10 + 1.525 = 11.525.
func TestEpochSpreads(t *testing.T) {
	r := weak(4, 1, 1000) // the first epoch does not count
	template := r.Epochs[0]
	for i := range 101 {
		e := template
		e.Epoch, e.Seconds = i+2, float64(10+(i*37)%101) // 37 and 101 share no factor: each once
		r.Epochs = append(r.Epochs, e)
	}
	s := study(t, []runs.Run{r, weak(8, 1, 10, 5)})
	rows := s.EpochSpreads().Rows
	if len(rows) != 1 { // 8 workers have one counted epoch
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	row := rows[0]
	if row.Workers != 4 || row.Epochs != 101 || row.Runs != 1 {
		t.Errorf("row %+v", row)
	}
	near(t, "median", row.Seconds.Median, 60)
	near(t, "low", row.Seconds.Low, 11.525)
	near(t, "high", row.Seconds.High, 10+0.975*101-1)
	// The rates are inversely proportional to the seconds, because all epochs have the same
	// samples.
	near(t, "median rate", row.Throughput.Median, float64(template.Samples)/60)
	if !math.IsNaN(s.Points[0].EpochSeconds.Low) {
		t.Error("a single run has a confidence interval")
	}
	text := s.EpochSpreads().String()
	for _, want := range []string{"middle 95 %", "not a confidence interval", "spread_low"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if text := s.String(); !strings.Contains(text, "intervals: none, because each point is one run") {
		t.Errorf("the table of single runs does not say where the spread is: %s", text)
	}
}
