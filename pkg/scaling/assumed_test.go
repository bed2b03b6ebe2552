package scaling

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// assumedRuns returns two runs, the worker counts of which are known from a name.
func assumedRuns() []runs.Run {
	all := []runs.Run{weak(1, 1, 20, 10, 10), weak(2, 1, 20, 12, 12)}
	for i := range all {
		all[i].Origins = map[runs.Property]runs.Origin{
			runs.PropertyWorkers: {Source: runs.SourceFileName, Detail: "x_1gpu"}, runs.PropertySeed: {Source: runs.SourceContent},
		}
	}
	return all
}

// What was assumed from names is in the notes of a study, also of a part of it.
func TestAssumptionsInNotes(t *testing.T) {
	s, err := FromRuns(assumedRuns())
	check(t, err)
	wantLine(t, s.Notes, "workers of 2 runs assumed from file names", "--strict", "lockstep read --explain")
	part, err := s.Only("ddp")
	check(t, err)
	again, err := part.WithRule(Rule{Epochs: "2"})
	check(t, err)
	n := 0
	for _, note := range again.Notes {
		if strings.Contains(note, "assumed from file names") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d notes about the assumption, want 1: %q", n, again.Notes)
	}
	known, err := FromRuns([]runs.Run{weak(1, 1, 20, 10, 10)})
	check(t, err)
	if len(known.Assumptions()) != 0 || strings.Contains(known.String(), "assumed from") {
		t.Errorf("assumptions %q, notes %q of a run folder", known.Assumptions(), known.Notes)
	}
}

// A study of files with different models has a note that states why the series were
// separated. It remains in a study with another rule.
func TestSeparationNote(t *testing.T) {
	dir := t.TempDir()
	for _, depth := range []int{50, 152} {
		text := fmt.Appendf(nil, "Epoch 1/2\n10/10 - %ds - loss: 0.5\nEpoch 2/2\n10/10 - %ds - loss: 0.4\n", depth, depth)
		check(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("resnet_%d_4gpu.log", depth)), text, 0o644))
	}
	s, err := Read(dir)
	check(t, err)
	s, err = s.WithRule(Rule{})
	check(t, err)
	if len(s.Points) != 2 || s.Points[0].Runs != 1 || s.Points[0].EpochSeconds.Value != 50 || s.Points[1].EpochSeconds.Value != 152 {
		t.Errorf("points %+v, want one per model", s.Points)
	}
	wantLine(t, s.Notes, `series "resnet": its 2 runs became 2 series`, "50 and 152", "=series:resnet'")
	if names := strings.Join(s.Series(), ","); names != "resnet 50,resnet 152" {
		t.Errorf("series %s", names)
	}
}
