package train

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/optim"
	"lockstep/pkg/runs"
	"lockstep/pkg/weights"
)

// trained returns the parameters after 20 steps of one worker. It multiplies PyTorch's initial
// weights by √6, which gives He's variance of 2/fan-in, so that every layer learns.
func trained(t *testing.T, cfg Config) map[string][]float64 {
	t.Helper()
	tr, err := New(t.Context(), cfg, collective.InProcess(1)[0], WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}()
	params, err := tr.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range params {
		for i := range v {
			v[i] *= math.Sqrt(6)
		}
	}
	if err := tr.SetParameters(params); err != nil {
		t.Fatal(err)
	}
	if err := tr.TrainTo(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	if params, err = tr.Parameters(); err != nil {
		t.Fatal(err)
	}
	return params
}

// furthest returns the largest relative distance of a parameter in a from the one in b.
func furthest(a, b map[string][]float64) float64 {
	d := 0.0
	for _, name := range slices.Sorted(maps.Keys(a)) {
		d = max(d, distance(a[name], b[name]))
	}
	return d
}

// distance returns ‖a−b‖₂/‖a‖₂.
func distance(a, b []float64) float64 {
	var d, n float64
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += a[i] * a[i]
	}
	return math.Sqrt(d / n)
}

// toleranceFloat64 is the largest relative difference that the order of additions causes in
// float64.
const toleranceFloat64 = 1e-10

// withoutNorms returns a small config without batch norm, for which N workers compute the same
// as one worker with an N-fold batch.
func withoutNorms() Config {
	c := DefaultConfig()
	c.Name = "without-norms"
	c.Model = ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Bias: true}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 25, 16, 16, 1
	c.Data.Augment.Flip, c.Data.Augment.Rotate = true, true
	c.Batch = 2
	c.BucketMiB = 0.01 // several buckets even in a small network
	return c
}

// exactConfig returns the config of withoutNorms in float64 with SGD.
func exactConfig() Config {
	c := withoutNorms()
	c.Engine.Device, c.Engine.Precision = "reference", "fp64"
	c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
	return c
}

