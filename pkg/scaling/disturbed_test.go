package scaling

import (
	"bytes"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestDisturbed checks that exactly the runs are marked whose counted epochs were disturbed by
// other load. Runs that did not record the load are not marked.
func TestDisturbed(t *testing.T) {
	make := func(dir string, workers int, seed int64, cores ...float64) runs.Run {
		r := runs.Run{Dir: dir, Info: runs.Info{Series: "ddp", Workers: workers, Seed: seed, Status: runs.StatusDone}}
		for i := range 3 {
			r.Epochs = append(r.Epochs, runs.Epoch{Epoch: i + 1, Seconds: 2, Samples: 10, SamplesPerSecond: 5})
		}
		for i, c := range cores {
			r.Loads = append(r.Loads, runs.Load{Epoch: i + 1, Seconds: 2, Cores: 4, OtherSeconds: 2 * c})
		}
		return r
	}
	all := []runs.Run{
		make("logs/ddp-n1-s1", 1, 1, 3, 0.01, 0.01), // only the first epoch, which does not count
		make("logs/ddp-n2-s1", 2, 1, 0, 0.5, 0.4),
		make("logs/ddp-n2-s2", 2, 2, 0, 0, 0.25),
		make("logs/ddp-n4-s1", 4, 1), // without a record of the load
	}
	s, err := FromRuns(all)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 2, 0} {
		if got := s.Points[i].Disturbed; got != want {
			t.Errorf("%d workers: %d runs disturbed, want %d", s.Points[i].Workers, got, want)
		}
	}
	want := "2 of 4 runs disturbed by other load: ddp-n2-s1 (other processes used 0.45 cores) and ddp-n2-s2 (other processes used 0.12 cores)"
	if got, brief := s.ConditionsNote(), "2 of 4 runs disturbed by other load: ddp-n2-s1 and ddp-n2-s2"; got != brief {
		t.Errorf("%q, want %q", got, brief)
	}
	if table := s.String(); !strings.Contains(table, "disturbed") || !strings.Contains(table, "caution: "+want+"; ") {
		t.Errorf("the table does not say so:\n%s", table)
	}
	// A run whose sweep did not get its cores is disturbed, whatever its load was.
	late := make("logs/ddp-n1-s2", 1, 2, 0, 0, 0)
	late.Info.Binding = &runs.Binding{Mode: "none", Disturbed: "it needs 1 core"}
	short := make("logs/ddp-n1-s3", 1, 3)
	short.Info.Binding = late.Info.Binding
	started, err := FromRuns([]runs.Run{all[0], late, short})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := started.Cautions(), "2 of 3 runs disturbed by other load: ddp-n1-s2 (it needs 1 core) and ddp-n1-s3 (it needs 1 core); "; len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("got the cautions %q, want %q", got, want)
	}
	rule := DefaultRule()
	rule.DropFirst = 0 // now the first epoch counts: 0.01+0.01+3 over 3 epochs
	if s, err = s.WithRule(rule); err != nil {
		t.Fatal(err)
	}
	if s.Points[0].Disturbed != 1 {
		t.Errorf("%d runs of 1 worker disturbed by the rule %s", s.Points[0].Disturbed, rule)
	}
	// The table and the files of undisturbed runs do not have the column.
	calm, err := FromRuns([]runs.Run{all[0], all[3]})
	if err != nil {
		t.Fatal(err)
	}
	var csv bytes.Buffer
	if err := calm.Write(&csv, FormatCSV); err != nil {
		t.Fatal(err)
	}
	if text := calm.String() + csv.String(); strings.Contains(text, "disturbed") || calm.ConditionsNote() != "" {
		t.Errorf("disturbed:\n%s", text)
	}
}
