package launch

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestServeWithoutSweep: somebody has called lockstep launch --watched in a terminal.
func TestServeWithoutSweep(t *testing.T) {
	_, err := Serve(t.Context(), strings.NewReader(""), t.Output(), t.Output())
	wantError(t, err, "read sweep from standard input: EOF; --watched is only for the kernel of a notebook, which sends a sweep there: leave it out to start a sweep")
}

// TestUsageIsNotRecorded: the run folder is gone, so that nothing can be recorded.
func TestUsageIsNotRecorded(t *testing.T) {
	var notes []error
	stop := recordUsage(filepath.Join(t.TempDir(), "missing"), map[int]int{0: 1}, func(err error) { notes = append(notes, err) })
	stop()
	if len(notes) == 0 {
		t.Skip("this machine measures no usage")
	}
	wantError(t, notes[0], "CPU, memory and network usage of this run is not recorded, but the run continues: ")
}