// TestAccumulate: a step over 3 batches of 2 samples equals a step over one batch of 6. The last
// step of an epoch uses the remaining batches.
func TestAccumulate(t *testing.T) {
	cfg := exactConfig()
	cfg.Batch, cfg.Accumulate = 2, 3
	whole := exactConfig()
	whole.Batch = 6
	if d := furthest(trained(t, whole), trained(t, cfg)); d > toleranceFloat64 {
		t.Errorf("3 × 2 differs from 6 by %g", d)
	}
	// The losses, which are means over the samples of a step, are equal too.
	var losses [2]float64
	for i, c := range []Config{whole, cfg} {
		c.Epochs = 1
		res, err := trainAll(t, c, 1, WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		losses[i] = res[0].Epochs[0].TrainLoss
	}
	if math.Abs(losses[0]-losses[1]) > 1e-12 || losses[0] < 0.1 {
		t.Errorf("the loss of 3 × 2 is %g, of 6 %g", losses[1], losses[0])
	}
	// 24 samples are 6 batches of 4: a step over 4 batches and one over 2.
	cfg.Batch, cfg.Accumulate = 4, 4
	dir := filepath.Join(t.TempDir(), "run")
	cfg.Epochs = 1
	res, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if e := res[0].Epochs[0]; e.Samples != 24 {
		t.Errorf("epoch %+v, want 24 samples", e)
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Info.GlobalBatch != 32 || run.Info.BatchPerWorker != 4 {
		t.Errorf("run.json has global batch %d of %d, want 32 of 4", run.Info.GlobalBatch, run.Info.BatchPerWorker)
	}
	_, steps, _, err := runs.ReadSteps(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 1 || steps[0].Samples != 12 || steps[0].Step != 1 {
		t.Errorf("rank 1 took %+v, want one step with 12 samples", steps)
	}
	checks, err := VerifyRun(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !c.OK && c.Name != "each rank was a separate process" {
			t.Error(c)
		}
	}
}

// TestRulesOnBothEngines: after 20 steps of each optimizer rule, the CPU engine, whose layout
// pads 5 channels to 8, has the weights of the reference engine up to rounding.
func TestRulesOnBothEngines(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, c := range []optim.Config{
		{Name: "sgd", LearningRate: 0.05, Momentum: 0.9, Nesterov: true, WeightDecay: 1e-3},
		{Name: "sgd", LearningRate: 0.05, Momentum: 0.9, ClipNorm: 0.3},
		{Name: "adamw", LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-3, WeightDecay: 0.1},
		{Name: "lars", LearningRate: 1, Momentum: 0.9, Trust: 0.01, WeightDecay: 1e-3},
		{Name: "lamb", LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-3, WeightDecay: 0.01},
	} {
		t.Run(fmt.Sprintf("%s nesterov %v clip %g", c.Name, c.Nesterov, c.ClipNorm), func(t *testing.T) {
			cfg := withoutNorms()
			cfg.Model.Base = 5
			cfg.Data.Count = 13
			cfg.Optimizer = c
			cfg.Engine.Device, cfg.Engine.Precision = "reference", "fp64"
			want := trained(t, cfg)
			cfg.Engine.Device, cfg.Engine.Precision = "cpu", "fp32"
			got := trained(t, cfg)
			if d := furthest(want, got); d > 2e-4 { // float32 over 20 steps
				t.Errorf("differs by %g", d)
			}
			cfg.Optimizer.ClipNorm, cfg.Optimizer.Nesterov = 0, false
			if c.ClipNorm > 0 || c.Nesterov {
				if d := furthest(got, trained(t, cfg)); d < 1e-3 {
					t.Errorf("without it the weights differ by %g alone", d)
				}
			}
		})
	}
}

// TestAverage compares the average of one parameter with values computed by hand, also after a
// checkpoint and resumption.
func TestAverage(t *testing.T) {
	cfg := tiny()
	cfg.EMA = AverageConfig{Decay: 0.5}
	cfg.Epochs, cfg.Checkpoint.Keep = 2, 0
	tr, err := New(t.Context(), cfg, collective.InProcess(1)[0], WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "head.bias"
	want := tr.average.values[name][0]
	for step, d := range []float64{2. / 11, 3. / 12, 4. / 13, 5. / 14} { // (1+u)/(10+u)
		if err := tr.TrainTo(t.Context(), step+1); err != nil {
			t.Fatal(err)
		}
		w, err := tr.train.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		want = d*want + (1-d)*w[0]
		if got := tr.average.values[name][0]; math.Abs(got-want) > 1e-15 {
			t.Errorf("after step %d the average is %g, want %g", step+1, got, want)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestResumeAll: a run with all features that have a state, interrupted and resumed within an
// epoch, ends with the same bits as an uninterrupted run.
func TestResumeAll(t *testing.T) {
	cfg := tiny()
	cfg.Accumulate = 2
	cfg.EMA = AverageConfig{Decay: 0.9, Every: 2}
	cfg.Optimizer.Name, cfg.Optimizer.LearningRate, cfg.Optimizer.ClipNorm = "lamb", 0.01, 1
	cfg.Schedule = optim.Schedule{Scaling: "sqrt", BaseBatch: 2, WarmupSteps: 2, Anneal: "cosine"}
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: whole}); err != nil {
		t.Fatal(err)
	}
	parts := filepath.Join(t.TempDir(), "parts")
	if err := interruptedAt(t, cfg, 2, WorkerOptions{Dir: parts}, 2, 1); err == nil {
		t.Fatal("it was not interrupted")
	}
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: parts, Resume: true}); err != nil {
		t.Fatal(err)
	}
	want := outcome(t, whole)
	if got := outcome(t, parts); got != want {
		t.Error("the resumed run differs")
	}
	f, err := weights.Read(filepath.Join(whole, "checkpoints", "epoch-0003.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	// 5 batches, 2 per step, are 3 steps per epoch. The average uses every second of 9 steps.
	if f.Metadata["averages"] != "4" || !strings.Contains(want, "\n"+averagePrefix+"head.weight ") {
		t.Errorf("%s updates of the average are saved, want 4", f.Metadata["averages"])
	}
	log, err := os.ReadFile(filepath.Join(whole, "out.log"))
	if err != nil || strings.Count(string(log), "averaged parameters: val loss") != 3 {
		t.Errorf("out.log does not score the average after each epoch (%v):\n%s", err, log)
	}
}

// TestResumeBeforeTheFirstAverage: averages that were not updated before the interruption start
// with the initial parameters of the run, not with the parameters at its resumption.
func TestResumeBeforeTheFirstAverage(t *testing.T) {
	cfg := tiny()
	cfg.EMA = AverageConfig{Decay: 0.9, Every: 7} // of 15 steps, 5 an epoch
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: whole}); err != nil {
		t.Fatal(err)
	}
	parts := filepath.Join(t.TempDir(), "parts")
	if err := interruptedAt(t, cfg, 2, WorkerOptions{Dir: parts}, 1, 3); err == nil {
		t.Fatal("it was not interrupted")
	}
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: parts, Resume: true}); err != nil {
		t.Fatal(err)
	}
	if outcome(t, parts) != outcome(t, whole) {
		t.Error("the resumed run differs")
	}
}

// TestAverageLeavesTraining: parameters, statistics and slots have the same bits as in a run
// without averages, although the averages replace the parameters during their evaluation.
func TestAverageLeavesTraining(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 4
	without, with := filepath.Join(t.TempDir(), "without"), filepath.Join(t.TempDir(), "with")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: without}); err != nil {
		t.Fatal(err)
	}
	cfg.EMA = AverageConfig{Decay: 0.9}
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: with}); err != nil {
		t.Fatal(err)
	}
	a, b := tensorsOf(t, without), tensorsOf(t, with)
	for name, want := range a {
		if !slices.Equal(b[name], want) {
			t.Errorf("%s differs", name)
		}
	}
	averages := 0
	for name := range b {
		if of, ok := strings.CutPrefix(name, averagePrefix); ok {
			averages++
			if slices.Equal(b[name], b[of]) {
				t.Errorf("the average of %s is it itself", of)
			}
		}
	}
	if len(a) == 0 || averages == 0 || len(b) != len(a)+averages {
		t.Errorf("%d tensors without, %d with averages, %d of them averages", len(a), len(b), averages)
	}
}

// TestFirstStepOfAdam: m̂/√v̂ of the first step is the sign of the gradient, so every weight with
// a gradient moves by the learning rate. With the bias correction of a later step it would
// move less.
func TestFirstStepOfAdam(t *testing.T) {
	cfg := exactConfig()
	cfg.Optimizer = optim.Config{Name: "adam", LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-30}
	tr, err := New(t.Context(), cfg, collective.InProcess(1)[0], WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := map[string][]float64{}
	for _, p := range tr.train.Program().Params {
		if before[p.Name], err = tr.train.Get(p.Name); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.TrainTo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for name, was := range before {
		is, err := tr.train.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range is {
			switch d := math.Abs(is[i] - was[i]); {
			case d == 0: // behind a ReLU that is off
			case math.Abs(d-0.01) > 1e-9:
				t.Fatalf("%s[%d] moved by %g, want 0.01", name, i, d)
			default:
				moved++
			}
		}
	}
	if moved < 100 {
		t.Errorf("%d weights moved", moved)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}
