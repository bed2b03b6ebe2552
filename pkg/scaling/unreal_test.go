package scaling

import (
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestUnrealScoresInNotes: a study says once per series that the scores of its runs without
// communication are not real.
func TestUnrealScoresInNotes(t *testing.T) {
	var all []runs.Run
	for seed, series := range []string{"ddp", "silent", "silent"} {
		all = append(all, runs.Run{Info: runs.Info{Series: series, Workers: 2, Seed: int64(seed), Status: runs.StatusDone}})
	}
	all[1].Info.Unreal, all[2].Info.Unreal = "nobody spoke", "nobody spoke"
	s, err := FromRuns(all)
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(s.Notes, "\n")
	if want := "losses and scores of silent are not real, only its times: nobody spoke"; strings.Count(notes, want) != 1 || strings.Contains(notes, "of ddp") {
		t.Errorf("got notes %q, want once %q", s.Notes, want)
	}
}
