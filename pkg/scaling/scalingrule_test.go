package scaling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// batchSweep makes runs whose IoU is known: a parabola over log2 of the rate with
// its top at 0.002·(batch/4)^power, less fall(batch), and noise of a deviation.
type batchSweep struct {
	power, noise float64
	batches      []int
	rates        []float64
	seeds        int
	fall         func(batch int) float64
	random       *rand.Rand
}

func (b batchSweep) runs() []runs.Run {
	if b.random == nil {
		b.random = rand.New(rand.NewPCG(1, 2))
	}
	var all []runs.Run
	for _, batch := range b.batches {
		for _, rate := range b.rates {
			for seed := range b.seeds {
				off := math.Log2(rate / (0.002 * math.Pow(float64(batch)/4, b.power)))
				iou := 0.85 - 0.02*off*off + b.noise*b.random.NormFloat64()
				if b.fall != nil {
					iou -= b.fall(batch)
				}
				all = append(all, sweptRun(batch, rate, int64(seed+1), iou))
			}
		}
	}
	return all
}

func sweptRun(batch int, rate float64, seed int64, iou float64) runs.Run {
	return runs.Run{
		Dir: fmt.Sprintf("logs/cells/ddp-batch-%d-learning_rate-%g-n1-s%d", batch, rate, seed),
		Info: runs.Info{
			Study: "cells", Series: fmt.Sprintf("ddp-batch-%d-learning_rate-%g", batch, rate), Workers: 1, Seed: seed,
			Status: runs.StatusDone, BatchPerWorker: batch, GlobalBatch: batch,
			Config: map[string]any{
				"name": "unet2d-cells", "epochs": 5.0, "accumulate": 1.0,
				"optimizer": map[string]any{"name": "adam", "learning_rate": rate}, "schedule": map[string]any{"scaling": ""},
			},
			Test: &runs.Test{IoU: iou, Loss: math.NaN(), Dice: math.NaN()},
		},
		Epochs: []runs.Epoch{{Epoch: 1, Seconds: 1, Samples: 64, TrainLoss: 0.1, ValLoss: math.NaN(), IoU: iou, Dice: math.NaN(), Accuracy: math.NaN(), ValAccuracy: math.NaN(), LearningRate: rate}},
	}
}

func scalingRule(t *testing.T, all []runs.Run) *LRScaling {
	t.Helper()
	s, err := FromRuns(all)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.ScalingRule("")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var wideRates = []float64{0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064}

// TestScalingRuleKnown: of runs that were made by a rule, with noise much below
// what the rates do, it finds that rule and its exponent.
func TestScalingRuleKnown(t *testing.T) {
	for _, c := range []struct {
		power float64
		rule  string
		words string
	}{
		{0, "none", "the constant rate holds: the best learning rate goes with the global batch to the power "},
		{0.5, "sqrt", "the √ rule holds"},
		{1, "linear", "the linear rule holds"},
		{0.75, "other", "which none of the constant rate (0), the √ rule (1/2) and the linear rule (1) is"},
	} {
		o := scalingRule(t, batchSweep{power: c.power, noise: 0.002, batches: []int{4, 8, 16, 32}, rates: wideRates, seeds: 3}.runs())
		if o.Rule != c.rule || o.How != "best rates" || math.Abs(o.Exponent.Value-c.power) > 0.1 || !(o.Exponent.Low <= c.power && c.power <= o.Exponent.High) {
			t.Errorf("power %g: rule %q, exponent %v by %s: %s", c.power, o.Rule, o.Exponent, o.How, o.Sentence)
		}
		if !strings.Contains(o.Sentence, c.words) || o.Next() != "" || o.Good != 32 || o.Falls != 0 {
			t.Errorf("power %g: %q, next %q, good %d", c.power, o.Sentence, o.Next(), o.Good)
		}
		if r := o.Rows[0]; math.Abs(r.Best.Value/0.002-1) > 0.15 || r.Rates != 9 || r.Runs != 27 || r.Bound != "" {
			t.Errorf("power %g: first row %+v", c.power, r)
		}
	}
}

// TestScalingRuleCovers: intervals of 95 % hold the exponent that the runs were
// made by in about so many of 40 sweeps (binomial: fewer than 33 in a thousandth).
func TestScalingRuleCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	held := 0
	for range 40 {
		o := scalingRule(t, batchSweep{power: 0.5, noise: 0.01, batches: []int{4, 8, 16}, rates: wideRates, seeds: 3, random: random}.runs())
		if o.Exponent.Low <= 0.5 && 0.5 <= o.Exponent.High {
			held++
		}
	}
	if held < 33 {
		t.Errorf("%d of 40 intervals hold the exponent", held)
	}
}

