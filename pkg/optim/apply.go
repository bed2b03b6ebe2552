package optim

import (
	"fmt"
	"math"
)

// Rules of an Update.
const (
	RuleAdam = "adam"
	RuleSGD  = "sgd"
)

// Slots names what the rule keeps for each weight from step to step, in the
// order in which Apply takes it: "m", "v" of Adam, "momentum" of SGD with
// momentum. All start at zero.
func (u Update) Slots() []string {
	switch {
	case u.Rule == RuleAdam:
		return []string{"m", "v"}
	case u.Rule == RuleSGD && u.Momentum != 0:
		return []string{"momentum"}
	}
	return nil
}

// Apply does the step u on weights w with gradients g in place, and updates
// the slots (see Slots), all of one length. It is the readable truth that the
// engines' kernels are compared with.
func Apply(u Update, w, g []float64, slots ...[]float64) error {
	if u.Rule != RuleAdam && u.Rule != RuleSGD {
		return fmt.Errorf("apply optimizer step: rule %q is not known: use %s or %s", u.Rule, RuleAdam, RuleSGD)
	}
	names := u.Slots()
	if len(slots) != len(names) {
		return fmt.Errorf("apply %s step: %d slots given, want %d %v", u.Rule, len(slots), len(names), names)
	}
	if len(g) != len(w) {
		return fmt.Errorf("apply %s step: %d gradients for %d weights", u.Rule, len(g), len(w))
	}
	for i, s := range slots {
		if len(s) != len(w) {
			return fmt.Errorf("apply %s step: slot %s has %d values for %d weights", u.Rule, names[i], len(s), len(w))
		}
	}
	switch {
	case u.Rule == RuleAdam && u.Step < 1:
		return fmt.Errorf("apply adam step: step is %d: the first is 1", u.Step)
	case u.Rule == RuleAdam:
		adam(u, w, g, slots[0], slots[1])
	case u.Momentum != 0:
		momentum(u, w, g, slots[0])
	default:
		for i := range w {
			w[i] -= u.LearningRate * (g[i] + u.WeightDecay*w[i])
		}
	}
	return nil
}

// adam is algorithm 1 of Kingma and Ba (2015, arXiv:1412.6980), with ε added
// after the bias correction, as there and in PyTorch:
//
//	m ← β₁m + (1−β₁)g    v ← β₂v + (1−β₂)g²
//	w ← w − lr · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε)
func adam(u Update, w, g, m, v []float64) {
	correct1 := 1 - math.Pow(u.Beta1, float64(u.Step))
	correct2 := 1 - math.Pow(u.Beta2, float64(u.Step))
	for i := range w {
		d := g[i] + u.WeightDecay*w[i]
		m[i] = u.Beta1*m[i] + (1-u.Beta1)*d
		v[i] = u.Beta2*v[i] + (1-u.Beta2)*d*d
		w[i] -= u.LearningRate * (m[i] / correct1) / (math.Sqrt(v[i]/correct2) + u.Epsilon)
	}
}

// momentum is SGD as PyTorch has it, the learning rate outside of the buffer:
//
//	buf ← μ·buf + g    w ← w − lr·buf
func momentum(u Update, w, g, buf []float64) {
	for i := range w {
		buf[i] = u.Momentum*buf[i] + g[i] + u.WeightDecay*w[i]
		w[i] -= u.LearningRate * buf[i]
	}
}
