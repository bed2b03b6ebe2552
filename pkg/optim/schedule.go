package optim

import (
	"fmt"
	"math"
)

// How the learning rate grows with the number of workers N, while the batch
// per worker stays.
const (
	ScalingNone   = "none"   // as it is for one worker
	ScalingLinear = "linear" // ·N (Goyal et al. 2017, arXiv:1706.02677)
	ScalingSqrt   = "sqrt"   // ·√N (Krizhevsky 2014, arXiv:1404.5997)
)

// Schedule is the learning rate over a training run. The zero value is a
// constant rate that does not depend on the number of workers.
type Schedule struct {
	Scaling      string      `yaml:"scaling" json:"scaling"`             // "none" (also when empty), "linear" or "sqrt"
	WarmupEpochs int         `yaml:"warmup_epochs" json:"warmup_epochs"` // the rate rises from 0 in equal steps over this many epochs …
	WarmupSteps  int         `yaml:"warmup_steps" json:"warmup_steps"`   // … or over this many steps; at most one of the two
	Decay        []Milestone `yaml:"decay" json:"decay"`                 // by ascending epoch
}

// Milestone is a factor on the scaled rate from an epoch on, until the next
// milestone. Factors do not multiply.
type Milestone struct {
	Epoch  int     `yaml:"epoch" json:"epoch"` // counted from 0
	Factor float64 `yaml:"factor" json:"factor"`
}

// StudySchedule is that of the 2-D U-Net scaling study: linear scaling, a half
// from epoch 80, a quarter from 120, an eighth from 150.
func StudySchedule() Schedule {
	return Schedule{Scaling: ScalingLinear, Decay: []Milestone{{80, 1. / 2}, {120, 1. / 4}, {150, 1. / 8}}}
}

// Validate reports the first value that cannot be.
func (s Schedule) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate schedule: "+format, a...)
	}
	switch s.Scaling {
	case "", ScalingNone, ScalingLinear, ScalingSqrt:
	default:
		return bad("scaling %q is not known: use %s, %s or %s", s.Scaling, ScalingNone, ScalingLinear, ScalingSqrt)
	}
	switch {
	case s.WarmupEpochs < 0:
		return bad("warmup_epochs is %d: use 0 for no warm-up", s.WarmupEpochs)
	case s.WarmupSteps < 0:
		return bad("warmup_steps is %d: use 0 for no warm-up", s.WarmupSteps)
	case s.WarmupEpochs > 0 && s.WarmupSteps > 0:
		return bad("warmup_epochs is %d and warmup_steps %d: set one of them", s.WarmupEpochs, s.WarmupSteps)
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

// Rate is the learning rate of a step of an epoch, both from 0. base is the
// rate of one worker, workers the world size. During a warm-up of W steps,
// step i of the run (from 1) has i/W of the rate.
func (s Schedule) Rate(base float64, workers, epoch, step, stepsPerEpoch int) float64 {
	rate := base
	switch s.Scaling {
	case ScalingLinear:
		rate *= float64(workers)
	case ScalingSqrt:
		rate *= math.Sqrt(float64(workers))
	}
	factor := 1.0
	for _, m := range s.Decay {
		if epoch >= m.Epoch {
			factor = m.Factor
		}
	}
	rate *= factor
	warmup := s.WarmupSteps
	if s.WarmupEpochs > 0 {
		warmup = s.WarmupEpochs * stepsPerEpoch
	}
	if i := epoch*stepsPerEpoch + step + 1; i < warmup {
		rate *= float64(i) / float64(warmup)
	}
	return rate
}