// TestScalingRuleUndecided: what keeps the runs from deciding is said, with the
// command whose runs would.
func TestScalingRuleUndecided(t *testing.T) {
	clean := batchSweep{power: 1, noise: 0.002, batches: []int{4, 8, 16}, rates: wideRates, seeds: 3}
	noisy, single, narrow := clean, clean, clean
	noisy.noise, noisy.rates = 0.04, []float64{0.0005, 0.002, 0.008, 0.032}
	single.seeds = 1
	narrow.rates = []float64{0.0005, 0.001, 0.002}
	one := []runs.Run{}
	for seed := int64(1); seed < 4; seed++ {
		for i, batch := range []int{4, 8, 16} {
			one = append(one, sweptRun(batch, 0.002*float64(int(1)<<i), seed, 0.85+0.001*float64(seed)))
		}
	}
	for name, c := range map[string]struct {
		runs       []runs.Run
		said, next []string
	}{
		"noise": {noisy.runs(), []string{"do not decide"}, []string{"--seeds 1,2,3"}},
		"single runs": {
			single.runs(),
			[]string{"the runs do not decide: single runs tell no noise"},
			[]string{"lockstep launch --config unet2d-cells --study cells --workers 1 --seeds 1,2,3 --vary batch=4,8,16 --vary optimizer.learning_rate=0.00025,0.0005,0.001,0.002,0.004,0.008,0.016,0.032,0.064 --resume"},
		},
		"narrow": {
			narrow.runs(),
			[]string{"the best rate of batches 4, 8 and 16 is the highest tried, so that a higher one may be better"},
			[]string{"optimizer.learning_rate=0.0005,0.001,0.002,0.004,0.008 --resume"},
		},
		"one rate each": {
			one,
			[]string{"the linear rule is the only rule whose rates were tried", "no batch up to the largest, 16, shows a worse iou beyond noise", "batches 4, 8 and 16 have fewer than three learning rates"},
			[]string{"--vary batch=4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008,0.016 --resume"},
		},
	} {
		o := scalingRule(t, c.runs)
		if o.Rule != "" {
			t.Errorf("%s: decided for %q: %s", name, o.Rule, o.Sentence)
		}
		for _, want := range c.said {
			if !strings.Contains(o.Sentence, want) {
				t.Errorf("%s: %q lacks %q", name, o.Sentence, want)
			}
		}
		for _, want := range c.next {
			if !strings.Contains(o.Next(), want) {
				t.Errorf("%s: next %q lacks %q", name, o.Next(), want)
			}
		}
	}
}

// TestScalingRuleFalls: the batch at which the quality falls beyond noise ends
// the range of the rule, and the exponent is that of the batches below it.
func TestScalingRuleFalls(t *testing.T) {
	o := scalingRule(t, batchSweep{power: 0.5, noise: 0.002, batches: []int{4, 8, 16, 32}, rates: wideRates, seeds: 3, fall: func(batch int) float64 {
		if batch > 16 {
			return 0.05
		}
		return 0
	}}.runs())
	if o.Rule != "sqrt" || o.Good != 16 || o.Falls != 32 || o.Exponent.N != 3 {
		t.Errorf("rule %q up to %d, falls at %d, %d batches", o.Rule, o.Good, o.Falls, o.Exponent.N)
	}
	if !strings.Contains(o.Sentence, "the iou holds up to batch 16: at 32 it is worse than at 4 beyond noise (0.8") {
		t.Error(o.Sentence)
	}
}

