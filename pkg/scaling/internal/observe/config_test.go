package observe

import (
	"math"
	"testing"

	"lockstep/pkg/runs"
)

// TestLearningRateOfRun checks that the initial rate is the config's rate, scaled by the
// global batch divided by the batch for which the config gives the rate.
func TestLearningRateOfRun(t *testing.T) {
	r := runs.Run{
		Info:   runs.Info{Workers: 4, GlobalBatch: 16, Config: map[string]any{"optimizer": map[string]any{"learning_rate": 0.001}}},
		Epochs: []runs.Epoch{{Epoch: 1, LearningRate: 0.001}},
	}
	schedule := map[string]any{}
	r.Info.Config["schedule"] = schedule
	for _, c := range []struct {
		scaling string
		base    float64
		want    float64
	}{{"", 0, 0.001}, {"none", 2, 0.001}, {"linear", 0, 0.004}, {"sqrt", 0, 0.002}, {"linear", 2, 0.008}, {"sqrt", 64, 0.0005}} {
		schedule["scaling"], schedule["base_batch"] = c.scaling, c.base
		if got := LearningRate(r); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s of base %g: %g, want %g", c.scaling, c.base, got, c.want)
		}
	}
	r.Info.Config = nil // another program's
	if got := LearningRate(r); got != 0.001 {
		t.Errorf("by the log: %g", got)
	}
}
