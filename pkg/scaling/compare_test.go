package scaling

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// seeds returns runs of a series at one worker count, one run per given time.
func seeds(name string, workers int, seconds ...float64) []runs.Run {
	var all []runs.Run
	for i, s := range seconds {
		r := weak(workers, int64(i+1), 2*s, s, s)
		r.Info.Series, r.Dir = name, fmt.Sprintf("%s-n%d-s%d", name, workers, i+1)
		all = append(all, r)
	}
	return all
}

func study(t *testing.T, groups ...[]runs.Run) *Study {
	t.Helper()
	var all []runs.Run
	for _, g := range groups {
		all = append(all, g...)
	}
	s, err := FromRuns(all)
	check(t, err)
	return s
}

func TestCompare(t *testing.T) {
	s := study(t,
		seeds("horovod", 8, 10, 10.1, 9.9, 10.05), seeds("native", 8, 12, 12.2, 11.9, 12.1),
		seeds("twin", 8, 10.02, 10.08, 9.93, 10), seeds("lonely", 8, 5))
	c, err := s.Compare("horovod", "native", 8)
	check(t, err)
	near(t, "ratio", c.Ratio.Value, (1/10.0+1/10.05)/(1/12.0+1/12.1)) // of the medians of the throughputs
	if c.Verdict != VerdictFaster || c.Measure != "throughput" || !(c.Ratio.Low > 1.15 && c.Ratio.High < 1.25) || !(c.P < 1e-4) {
		t.Errorf("%+v", c)
	}
	wantLine(t, []string{c.Sentence}, "horovod runs 1.202 times as fast as native at 8 workers", "95 % interval [1.1", "n = 4 and 4", "Welch", "permutation test, p = 0.029 (at least 0.029", "Yes: horovod is faster.")
	if c, err = s.Compare("native", "horovod", 8); err != nil || c.Verdict != VerdictSlower || !strings.Contains(c.Sentence, "No: native is slower.") {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = s.Compare("horovod", "twin", 8); err != nil || c.Verdict != VerdictNone || !strings.Contains(c.Sentence, "show no difference") {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = s.Compare("lonely", "native", 8)
	check(t, err)
	if c.Verdict != VerdictUnknown || !math.IsNaN(c.P) || !math.IsNaN(c.Ratio.Low) || !strings.Contains(c.Sentence, "with 1 run of lonely and 4 runs of native the difference may be due to chance") {
		t.Errorf("%+v", c)
	}
	for want, args := range map[string][2]string{`unknown series "ddp"`: {"ddp", "native"}, `use one of "horovod"`: {"native", "x"}} {
		if _, err := s.Compare(args[0], args[1], 8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %s", err, want)
		}
	}
	if _, err := s.Compare("native", "horovod", 4); err == nil || !strings.Contains(err.Error(), "it has runs at 8") {
		t.Errorf("error %v", err)
	}
	all, err := s.CompareSeries("horovod", "native")
	check(t, err)
	var b bytes.Buffer
	check(t, all.Write(&b, FormatCSV))
	if !strings.HasPrefix(b.String(), "a,b,workers,measure,runs_a,runs_b,ratio,ratio_low,ratio_high,p,permutation_p,verdict,sentence\nhorovod,native,8,throughput,4,4,1.2") {
		t.Error(b.String())
	}
	if table := all.Table(); table.Err != nil || table.Nrow() != 1 {
		t.Error(table)
	}
	if !strings.Contains(all.HTML(), "<td>faster</td>") || !strings.Contains(all.String(), "rule: mean over") {
		t.Error(all.HTML())
	}
}

// TestCompareOtherMeasures compares two series of which one has no sample counts: the
// measure that both have is the time per epoch.
func TestCompareOtherMeasures(t *testing.T) {
	bare := seeds("native", 2, 20, 20)
	for i := range bare {
		for j := range bare[i].Epochs {
			bare[i].Epochs[j].Samples = 0
		}
	}
	s := study(t, seeds("ddp", 2, 10, 10), bare)
	c, err := s.Compare("ddp", "native", 2)
	check(t, err)
	if c.Measure != "epoch_seconds" {
		t.Errorf("measure %s", c.Measure)
	}
	near(t, "ratio", c.Ratio.Value, 2)
	if c, err := CompareStudies(study(t, seeds("a", 2, 10)), study(t, seeds("b", 2, 10))); err != nil || c.Rows[0].A != "a" || c.Rows[0].B != "b" {
		t.Errorf("%v, %v", c, err)
	}
	two := study(t, seeds("a", 2, 10), seeds("b", 2, 10))
	if _, err := CompareStudies(two, study(t, seeds("c", 2, 10))); err == nil || !strings.Contains(err.Error(), "no series has the same name in both studies") {
		t.Errorf("error %v", err)
	}
	if _, err := CompareStudies(nil, two); err == nil {
		t.Error("no study")
	}
}

func TestGate(t *testing.T) {
	base := study(t, seeds("ddp", 1, 10, 10.1, 9.9, 10.05), seeds("ddp", 2, 12, 12.1, 11.9, 12.05))
	for _, c := range []struct {
		name      string
		candidate *Study
		limit     float64
		outcome   string
		says      string
	}{
		{"equal", study(t, seeds("ddp", 1, 10.02, 10.08, 9.93, 10), seeds("ddp", 2, 12.01, 12.09, 11.92, 12)), 0.05, OutcomePass, "pass: the candidate is at no point more than 5 % slower"},
		{"slower at 2", study(t, seeds("ddp", 1, 10.02, 10.08, 9.93, 10), seeds("ddp", 2, 14.01, 14.09, 13.92, 14)), 0.05, OutcomeRegression, "regression: at 1 of 2 points"},
		{"slower, but allowed", study(t, seeds("ddp", 1, 10.02, 10.08, 9.93, 10), seeds("ddp", 2, 14.01, 14.09, 13.92, 14)), 0.25, OutcomePass, "within the allowed 25 %"},
		{"faster", study(t, seeds("ddp", 1, 8.02, 8.08, 7.93, 8), seeds("ddp", 2, 9, 9.09, 8.92, 9)), 0.05, OutcomePass, "faster"},
		{"noise", study(t, seeds("ddp", 1, 10.02, 10.08, 9.93, 10), seeds("ddp", 2, 13.5, 12.6, 13.9, 13.1)), 0.05, OutcomeUnknown, "runs of each would"},
		{"less than allowed, and noise", study(t, seeds("ddp", 1, 10.02, 10.08, 9.93, 10), seeds("ddp", 2, 12.9, 11.6, 12.6, 12)), 0.05, OutcomeUnknown, "the allowed 5 % is in this interval"},
		{"one run", study(t, seeds("ddp", 1, 20), seeds("ddp", 2, 24)), 0.05, OutcomeUnknown, "run at least 3 seeds of each"},
		{"crashed at 2", study(t, seeds("ddp", 1, 10.02, 10.08, 9.93, 10)), 0.05, OutcomeUnknown, "the candidate has no run with a throughput that counts"},
	} {
		g, err := Gate(base, c.candidate, c.limit)
		check(t, err)
		if g.Outcome != c.outcome || !strings.Contains(g.String(), c.says) || len(g.Rows) != 2 {
			t.Errorf("%s: outcome %s, expected %s and %q:\n%s", c.name, g.Outcome, c.outcome, c.says, g)
		}
	}
	for _, limit := range []float64{-0.1, 1, math.NaN()} {
		if _, err := Gate(base, base, limit); err == nil || !strings.Contains(err.Error(), "such as 0.05") {
			t.Errorf("limit %g: error %v", limit, err)
		}
	}
}

// TestGateNeedsEverySeries checks that a candidate without a series of the baseline does not
// pass, even if its other series do: it may have crashed in the missing one.
func TestGateNeedsEverySeries(t *testing.T) {
	native := seeds("native", 1, 10, 10.1, 9.9)
	base := study(t, native, seeds("horovod", 1, 11, 11.1, 10.9), seeds("horovod", 2, 12, 12.1, 11.9))
	g, err := Gate(base, study(t, native), 0.05)
	check(t, err)
	if g.Outcome != OutcomeUnknown || len(g.Rows) != 3 || !strings.Contains(g.Sentence, "cannot tell at 2 of 3 points") || !strings.HasSuffix(g.Sentence, ": run what the candidate lacks") {
		t.Errorf("%s", g)
	}
	wantLine(t, strings.Split(g.String(), "\n"), "horovod at 2 workers: the candidate has no series of this name, and so no throughput")
	if g, err = Gate(study(t, native), base, 0.05); err != nil || g.Outcome != OutcomePass { // more than the baseline is no fault
		t.Errorf("%s, %v", g, err)
	}
	c, err := CompareStudies(base, study(t, native))
	check(t, err)
	wantLine(t, c.Problems, "has no series horovod")
}

// TestGateOfManyRows checks that each of several rows has a wider interval than a single row
// would have (Bonferroni), and that the table shows the caller's rule.
func TestGateOfManyRows(t *testing.T) {
	one, other := seeds("ddp", 1, 10, 10.1, 9.9, 10.05), seeds("ddp", 1, 10.3, 10.2, 10.5, 10.1)
	more := seeds("ddp", 2, 12, 12.1, 11.9, 12.05)
	alone, err := Gate(study(t, one), study(t, other), 0.05)
	check(t, err)
	both, err := Gate(study(t, one, more), study(t, other, more), 0.05)
	check(t, err)
	a, b := alone.Rows[0].Regression, both.Rows[0].Regression
	if a.Value != b.Value || !(b.Low < a.Low && b.High > a.High) {
		t.Errorf("alone %v [%v, %v], beside another [%v, %v]", a.Value, a.Low, a.High, b.Low, b.High)
	}
	strict := DefaultRule()
	strict.Confidence = 0.975
	base, err := study(t, one).WithRule(strict)
	check(t, err)
	candidate, err := study(t, other).WithRule(strict)
	check(t, err)
	if alone, err = Gate(base, candidate, 0.05); err != nil || alone.Rows[0].Regression != b {
		t.Errorf("%v, %v: at 97.5 %% %+v, expected what two rows have at 95 %%: %+v", alone, err, alone.Rows[0].Regression, b)
	}
}

// TestUnequalWorkIsNamed compares runs that differ in batch, data and host.
func TestUnequalWorkIsNamed(t *testing.T) {
	with := func(change func(*runs.Run), all []runs.Run) []runs.Run {
		for i := range all {
			change(&all[i])
		}
		return all
	}
	native := with(func(r *runs.Run) { r.Info.Host.Name = "node01" }, append(seeds("native", 1, 10, 10), seeds("native", 2, 10, 10)...))
	other := with(func(r *runs.Run) {
		r.Info.BatchPerWorker, r.Info.Host.Name = 8, "node02"
		r.Info.Config = map[string]any{"data": map[string]any{"path": "cells", "crops": 64, "augmentation": strings.Repeat("flip ", 20)}}
	}, append(seeds("horovod", 1, 11, 11), seeds("horovod", 2, 11, 11)...))
	twin := with(func(r *runs.Run) {
		r.Info.Host.Name = []string{"node01", "node03"}[r.Info.Seed%2]
		for i := range r.Epochs {
			r.Epochs[i].Samples++
		}
	}, seeds("twin", 1, 10, 10))
	s := study(t, native, other, twin)
	c, err := s.CompareSeries("native", "horovod")
	check(t, err)
	wantLine(t, c.Problems, "native and horovod differ in batch per worker (4 and 8), at 1 and 2 workers: compare their times with care")
	wantLine(t, c.Problems, "differ in host (node01 and node02), at 1 and 2 workers")
	if len(c.Problems) != 2 { // where one does not tell its data, nothing is known to differ
		t.Errorf("%q", c.Problems)
	}
	if c, err = s.CompareSeries("native", "twin"); err != nil {
		t.Fatal(err)
	}
	wantLine(t, c.Problems, "differ in the number of samples per epoch (100 and 101), at 1 worker:")
	if len(c.Problems) != 2 { // this, and that twin has no run at 2 workers; of the hosts one is the same
		t.Errorf("%q", c.Problems)
	}
	for i := range native {
		native[i].Info.Config = map[string]any{"data": "others"}
	}
	g, err := Gate(study(t, native), study(t, other), 0.5)
	check(t, err)
	if text := g.String(); !strings.Contains(text, "problem: horovod and native differ in data, at 1 and 2 workers") { // a document is not written out
		t.Error(text)
	}
}
