package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// PyTorch's default constants of batch norm.
const (
	BatchNormEpsilon  = 1e-5 // added to the variance
	BatchNormMomentum = 0.1  // weight of the batch in the running statistics
)

// BatchNorm calls BatchNormWith with PyTorch's constants.
func BatchNorm(x, gamma, beta, runningMean, runningVar *gorgonia.Node, mode Mode) (*gorgonia.Node, error) {
	return BatchNormWith(x, gamma, beta, runningMean, runningVar, mode, BatchNormEpsilon, BatchNormMomentum)
}

// BatchNormWith normalizes x [n,c,h,w] or [n,c,d,h,w] per channel and scales it: y =
// gamma·(x−mean)/√(variance+ε) + beta. gamma, beta, mean and variance have the shape [c].
//
// In mode Train, mean and variance are the mean and the biased variance of the batch, and
// the running statistics are updated: running ← (1−momentum)·running + momentum·batch,
// with the batch's unbiased variance, as in PyTorch. In mode Eval, mean and variance are
// the running statistics, and there is no gradient.
//
// As in PyTorch, momentum is the weight of the batch. Keras' momentum is the weight of
// the previous value: 0.99 in Keras is 0.01 here.
//
// Ioffe and Szegedy, Batch Normalization, 2015, arXiv:1502.03167.
func BatchNormWith(x, gamma, beta, runningMean, runningVar *gorgonia.Node, mode Mode, epsilon, momentum float64) (*gorgonia.Node, error) {
	vectors := []operand{{"gamma", gamma, 1}, {"beta", beta, 1}, {"running mean", runningMean, 1}, {"running variance", runningVar, 1}}
	if err := checkOperands("batch norm", append([]operand{{"input", x, imageOrVolume}}, vectors...)...); err != nil {
		return nil, err
	}
	s := x.Shape()
	for _, v := range vectors {
		if got := v.node.Shape()[0]; got != s[1] {
			return nil, fmt.Errorf("batch norm: %s has %d elements, but the input %v has %d channels", v.name, got, s, s[1])
		}
	}
	if mode == Train && elementCount(s)/s[1] < 2 {
		return nil, fmt.Errorf("batch norm: input %v has only one value per channel, so the variance is undefined: use a larger batch or image", s)
	}
	if !(epsilon > 0) || !(momentum >= 0 && momentum <= 1) {
		return nil, fmt.Errorf("batch norm: invalid epsilon %v or momentum %v: use an epsilon above 0 and a momentum (the weight of the batch) from 0 to 1", epsilon, momentum)
	}
	attr := Attr{Training: mode == Train, Epsilon: epsilon, Momentum: momentum}
	o := &operation{kind: KindBatchNorm, attr: attr, of: -1, shape: s.Clone()}
	if mode == Train {
		o.grad = addBatchNormGradients
		o.wrt = []bool{true, true, true, false, false}
	}
	return addOperation(o, x, gamma, beta, runningMean, runningVar)
}

// addBatchNormGradients adds the nodes of the three gradients, which an engine computes
// together. The forward node is an input of each of them, because it identifies the
// statistics that the forward pass saved.
func addBatchNormGradients(in gorgonia.Nodes, out, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	grads := make(gorgonia.Nodes, len(in))
	for i := range 3 {
		attr := mustOperationInfoOf(out).Attr
		attr.Result = i
		g, err := addBackwardOperation(KindBatchNormBackward, attr, out, in[i], in[0], in[1], out, dy)
		if err != nil {
			return nil, err
		}
		grads[i] = g
	}
	return grads, nil
}
