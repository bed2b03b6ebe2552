package optim

import (
	"fmt"
	"math"
)

// How the learning rate grows with the global batch. N is the global batch divided by the
// batch for which the rate is given: Schedule.BaseBatch, or else the batch of one worker.
const (
	ScalingNone   = "none"   // it does not grow
	ScalingLinear = "linear" // ·N (Goyal et al. 2017, arXiv:1706.02677)
	ScalingSqrt   = "sqrt"   // ·√N (Krizhevsky 2014, arXiv:1404.5997)
)

// How the learning rate decreases from step to step.
const (
	AnnealNone       = "none"
	AnnealCosine     = "cosine"      // half a cosine from the end of the warm-up to the last step (Loshchilov and Hutter 2017, arXiv:1608.03983)
	AnnealCosineSC21 = "cosine-sc21" // the cosine of the SC21 tutorial on deep learning at scale; see At
)

// Where a warm-up starts.
const (
	WarmupFromZero     = "zero"     // the rate rises at every step
	WarmupFromUnscaled = "unscaled" // from the rate of the config to the scaled rate, rising at every epoch; see At
)

// Schedule is the learning rate over a training run. The zero value is a
// constant rate that does not depend on the number of workers.
type Schedule struct {
	Scaling      string      `yaml:"scaling" json:"scaling"`                             // "none" (also when empty), "linear" or "sqrt"
	BaseBatch    int         `yaml:"base_batch" json:"base_batch"`                       // samples in the global batch for which the rate is given; 0: the batch of one worker
	WarmupEpochs int         `yaml:"warmup_epochs" json:"warmup_epochs"`                 // the rate rises in equal steps over so many epochs …
	WarmupSteps  int         `yaml:"warmup_steps" json:"warmup_steps"`                   // … or over so many steps; at most one of the two
	WarmupFrom   string      `yaml:"warmup_from,omitempty" json:"warmup_from,omitempty"` // "zero" (also when empty), or "unscaled", which needs warmup_epochs
	Decay        []Milestone `yaml:"decay" json:"decay"`                                 // by ascending epoch
	Anneal       string      `yaml:"anneal" json:"anneal"`                               // "none" (also when empty), "cosine" or "cosine-sc21"; not together with decay
	EndRate      float64     `yaml:"end_rate" json:"end_rate"`                           // the rate at the end of the annealing

	// SetAfterEpoch computes the rate of each epoch from the number of the epoch
	// before it, and trains epoch 0 at the unscaled rate of the config. This is
	// what a program does that sets the rate at the end of each epoch. It needs a
	// rate that is constant within an epoch.
	SetAfterEpoch bool `yaml:"set_after_epoch,omitempty" json:"set_after_epoch,omitempty"`
}

// Milestone is a factor on the scaled rate from an epoch on, until the next
// milestone. Factors do not multiply.
type Milestone struct {
	Epoch  int     `yaml:"epoch" json:"epoch"` // counted from 0
	Factor float64 `yaml:"factor" json:"factor"`
}

// StudySchedule returns the schedule that the 2-D U-Net scaling study describes:
// linear scaling, a half from epoch 80, a quarter from 120, an eighth from 150.
func StudySchedule() Schedule {
	return Schedule{Scaling: ScalingLinear, Decay: []Milestone{{80, 1. / 2}, {120, 1. / 4}, {150, 1. / 8}}}
}

// StudyScheduleTensorFlow returns StudySchedule as the study's TensorFlow program
// executes it: the quarter lasts through epoch 150.
func StudyScheduleTensorFlow() Schedule {
	s := StudySchedule()
	s.Decay[2].Epoch = 151
	return s
}

// StudySchedulePyTorch returns StudySchedule as the study's PyTorch program
// executes it: the program sets the rate after each epoch, so epoch 0 has the
// unscaled rate and every milestone takes effect one epoch later.
func StudySchedulePyTorch() Schedule {
	s := StudySchedule()
	s.SetAfterEpoch = true
	return s
}

