package optim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/optim"
)

func ExampleApply() {
	c := optim.Config{Name: "sgd", LearningRate: 0.1, Momentum: 0.9}
	w, buf := []float64{1}, []float64{0}
	for step, g := range []float64{0.5, -0.2, 0.3} {
		if err := optim.Apply(c.Update(c.LearningRate, step+1), w, []float64{g}, buf); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("step %d: weight %.4f, momentum %.3f\n", step+1, w[0], buf[0])
	}
	// Output:
	// step 1: weight 0.9500, momentum 0.500
	// step 2: weight 0.9250, momentum 0.250
	// step 3: weight 0.8725, momentum 0.525
}

func ExampleSchedule_Rate() {
	s := optim.StudySchedule()
	for _, epoch := range []int{0, 79, 80, 120, 150} {
		fmt.Printf("epoch %3d: 1 worker %g, 14 workers %g\n", epoch, s.Rate(1e-3, 1, epoch, 0, 10), s.Rate(1e-3, 14, epoch, 0, 10))
	}
	// Output:
	// epoch   0: 1 worker 0.001, 14 workers 0.014
	// epoch  79: 1 worker 0.001, 14 workers 0.014
	// epoch  80: 1 worker 0.0005, 14 workers 0.007
	// epoch 120: 1 worker 0.00025, 14 workers 0.0035
	// epoch 150: 1 worker 0.000125, 14 workers 0.00175
}

