// Package optim holds optimisers, learning-rate schedules and scaling rules as
// plain arithmetic. An engine runs the same Update over its own flat buffers.
package optim

// Update is all that one optimiser step needs besides weights, gradients and
// slots. The gradients are clipped first, then the rule is applied.
type Update struct {
	Rule         string  // RuleSGD, RuleAdam, RuleAdamW, RuleLARS or RuleLAMB
	LearningRate float64 // of this step
	Step         int     // from 1; the bias correction of Adam, AdamW and LAMB needs it
	Beta1, Beta2 float64 // Adam, AdamW, LAMB
	Epsilon      float64 // Adam, AdamW, LAMB: added to √v̂
	Momentum     float64 // SGD, LARS
	Nesterov     bool    // SGD: looks ahead along the momentum
	WeightDecay  float64 // SGD, Adam: weightDecay·w is added to the gradient (L2); AdamW, LARS, LAMB: see their formulas
	Trust        float64 // LARS: the trust coefficient η
	ClipNorm     float64 // the largest 2-norm of all gradients together; 0: as they are
}

// Simple says whether u is SGD, with heavy-ball momentum or none, or Adam, and
// nothing is clipped: what every engine has a kernel for. An engine that has
// none for another u uses Apply32 or Apply64, or refuses it.
func (u Update) Simple() bool {
	return u.ClipNorm == 0 && (u.Rule == RuleAdam || u.Rule == RuleSGD && !u.Nesterov)
}
