package optim

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/english"
)

// Config selects an optimizer and its hyperparameters, which have the same meaning as in
// torch.optim. LARS and LAMB follow the papers that introduced them. Hyperparameters that
// do not apply to the optimizer are ignored.
type Config struct {
	Name         string  `yaml:"name" json:"name"` // "sgd", "adam", "adamw", "lars" or "lamb"
	LearningRate float64 `yaml:"learning_rate" json:"learning_rate"`
	Momentum     float64 `yaml:"momentum" json:"momentum"` // sgd, lars
	Nesterov     bool    `yaml:"nesterov" json:"nesterov"` // sgd
	Beta1        float64 `yaml:"beta1" json:"beta1"`       // adam, adamw, lamb: decay rate of the mean gradient
	Beta2        float64 `yaml:"beta2" json:"beta2"`       // adam, adamw, lamb: decay rate of the mean squared gradient
	Epsilon      float64 `yaml:"epsilon" json:"epsilon"`   // adam, adamw, lamb: added to the root of the mean squared gradient
	WeightDecay  float64 `yaml:"weight_decay" json:"weight_decay"`
	Trust        float64 `yaml:"trust" json:"trust"`         // lars: the trust coefficient η
	ClipNorm     float64 `yaml:"clip_norm" json:"clip_norm"` // limit of the 2-norm of all gradients together; 0: no clipping
}

// DefaultConfig returns Adam with the hyperparameters that Kingma and Ba recommend (2015,
// arXiv:1412.6980, algorithm 1), including the learning rate 1e-3. The trust coefficient
// for LARS is from You et al. (2017, arXiv:1708.03888).
func DefaultConfig() Config {
	return Config{Name: RuleAdam, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Trust: 1e-3}
}

// Validate returns an error for the first invalid value.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate optimizer: "+format, a...)
	}
	above := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	atLeast := func(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }
	adam, hasMomentum := hasMoments(c.Name), c.Name == RuleSGD || c.Name == RuleLARS
	switch {
	case !slices.Contains(Rules(), c.Name):
		return bad("unknown name %q: use %s", c.Name, english.JoinOr(Rules()))
	case !above(c.LearningRate):
		return bad("learning_rate is %g: use a number above 0", c.LearningRate)
	case !atLeast(c.WeightDecay):
		return bad("weight_decay is %g: use 0 or more", c.WeightDecay)
	case hasMomentum && !isInUnitInterval(c.Momentum):
		return bad("momentum is %g: use at least 0 and less than 1", c.Momentum)
	case c.Nesterov && (c.Name != RuleSGD || c.Momentum == 0):
		return bad("nesterov is for sgd with a momentum above 0, not for %s with %g", c.Name, c.Momentum)
	case adam && !isInUnitInterval(c.Beta1):
		return bad("beta1 is %g: use at least 0 and less than 1", c.Beta1)
	case adam && !isInUnitInterval(c.Beta2):
		return bad("beta2 is %g: use at least 0 and less than 1", c.Beta2)
	case adam && !above(c.Epsilon):
		return bad("epsilon is %g: use a small number above 0, such as 1e-8", c.Epsilon)
	case c.Name == RuleLARS && !above(c.Trust):
		return bad("trust is %g: use a small number above 0, such as 1e-3", c.Trust)
	case !atLeast(c.ClipNorm):
		return bad("clip_norm is %g: use 0 not to clip, or a norm above 0, such as 1", c.ClipNorm)
	}
	return nil
}

func isInUnitInterval(v float64) bool { return v >= 0 && v < 1 }

// Update returns the update for one step of this optimizer at the given learning rate.
// Steps count from 1.
func (c Config) Update(rate float64, step int) Update {
	u := Update{Rule: c.Name, LearningRate: rate, Step: step, WeightDecay: c.WeightDecay, ClipNorm: c.ClipNorm}
	if hasMoments(c.Name) {
		u.Beta1, u.Beta2, u.Epsilon = c.Beta1, c.Beta2, c.Epsilon
		return u
	}
	u.Momentum, u.Nesterov = c.Momentum, c.Nesterov
	if c.Name == RuleLARS {
		u.Trust = c.Trust
	}
	return u
}
