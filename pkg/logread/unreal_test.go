package logread

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestRowsOfUnrealScores checks that the rows of runs without communication, whose losses are
// not real, come with a problem per series that says so. Rows that contain no losses need none.
func TestRowsOfUnrealScores(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ddp-n2-s1", "silent-n2-s1", "silent-n2-s2"} {
		series, unreal := name[:len(name)-6], ""
		if series == "silent" {
			unreal = `,"unreal":"nobody spoke"`
		}
		write(t, filepath.Join(dir, name), map[string]string{
			"run.json":   `{"schema":1,"study":"s","series":"` + series + `","workers":2,"seed":` + name[len(name)-1:] + `,"status":"done"` + unreal + `}`,
			"epochs.csv": "epoch,seconds,train_loss\n1,2,0.5\n",
		})
	}
	count := func(problems []runs.Problem) (n int) {
		for _, p := range problems {
			if strings.Contains(p.Reason, "are not real") {
				n++
				want := "losses and scores of silent with more than 1 worker are not real, only its times are: nobody spoke"
				if p.File != filepath.Join(dir, "silent-n2-s1") || p.Reason != want {
					t.Errorf("got %q, want %q", p, want)
				}
			}
		}
		return n
	}
	for kind, want := range map[string]int{Epochs: 1, Steps: 1, Curves: 1, All: 1, Trials: 0, Spans: 0} {
		problems, err := Rows(kind, []string{dir}, func(Row) error { return nil })
		check(t, err)
		written, err := Write(io.Discard, FormatCSV, kind, dir)
		check(t, err)
		if a, b := count(problems), count(written); a != want || b != want {
			t.Errorf("%s: got %d such problems from Rows and %d from Write, want %d", kind, a, b, want)
		}
	}
}
