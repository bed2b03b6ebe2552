package launch

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// study is a program that prints the epochs of a run as the scripts of a scaling study do. Its
// arguments are the batch and the seed.
const study = `echo "rank $RANK: batch $0, seed $1"
[ "$RANK" = 0 ] && for epoch in 1 2; do echo "Epoch $epoch: loss 0.$epoch time 2.5s, $0 samples/sec"; done; true`

// newStudy returns a sweep of the program study with a placeholder for its batch.
func newStudy(t *testing.T, batch string, workers ...int) (Sweep, *transcript) {
	t.Helper()
	s, out := shell(t, study, workers...)
	s.Command = append(s.Command, batch, "{seed}")
	s.Lines = []string{"Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec"}
	s.StudyLogs = DefaultStudyLogs
	return s, out
}

// TestStudyLoop runs the loops of a scaling study with one call each: the batch of all workers
// grows with their number (weak scaling), or is divided among them (strong scaling).
func TestStudyLoop(t *testing.T) {
	for batch, want := range map[string][]string{"{16*workers}": {"16", "32"}, "{32/workers}": {"32", "16"}} {
		s, out := newStudy(t, batch, 1, 2)
		s.Seeds = []int64{5}
		j, err := launch(t, s)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for i, r := range j.Status() {
			if got := read(t, r.Dir).Info.Command; !slices.Equal(got[3:], []string{want[i], "5"}) {
				t.Errorf("%s: got command %q in run.json, want the batch %s and the seed 5", r.Name, got, want[i])
			}
		}
		if last := "[n2 s5 rank 1] rank 1: batch " + want[1] + ", seed 5"; !strings.Contains(out.String(), last) {
			t.Errorf("got output\n%s\nwant %q", out, last)
		}
		for _, name := range []string{"log_1.csv", "log_2.csv"} {
			if text := file(t, filepath.Join(j.Dir(), "study-logs", name)); strings.Count(text, "\n") < 3 {
				t.Errorf("%s: got %q, want 2 epochs", name, text)
			}
		}
		s.StudyLogs = "" // the study logs are written again
		again, err := launch(t, s)
		if err != nil || again.Note() != "2 runs done; nothing to do" {
			t.Errorf("repeated: got note %q, %v, want nothing to do", again.Note(), err)
		}
	}
	s, _ := newStudy(t, "{32/workers}", 1, 3)
	_, err := Local(t.Context(), s)
	wantError(t, err, "32 cannot be divided among 3 workers")
}
