package workers

import (
	"os/exec"
	"strings"
	"testing"

	"lockstep/pkg/launch/internal/output"
)

// TestWorkerNames: a process with several ranks is named by all of them.
func TestWorkerNames(t *testing.T) {
	for want, w := range map[string]worker{"rank 3": {rank: 3, ranks: 1}, "ranks 2-3": {rank: 2, ranks: 2}} {
		if got := w.name(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "kill -9 $$")
	err := cmd.Run()
	for want, w := range map[string]worker{"rank 3 was killed by signal 9": {rank: 3, ranks: 1}, "ranks 2-3 were killed by signal 9": {rank: 2, ranks: 2}} {
		w.out = output.NewWriter("", nil, nil)
		if got := (WorkerExit{&w, err}).String(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
