package main

import (
	"encoding/json"
	"math"
	"testing"

	"lockstep/pkg/optim"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
)

// document is a config as run.json keeps it.
func document(t *testing.T, set ...string) map[string]any {
	t.Helper()
	cfg, err := train.Named("unet2d-cells", set...)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestLearningRatesAgree: the analysis takes the initial learning rate of a run
// from its config as the training does.
func TestLearningRatesAgree(t *testing.T) {
	for _, s := range []optim.Schedule{
		{},
		{Scaling: optim.ScalingNone, BaseBatch: 2},
		{Scaling: optim.ScalingLinear},
		{Scaling: optim.ScalingSqrt},
		{Scaling: optim.ScalingLinear, BaseBatch: 16},
		{Scaling: optim.ScalingSqrt, BaseBatch: 16},
	} {
		var all []runs.Run
		var want []float64
		for _, workers := range []int{1, 4} {
			doc := document(t, "schedule.scaling="+train.QuoteYAML(s.Scaling), "optimizer.learning_rate=0.003")
			doc["schedule"].(map[string]any)["base_batch"] = float64(s.BaseBatch)
			all = append(all, runs.Run{
				Info:   runs.Info{Series: "ddp", Workers: workers, Seed: 1, GlobalBatch: 8 * workers, Config: doc},
				Epochs: []runs.Epoch{{Epoch: 1, Seconds: 1, IoU: 0.5}},
			})
			want = append(want, s.ScaledRate(0.003, optim.TrainingRun{Workers: workers, GlobalBatch: 8 * workers}))
		}
		study, err := scaling.FromRuns(all)
		if err != nil {
			t.Fatal(err)
		}
		r, err := study.ScalingRule("")
		if err != nil {
			t.Fatal(err)
		}
		for i, tried := range r.Tried {
			if math.Abs(tried.LearningRate-want[i]) > 1e-12 {
				t.Errorf("%+v at %d workers: %g, want %g", s, all[i].Info.Workers, tried.LearningRate, want[i])
			}
		}
	}
}