// TestApply: the expected numbers were worked out with 40 decimal digits
// (Python's decimal) from the formulas of Kingma and Ba 2015, algorithm 1, and
// of the documentation of torch.optim.SGD; weight 1 at the start.
func TestApply(t *testing.T) {
	adam := optim.Config{Name: "adam", LearningRate: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	sgd := optim.Config{Name: "sgd", LearningRate: 0.1, Momentum: 0.9}
	with := func(c optim.Config, decay float64) optim.Config {
		c.WeightDecay = decay
		return c
	}
	plain := optim.Config{Name: "sgd", LearningRate: 0.1, WeightDecay: 0.5}
	for _, c := range []struct {
		name      string
		config    optim.Config
		gradients []float64
		weight    float64
		slots     []float64
	}{
		{"adam, 1 step", adam, []float64{0.5}, 0.900000001999999960, []float64{0.05, 0.00025}},
		{"adam, 2 steps", adam, []float64{0.5, -0.2}, 0.865439418116510585, []float64{0.025, 0.00028975}},
		{"adam, 3 steps", adam, []float64{0.5, -0.2, 0.3}, 0.810995383681155204, []float64{0.0525, 0.00037946025}},
		{"adam, weight decay", with(adam, 0.01), []float64{0.5, -0.2}, 0.863364138070181751, []float64{0.026800000001960784, 0.000296320899992510}},
		{"sgd, momentum", sgd, []float64{0.5, -0.2, 0.3}, 0.8725, []float64{0.525}},
		{"sgd, momentum, weight decay", with(sgd, 0.01), []float64{0.5, -0.2}, 0.922151, []float64{0.26849}},
		// 1 − 0.1·(0.5 + 0.5·1) = 0.9; 0.9 − 0.1·(0.2 + 0.5·0.9) = 0.835
		{"sgd, weight decay", plain, []float64{0.5, 0.2}, 0.835, nil},
	} {
		// Two weights with the same history show that elements do not mix.
		w := []float64{1, 1}
		slots := make([][]float64, len(c.slots))
		for i := range slots {
			slots[i] = make([]float64, 2)
		}
		for i, g := range c.gradients {
			if err := optim.Apply(c.config.Update(c.config.LearningRate, i+1), w, []float64{g, g}, slots...); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		for k := range w {
			if math.Abs(w[k]-c.weight) > 1e-15 {
				t.Errorf("%s: weight %d is %.18f, want %.18f", c.name, k, w[k], c.weight)
			}
			for i := range slots {
				if math.Abs(slots[i][k]-c.slots[i]) > 1e-16 {
					t.Errorf("%s: slot %d is %.18f, want %.18f", c.name, i, slots[i][k], c.slots[i])
				}
			}
		}
	}
}

func TestApplyErrors(t *testing.T) {
	w, g, s := []float64{1}, []float64{1}, []float64{0}
	adam := optim.DefaultConfig()
	ahead := optim.Update{Rule: "sgd", Nesterov: true}
	for _, c := range []struct {
		err  error
		want string
	}{
		{optim.Apply(optim.Update{Rule: "lion"}, w, g), `unknown rule "lion": use sgd, adam, adamw, lars or lamb`},
		{optim.Apply(optim.Update{Rule: "lamb"}, w, g), "invalid step 0 for rule lamb: steps count from 1"},
		{optim.Apply(ahead, w, g), "nesterov without momentum"},
		{optim.Apply(adam.Update(1, 1), w, g, s), "got 1 slots, want 2, named [m v]"},
		{optim.Apply(adam.Update(1, 1), w, nil, s, s), "0 gradients for 1 weights"},
		{optim.Apply(adam.Update(1, 1), w, g, s, nil), "slot v has 0 values for 1 weights"},
		{optim.Apply(adam.Update(1, 0), w, g, s, s), "invalid step 0 for rule adam: steps count from 1"},
		{optim.Apply(optim.Update{Rule: "sgd"}, w, g, s), "got 1 slots, want 0"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("got %v, want %q", c.err, c.want)
		}
	}
	if w[0] != 1 {
		t.Errorf("a refused step changed the weight to %g", w[0])
	}
}

func TestConfigValidate(t *testing.T) {
	if err := optim.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	if err := (optim.Config{Name: "sgd", LearningRate: 0.01}).Validate(); err != nil {
		t.Errorf("plain SGD is refused: %v", err)
	}
	for _, c := range []struct {
		change func(*optim.Config)
		want   string
	}{
		{func(c *optim.Config) { c.Name = "lion" }, `unknown name "lion": use sgd, adam, adamw, lars or lamb`},
		{func(c *optim.Config) { c.Name, c.Beta1 = "lamb", 1 }, "beta1 is 1"},
		{func(c *optim.Config) { c.Name, c.Momentum = "lars", 1 }, "momentum is 1"},
		{func(c *optim.Config) { c.Name, c.Trust = "lars", 0 }, "trust is 0"},
		{func(c *optim.Config) { c.ClipNorm = -1 }, "clip_norm is -1: use 0 not to clip"},
		{func(c *optim.Config) { c.Nesterov = true }, "nesterov is for sgd with a momentum above 0, not for adam"},
		{func(c *optim.Config) { c.LearningRate = 0 }, "learning_rate is 0"},
		{func(c *optim.Config) { c.LearningRate = math.NaN() }, "learning_rate is NaN"},
		{func(c *optim.Config) { c.LearningRate = math.Inf(1) }, "learning_rate is +Inf"},
		{func(c *optim.Config) { c.WeightDecay = -1 }, "weight_decay is -1"},
		{func(c *optim.Config) { c.Beta1 = 1 }, "beta1 is 1"},
		{func(c *optim.Config) { c.Beta2 = -0.1 }, "beta2 is -0.1"},
		{func(c *optim.Config) { c.Epsilon = 0 }, "epsilon is 0"},
		{func(c *optim.Config) { c.Name, c.Momentum = "sgd", 1 }, "momentum is 1"},
	} {
		config := optim.DefaultConfig()
		c.change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestRate: warm-up and scaling worked by hand; the study's own numbers are in
// ExampleSchedule_Rate.
func TestRate(t *testing.T) {
	warm := optim.StudySchedule()
	warm.WarmupEpochs = 10
	steps := optim.Schedule{WarmupSteps: 4}
	for _, c := range []struct {
		name                          string
		s                             optim.Schedule
		workers, epoch, step, inEpoch int
		want                          float64
	}{
		{"zero value", optim.Schedule{}, 8, 199, 3, 5, 1e-3},
		{"none", optim.Schedule{Scaling: "none"}, 8, 0, 0, 5, 1e-3},
		{"linear", optim.Schedule{Scaling: "linear"}, 8, 0, 0, 5, 8e-3},
		{"sqrt", optim.Schedule{Scaling: "sqrt"}, 16, 0, 0, 5, 4e-3},
		// 10 epochs of 5 steps: 50 steps up to 14e-3.
		{"warm-up, first step", warm, 14, 0, 0, 5, 14e-3 / 50},
		{"warm-up, half", warm, 14, 4, 4, 5, 7e-3},
		{"warm-up, last step", warm, 14, 9, 4, 5, 14e-3},
		{"warm-up, after", warm, 14, 10, 0, 5, 14e-3},
		{"warm-up, then decay", warm, 14, 80, 0, 5, 7e-3},
		{"warm-up in steps", steps, 1, 1, 0, 2, 0.75e-3},
		{"warm-up in steps, after", steps, 1, 2, 0, 2, 1e-3},
	} {
		got := c.s.Rate(1e-3, c.workers, c.epoch, c.step, c.inEpoch)
		if math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s: rate is %g, want %g", c.name, got, c.want)
		}
	}
}

func TestScheduleValidate(t *testing.T) {
	for _, s := range []optim.Schedule{
		{},
		optim.StudySchedule(), optim.StudyScheduleTensorFlow(), optim.StudySchedulePyTorch(),
		{Scaling: "sqrt", WarmupSteps: 128},
		{WarmupEpochs: 2, WarmupFrom: "unscaled", SetAfterEpoch: true},
		{WarmupSteps: 2, WarmupFrom: "zero"},
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	m := func(m ...optim.Milestone) optim.Schedule { return optim.Schedule{Decay: m} }
	for _, c := range []struct {
		s    optim.Schedule
		want string
	}{
		{optim.Schedule{Scaling: "cubic"}, `unknown scaling "cubic": use none, linear or sqrt`},
		{optim.Schedule{Anneal: "exp"}, `unknown anneal "exp": use none, cosine or cosine-sc21`},
		{optim.Schedule{BaseBatch: -1}, "base_batch is -1"},
		{optim.Schedule{EndRate: math.NaN()}, "end_rate is NaN"},
		{optim.Schedule{Anneal: "cosine", Decay: optim.StudySchedule().Decay}, "both anneal (cosine) and decay are set: set one of them"},
		{optim.Schedule{WarmupEpochs: -1}, "warmup_epochs is -1"},
		{optim.Schedule{WarmupSteps: -1}, "warmup_steps is -1"},
		{optim.Schedule{WarmupEpochs: 1, WarmupSteps: 1}, "set one of them"},
		{optim.Schedule{WarmupEpochs: 1, WarmupFrom: "base"}, `unknown warmup_from "base": use zero or unscaled`},
		{optim.Schedule{WarmupSteps: 5, WarmupFrom: "unscaled"}, "set warmup_epochs"},
		{optim.Schedule{SetAfterEpoch: true, Anneal: "cosine"}, "anneal is cosine, which changes the rate within an epoch"},
		{optim.Schedule{SetAfterEpoch: true, WarmupEpochs: 2}, "use warmup_from: unscaled"},
		{optim.Schedule{SetAfterEpoch: true, WarmupSteps: 2}, "use warmup_from: unscaled"},
		{m(optim.Milestone{Epoch: -1, Factor: 1}), "decay[0].epoch is -1"},
		{m(optim.Milestone{Epoch: 5, Factor: 1}, optim.Milestone{Epoch: 5, Factor: 0.5}), "decay[1].epoch is 5"},
		{m(optim.Milestone{Epoch: 5}), "decay[0].factor is 0"},
	} {
		if err := c.s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestDocuments: a config reads back the same from YAML and JSON.
func TestDocuments(t *testing.T) {
	type document struct {
		Optimizer optim.Config   `yaml:"optimizer" json:"optimizer"`
		Schedule  optim.Schedule `yaml:"schedule" json:"schedule"`
	}
	want := document{optim.DefaultConfig(), optim.StudySchedulePyTorch()}
	want.Schedule.WarmupEpochs, want.Schedule.WarmupFrom = 10, optim.WarmupFromUnscaled
	text, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got document
	if err := yaml.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("YAML gave %+v, %v", got, err)
	}
	if text, err = json.Marshal(want); err != nil {
		t.Fatal(err)
	}
	got = document{}
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON gave %+v, %v", got, err)
	}
}
