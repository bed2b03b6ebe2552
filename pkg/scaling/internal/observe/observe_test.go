package observe

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// TestTotalTimeIsDividedByTrainedEpochs: if a log contains only the time of the complete
// training, the time of an epoch is this time divided by the number of epochs that the run
// trained, which need not be the number of epochs with values.
func TestTotalTimeIsDividedByTrainedEpochs(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		epochs any // value of TrainingEpochsKey
		want   float64
		note   string
	}{{nil, 20, "their 3 epochs"}, {2.5, 24, "their 2.5 epochs"}, {4.0, 15, "their 4 epochs"}, {0.0, 20, "their 3 epochs"}} {
		r := runs.Run{Dir: "out", Info: runs.Info{Config: map[string]any{logread.TrainingSecondsKey: 60.0, logread.TrainingEpochsKey: c.epochs}}}
		for n := 1; n <= 3; n++ {
			r.Epochs = append(r.Epochs, runs.Epoch{Epoch: n, Seconds: nan, SamplesPerSecond: nan})
		}
		if m := (MeasurementRule{}).Measure(r); m.Seconds != c.want || !strings.Contains(m.Note, c.note) {
			t.Errorf("%v epochs: got %g s (%s), want %g s (%s)", c.epochs, m.Seconds, m.Note, c.want, c.note)
		}
	}
}
