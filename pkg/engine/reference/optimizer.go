package reference

import (
	"errors"
	"fmt"
	"math"

	"lockstep/pkg/optim"
)

// optimizer prepares an update of every parameter; one that cannot be is an
// error before anything runs. Without update it does nothing.
func (x *executable[T]) optimizer(u *optim.Update) (func(), error) {
	if u == nil {
		return func() {}, nil
	}
	if len(x.buckets) == 0 {
		return nil, errors.New("update parameters: the program has no backward pass: lower a graph built with nn.Train")
	}
	var rule func(w, g []T, name string)
	switch u.Rule {
	case "adam":
		if u.Step < 1 {
			return nil, fmt.Errorf("update parameters: step is %d: Adam counts from 1", u.Step)
		}
		rule = func(w, g []T, name string) {
			adam(u, w, g, x.store.slot("optimizer.m.", name), x.store.slot("optimizer.v.", name))
		}
	case "sgd":
		rule = func(w, g []T, name string) {
			var momentum []T
			if u.Momentum != 0 {
				momentum = x.store.slot("optimizer.momentum.", name)
			}
			sgd(u, w, g, momentum)
		}
	default:
		return nil, fmt.Errorf("update parameters: rule %q is not known: use adam or sgd", u.Rule)
	}
	return func() {
		for _, p := range x.program.Params {
			rule(x.tensors[p.Tensor], x.tensors[p.Grad], p.Name)
		}
	}, nil
}

// adam is Kingma and Ba, Adam, 2015, arXiv:1412.6980, algorithm 1, in the
// arrangement of torch.optim.Adam: w −= lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε).
func adam[T number](u *optim.Update, w, g, m, v []T) {
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

// sgd is gradient descent, with heavy-ball momentum where there is a buffer:
// buf ← momentum·buf + g; w ← w − lr·buf (torch.optim.SGD without dampening).
func sgd[T number](u *optim.Update, w, g, buf []T) {
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
