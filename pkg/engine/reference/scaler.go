package reference

import (
	"math"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// The loss scale as torch.amp.GradScaler has it.
const (
	firstScale    = 65536
	scaleGrowth   = 2
	scaleBackoff  = 0.5
	scaleInterval = 2000
)

// scaler is the loss scale of a program in fp16. A step whose gradients are not
// all finite leaves its update out and halves the scale; after 2000 good steps in
// a row it doubles. Steps that were left out do not count for the optimiser's
// bias correction (Micikevicius et al., Mixed Precision Training, 2018, section
// 3.2).
type scaler struct {
	input   int     // tensor id of the scale, −1 in a program without
	scale   float64 // a power of 2
	used    float64 // by the last step's gradients, until they are divided by it
	good    int     // steps in a row
	skipped int
}

func newScaler(p *plan.Program) scaler {
	return scaler{input: p.Lookup(plan.Input, plan.LossScale), scale: firstScale, used: 1}
}

// counted is u with the number of a step that leaves out those that left their
// update out.
func (s *scaler) counted(u *optim.Update) *optim.Update {
	if u == nil || s.skipped == 0 {
		return u
	}
	c := *u
	c.Step -= s.skipped
	return &c
}

// scaleLoss puts the scale where the backward pass begins.
func (x *executable[T]) scaleLoss() {
	if s := &x.scaler; s.input >= 0 {
		fill(x.tensors[s.input], T(s.scale))
		s.used = s.scale
	}
}

// unscale divides the gradients by the scale, when all are finite; if not, it
// says that the update is to be left out.
func (x *executable[T]) unscale() (update bool) {
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
			b[i] /= T(s.used) // a power of 2: exact, short of float32's smallest numbers
		}
	}
	s.used = 1
	if s.good++; s.good == scaleInterval {
		s.scale *= scaleGrowth
		s.good = 0
	}
	return true
}
