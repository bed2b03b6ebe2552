package course

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/scaling"
)

// TestSeries has a table with several series, of which only one has the right value.
func TestSeries(t *testing.T) {
	t.Parallel()
	all, err := parseTasks("09-test", []byte(`
tasks:
  - id: test/1
    text: Efficiency with a batch of 128
    kind: numbers
    points: 1
    runs: [{config: published/sc21-weak-scaling.csv, workers: [128]}]
    numbers:
      efficiency: {metric: efficiency, series: "real data, batch 128", workers: 128}
    hints: [divide]
`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := all[0].collectEvidence(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// 62949 samples/s on 32 nodes, 2202 on one; with a batch of 64 they are 51620 and 2061.
	if err := e.checkAnswerValues(t.Context(), map[string]any{"efficiency": 62949. / 2202 / 32}); err != nil {
		t.Error(err)
	}
	err = e.checkAnswerValues(t.Context(), map[string]any{"efficiency": 51620. / 2061 / 32})
	if want := `of series "real data, batch 128" of published/sc21-weak-scaling.csv`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the value of another series: got error %v, want one with %q", err, want)
	}
	if got := e.newPageNumber("efficiency", 0.89).Formula; !strings.Contains(got, "62949") {
		t.Errorf("the report explains another series: %s", got)
	}
}

// TestMeanRate has a speed-up from two epochs of 4 and 12 s with one worker, and of 4 and 4 s with two. From all
// samples and all seconds it is 16/8 = 2. The rates of one worker are 100/4 and 100/12, so their mean is 50/3 in
// place of 200/16, and the speed-up is 25 / (50/3) = 1.5.
func TestMeanRate(t *testing.T) {
	t.Parallel()
	item := scaling.ExplainedNumber{Metric: "speedup", Workers: 2}
	add := func(role string, counted bool, epoch int, seconds float64) {
		item.Inputs = append(item.Inputs,
			scaling.Input{Role: role, Name: "seconds", Epoch: epoch, Counted: counted, Value: seconds},
			scaling.Input{Role: role, Name: "samples", Epoch: epoch, Counted: counted, Value: 100})
	}
	for _, role := range []string{"N = 2", "baseline B = 1"} {
		add(role, false, 1, 50)
		add(role, true, 2, 4)
		add(role, true, 3, map[string]float64{"N = 2": 4, "baseline B = 1": 12}[role])
	}
	if got := 2 * meanRateFactor(item); math.Abs(got-1.5) > 1e-12 {
		t.Errorf("got speed-up %g, want 1.5", got)
	}
	item.Inputs = []scaling.Input{{Role: "N = 2", Name: "wall_seconds", Counted: true, Value: 100}, {Role: "N = 2", Name: "samples", Counted: true, Value: 5}}
	if got := meanRateFactor(item); got != 1 {
		t.Errorf("got the factor %g for the time of a job, want 1", got)
	}
}
