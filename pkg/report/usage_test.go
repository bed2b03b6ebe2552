package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/runs/usage"
	"lockstep/pkg/scaling"
)

// TestUsage: the page has a figure and a table of what the workers used if it was recorded. The values
// of a machine count once, although all its workers record them, and what was not recorded has no
// column.
func TestUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ddp-n3-s1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run := runs.Run{Dir: dir, Kind: "run folder", Info: runs.Info{Study: "cells", Series: "ddp", Workers: 3, Status: runs.StatusDone}}
	for epoch := 1; epoch <= 3; epoch++ {
		run.Epochs = append(run.Epochs, runs.Epoch{Epoch: epoch, Seconds: 2, Samples: 100, SamplesPerSecond: 50})
	}
	page := func() string {
		t.Helper()
		study, err := scaling.FromRuns([]runs.Run{run})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(study, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Page()
	}
	if p := page(); strings.Contains(p, "What the workers used") || strings.Contains(p, "figure-usage") {
		t.Error("usage is shown although it was not recorded")
	}
	for rank := range 3 {
		w, err := usage.Create(dir, rank)
		if err != nil {
			t.Fatal(err)
		}
		for second := range 10 {
			s := usage.NewSample()
			s.Time, s.Seconds, s.Host = time.Unix(1700000000+int64(second), 0), 1, []string{"a", "a", "b"}[rank]
			s.CPUCores, s.MemoryBytes, s.ProcessorWatts = 0.5+float64(rank), float64(int64(100+second)<<20), 200
			s.ReceivedBytesPerSecond = 1000 * float64(1+rank)
			if err := w.Append(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p := page()
	// Means of 0.5, 1.5 and 2.5 cores; of 1 and 3 kB/s; two machines with 200 W for 10 s.
	for _, want := range []string{
		"What the workers used", "figure-usage", "<td>ddp-n3-s1</td><td>3 workers on 2 machines</td>" +
			`<td class="number">1.500</td><td class="number">109.0</td><td class="number">2.000</td><td class="number">400.0</td><td class="number">4.000</td></tr>`,
	} {
		if !strings.Contains(p, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(p, "GPU busy") {
		t.Error("there is a column of what was not recorded")
	}
}
