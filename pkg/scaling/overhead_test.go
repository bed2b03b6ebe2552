package scaling

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// benchyRun returns a run as benchy logs it: the rates of the trials IO, SYNTHETIC and FULL. A rate of 0
// means that the log lacks the trial.
func benchyRun(series string, workers, nodes int, io, synthetic, full float64) runs.Run {
	r := runs.Run{Dir: fmt.Sprintf("%s_%d.json", series, workers), Kind: "benchy JSON", Info: runs.Info{
		Series: series, Workers: workers, Nodes: nodes, Status: runs.StatusDone,
	}}
	for _, t := range []runs.Trial{{Name: "IO", Rate: io}, {Name: "SYNTHETIC", Rate: synthetic}, {Name: "FULL", Rate: full}} {
		if t.Rate > 0 {
			r.Trials = append(r.Trials, t)
		}
	}
	return r
}

// TestOverheadOfTrials: the loader limits FULL to 400 samples/s with and without communication, which
// hides that communication costs (1000 − 750)/1000 = 25 % of the computation.
func TestOverheadOfTrials(t *testing.T) {
	with := []runs.Run{benchyRun("ddp", 4, 1, 400, 190, 180), benchyRun("ddp", 16, 4, 400, 750, 400)}
	without := []runs.Run{benchyRun("alone", 4, 1, 400, 200, 190), benchyRun("alone", 16, 4, 400, 1000, 400)}
	o, err := study(t, with, without).Overhead("ddp", "alone")
	check(t, err)
	if len(o.Rows) != 2 || o.Measure != "throughput" {
		t.Fatalf("%+v", o)
	}
	near(t, "overhead at 4", o.Rows[0].Overhead.Value, 0.05)
	near(t, "overhead at 16", o.Rows[1].Overhead.Value, 0.25)
	near(t, "speed with communication", o.Rows[1].With.Value, 750)
	wantLine(t, []string{o.Sentence}, "communication costs 25 % of the speed at 16 workers, and 5 % at 4 workers. Compared: the trials SYNTHETIC, which train on data in memory.")

	// Only the worker counts at which both have the trial are compared.
	without[0] = benchyRun("alone", 4, 1, 400, 0, 190)
	o, err = study(t, with, without).Overhead("ddp", "alone")
	check(t, err)
	if len(o.Rows) != 1 || o.Rows[0].Workers != 16 {
		t.Errorf("%+v", o.Rows)
	}
	wantLine(t, []string{o.Sentence}, "in memory; not compared at 4 workers, where a series lacks them.")

	// Without a common trial SYNTHETIC, the training is compared, and the sentence says so.
	without[1] = benchyRun("alone", 16, 4, 400, 0, 400)
	o, err = study(t, with, without).Overhead("ddp", "alone")
	check(t, err)
	near(t, "overhead of FULL", o.Rows[1].Overhead.Value, 0)
	wantLine(t, []string{o.Sentence}, "Compared: the logged rate of the trial FULL (training with the loader).")
	o, err = study(t, []runs.Run{weak(2, 1, 20, 12)}, rates("alone", map[int]float64{})).Overhead("ddp", "none")
	if err == nil || !strings.Contains(err.Error(), `unknown series "none": use one of "ddp"`) {
		t.Errorf("%v, error %v", o, err)
	}
}

// stated returns a run of a series whose run.json has the strategy, with the options if they are not nil.
func stated(series string, workers int, strategy string, options any, settings ...any) runs.Run {
	r := weak(workers, 1, 20, 10)
	r.Info.Series, r.Dir, r.Info.Strategy = series, fmt.Sprintf("%s-n%d-s1", series, workers), strategy
	r.Info.Config = map[string]any{"strategy": options, "epochs": 2.0}
	for i := 0; i+1 < len(settings); i += 2 {
		r.Info.Config[settings[i].(string)] = settings[i+1]
	}
	return r
}

