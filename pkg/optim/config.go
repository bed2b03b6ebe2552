package optim

import (
	"fmt"
	"math"
)

// Config is an optimiser and its constants, the manual of which is PyTorch's
// torch.optim.Adam and torch.optim.SGD. What its rule does not use is ignored.
type Config struct {
	Name         string  `yaml:"name" json:"name"` // "adam" or "sgd"
	LearningRate float64 `yaml:"learning_rate" json:"learning_rate"`
	Momentum     float64 `yaml:"momentum" json:"momentum"` // sgd
	Beta1        float64 `yaml:"beta1" json:"beta1"`       // adam: decay of the mean gradient
	Beta2        float64 `yaml:"beta2" json:"beta2"`       // adam: decay of the mean squared gradient
	Epsilon      float64 `yaml:"epsilon" json:"epsilon"`   // adam: added to the root of the mean square
	WeightDecay  float64 `yaml:"weight_decay" json:"weight_decay"`
}

// DefaultConfig is Adam as Kingma and Ba (2015, arXiv:1412.6980, algorithm 1)
// recommend it, with the learning rate of 1e-3.
func DefaultConfig() Config {
	return Config{Name: RuleAdam, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
}

// Validate reports the first value that cannot be.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate optimizer: "+format, a...)
	}
	switch {
	case c.Name != RuleAdam && c.Name != RuleSGD:
		return bad("name %q is not known: use %s or %s", c.Name, RuleAdam, RuleSGD)
	case !(c.LearningRate > 0) || math.IsInf(c.LearningRate, 0):
		return bad("learning_rate is %g: use a number above 0", c.LearningRate)
	case !(c.WeightDecay >= 0) || math.IsInf(c.WeightDecay, 0):
		return bad("weight_decay is %g: use 0 or more", c.WeightDecay)
	case c.Name == RuleSGD && !inUnit(c.Momentum):
		return bad("momentum is %g: use at least 0 and less than 1", c.Momentum)
	case c.Name == RuleAdam && !inUnit(c.Beta1):
		return bad("beta1 is %g: use at least 0 and less than 1", c.Beta1)
	case c.Name == RuleAdam && !inUnit(c.Beta2):
		return bad("beta2 is %g: use at least 0 and less than 1", c.Beta2)
	case c.Name == RuleAdam && (!(c.Epsilon > 0) || math.IsInf(c.Epsilon, 0)):
		return bad("epsilon is %g: use a small number above 0, such as 1e-8", c.Epsilon)
	}
	return nil
}

func inUnit(v float64) bool { return v >= 0 && v < 1 }

// Update is one step (from 1) of this optimiser at a learning rate.
func (c Config) Update(rate float64, step int) Update {
	u := Update{Rule: c.Name, LearningRate: rate, Step: step, WeightDecay: c.WeightDecay}
	if c.Name == RuleSGD {
		u.Momentum = c.Momentum
	} else {
		u.Beta1, u.Beta2, u.Epsilon = c.Beta1, c.Beta2, c.Epsilon
	}
	return u
}
