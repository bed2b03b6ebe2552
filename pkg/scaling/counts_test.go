package scaling

import (
	"math"
	"testing"

	"lockstep/pkg/runs"
)

// TestCounts checks that the rule excludes epochs by their number instead of their index, and
// that a single row without an epoch number is not excluded.
func TestCounts(t *testing.T) {
	epoch := func(number int, seconds float64) runs.Epoch {
		nan := math.NaN()
		return runs.Epoch{
			Epoch: number, Seconds: seconds, SamplesPerSecond: nan, TrainLoss: nan, ValLoss: nan, IoU: nan, Dice: nan,
			ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
		}
	}
	for name, c := range map[string]struct {
		epochs []runs.Epoch
		want   float64
	}{
		"the fifth alone":     {[]runs.Epoch{epoch(5, 16)}, 16},
		"the first and later": {[]runs.Epoch{epoch(1, 40), epoch(2, 10), epoch(3, 20)}, 15},
		"from the second on":  {[]runs.Epoch{epoch(2, 10), epoch(3, 20)}, 15},
		"the whole run":       {[]runs.Epoch{epoch(0, 30)}, 30},
		"the first alone":     {[]runs.Epoch{epoch(1, 40)}, math.NaN()},
	} {
		s, err := FromRuns([]runs.Run{{Dir: "run", Kind: "results table", Info: runs.Info{Series: "ddp", Workers: 1, Status: runs.StatusDone}, Epochs: c.epochs}})
		check(t, err)
		if got := s.Points[0].EpochSeconds.Value; got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %g s an epoch, expected %g", name, got, c.want)
		}
	}
}
