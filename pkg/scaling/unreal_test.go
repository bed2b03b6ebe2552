package scaling

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestUnrealScores: a study has no scores and losses of runs without communication, but their
// times, and says so once per series. The caller's runs keep theirs.
func TestUnrealScores(t *testing.T) {
	var all []runs.Run
	for seed, series := range []string{"ddp", "silent", "silent"} {
		epoch := runs.Epoch{Seconds: 2, Samples: 64, SamplesPerSecond: 32, TrainLoss: 0.5, ValLoss: 0.6, IoU: 0.7, Dice: 0.8, Accuracy: 0.9, ValAccuracy: 0.9}
		epochs := []runs.Epoch{epoch, epoch, epoch}
		for i := range epochs {
			epochs[i].Epoch = i + 1
		}
		all = append(all, runs.Run{
			Info:   runs.Info{Series: series, Workers: 2, Seed: int64(seed), Status: runs.StatusDone, Test: &runs.Test{IoU: 0.7, Dice: 0.8}},
			Epochs: epochs,
		})
	}
	all[1].Info.Unreal, all[2].Info.Unreal = "nobody spoke", "nobody spoke"
	s, err := FromRuns(all)
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(s.Notes, "\n")
	if want := "losses and scores of silent with more than 1 worker are not real and are left out; only its times are: nobody spoke"; strings.Count(notes, want) != 1 || strings.Contains(notes, "of ddp") {
		t.Errorf("got notes %q, want once %q", s.Notes, want)
	}
	for _, p := range s.Points {
		real := p.Series == "ddp"
		for _, e := range []Estimate{p.IoU, p.Dice, p.TrainLoss, p.ValLoss} {
			if known := !math.IsNaN(e.Value); known != real {
				t.Errorf("%s: got score or loss %v, want one only for ddp", p.Series, e)
			}
		}
		if p.EpochSeconds.Value != 2 {
			t.Errorf("%s: got %v s per epoch, want 2", p.Series, p.EpochSeconds)
		}
		if p.Diverged != 0 {
			t.Errorf("%s: got %d diverged runs, want 0", p.Series, p.Diverged)
		}
	}
	if len(s.Problems) != 0 {
		t.Errorf("got problems %v, want none", s.Problems)
	}
	if len(s.Points) != 2 || all[1].Info.Test == nil || all[1].Epochs[0].IoU != 0.7 {
		t.Errorf("got %d points, want 2; caller's run %+v", len(s.Points), all[1])
	}
}
