package trace

import (
	"os"
	"path/filepath"
	"testing"

	"lockstep/pkg/runs"
)

// TestEngineTrace checks the kinds of the spans in a trace of this project's CPU engine, with rows
// for steps, threads, data, communication, and reductions that overlap with the computation. One step
// lasts 100 µs: 10 µs of data loading, 60 µs of kernels on two threads (during the last 20 µs of which
// a bucket is reduced), 20 µs of waiting for gradients, and 10 µs of the optimizer.
func TestEngineTrace(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "engine-trace.json"))
	if err != nil {
		t.Fatal(err)
	}
	run := readTraceText(t, "trace-1.json", string(text))
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