// Validate returns an error for the first invalid value.
func (s Schedule) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate schedule: "+format, a...)
	}
	switch s.Scaling {
	case "", ScalingNone, ScalingLinear, ScalingSqrt:
	default:
		return bad("unknown scaling %q: use %s, %s or %s", s.Scaling, ScalingNone, ScalingLinear, ScalingSqrt)
	}
	switch {
	case s.WarmupEpochs < 0:
		return bad("warmup_epochs is %d: use 0 for no warm-up", s.WarmupEpochs)
	case s.WarmupSteps < 0:
		return bad("warmup_steps is %d: use 0 for no warm-up", s.WarmupSteps)
	case s.WarmupEpochs > 0 && s.WarmupSteps > 0:
		return bad("warmup_epochs is %d and warmup_steps %d: set one of them", s.WarmupEpochs, s.WarmupSteps)
	}
	switch s.WarmupFrom {
	case "", WarmupFromZero, WarmupFromUnscaled:
	default:
		return bad("unknown warmup_from %q: use %s or %s", s.WarmupFrom, WarmupFromZero, WarmupFromUnscaled)
	}
	switch {
	case s.WarmupFrom == WarmupFromUnscaled && s.WarmupEpochs == 0:
		return bad("warmup_from is %s, which rises by the epoch: set warmup_epochs, such as 10", WarmupFromUnscaled)
	case s.SetAfterEpoch && s.annealed():
		return bad("set_after_epoch is set, but anneal is %s, which changes the rate within an epoch: use decay, or leave set_after_epoch out", s.Anneal)
	case s.SetAfterEpoch && s.WarmupFrom != WarmupFromUnscaled && s.WarmupEpochs+s.WarmupSteps > 0:
		return bad("set_after_epoch is set, but the warm-up changes the rate within an epoch: use warmup_from: %s with warmup_epochs, or leave set_after_epoch out", WarmupFromUnscaled)
	}
	switch s.Anneal {
	case "", AnnealNone, AnnealCosine, AnnealCosineSC21:
	default:
		return bad("unknown anneal %q: use %s, %s or %s", s.Anneal, AnnealNone, AnnealCosine, AnnealCosineSC21)
	}
	switch {
	case s.BaseBatch < 0:
		return bad("base_batch is %d: use 0 for the batch of one worker", s.BaseBatch)
	case !(s.EndRate >= 0) || math.IsInf(s.EndRate, 0):
		return bad("end_rate is %g: use 0 or more", s.EndRate)
	case s.annealed() && len(s.Decay) > 0:
		return bad("both anneal (%s) and decay are set: set one of them", s.Anneal)
	}
	for i, m := range s.Decay {
		switch {
		case m.Epoch < 0:
			return bad("decay[%d].epoch is %d: epochs count from 0", i, m.Epoch)
		case i > 0 && m.Epoch <= s.Decay[i-1].Epoch:
			return bad("decay[%d].epoch is %d, not above the %d before it: list milestones by ascending epoch", i, m.Epoch, s.Decay[i-1].Epoch)
		case !(m.Factor > 0) || math.IsInf(m.Factor, 0):
			return bad("decay[%d].factor is %g: use a number above 0, such as 0.5", i, m.Factor)
		}
	}
	return nil
}

func (s Schedule) annealed() bool { return s.Anneal != "" && s.Anneal != AnnealNone }

// Run describes the training run that a schedule is for.
type Run struct {
	Workers       int
	GlobalBatch   int // samples per optimizer step, over all workers
	StepsPerEpoch int // optimizer steps
	Epochs        int
}

// factor returns the global batch divided by the batch for which the rate is given.
func (s Schedule) factor(r Run) float64 {
	if s.BaseBatch > 0 {
		return float64(r.GlobalBatch) / float64(s.BaseBatch)
	}
	return float64(r.Workers)
}

// Initial returns the learning rate of a run after the scaling, before warm-up, decay and
// annealing. base is the rate in the config.
func (s Schedule) Initial(base float64, r Run) float64 {
	switch s.Scaling {
	case ScalingLinear:
		return base * s.factor(r)
	case ScalingSqrt:
		return base * math.Sqrt(s.factor(r))
	}
	return base
}

// At returns the learning rate of a step of an epoch, both counted from 0. base is the rate
// in the config. With i the step of the run, counted from 1, T the number of steps in the
// run, W the steps of the warm-up, init the scaled rate and end the end rate:
//
//	warm-up:      i/W of the rate while i < W
//	cosine:       end + ½(init − end)(1 + cos π(i−W)/(T−W)) from i = W on
//	cosine-sc21:  end + ½(init − end)(1 + cos π(i−W)/T) from i = W on, with a
//	              warm-up only if the rate is scaled up; otherwise W is 0
//
// cosine-sc21 is exactly the SC21 tutorial's schedule: with a warm-up it does not reach the
// end rate.
//
// A warm-up from the unscaled rate over E epochs gives epoch e the rate
// base + (init − base)·min(e/E, 1). For linear scaling with N workers that is
// base·(1 + (N−1)·min(e/E, 1)).
func (s Schedule) At(base float64, r Run, epoch, step int) float64 {
	if s.SetAfterEpoch {
		if epoch == 0 {
			return base
		}
		epoch--
	}
	rate := s.Initial(base, r)
	factor := 1.0
	for _, m := range s.Decay {
		if epoch >= m.Epoch {
			factor = m.Factor
		}
	}
	if s.WarmupFrom == WarmupFromUnscaled && epoch < s.WarmupEpochs {
		return (base + (rate-base)*float64(epoch)/float64(s.WarmupEpochs)) * factor
	}
	rate *= factor
	warmup, total := s.WarmupSteps, r.Epochs*r.StepsPerEpoch
	if s.WarmupEpochs > 0 {
		warmup = s.WarmupEpochs * r.StepsPerEpoch
	}
	scaled := s.Scaling == ScalingLinear || s.Scaling == ScalingSqrt
	if s.Anneal == AnnealCosineSC21 && !(scaled && s.factor(r) > 1) {
		warmup = 0
	}
	i := epoch*r.StepsPerEpoch + step + 1
	if i < warmup {
		return rate * (float64(i) / float64(warmup))
	}
	if !s.annealed() {
		return rate
	}
	length := total - warmup
	if s.Anneal == AnnealCosineSC21 {
		length = total
	}
	done := min(float64(i-warmup)/float64(max(1, length)), 1)
	return s.EndRate + 0.5*(rate-s.EndRate)*(1+math.Cos(math.Pi*done))
}

// Rate is At for a schedule without annealing whose rate is given for the batch of one
// worker.
func (s Schedule) Rate(base float64, workers, epoch, step, stepsPerEpoch int) float64 {
	return s.At(base, Run{Workers: workers, StepsPerEpoch: stepsPerEpoch, Epochs: epoch + 1, GlobalBatch: workers * s.BaseBatch}, epoch, step)
}
