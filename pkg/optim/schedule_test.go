package optim_test

import (
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/optim"
)

// sc21 is the tutorial's schedule for a global batch, of 64 samples at the
// start rate of 2e-4.
func sc21() optim.Schedule {
	return optim.Schedule{Scaling: "sqrt", BaseBatch: 64, WarmupSteps: 128, Anneal: "cosine-sc21"}
}

func ExampleSchedule_At() {
	s := optim.Schedule{Scaling: "linear", WarmupSteps: 100, Anneal: "cosine"}
	run := optim.TrainingRun{Workers: 4, StepsPerEpoch: 100, Epochs: 11}
	for _, epoch := range []int{0, 1, 6, 10} {
		fmt.Printf("epoch %2d: from %.6f to %.6f\n", epoch, s.At(1e-3, run, epoch, 0), s.At(1e-3, run, epoch, 99))
	}
	// Output:
	// epoch  0: from 0.000040 to 0.004000
	// epoch  1: from 0.004000 to 0.003902
	// epoch  6: from 0.001994 to 0.001382
	// epoch 10: from 0.000096 to 0.000000
}

// TestSC21 holds the schedule to the numbers of the tutorial's list of configs:
// initial rates and total steps of each, and the rate at iteration 1024 of 10240.
func TestSC21(t *testing.T) {
	for _, c := range []struct {
		name                            string
		globalBatch, gpus, epochs, want int // steps in all
		initial                         float64
	}{
		{"base", 64, 1, 10, 10240, 2e-4},
		{"bs64_opt", 64, 1, 10, 10240, 2e-4},
		{"bs256_opt", 256, 4, 20, 5120, 4e-4},
		{"bs512_test", 512, 8, 10, 1280, 5.657e-4},
		{"bs512_opt", 512, 8, 40, 5120, 5.657e-4},
		{"bs2048_opt", 2048, 32, 160, 5120, 1.131e-3},
		{"bs8192_opt", 8192, 128, 320, 2560, 2.263e-3},
	} {
		r := optim.TrainingRun{Workers: c.gpus, GlobalBatch: c.globalBatch, StepsPerEpoch: 65536 / c.globalBatch, Epochs: c.epochs}
		if got := r.Epochs * r.StepsPerEpoch; got != c.want {
			t.Errorf("%s: %d steps in all, want %d", c.name, got, c.want)
		}
		// The list gives four digits, the last of 1.131e-3 being worth 9e-4 of it.
		if got := sc21().ScaledRate(2e-4, r); math.Abs(got-c.initial)/c.initial > 4.5e-4 {
			t.Errorf("%s: initial rate is %g, want %g", c.name, got, c.initial)
		}
	}
	base := optim.TrainingRun{Workers: 1, GlobalBatch: 64, StepsPerEpoch: 1024, Epochs: 10}
	at := func(r optim.TrainingRun, i int) float64 {
		return sc21().At(2e-4, r, (i-1)/r.StepsPerEpoch, (i-1)%r.StepsPerEpoch)
	}
	if got := at(base, 1024); math.Abs(got-1.9510565e-4) > 5e-12 {
		t.Errorf("rate at iteration 1024 of 10240 is %.8g, want 1.9510565e-4", got)
	}
	// A batch that is not larger than the base has no warm-up: 2e-4·½(1+cos(π/10240)).
	if got, want := at(base, 1), 1e-4*(1+math.Cos(math.Pi/10240)); math.Abs(got-want) > 1e-18 {
		t.Errorf("first rate is %g, want %g", got, want)
	}
	large := optim.TrainingRun{Workers: 4, GlobalBatch: 256, StepsPerEpoch: 256, Epochs: 20}
	for _, c := range []struct {
		i    int
		want float64
	}{
		{1, 4e-4 / 128},
		{64, 2e-4},
		{127, 127 * 4e-4 / 128},
		{128, 4e-4},        // the cosine begins at 0
		{128 + 2560, 2e-4}, // a half of the total after it
		{5120, 2e-4 * (1 + math.Cos(math.Pi*4992/5120))}, // it does not reach the end
	} {
		if got := at(large, c.i); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("256 samples: rate at iteration %d is %g, want %g", c.i, got, c.want)
		}
	}
}

