package scaling

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// TestExplainPublished checks the explanation of the published 11.970: it is computed from
// epoch 5 (row 4) of log_1.csv and log_14.csv, which is in line 6 of each file.
func TestExplainPublished(t *testing.T) {
	dir := t.TempDir()
	writePublished(t, dir)
	s, err := Read(filepath.Join(dir, "pytorch"))
	check(t, err)
	s, err = s.WithRule(Rule{Epochs: "5"})
	check(t, err)
	e, err := s.ExplainSeries("native", "speedup", 14)
	check(t, err)
	x := e.Items[0]
	if x.ID != "speedup-native-14" || math.Abs(x.Result.Value-11.970) > 1e-3 {
		t.Errorf("%+v", x)
	}
	text := e.String()
	for _, part := range []string{
		"speedup of native at 14 workers: 11.97 n=1",
		"formula: S(14) = t(1) / t(14), where t is the seconds per epoch",
		"numbers: 194.188 s / 16.223 s = 11.97",
		"rule: epoch 5 of each run",
		"N = 14 workers", "baseline B = 1 worker\n",
		"epoch 5 seconds = 194.188 s  " + filepath.Join(dir, "pytorch", "log_1.csv") + ":6",
		"epoch 5 seconds = 16.223 s  " + filepath.Join(dir, "pytorch", "log_14.csv") + ":6",
		"epoch 1 seconds = 17.8453 s, not counted (the rule counts only epoch 5)",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
	counted := 0
	for _, in := range x.Inputs {
		if in.Counted {
			counted++
		}
	}
	if counted != 2 || len(x.Inputs) != 12 {
		t.Errorf("%d of %d inputs count", counted, len(x.Inputs))
	}
	if !strings.Contains(e.HTML(), `<div id="speedup-native-14">`) || e.Table().Err != nil || e.Table().Nrow() != 12 {
		t.Error(e.HTML())
	}

	both, err := s.Explain("efficiency", 14) // 85.5 % and 43.0 %, as published
	check(t, err)
	if len(both.Items) != 2 || math.Abs(both.Items[1].Result.Value-.855) > 6e-4 || math.Abs(both.Items[0].Result.Value-.430) > 6e-4 {
		t.Error(both)
	}
	wantLine(t, strings.Split(both.String(), "\n"), "E(14) = S(14)·1/14")
	iou, err := s.ExplainSeries("native", "iou", 14)
	check(t, err)
	wantLine(t, strings.Split(iou.String(), "\n"), "iou = 0.924409", "on the test set after training", "log_14.csv")
}

func TestExplainRuns(t *testing.T) {
	s := study(t, seeds("ddp", 1, 10, 10.2, 10.1), seeds("ddp", 2, 12, 12.2))
	e, err := s.Explain("throughput", 2)
	check(t, err)
	wantLine(t, strings.Split(e.String(), "\n"), "formula: r = samples of the counted epochs / their seconds, then the median over 2 runs")
	wantLine(t, strings.Split(e.String(), "\n"), "numbers: 16.66666667, 16.39344262 → 16.53")
	wantLine(t, strings.Split(e.String(), "\n"), "epoch 2 samples = 200 samples")
	wantLine(t, strings.Split(e.String(), "\n"), "epoch 1 seconds = 24 s, not counted (the rule excludes the first epoch)")
	wantLine(t, strings.Split(e.String(), "\n"), "note: 95 % interval [")
	// Each metric of the table can be explained.
	for _, f := range pointEstimateFields() {
		e, err := s.Explain(f.name, 2)
		check(t, err)
		if v := f.of(&s.Points[1]).Value; e.Items[0].Result.Value != v && !math.IsNaN(v) {
			t.Errorf("%s: %v, the table has %g", f.name, e.Items[0].Result, v)
		}
	}
	for _, c := range []struct{ series, metric, want string }{
		{"ddp", "speed", `unknown metric "speed": use one of epoch_seconds`},
		{"native", "speedup", `unknown series "native"`},
	} {
		if _, err := s.ExplainSeries(c.series, c.metric, 2); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected %s", err, c.want)
		}
	}
	if _, err := s.Explain("speedup", 3); err == nil || !strings.Contains(err.Error(), "the study has runs at 1 and 2") {
		t.Errorf("error %v", err)
	}
}

func TestExplainWholeJobs(t *testing.T) {
	e, err := study(t, booster()).Explain("speedup", 128)
	check(t, err)
	wantLine(t, strings.Split(e.String(), "\n"), "numbers: 20531.864 s / 288.313 s = 71.21")
}
