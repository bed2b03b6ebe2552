// Package optim holds optimisers, learning-rate schedules and scaling rules as
// plain arithmetic. An engine runs the same Update over its own flat buffers.
package optim

// Update is all that one optimiser step needs besides weights, gradients and
// slots.
type Update struct {
	Rule         string  // "adam" or "sgd"
	LearningRate float64 // of this step
	Step         int     // from 1; Adam's bias correction needs it
	Beta1, Beta2 float64 // Adam
	Epsilon      float64 // Adam, added to √v̂
	Momentum     float64 // SGD: buf ← momentum·buf + g; w ← w − lr·buf
	WeightDecay  float64 // added to the gradient as weightDecay·w (L2), before the rule
}
