package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/runs/usage"
)

// TestPlotDrawsUsage: without --only, plot also draws the recorded usage of a run, which is a page and
// so no panel of another page.
func TestPlotDrawsUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "study", "ddp-n1-s1")
	w, err := runs.Create(dir, runs.Info{Study: "study", Series: "ddp", Workers: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for epoch := 1; epoch <= 3; epoch++ {
		if err := w.AppendEpoch(runs.Epoch{Epoch: epoch, Seconds: 2, Samples: 100, SamplesPerSecond: 50}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(runs.StatusDone, nil); err != nil {
		t.Fatal(err)
	}
	u, err := usage.Create(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	for second := range 5 {
		s := usage.NewSample()
		s.Time, s.Seconds, s.Host, s.CPUCores = time.Unix(1700000000+int64(second), 0), 1, "a", 1
		if err := u.Append(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"--only", "throughput"}, false},
		{[]string{"--panels"}, false},
	} {
		out := t.TempDir()
		args := append([]string{"plot", filepath.Dir(dir), "--out", out}, tt.args...)
		if code := run(t.Context(), args); code != 0 {
			t.Errorf("%q: exit code %d", args, code)
		}
		if _, err := os.Stat(filepath.Join(out, "usage.png")); (err == nil) != tt.want {
			t.Errorf("%q: usage.png: %v, want that it exists: %v", args, err, tt.want)
		}
	}
}
