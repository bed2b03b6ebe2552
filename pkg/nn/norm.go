package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// The constants of batch norm, PyTorch's defaults.
const (
	BatchNormEpsilon  = 1e-5 // added to the variance
	BatchNormMomentum = 0.1  // weight of the batch in the running statistics
)

// BatchNorm is BatchNormWith with PyTorch's constants.
func BatchNorm(x, gamma, beta, runningMean, runningVar *gorgonia.Node, mode Mode) (*gorgonia.Node, error) {
	return BatchNormWith(x, gamma, beta, runningMean, runningVar, mode, BatchNormEpsilon, BatchNormMomentum)
}

// BatchNormWith normalises x [n,c,h,w] or [n,c,d,h,w] per channel and scales it:
// y = gamma·(x−mean)/√(variance+ε) + beta, with gamma, beta, mean, variance [c].
// In Train the mean and the biased variance are those of the batch, and running
// mean and variance move towards them: running ← (1−momentum)·running +
// momentum·batch (the variance as the unbiased one, as PyTorch does). In Eval
// the running ones are used, and there is no gradient.
//
// Here, as in PyTorch, momentum is the batch's weight. Keras' momentum is that
// of what was: its 0.99 is 0.01 here.
//
// Ioffe and Szegedy, Batch Normalization, 2015, arXiv:1502.03167.
func BatchNormWith(x, gamma, beta, runningMean, runningVar *gorgonia.Node, mode Mode, epsilon, momentum float64) (*gorgonia.Node, error) {
	vectors := []operand{{"gamma", gamma, 1}, {"beta", beta, 1}, {"running mean", runningMean, 1}, {"running variance", runningVar, 1}}
	if err := check("batch norm", append([]operand{{"input", x, feature}}, vectors...)...); err != nil {
		return nil, err
	}
	s := x.Shape()
	for _, v := range vectors {
		if got := v.node.Shape()[0]; got != s[1] {
			return nil, fmt.Errorf("batch norm: %s has %d elements, the input %v has %d channels", v.name, got, s, s[1])
		}
	}
	if mode == Train && elements(s)/s[1] < 2 {
		return nil, fmt.Errorf("batch norm: input %v has one value a channel, so it has no variance to train with: use a larger batch or image", s)
	}
	if !(epsilon > 0) || !(momentum >= 0 && momentum <= 1) {
		return nil, fmt.Errorf("batch norm: epsilon is %v and momentum %v: use an epsilon above 0 and a momentum from 0 to 1, the weight of the batch", epsilon, momentum)
	}
	attr := Attr{Training: mode == Train, Epsilon: epsilon, Momentum: momentum}
	o := &operation{kind: KindBatchNorm, attr: attr, of: -1, shape: s.Clone()}
	if mode == Train {
		o.grad = batchNormGradient
		o.wrt = []bool{true, true, true, false, false}
	}
	return apply(o, x, gamma, beta, runningMean, runningVar)
}

// batchNormGradient makes the three gradients that one kernel computes. The
// forward node is among their inputs: it leads to the saved statistics.
func batchNormGradient(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	grads := make(gorgonia.Nodes, len(in))
	for i := range 3 {
		attr := mustCall(out).Attr
		attr.Result = i
		g, err := backward(KindBatchNormBackward, attr, out, in[i], in[0], in[1], out, dy)
		if err != nil {
			return nil, err
		}
		grads[i] = g
	}
	return grads, nil
}
