package report

import (
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestReportBeginsWithTheSpeedup checks that the speed-up is drawn once, beside the verdict, and that the
// verdict begins with what limits the meaning of the times.
func TestReportBeginsWithTheSpeedup(t *testing.T) {
	var all []runs.Run
	for _, n := range []int{1, 2, 4} {
		for seed := range int64(3) {
			r := runs.Run{Dir: "ddp", Info: runs.Info{
				Series: "ddp", Workers: n, Seed: seed, Status: runs.StatusDone, BatchPerWorker: 4, ThreadsPerWorker: 1, Nodes: 1, Host: runs.Host{Cores: 2},
			}}
			for e := range 3 {
				seconds := 8 / float64(n) * (1 + 0.3*float64(seed))
				r.Epochs = append(r.Epochs, runs.Epoch{Epoch: e + 1, Seconds: seconds, Samples: 100})
			}
			all = append(all, r)
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	r, err := New(study, Options{})
	check(t, err)
	page := r.Page()
	_, verdict, _ := strings.Cut(page, `<section id="verdict">`)
	verdict, rest, _ := strings.Cut(verdict, "</section>")
	if !strings.Contains(verdict, `id="figure-speedup"`) || strings.Contains(rest, `id="figure-speedup"`) {
		t.Error("the speed-up is not only beside the verdict")
	}
	want := "4 workers shared 2 cores; their times say little about scaling: run at most one thread per core."
	if r.Sentences[0] != want || strings.Count(page, "their times say little") != 1 {
		t.Errorf("the report begins with %q", r.Sentences)
	}
	// The interval of the speed-up contains the ideal, which the measured value exceeds or misses by chance.
	if got := r.Sentences[1]; !strings.Contains(got, ": not distinguishable from the ideal 4.") {
		t.Error(got)
	}
	if note := "In all rows: nodes 1, runs 3, batch per worker 4."; !strings.Contains(rest, note) || strings.Contains(rest, "<th class=\"number\">nodes</th>") {
		t.Errorf("the results do not say %q", note)
	}
	if !strings.Contains(rest, "shared cores</th>") {
		t.Error("the results have no column of shared cores")
	}
}