// TestStudy holds the study's schedule to 1e-3·N, halved at epochs 80, 120 and
// 150, for all of its worker counts.
func TestStudy(t *testing.T) {
	for _, n := range []int{1, 2, 4, 6, 8, 10, 12, 14} {
		for epoch, divisor := range map[int]float64{0: 1, 79: 1, 80: 2, 119: 2, 120: 4, 149: 4, 150: 8, 199: 8} {
			want := 1e-3 * float64(n) / divisor
			got := optim.StudySchedule().At(1e-3, optim.TrainingRun{Workers: n, GlobalBatch: 16 * n, StepsPerEpoch: 5, Epochs: 200}, epoch, 4)
			if math.Abs(got-want) > 1e-15 {
				t.Errorf("%d workers, epoch %d: %g, want %g", n, epoch, got, want)
			}
		}
	}
}

// TestStudyPrograms holds the two programs' schedules to the rates that their step
// functions give. TensorFlow's is called before epoch e and returns lr·N for e < 80,
// a half for e < 120, a quarter for e <= 150 and an eighth else. PyTorch's is called
// after epoch e, with e < 150 for the quarter, and takes effect in epoch e + 1.
// Every epoch of 200 is compared with a golden list of (first epoch, rate/lr).
func TestStudyPrograms(t *testing.T) {
	type from struct {
		epoch int
		rate  float64 // over lr
	}
	for _, c := range []struct {
		name    string
		s       optim.Schedule
		workers int
		want    []from
	}{
		{"tensorflow", optim.StudyScheduleTensorFlow(), 1, []from{{0, 1}, {80, 0.5}, {120, 0.25}, {151, 0.125}}},
		{"tensorflow", optim.StudyScheduleTensorFlow(), 4, []from{{0, 4}, {80, 2}, {120, 1}, {151, 0.5}}},
		{"tensorflow", optim.StudyScheduleTensorFlow(), 14, []from{{0, 14}, {80, 7}, {120, 3.5}, {151, 1.75}}},
		{"pytorch", optim.StudySchedulePyTorch(), 1, []from{{0, 1}, {81, 0.5}, {121, 0.25}, {151, 0.125}}},
		{"pytorch", optim.StudySchedulePyTorch(), 4, []from{{0, 1}, {1, 4}, {81, 2}, {121, 1}, {151, 0.5}}},
		{"pytorch", optim.StudySchedulePyTorch(), 14, []from{{0, 1}, {1, 14}, {81, 7}, {121, 3.5}, {151, 1.75}}},
	} {
		run := optim.TrainingRun{Workers: c.workers, GlobalBatch: 16 * c.workers, StepsPerEpoch: 5, Epochs: 200}
		next := 0
		for epoch := range 200 {
			if next+1 < len(c.want) && epoch >= c.want[next+1].epoch {
				next++
			}
			for _, step := range []int{0, 4} {
				want := 1e-3 * c.want[next].rate
				if got := c.s.At(1e-3, run, epoch, step); math.Abs(got-want) > 1e-15 {
					t.Errorf("%s, %d workers, epoch %d, step %d: %g, want %g", c.name, c.workers, epoch, step, got, want)
				}
			}
		}
	}
}

