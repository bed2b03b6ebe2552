package reference

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/optim"
)

// prepareUpdate validates u before any kernel runs. It returns a function that updates every
// parameter. If u is nil, the function does nothing.
func (x *executable[T]) prepareUpdate(u *optim.Update) (func() error, error) {
	if u == nil {
		return func() error { return nil }, nil
	}
	if len(x.buckets) == 0 {
		return nil, errors.New("update parameters: the program computes no gradients: lower a graph that was built with nn.Train")
	}
	if slices.Contains(optim.Rules(), u.Rule) && !u.IsSimple() {
		return x.prepareOptimUpdate(u)
	}
	var rule func(w, g []T, name string)
	switch u.Rule {
	case "adam":
		if u.Step < 1 {
			return nil, fmt.Errorf("update parameters: invalid step %d: Adam counts steps from 1", u.Step)
		}
		rule = func(w, g []T, name string) {
			applyAdam(u, w, g, x.store.ensureOptimizerSlot("optimizer.m.", name), x.store.ensureOptimizerSlot("optimizer.v.", name))
		}
	case "sgd":
		rule = func(w, g []T, name string) {
			var momentum []T
			if u.Momentum != 0 {
				momentum = x.store.ensureOptimizerSlot("optimizer.momentum.", name)
			}
			applySGD(u, w, g, momentum)
		}
	default:
		return nil, fmt.Errorf("update parameters: unknown rule %q: use %s", u.Rule, strings.Join(optim.Rules(), ", "))
	}
	return func() error {
		for _, p := range x.program.Params {
			rule(x.tensors[p.Tensor], x.tensors[p.Grad], p.Name)
		}
		return nil
	}, nil
}

// prepareOptimUpdate is prepareUpdate for updates that only package optim implements:
// layer-wise rules, decoupled weight decay, Nesterov's momentum and clipping.
func (x *executable[T]) prepareOptimUpdate(u *optim.Update) (func() error, error) {
	if err := u.Validate(); err != nil {
		return nil, fmt.Errorf("update parameters: %w", err)
	}
	return func() error {
		var single []optim.Tensor32
		var double []optim.Tensor64
		for _, p := range x.program.Params {
			var slots [][]T
			for _, name := range u.Slots() {
				slots = append(slots, x.store.ensureOptimizerSlot("optimizer."+name+".", p.Name))
			}
			vector := len(x.program.Tensors[p.Tensor].Shape) == 1
			switch w := any(x.tensors[p.Tensor]).(type) {
			case []float32:
				single = append(single, optim.Tensor32{Weights: w, Gradient: any(x.tensors[p.Grad]).([]float32), Slots: any(slots).([][]float32), Vector: vector})
			case []float64:
				double = append(double, optim.Tensor64{Weights: w, Gradient: any(x.tensors[p.Grad]).([]float64), Slots: any(slots).([][]float64), Vector: vector})
			}
		}
		if err := optim.Apply64(*u, double); err != nil {
			return err
		}
		return optim.Apply32(*u, single)
	}, nil
}

// applyAdam applies one update of Adam (Kingma and Ba, 2015, arXiv:1412.6980, algorithm 1), in
// the form of torch.optim.Adam: w −= lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε).
func applyAdam[T number](u *optim.Update, w, g, m, v []T) {
	t := float64(u.Step)
	rate := T(u.LearningRate / (1 - math.Pow(u.Beta1, t)))
	root := T(math.Sqrt(1 - math.Pow(u.Beta2, t)))
	b1, c1 := T(u.Beta1), T(1-u.Beta1)
	b2, c2 := T(u.Beta2), T(1-u.Beta2)
	decay, epsilon := T(u.WeightDecay), T(u.Epsilon)
	for i := range w {
		d := g[i] + decay*w[i]
		m[i] = b1*m[i] + c1*d
		v[i] = b2*v[i] + c2*d*d
		w[i] -= rate * m[i] / (T(math.Sqrt(float64(v[i])))/root + epsilon)
	}
}

// applySGD applies one update of gradient descent, with heavy-ball momentum if buf is not nil:
// buf ← momentum·buf + g; w ← w − lr·buf (torch.optim.SGD without dampening).
func applySGD[T number](u *optim.Update, w, g, buf []T) {
	rate, momentum, decay := T(u.LearningRate), T(u.Momentum), T(u.WeightDecay)
	for i := range w {
		d := g[i] + decay*w[i]
		if buf != nil {
			buf[i] = momentum*buf[i] + d
			d = buf[i]
		}
		w[i] -= rate * d
	}
}
