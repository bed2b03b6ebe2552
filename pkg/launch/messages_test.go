package launch

import (
	"errors"
	"strings"
	"testing"

	"lockstep/pkg/launch/internal/output"
)

// TestServeWithoutSweep: somebody has called lockstep launch --watched in a terminal.
func TestServeWithoutSweep(t *testing.T) {
	_, err := Serve(t.Context(), strings.NewReader(""), t.Output())
	wantError(t, err, "read plan of sweep from standard input: EOF; --watched is only for the kernel of a notebook, which sends a plan there: leave it out to start a sweep")
}

// TestFailureInTables: the table of a failed run, and of the sweeps, does not announce lines that it
// does not show.
func TestFailureInTables(t *testing.T) {
	err := errors.New("run x-n2-s1: job 17: canceled by scancel; " + output.LastLinesIntro + "lockstep: sleep ended")
	wantError(t, err, "canceled by scancel; its last lines:\n    lockstep: sleep ended")
	list := JobList{{Study: "x", State: StateFailed, Runs: 1, Error: err.Error()}}.String()
	if !strings.HasSuffix(list, "run x-n2-s1: job 17: canceled by scancel") {
		t.Errorf("got table\n%s\nwant the reason only", list)
	}
	if row := (RunStatus{Name: "x-n2-s1", State: StateFailed, Err: err}).toRow(); row.Note != "job 17: canceled by scancel" {
		t.Errorf("got note %q in the live table", row.Note)
	}
}
