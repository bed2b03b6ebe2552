package optim

import (
	"fmt"
	"math"
)

// Rules for scaling the learning rate with the global batch. N is the global batch divided
// by the base batch, for which the config gives the learning rate: Schedule.BaseBatch or,
// if that is 0, the batch of one worker.
const (
	ScalingNone   = "none"   // no scaling
	ScalingLinear = "linear" // multiply the learning rate by N (Goyal et al. 2017, arXiv:1706.02677)
	ScalingSqrt   = "sqrt"   // multiply the learning rate by √N (Krizhevsky 2014, arXiv:1404.5997)
)

// Rules for annealing, which decreases the learning rate at every step.
const (
	AnnealNone       = "none"
	AnnealCosine     = "cosine"      // half a cosine from the end of the warm-up to the last step (Loshchilov and Hutter 2017, arXiv:1608.03983)
	AnnealCosineSC21 = "cosine-sc21" // the cosine of the SC21 tutorial on deep learning at scale; see At
)

// Values of Schedule.WarmupFrom: the learning rates at which a warm-up starts.
const (
	WarmupFromZero     = "zero"     // the rate increases from 0 at every step
	WarmupFromUnscaled = "unscaled" // the rate increases from the rate of the config at every epoch; see At
)

// Schedule determines the learning rate of each step of a training run. The zero value is a
// constant learning rate that does not depend on the number of workers.
type Schedule struct {
	Scaling      string      `yaml:"scaling" json:"scaling"`                             // "none" (also when empty), "linear" or "sqrt"
	BaseBatch    int         `yaml:"base_batch" json:"base_batch"`                       // number of samples in the global batch for which the config gives the learning rate; 0: the batch of one worker
	WarmupEpochs int         `yaml:"warmup_epochs" json:"warmup_epochs"`                 // number of epochs over which the learning rate increases linearly; at most one of WarmupEpochs and WarmupSteps is set
	WarmupSteps  int         `yaml:"warmup_steps" json:"warmup_steps"`                   // number of steps over which the learning rate increases linearly
	WarmupFrom   string      `yaml:"warmup_from,omitempty" json:"warmup_from,omitempty"` // "zero" (also when empty), or "unscaled", which needs warmup_epochs
	Decay        []Milestone `yaml:"decay" json:"decay"`                                 // milestones in ascending order of epochs
	Anneal       string      `yaml:"anneal" json:"anneal"`                               // "none" (also when empty), "cosine" or "cosine-sc21"; not together with decay
	EndRate      float64     `yaml:"end_rate" json:"end_rate"`                           // learning rate at the end of annealing

	// SetAfterEpoch imitates programs that set the learning rate at the end of each epoch:
	// epoch 0 has the unscaled rate of the config, and each later epoch has the rate that
	// the schedule specifies for the previous epoch. It requires a schedule whose rate is
	// constant within each epoch.
	SetAfterEpoch bool `yaml:"set_after_epoch,omitempty" json:"set_after_epoch,omitempty"`
}

// Milestone sets the factor by which the scaled learning rate is multiplied, from the given
// epoch until the next milestone. A milestone replaces the factor of the previous one.
type Milestone struct {
	Epoch  int     `yaml:"epoch" json:"epoch"` // counted from 0
	Factor float64 `yaml:"factor" json:"factor"`
}

// StudySchedule returns the schedule that the 2-D U-Net scaling study describes: linear
// scaling, and 1/2 of the scaled rate from epoch 80, 1/4 from epoch 120 and 1/8 from epoch
// 150.
func StudySchedule() Schedule {
	return Schedule{Scaling: ScalingLinear, Decay: []Milestone{{80, 1. / 2}, {120, 1. / 4}, {150, 1. / 8}}}
}

// StudyScheduleTensorFlow returns StudySchedule as the study's TensorFlow program executes
// it: 1/4 of the scaled rate is used up to and including epoch 150.
func StudyScheduleTensorFlow() Schedule {
	s := StudySchedule()
	s.Decay[2].Epoch = 151
	return s
}

