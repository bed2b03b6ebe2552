// Package optim implements optimizers, learning-rate schedules and scaling rules. Engines
// implement the same Update for their own tensors.
package optim

// Update describes one optimizer step, except for the weights, gradients and slots. The step
// first clips the gradients and then applies the update rule.
type Update struct {
	Rule         string  // RuleSGD, RuleAdam, RuleAdamW, RuleLARS or RuleLAMB
	LearningRate float64 // learning rate of this step
	Step         int     // number of the step, from 1, for the bias correction of Adam, AdamW and LAMB
	Beta1, Beta2 float64 // Adam, AdamW, LAMB
	Epsilon      float64 // Adam, AdamW, LAMB: added to √v̂
	Momentum     float64 // SGD, LARS
	Nesterov     bool    // SGD: Nesterov momentum
	WeightDecay  float64 // SGD, Adam: WeightDecay·w is added to the gradient (L2); AdamW, LARS, LAMB: see their formulas in apply.go
	Trust        float64 // LARS: the trust coefficient η
	ClipNorm     float64 // limit of the 2-norm of all gradients together; 0: no clipping
}

// IsSimple reports whether u does not clip gradients and its rule is Adam, or SGD without
// Nesterov momentum. Every engine has a kernel for simple updates. For other updates an
// engine may use Apply32 or Apply64, or return an error.
func (u Update) IsSimple() bool {
	return u.ClipNorm == 0 && (u.Rule == RuleAdam || u.Rule == RuleSGD && !u.Nesterov)
}
