package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lockstep/pkg/runs"
)

// TestEpochsSumExchanges: the rows of an epoch contain what all ranks have exchanged.
func TestEpochsSumExchanges(t *testing.T) {
	dir := t.TempDir()
	for rank, lines := range []string{
		`{"epoch":1,"step":1,"sent_bytes":100,"staleness":1}` + "\n" + `{"epoch":1,"step":2,"sent_bytes":300}`,
		`{"epoch":1,"step":1,"sent_bytes":0,"dropped":true}` + "\n" + `{"epoch":1,"step":2,"sent_bytes":400,"staleness":3}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("steps-%d.jsonl", rank)), []byte(lines+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The means over four steps: 800/4 bytes and (1+3)/4 updates.
	want := []string{"sent_bytes_per_step 200", "mean_staleness 1", "max_staleness 3", "dropped_steps 1", "sent_bytes_per_step_formula 210"}
	run := runs.Run{Dir: dir, Info: runs.Info{Schema: 1, Workers: 2, SentFormula: 210}, Epochs: []runs.Epoch{{Epoch: 1}}}
	var got []string
	e := NewEmitter(run, "run", func(r Row) error {
		got = append(got, fmt.Sprint(r.Name, " ", r.Value))
		return nil
	}, func(runs.Problem) {})
	if err := e.Epochs(); err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("no row %q in %q", w, got)
		}
	}
}
