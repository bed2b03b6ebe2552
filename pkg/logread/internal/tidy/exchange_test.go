package tidy

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	got := emitEpochs(t, run)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("no row %q in %q", w, got)
		}
	}
}

// emitEpochs returns the names and values of the rows of a run's epochs and of the complete run.
func emitEpochs(t *testing.T, run runs.Run) []string {
	t.Helper()
	var got []string
	e := NewEmitter(run, "run", func(r Row) error {
		got = append(got, fmt.Sprint(r.Name, " ", r.Value))
		return nil
	}, func(runs.Problem) {})
	if err := e.EmitEpochs(); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestRowsOfClasses: classes have rows of each epoch and of the test. A class that no mask has has none.
func TestRowsOfClasses(t *testing.T) {
	cell := runs.NamedScores{Name: "cell", IoU: 0.5, Dice: 0.75}
	run := runs.Run{Dir: t.TempDir(), Epochs: []runs.Epoch{{Epoch: 1}}, Info: runs.Info{Test: &runs.Test{Classes: []runs.NamedScores{cell}}}}
	run.Classes = []runs.ClassScores{{Epoch: 1, NamedScores: cell}, {Epoch: 1, NamedScores: runs.NamedScores{Name: "nucleus", IoU: math.NaN(), Dice: math.NaN()}}, {Epoch: 2, NamedScores: cell}}
	got := slices.DeleteFunc(emitEpochs(t, run), func(row string) bool { return !strings.Contains(row, "/") })
	if want := []string{"iou/cell 0.5", "dice/cell 0.75", "test_iou/cell 0.5", "test_dice/cell 0.75"}; !slices.Equal(got, want) {
		t.Errorf("rows are %q, want %q", got, want)
	}
}
