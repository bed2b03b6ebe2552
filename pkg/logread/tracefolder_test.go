package logread

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/runs"
)

// TestTraceFolder checks that the traces of a folder form one run: a second
// file of a rank begins later on its clock, and the number of ranks is the
// number of workers.
func TestTraceFolder(t *testing.T) {
	dir := t.TempDir()
	span := func(ts int) string { return fmt.Sprintf(`[{"ph":"X","name":"compute","ts":%d,"dur":1}]`, ts) }
	write(t, dir, map[string]string{"rank0.json": span(100), "rank1.json": span(5_000_000), "rank1.later.json": span(7_000_000)})
	found, problems, err := Read(dir)
	check(t, err)
	want := []runs.Span{
		spanOf(0, "/", runs.SpanCompute, "compute", 0, 1e-6),
		spanOf(1, "/", runs.SpanCompute, "compute", 0, 1e-6),
		spanOf(1, "/", runs.SpanCompute, "compute", 2, 1e-6),
	}
	if len(found) != 1 || len(problems) > 0 || found[0].Info.Workers != 2 {
		t.Fatalf("runs %+v, problems %v", found, problems)
	}
	if d := cmp.Diff(want, found[0].Spans); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestTraceInRunFolder checks that traces in a run folder become the run's
// spans and form no separate run, with Read and with Follower.
func TestTraceInRunFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "study", "ddp-n2-s1")
	w, err := runs.Create(dir, runs.Info{Study: "study", Series: "ddp", Workers: 2})
	check(t, err)
	check(t, w.AppendEpoch(runs.Epoch{Epoch: 1, Seconds: 1, Samples: 4, SamplesPerSecond: 4}))
	check(t, w.Finish(runs.StatusDone, nil))
	trace, err := os.ReadFile(filepath.Join("testdata", "engine-trace.json"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "trace-1.json"), trace, 0o600))
	follower, err := Follow(t.Context(), filepath.Dir(dir))
	check(t, err)
	if !follower.Next() {
		t.Fatal(follower.Err())
	}
	for _, read := range []func() *Logs{
		func() *Logs { l, err := Options{}.Read(t.Context(), filepath.Dir(dir)); check(t, err); return l },
		func() *Logs { l, err := Options{}.Read(t.Context(), dir); check(t, err); return l },
		follower.Logs,
	} {
		logs := read()
		if len(logs.Runs) != 1 || len(logs.Runs[0].Spans) != 10 || len(logs.Runs[0].Epochs) != 1 || logs.Runs[0].Info.Workers != 2 {
			t.Errorf("%d runs: %+v", len(logs.Runs), logs.Runs)
		}
	}
}

// spanOf returns a span. Its times are in microseconds.
func spanOf(rank int, lane, kind, name string, start, length float64) runs.Span {
	return runs.Span{Rank: rank, Lane: lane, Kind: kind, Name: name, Start: start, Seconds: length}
}
