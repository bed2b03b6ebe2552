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

// BatchNorm normalises x [n,c,h,w] per channel and scales it:
// y = gamma·(x−mean)/√(variance+ε) + beta, with gamma, beta, mean, variance [c].
// In Train the mean and the biased variance are those of the batch, and running
// mean and variance move towards them by BatchNormMomentum (the variance as the
// unbiased one, as PyTorch does); in Eval the running ones are used, and there
// is no gradient.
//
// Ioffe and Szegedy, Batch Normalization, 2015, arXiv:1502.03167.
func BatchNorm(x, gamma, beta, runningMean, runningVar *gorgonia.Node, mode Mode) (*gorgonia.Node, error) {
	vectors := []operand{{"gamma", gamma, 1}, {"beta", beta, 1}, {"running mean", runningMean, 1}, {"running variance", runningVar, 1}}
	if err := check("batch norm", append([]operand{{"input", x, 4}}, vectors...)...); err != nil {
		return nil, err
	}
	s := x.Shape()
	for _, v := range vectors {
		if got := v.node.Shape()[0]; got != s[1] {
			return nil, fmt.Errorf("batch norm: %s has %d elements, the input %v has %d channels", v.name, got, s, s[1])
		}
	}
	if mode == Train && s[0]*s[2]*s[3] < 2 {
		return nil, fmt.Errorf("batch norm: input %v has one value a channel, so it has no variance to train with: use a larger batch or image", s)
	}
	attr := Attr{Training: mode == Train, Epsilon: BatchNormEpsilon, Momentum: BatchNormMomentum}
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
