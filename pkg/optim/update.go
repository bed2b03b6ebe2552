// Package optim implements optimizers, learning-rate schedules and scaling rules as plain
// arithmetic. Engines apply the same Update to their own buffers.
package optim

// Update contains everything that one optimizer step needs, except weights, gradients and
// slots. The gradients are clipped first, then the rule is applied.
type Update struct {
	Rule         string  // RuleSGD, RuleAdam, RuleAdamW, RuleLARS or RuleLAMB
	LearningRate float64 // of this step
	Step         int     // from 1; the bias correction of Adam, AdamW and LAMB needs it
	Beta1, Beta2 float64 // Adam, AdamW, LAMB
	Epsilon      float64 // Adam, AdamW, LAMB: added to √v̂
	Momentum     float64 // SGD, LARS
	Nesterov     bool    // SGD: Nesterov momentum
	WeightDecay  float64 // SGD, Adam: weightDecay·w is added to the gradient (L2); AdamW, LARS, LAMB: see their formulas
	Trust        float64 // LARS: the trust coefficient η
	ClipNorm     float64 // limit of the 2-norm of all gradients together; 0: no clipping
}

// Simple reports whether u is Adam, or SGD without Nesterov momentum, and nothing is
// clipped. Every engine has a kernel for such an update. For other updates an engine may
// use Apply32 or Apply64, or return an error.
func (u Update) Simple() bool {
	return u.ClipNorm == 0 && (u.Rule == RuleAdam || u.Rule == RuleSGD && !u.Nesterov)
}