// TestStudyWarmup holds the study's warm-up to lr·(1 + (N−1)·min(e/10, 1)), worked
// out by hand for N = 4 and N = 14.
func TestStudyWarmup(t *testing.T) {
	tensorflow, pytorch := optim.StudyScheduleTensorFlow(), optim.StudySchedulePyTorch()
	for _, s := range []*optim.Schedule{&tensorflow, &pytorch} {
		s.WarmupEpochs, s.WarmupFrom = 10, optim.WarmupFromUnscaled
	}
	for _, c := range []struct {
		name    string
		s       optim.Schedule
		workers int
		want    map[int]float64 // rate/lr by epoch
	}{
		{"tensorflow", tensorflow, 1, map[int]float64{0: 1, 5: 1, 10: 1, 79: 1, 80: 0.5}},
		{"tensorflow", tensorflow, 4, map[int]float64{0: 1, 1: 1.3, 5: 2.5, 9: 3.7, 10: 4, 79: 4, 80: 2, 150: 1, 151: 0.5}},
		{"tensorflow", tensorflow, 14, map[int]float64{0: 1, 1: 2.3, 5: 7.5, 9: 12.7, 10: 14, 119: 7, 120: 3.5}},
		{"pytorch", pytorch, 4, map[int]float64{0: 1, 1: 1, 2: 1.3, 6: 2.5, 10: 3.7, 11: 4, 80: 4, 81: 2}},
	} {
		run := optim.TrainingRun{Workers: c.workers, GlobalBatch: 16 * c.workers, StepsPerEpoch: 5, Epochs: 200}
		for epoch, want := range c.want {
			for _, step := range []int{0, 4} {
				if got := c.s.At(1e-3, run, epoch, step); math.Abs(got-1e-3*want) > 1e-15 {
					t.Errorf("%s, %d workers, epoch %d, step %d: %g, want %g", c.name, c.workers, epoch, step, got, 1e-3*want)
				}
			}
		}
	}
	// A cosine begins where the warm-up ends: at the scaled rate, and reaches 0 with the last step.
	cosine := optim.Schedule{Scaling: "linear", WarmupEpochs: 2, WarmupFrom: "unscaled", Anneal: "cosine"}
	run := optim.TrainingRun{Workers: 2, GlobalBatch: 8, StepsPerEpoch: 10, Epochs: 6}
	for i, want := range map[int]float64{0: 1e-3, 9: 1e-3, 10: 1.5e-3, 19: 1.5e-3, 39: 1e-3, 59: 0} {
		if got := cosine.At(1e-3, run, i/10, i%10); math.Abs(got-want) > 1e-15 {
			t.Errorf("cosine, step %d: %g, want %g", i, got, want)
		}
	}
}

// TestCosine: it ends at the end rate, with the last step, and not below.
func TestCosine(t *testing.T) {
	s := optim.Schedule{Anneal: "cosine", EndRate: 1e-5, WarmupEpochs: 1}
	r := optim.TrainingRun{Workers: 1, GlobalBatch: 4, StepsPerEpoch: 10, Epochs: 5}
	before := math.Inf(1)
	for i := 9; i < 50; i++ {
		got := s.At(1e-2, r, i/10, i%10)
		if got >= before {
			t.Errorf("rate rises to %g at step %d", got, i)
		}
		before = got
	}
	if math.Abs(before-1e-5) > 1e-18 {
		t.Errorf("last rate is %g, want 1e-5", before)
	}
	if got := s.At(1e-2, r, 9, 0); got != 1e-5 {
		t.Errorf("beyond the end it is %g, want 1e-5", got)
	}
	// By the batch: 512 samples where the rate is for 128 is twice by the root, four times linearly.
	for scaling, want := range map[string]float64{"sqrt": 2e-2, "linear": 4e-2, "none": 1e-2} {
		s := optim.Schedule{Scaling: scaling, BaseBatch: 128}
		if got := s.ScaledRate(1e-2, optim.TrainingRun{Workers: 1, GlobalBatch: 192}); scaling == "linear" && got != 1.5e-2 {
			t.Errorf("linear with one and a half times the batch: %g, want 1.5e-2", got)
		}
		if got := s.At(1e-2, optim.TrainingRun{Workers: 2, GlobalBatch: 512, StepsPerEpoch: 1, Epochs: 1}, 0, 0); got != want {
			t.Errorf("%s: %g, want %g", scaling, got, want)
		}
	}
}
