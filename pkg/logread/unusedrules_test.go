package logread

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestUnusedRulesAreExplained checks that a log that the templates of a rules file do not match, such
// as after a change of the script, has a reason that names this file and the nearest line.
func TestUnusedRulesAreExplained(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		RulesFile: "lines:\n  - 'round {epoch}: loss {train_loss}'\n  - 'other {epoch}'\n",
		"a.log":   "hello\nround 1: cost 0.5\nround 2: cost 0.4\n",
	})
	want := "no line template of " + filepath.Join(dir, RulesFile) + ` matches a line; the nearest is "round {epoch}: loss {train_loss}" for line 2, "round 1: cost 0.5": expected`
	reports, err := Explain(dir)
	check(t, err)
	if got := reports.String(); !strings.Contains(got, want) || !strings.Contains(got, "at character 10") {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, _, err := Read(filepath.Join(dir, "a.log")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
