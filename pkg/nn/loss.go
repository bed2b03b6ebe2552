package nn

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BCEWithLogits is the binary cross-entropy of the logits z with the targets t
// in [0,1], of one shape: the mean over all elements of
// max(z,0) − z·t + log(1+e^−|z|), a scalar. There is no gradient for t.
// It is torch.nn.BCEWithLogitsLoss with its defaults.
func BCEWithLogits(z, t *gorgonia.Node) (*gorgonia.Node, error) {
	const name = "bce with logits"
	if err := check(name, operand{"logits", z, several}, operand{"target", t, several}); err != nil {
		return nil, err
	}
	if !z.Shape().Eq(t.Shape()) {
		return nil, fmt.Errorf("%s: logits have shape %v, targets %v: they must be equal", name, z.Shape(), t.Shape())
	}
	return loss(KindBCEWithLogits, KindBCEWithLogitsBackward, Attr{}, z, t)
}

// SoftmaxCrossEntropy is the cross-entropy of the logits z [n,classes] with the
// classes t [n,1], an input that holds the index of each sample's class, as a
// number: the mean over the samples of −Σ_j q_j·log softmax(z)_j, a scalar, with
// q = (1−smoothing)·onehot(t) + smoothing/classes. An engine refuses an index
// that is no class. It is torch.nn.CrossEntropyLoss with label_smoothing
// (Szegedy et al., Rethinking the Inception Architecture, 2016,
// arXiv:1512.00567, section 7).
func SoftmaxCrossEntropy(z, t *gorgonia.Node, smoothing float64) (*gorgonia.Node, error) {
	const name = "softmax cross-entropy"
	if err := check(name, operand{"logits", z, 2}, operand{"target", t, 2}); err != nil {
		return nil, err
	}
	zs, ts := z.Shape(), t.Shape()
	switch {
	case zs[1] < 2:
		return nil, fmt.Errorf("%s: logits have shape %v: at least 2 classes are needed (for one, use BCEWithLogits)", name, zs)
	case ts[0] != zs[0] || ts[1] != 1:
		return nil, fmt.Errorf("%s: logits have shape %v, targets %v: the targets are the index of each sample's class, [%d,1]", name, zs, ts, zs[0])
	case t.Op() != nil:
		return nil, fmt.Errorf("%s: the target must be an input: an engine looks at the indexes before the step", name)
	case !(smoothing >= 0 && smoothing < 1):
		return nil, fmt.Errorf("%s: smoothing is %v: use 0 (none) up to but not 1", name, smoothing)
	}
	return loss(KindSoftmaxCrossEntropy, KindSoftmaxCrossEntropyBackward, Attr{Smoothing: smoothing}, z, t)
}

// DiceBCE is weight times the soft Dice loss plus (1−weight) times BCEWithLogits,
// of the logits z with the targets t in [0,1], of one shape [n,c,…]; weight is
// above 0 and at most 1 (Dice alone). The Dice loss is the mean over samples and
// channels of 1 − (2Σpt+1)/(Σp+Σt+1), with p = σ(z) and sums over the positions
// of one sample's channel: not of the whole batch, so that the loss of a batch is
// the mean of its samples' losses, on one worker as on several. There is no
// gradient for t.
//
// Milletari et al., V-Net, 2016, arXiv:1606.04797, section 3, with sums in the
// place of squares and 1 added, as is usual.
func DiceBCE(z, t *gorgonia.Node, weight float64) (*gorgonia.Node, error) {
	const name = "dice bce"
	if err := check(name, operand{"logits", z, feature}, operand{"target", t, feature}); err != nil {
		return nil, err
	}
	switch {
	case !z.Shape().Eq(t.Shape()):
		return nil, fmt.Errorf("%s: logits have shape %v, targets %v: they must be equal", name, z.Shape(), t.Shape())
	case !(weight > 0 && weight <= 1):
		return nil, fmt.Errorf("%s: the weight of the Dice term is %v: use above 0 up to 1 (for 0, use BCEWithLogits)", name, weight)
	}
	return loss(KindDiceBCE, KindDiceBCEBackward, Attr{DiceWeight: weight}, z, t)
}

// ExpScale is the factor in the exponent of L1's second term.
const ExpScale = 14

// L1 is the mean absolute error of y against t, of one shape [n,c,…]: the mean
// over all elements of |y−t|, a scalar; its gradient is 0 where they are equal.
// There is none for t. It is torch.nn.L1Loss.
//
// With expWeight above 0, expWeight times the mean over channel 0 alone of
// |e^{14y} − e^{14t}| is added: where the channel is the logarithm of a density,
// scaled, that weighs the density itself (the 3-D U-Net of the SC21 tutorial
// "Deep Learning at Scale").
func L1(y, t *gorgonia.Node, expWeight float64) (*gorgonia.Node, error) {
	const name = "l1"
	if err := check(name, operand{"prediction", y, several}, operand{"target", t, several}); err != nil {
		return nil, err
	}
	switch {
	case !y.Shape().Eq(t.Shape()):
		return nil, fmt.Errorf("%s: predictions have shape %v, targets %v: they must be equal", name, y.Shape(), t.Shape())
	case !(expWeight >= 0) || math.IsInf(expWeight, 0):
		return nil, fmt.Errorf("%s: the weight of the exponential term is %v: use 0 (none) or more", name, expWeight)
	}
	return loss(KindL1, KindL1Backward, Attr{ExpWeight: expWeight}, y, t)
}

// loss is a scalar of y and t with a gradient for y alone.
func loss(kind, back Kind, attr Attr, y, t *gorgonia.Node) (*gorgonia.Node, error) {
	o := &operation{kind: kind, attr: attr, of: -1, shape: tensor.ScalarShape(), wrt: []bool{true, false}}
	o.grad = func(in gorgonia.Nodes, out, dloss *gorgonia.Node) (gorgonia.Nodes, error) {
		dy, err := backward(back, attr, out, in[0], in[0], in[1], dloss)
		return gorgonia.Nodes{dy, nil}, err
	}
	return apply(o, y, t)
}