func TestCommunicationPairs(t *testing.T) {
	none := map[string]any{"name": "ddp", "no_communication": true, "broadcast_buffers": false}
	buffers := map[string]any{"name": "ddp", "no_communication": false, "broadcast_buffers": true}
	for _, c := range []struct {
		name string
		runs []runs.Run
		want string
	}{
		{"by run.json, under any name", []runs.Run{stated("blue", 2, "ddp", nil), stated("red", 2, "ddp", none)}, "[[blue red]]"},
		{"the series with the fewest other settings", []runs.Run{stated("a", 2, "ddp", nil, "epochs", 9.0), stated("b", 2, "ddp", nil), stated("c", 2, "ddp", none)}, "[[b c]]"},
		{"other options", []runs.Run{stated("a", 2, "ddp", buffers), stated("b", 2, "ddp", nil), stated("c", 2, "ddp", none)}, "[[b c]]"},
		{"several that are equally close", []runs.Run{stated("a", 2, "ddp", nil), stated("b", 2, "ddp", nil), stated("c", 2, "ddp", none)}, "[]"},
		{"then by name", []runs.Run{stated("a", 2, "ddp", nil), stated("b", 2, "ddp", nil), stated("b, no communication", 2, "ddp", none)}, "[[b b, no communication]]"},
		{"another strategy", []runs.Run{stated("a", 2, "zero1", "zero1"), stated("c", 2, "ddp", none)}, "[]"},
		{"another model", []runs.Run{stated("a", 2, "ddp", nil, "model", map[string]any{"base": 8.0}), stated("b", 2, "ddp", none, "model", map[string]any{"base": 4.0})}, "[]"},
		{"no common worker count", []runs.Run{stated("a", 4, "ddp", nil), stated("b", 2, "ddp", none)}, "[]"},
		{"run.json contradicts the name", []runs.Run{stated("a", 2, "ddp", nil), stated("a no sync", 2, "ddp", nil)}, "[]"},
		{"by name alone", []runs.Run{benchyRun("weak-scale", 4, 1, 0, 9, 8), benchyRun("weak-scale-noddp", 4, 1, 0, 9, 8), benchyRun("x (without all-reduce)", 4, 1, 0, 9, 8)}, "[[weak-scale weak-scale-noddp]]"},
		{"a word that begins like one", []runs.Run{benchyRun("a", 4, 1, 0, 9, 8), benchyRun("a, no syncbn", 4, 1, 0, 9, 8)}, "[]"},
	} {
		if got := fmt.Sprint(study(t, c.runs).CommunicationPairs()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	s := study(t, []runs.Run{stated("blue", 2, "ddp", nil), stated("red", 2, "ddp", none)})
	all, err := s.Overheads()
	check(t, err)
	if len(all) != 1 || all[0].With != "blue" || all[0].Without != "red" {
		t.Errorf("%+v", all)
	}
	if all, err = s.Overheads([2]string{"red", "blue"}); err != nil || all[0].With != "red" {
		t.Errorf("%+v, error %v", all, err)
	}
	if _, err := study(t, []runs.Run{stated("blue", 2, "ddp", nil)}).Overheads(); err == nil || !strings.Contains(err.Error(), `name two with lockstep scaling --show overhead=WITH:WITHOUT or lockstep plot --pair WITH:WITHOUT, in a notebook with figure.Options.Pairs; the series are "blue"`) {
		t.Errorf("error %v", err)
	}
}

// TestSplitTrials: each trial is a series with its own speed-up. A series with one kind of trial, and one
// with epochs, stay as they are.
func TestSplitTrials(t *testing.T) {
	ddp := []runs.Run{benchyRun("ddp", 4, 1, 400, 190, 180), benchyRun("ddp", 16, 4, 1200, 760, 630)}
	s := study(t, ddp).SplitTrials()
	if got := fmt.Sprint(s.Series()); got != "[FULL SYNTHETIC IO]" {
		t.Fatalf("series %s", got)
	}
	i, err := s.findPointIndex("IO", 16)
	check(t, err)
	near(t, "rate of the loader", s.Points[i].Throughput.Value, 1200)
	near(t, "speed-up of the loader", s.Points[i].Speedup.Value, 3)
	if s.Points[i].Nodes != 4 {
		t.Errorf("%+v", s.Points[i])
	}
	s = study(t, ddp, []runs.Run{benchyRun("horovod", 4, 1, 0, 150, 0)}, rates("torch", map[int]float64{1: 90}))
	if got := fmt.Sprint(s.SplitTrials().Series()); got != "[ddp, FULL ddp, SYNTHETIC ddp, IO horovod torch]" {
		t.Errorf("series %s", got)
	}
	one, two := weak(1, 1, 20, 10), weak(2, 1, 20, 10)
	two.Trials = ddp[0].Trials
	s = study(t, []runs.Run{one, two})
	if s.SplitTrials() != s {
		t.Error("a study of epochs was split")
	}
	if math.IsNaN(s.Points[1].Speedup.Value) {
		t.Error(s)
	}
}
