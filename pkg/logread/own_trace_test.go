package logread

import (
	"os"
	"path/filepath"
	"testing"

	"lockstep/pkg/runs"
)

// ownTrace is in the form that the CPU engine writes: a row for steps, threads,
// data, the exchange, and what is reduced meanwhile. Two steps of 100 µs: 10 of
// data, 60 of kernels on two threads, of which 20 while a bucket is reduced, 20
// more of which are waited for, and the optimiser.
const ownTrace = `{"displayTimeUnit":"ms","distributedInfo":{"rank":1,"world_size":2},"traceEvents":[
{"name":"process_name","ph":"M","ts":0,"pid":1,"tid":0,"args":{"name":"rank 1 (cpu (avx2))"}},
{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":1,"args":{"name":"steps"}},
{"name":"load batch","cat":"input","ph":"X","ts":0,"dur":8,"pid":1,"tid":4},
{"name":"ProfilerStep#4","cat":"step","ph":"X","ts":0,"dur":100,"pid":1,"tid":1},
{"name":"image","cat":"input","ph":"X","ts":8,"dur":2,"pid":1,"tid":4},
{"name":"conv","cat":"forward","ph":"X","ts":10,"dur":30,"pid":1,"tid":2,"args":{"layer":"a"}},
{"name":"conv","cat":"forward","ph":"X","ts":10,"dur":28,"pid":1,"tid":3,"args":{"layer":"a"}},
{"name":"conv_backward_data","cat":"backward","ph":"X","ts":40,"dur":30,"pid":1,"tid":2,"args":{"layer":"a"}},
{"name":"hand over bucket 0","cat":"exchange","ph":"X","ts":49,"dur":1,"pid":1,"tid":5},
{"name":"all-reduce of bucket 0","cat":"exchange","ph":"X","ts":50,"dur":40,"pid":1,"tid":6},
{"name":"wait for gradients","cat":"exchange","ph":"X","ts":70,"dur":20,"pid":1,"tid":5},
{"name":"adam","cat":"optimizer","ph":"X","ts":90,"dur":10,"pid":1,"tid":2}
]}`

// TestOwnTrace: each span of our own trace is of the kind that it is.
func TestOwnTrace(t *testing.T) {
	run := readTraceText(t, "trace-1.json", ownTrace)
	want := map[string]string{
		"load batch": runs.SpanData, "image": runs.SpanData, "ProfilerStep#4": runs.SpanOther,
		"conv": runs.SpanCompute, "conv_backward_data": runs.SpanCompute, "adam": runs.SpanCompute,
		"hand over bucket 0": runs.SpanCommunication, "all-reduce of bucket 0": runs.SpanCommunication, "wait for gradients": runs.SpanCommunication,
	}
	seen := map[string]bool{}
	for _, s := range run.Spans {
		if s.Rank != 1 || s.Kind != want[s.Name] {
			t.Errorf("%+v, want rank 1 and kind %q", s, want[s.Name])
		}
		seen[s.Name] = true
	}
	if len(run.Spans) != 10 || len(seen) != len(want) || run.Info.Workers != 2 {
		t.Errorf("%d spans with %d names, %d workers", len(run.Spans), len(seen), run.Info.Workers)
	}
}

// TestTraceInRunFolder: traces in a run folder are the run's spans, and make no
// run of their own, also for who follows it.
func TestTraceInRunFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "study", "ddp-n2-s1")
	w, err := runs.Create(dir, runs.Info{Study: "study", Series: "ddp", Workers: 2})
	check(t, err)
	check(t, w.Epoch(runs.Epoch{Epoch: 1, Seconds: 1, Samples: 4, SamplesPerSecond: 4}))
	check(t, w.Finish(runs.StatusDone, nil))
	check(t, os.WriteFile(filepath.Join(dir, "trace-1.json"), []byte(ownTrace), 0o600))
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
