package reference

import (
	"math"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// Settings of loss scaling. They are the defaults of torch.amp.GradScaler.
const (
	firstScale    = 65536
	scaleGrowth   = 2
	scaleBackoff  = 0.5
	scaleInterval = 2000
)

// lossScaler is the state of loss scaling in fp16. If some gradients of a step are not finite,
// the update is skipped and the scale is halved. After scaleInterval successive steps with
// finite gradients the scale is doubled. Skipped steps do not count in the optimizer's bias
// correction (Micikevicius et al., Mixed Precision Training, 2018, section 3.2).
type lossScaler struct {
	input   int     // tensor ID of the scale, −1 if the program has no loss scaling
	scale   float64 // a power of 2
	used    float64 // scale of the current gradients; 1 after unscaleGradients has divided by it
	good    int     // good steps in a row
	skipped int     // skipped updates
}

func newLossScaler(p *plan.Program) lossScaler {
	return lossScaler{input: p.FindTensor(plan.Input, plan.LossScaleInput), scale: firstScale, used: 1}
}

func (s *lossScaler) subtractSkippedUpdates(u *optim.Update) *optim.Update {
	if u == nil || s.skipped == 0 {
		return u
	}
	c := *u
	c.Step -= s.skipped
	return &c
}

// setLossScale writes the current loss scale to the program's input for it, by which the
// gradient of the loss is multiplied. It does nothing if the program has no such input.
func (x *executable[T]) setLossScale() {
	if s := &x.scaler; s.input >= 0 {
		fill(x.tensors[s.input], T(s.scale))
		s.used = s.scale
	}
}

// unscaleGradients divides the gradients by the loss scale. It returns false if a gradient is
// not finite; the update must then be skipped.
func (x *executable[T]) unscaleGradients() (finite bool) {
	s := &x.scaler
	if s.input < 0 {
		return true
	}
	for _, b := range x.buckets {
		for _, g := range b {
			if v := float64(g); math.IsNaN(v) || math.IsInf(v, 0) {
				s.scale *= scaleBackoff
				s.good = 0
				s.skipped++
				return false
			}
		}
	}
	for _, b := range x.buckets {
		for i := range b {
			b[i] /= T(s.used) // a power of 2: exact except for subnormal numbers
		}
	}
	s.used = 1
	if s.good++; s.good == scaleInterval {
		s.scale *= scaleGrowth
		s.good = 0
	}
	return true
}
