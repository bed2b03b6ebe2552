package launch

import (
	"strings"
	"testing"
)

// TestServeWithoutSweep: somebody has called lockstep launch --watched in a terminal.
func TestServeWithoutSweep(t *testing.T) {
	_, err := Serve(t.Context(), strings.NewReader(""), t.Output(), t.Output())
	wantError(t, err, "read sweep from standard input: EOF; --watched is only for the kernel of a notebook, which sends a sweep there: leave it out to start a sweep")
}