// TestScalingRuleByQuality: with one rate at the smallest batch and those of the
// rules at the others, the quality decides.
func TestScalingRuleByQuality(t *testing.T) {
	var all []runs.Run
	for seed := int64(1); seed < 4; seed++ {
		noise := 0.002 * float64(seed-2)
		all = append(all, sweptRun(4, 0.002, seed, 0.85+noise))
		for _, r := range []struct{ rate, iou float64 }{{0.002, 0.80}, {0.004, 0.85}, {0.008, 0.81}} { // none, √ and linear of 4 times the batch
			all = append(all, sweptRun(16, r.rate, seed, r.iou-noise))
		}
	}
	o := scalingRule(t, all)
	// IoU 0.80 and 0.81 against 0.85.
	if o.Rule != "sqrt" || o.How != "quality" || !strings.Contains(o.Sentence, "the √ rule is the best of those tried: the constant rate changes the iou at batch 16 by -0.0500 ") {
		t.Errorf("rule %q by %q: %s", o.Rule, o.How, o.Sentence)
	}
	if r := o.Rules[2]; !r.Rejected || r.WorstBatch != 16 || math.Abs(r.Worst.Value+0.04) > 1e-9 || r.Holds != 0 {
		t.Errorf("linear: %+v", r)
	}
	if r := o.Rules[1]; r.Rejected || r.Holds != 16 {
		t.Errorf("√: %+v", r)
	}
}

// TestScalingRuleRuns: a rate that diverges is no best one but bounds it, the
// same seed twice is one run, and runs of other epochs are named.
func TestScalingRuleRuns(t *testing.T) {
	all := batchSweep{power: 0, noise: 0.002, batches: []int{4, 8}, rates: []float64{0.0005, 0.001, 0.002}, seeds: 2}.runs()
	broken := sweptRun(4, 0.004, 1, 0.1)
	broken.Epochs[0].TrainLoss = math.NaN()
	twice := sweptRun(8, 0.001, 1, 0.5)
	twice.Dir, twice.Info.Workers = "logs/cells/again", 2
	other := sweptRun(8, 0.001, 7, 0.84)
	other.Info.Config["epochs"] = 9.0
	o := scalingRule(t, append(all, broken, twice, other))
	if r := o.Rows[0]; r.Diverged != 1 || r.Bound != "" || math.Abs(r.Best.Value-0.002) > 1e-12 {
		t.Errorf("batch 4: %+v", r)
	}
	text := strings.Join(o.Problems, "\n")
	for _, want := range []string{"again has the batch, the learning rate and the seed of ddp-batch-8-learning_rate-0.001-n1-s1", "epochs differs between runs"} {
		if !strings.Contains(text, want) {
			t.Errorf("problems lack %q:\n%s", want, text)
		}
	}
	if n := len(o.Tried); n != 7 {
		t.Errorf("%d rates tried", n)
	}
	table := o.String()
	for _, want := range []string{"best lr", "linear", "to decide: lockstep launch", "intervals: smoothed bootstrap"} {
		if !strings.Contains(table, want) {
			t.Errorf("table lacks %q:\n%s", want, table)
		}
	}
}

// TestScalingRuleErrors: what cannot be answered says what to run.
func TestScalingRuleErrors(t *testing.T) {
	one, err := FromRuns([]runs.Run{sweptRun(4, 0.001, 1, 0.5)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.ScalingRule(""); err == nil || !strings.Contains(err.Error(), "all runs have the global batch 4: run at least two batches") {
		t.Error(err)
	}
	if _, err := one.ScalingRule("bleu"); err == nil || !strings.Contains(err.Error(), `measure "bleu" is not known: use iou, dice`) {
		t.Error(err)
	}
	if _, err := one.ScalingRule("dice"); err == nil || !strings.Contains(err.Error(), "no run tells its dice") {
		t.Error(err)
	}
}
