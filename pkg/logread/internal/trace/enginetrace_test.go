package trace

import (
	"testing"

	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// TestEngineTrace checks the kinds of the spans in a trace of this project's
// CPU engine.
func TestEngineTrace(t *testing.T) {
	run := readTraceText(t, "trace-1.json", recordtest.EngineTrace)
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