// StudySchedulePyTorch returns StudySchedule as the study's PyTorch program executes it: it
// sets the learning rate after each epoch, so epoch 0 has the unscaled rate, and every
// milestone takes effect one epoch later.
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
		return bad("warmup_from is %s, which needs a warm-up in epochs: set warmup_epochs, such as 10", WarmupFromUnscaled)
	case s.SetAfterEpoch && s.isAnnealed():
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
	case s.isAnnealed() && len(s.Decay) > 0:
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

func (s Schedule) isAnnealed() bool { return s.Anneal != "" && s.Anneal != AnnealNone }

// TrainingRun describes the run whose learning rates a Schedule determines.
type TrainingRun struct {
	Workers       int
	GlobalBatch   int // samples per optimizer step, over all workers
	StepsPerEpoch int // optimizer steps
	Epochs        int
}

// batchScalingFactor returns N, the factor in the rules for scaling.
func (s Schedule) batchScalingFactor(r TrainingRun) float64 {
	if s.BaseBatch > 0 {
		return float64(r.GlobalBatch) / float64(s.BaseBatch)
	}
	return float64(r.Workers)
}

// ScaledRate returns the scaled learning rate of a run, without warm-up, decay and annealing.
// base is the learning rate in the config.
func (s Schedule) ScaledRate(base float64, r TrainingRun) float64 {
	switch s.Scaling {
	case ScalingLinear:
		return base * s.batchScalingFactor(r)
	case ScalingSqrt:
		return base * math.Sqrt(s.batchScalingFactor(r))
	}
	return base
}

// At returns the learning rate of the given step of the given epoch, both counted from 0.
// base is the learning rate in the config. Let i be the step of the run, counted from 1, T
// the number of steps in the run, W the number of warm-up steps, init the scaled rate and
// end the field EndRate:
//
//	warm-up:      init·i/W for i < W
//	cosine:       end + ½(init − end)(1 + cos π(i−W)/(T−W)) for i ≥ W
//	cosine-sc21:  end + ½(init − end)(1 + cos π(i−W)/T) for i ≥ W; W is 0 unless
//	              scaling increases the rate
//
// The result is multiplied by the factor of the current milestone of Decay. cosine-sc21 is
// exactly the schedule of the SC21 tutorial. With a warm-up it does not reach the end rate.
//
// With a warm-up from the unscaled rate over E epochs, epoch e has the rate
// base + (init − base)·min(e/E, 1). For linear scaling with N workers this is
// base·(1 + (N−1)·min(e/E, 1)).
func (s Schedule) At(base float64, r TrainingRun, epoch, step int) float64 {
	if s.SetAfterEpoch {
		if epoch == 0 {
			return base
		}
		epoch--
	}
	rate := s.ScaledRate(base, r)
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
	if s.Anneal == AnnealCosineSC21 && !(scaled && s.batchScalingFactor(r) > 1) {
		warmup = 0
	}
	i := epoch*r.StepsPerEpoch + step + 1
	if i < warmup {
		return rate * (float64(i) / float64(warmup))
	}
	if !s.isAnnealed() {
		return rate
	}
	length := total - warmup
	if s.Anneal == AnnealCosineSC21 {
		length = total
	}
	done := min(float64(i-warmup)/float64(max(1, length)), 1)
	return s.EndRate + 0.5*(rate-s.EndRate)*(1+math.Cos(math.Pi*done))
}

// Rate is like At, for a schedule without annealing whose base batch is the batch of one
// worker.
func (s Schedule) Rate(base float64, workers, epoch, step, stepsPerEpoch int) float64 {
	return s.At(base, TrainingRun{Workers: workers, StepsPerEpoch: stepsPerEpoch, Epochs: epoch + 1, GlobalBatch: workers * s.BaseBatch}, epoch, step)
}
