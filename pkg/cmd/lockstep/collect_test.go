package main

import (
	"runtime/debug"
	"testing"
)

// TestForReading: commands that read logs collect garbage rarely, unless the
// user says how; others as Go does.
func TestForReading(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	empty := t.TempDir()
	for _, c := range []struct {
		gogc string
		args []string
		want int
	}{
		{"", []string{"scaling", empty}, 400},
		{"", []string{"read", empty}, 400},
		{"100", []string{"read", empty}, 100},
		{"", []string{"version"}, 100},
	} {
		t.Setenv("GOGC", c.gogc)
		debug.SetGCPercent(100)
		run(t.Context(), c.args)
		if got := debug.SetGCPercent(100); got != c.want {
			t.Errorf("%v with GOGC=%q: %d, expected %d", c.args, c.gogc, got, c.want)
		}
	}
}
