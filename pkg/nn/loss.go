package nn

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BCEWithLogits returns the binary cross-entropy of the logits z with the targets t in
// [0,1]: a scalar, the mean over all elements of max(z,0) − z·t + log(1+e^−|z|). z and t
// have the same shape. There is no gradient for t. It equals torch.nn.BCEWithLogitsLoss
// with its defaults.
func BCEWithLogits(z, t *gorgonia.Node) (*gorgonia.Node, error) {
	const name = "bce with logits"
	if err := checkOperands(name, operand{"logits", z, batched}, operand{"target", t, batched}); err != nil {
		return nil, err
	}
	if !z.Shape().Eq(t.Shape()) {
		return nil, fmt.Errorf("%s: logits have shape %v, but targets have shape %v: make the shapes equal", name, z.Shape(), t.Shape())
	}
	return addLossOperation(KindBCEWithLogits, KindBCEWithLogitsBackward, Attr{}, z, t)
}

// SoftmaxCrossEntropy returns the cross-entropy of the logits z [n,classes] with the
// targets t [n,1], an input that contains the index of each sample's class as a number.
// The result is a scalar, the mean over the samples of −Σ_j q_j·log softmax(z)_j with q =
// (1−smoothing)·onehot(t) + smoothing/classes. An engine returns an error if an index is
// not a class. The loss equals torch.nn.CrossEntropyLoss with label_smoothing (Szegedy et
// al., Rethinking the Inception Architecture, 2016, arXiv:1512.00567, section 7).
func SoftmaxCrossEntropy(z, t *gorgonia.Node, smoothing float64) (*gorgonia.Node, error) {
	const name = "softmax cross-entropy"
	if err := checkOperands(name, operand{"logits", z, 2}, operand{"target", t, 2}); err != nil {
		return nil, err
	}
	zs, ts := z.Shape(), t.Shape()
	switch {
	case zs[1] < 2:
		return nil, fmt.Errorf("%s: logits have shape %v: want at least 2 classes (for one class, use BCEWithLogits)", name, zs)
	case ts[0] != zs[0] || ts[1] != 1:
		return nil, fmt.Errorf("%s: logits have shape %v, targets %v: want targets [%d,1], the index of each sample's class", name, zs, ts, zs[0])
	case t.Op() != nil:
		return nil, fmt.Errorf("%s: the targets must be an input of the graph, because engines check the class indices before the step", name)
	case !(smoothing >= 0 && smoothing < 1):
		return nil, fmt.Errorf("%s: invalid smoothing %v: use at least 0 (none) and less than 1", name, smoothing)
	}
	return addLossOperation(KindSoftmaxCrossEntropy, KindSoftmaxCrossEntropyBackward, Attr{Smoothing: smoothing}, z, t)
}

// DiceBCE returns weight times the soft Dice loss plus (1−weight) times BCEWithLogits, of
// the logits z with the targets t in [0,1]. z and t have the same shape [n,c,…]; weight
// is above 0 and at most 1 (Dice alone). There is no gradient for t.
//
// The Dice loss is the mean over samples and channels of 1 − (2Σpt+1)/(Σp+Σt+1) with p =
// σ(z). The sums are over the positions of one channel of one sample, not over the batch,
// so that the loss of a batch is the mean of its samples' losses for any number of
// workers.
//
// Milletari et al., V-Net, 2016, arXiv:1606.04797, section 3, with sums instead of sums
// of squares, and with 1 added, as is usual.
func DiceBCE(z, t *gorgonia.Node, weight float64) (*gorgonia.Node, error) {
	const name = "dice bce"
	if err := checkOperands(name, operand{"logits", z, imageOrVolume}, operand{"target", t, imageOrVolume}); err != nil {
		return nil, err
	}
	switch {
	case !z.Shape().Eq(t.Shape()):
		return nil, fmt.Errorf("%s: logits have shape %v, but targets have shape %v: make the shapes equal", name, z.Shape(), t.Shape())
	case !(weight > 0 && weight <= 1):
		return nil, fmt.Errorf("%s: invalid Dice weight %v: use a number above 0 and at most 1 (for 0, use BCEWithLogits)", name, weight)
	}
	return addLossOperation(KindDiceBCE, KindDiceBCEBackward, Attr{DiceWeight: weight}, z, t)
}

// PixelLoss configures PixelCrossEntropy.
type PixelLoss struct {
	ClassWeights []float64 // weight of each class in the cross-entropy, 0 or more; nil: 1 each
	Ignore       int       // target of pixels that do not count; not less than the number of classes
	DiceWeight   float64   // weight of soft Dice, in [0,1]; the weight of the cross-entropy is 1 − DiceWeight
}

// PixelCrossEntropy returns DiceWeight times the soft Dice loss plus (1−DiceWeight) times
// the cross-entropy of the logits z [n,K,…] with the targets t [n,1,…]. t is an input that
// contains the index of each pixel's class as a number, or Ignore. An engine returns an
// error if a target is neither. K is at least 2.
//
// The cross-entropy is Σ w_t·(log Σ_k e^{z_k} − z_t) over the pixels that count, divided by
// the number of all pixels of the batch. torch.nn.CrossEntropyLoss divides by the sum of the
// weights w_t of the pixels that count instead. This sum differs between the parts of a
// batch, so the mean of the losses of N workers would not be the loss of the whole batch.
// The result equals PyTorch's with reduction="sum", divided by the number of all pixels.
//
// The Dice loss is the mean over samples and classes of 1 − (2Σpy+1)/(Σp+Σy+1) with p =
// softmax(z), and y = 1 where the target is the class, else 0. The sums are over the pixels
// of one sample that count. ClassWeights do not apply to it. See also DiceBCE.
func PixelCrossEntropy(z, t *gorgonia.Node, o PixelLoss) (*gorgonia.Node, error) {
	const name = "pixel cross-entropy"
	if err := checkOperands(name, operand{"logits", z, imageOrVolume}, operand{"target", t, imageOrVolume}); err != nil {
		return nil, err
	}
	zs := z.Shape()
	want := slices.Clone(zs)
	want[1] = 1
	switch {
	case zs[1] < 2:
		return nil, fmt.Errorf("%s: logits have shape %v: want at least 2 classes (for one class, use BCEWithLogits)", name, zs)
	case !t.Shape().Eq(want):
		return nil, fmt.Errorf("%s: logits have shape %v, targets %v: want targets %v, the index of each pixel's class", name, zs, t.Shape(), want)
	case t.Op() != nil:
		return nil, fmt.Errorf("%s: the targets must be an input of the graph, because engines check the class indices before the step", name)
	case o.Ignore < zs[1]:
		return nil, fmt.Errorf("%s: the target of ignored pixels is %d, which is one of the %d classes or negative: use %d or more", name, o.Ignore, zs[1], zs[1])
	case !(o.DiceWeight >= 0 && o.DiceWeight <= 1):
		return nil, fmt.Errorf("%s: invalid Dice weight %v: use a number from 0 to 1", name, o.DiceWeight)
	}
	if err := CheckClassWeights(o.ClassWeights, zs[1]); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return addLossOperation(KindPixelCrossEntropy, KindPixelCrossEntropyBackward, Attr{ClassWeights: slices.Clone(o.ClassWeights), Ignore: o.Ignore, DiceWeight: o.DiceWeight}, z, t)
}

// CheckClassWeights returns an error unless w is nil or contains one finite weight per class. No
// weight may be negative, and at least one must be positive.
func CheckClassWeights(w []float64, classes int) error {
	if w == nil {
		return nil
	}
	if len(w) != classes {
		return fmt.Errorf("got %d class weights %v, want one for each of the %d classes", len(w), w, classes)
	}
	for i, v := range w {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("invalid weight %v of class %d: use 0 or a positive number", v, i)
		}
	}
	if slices.Max(w) == 0 {
		return errors.New("every class has weight 0: use a positive weight for at least one class")
	}
	return nil
}

// ExpScale is the factor in the exponents of L1's second term, e^{14y} − e^{14t}.
const ExpScale = 14

// L1 returns the mean absolute error of predictions y and targets t: a scalar, the mean of
// |y−t| over all elements. y and t have the same shape [n,c,…]. The gradient of an element
// is 0 if y = t. There is no gradient for t. The loss equals torch.nn.L1Loss.
//
// If expWeight is above 0, L1 adds expWeight times the mean of |e^{14y} − e^{14t}| over the
// elements of channel 0. If that channel is the scaled logarithm of a density, the second
// term is the error of the density (3-D U-Net of the SC21 tutorial "Deep Learning at
// Scale").
func L1(y, t *gorgonia.Node, expWeight float64) (*gorgonia.Node, error) {
	const name = "l1"
	if err := checkOperands(name, operand{"prediction", y, batched}, operand{"target", t, batched}); err != nil {
		return nil, err
	}
	switch {
	case !y.Shape().Eq(t.Shape()):
		return nil, fmt.Errorf("%s: predictions have shape %v, but targets have shape %v: make the shapes equal", name, y.Shape(), t.Shape())
	case !(expWeight >= 0) || math.IsInf(expWeight, 0):
		return nil, fmt.Errorf("%s: invalid weight %v of the exponential term: use 0 (none) or a positive number", name, expWeight)
	}
	return addLossOperation(KindL1, KindL1Backward, Attr{ExpWeight: expWeight}, y, t)
}

// addLossOperation adds an operation that computes a scalar from y and t. The gradient with respect to
// y is computed by an operation of kind backward. There is no gradient for t.
func addLossOperation(kind, backward Kind, attr Attr, y, t *gorgonia.Node) (*gorgonia.Node, error) {
	o := &operation{kind: kind, attr: attr, of: -1, shape: tensor.ScalarShape(), wrt: []bool{true, false}}
	o.grad = func(in gorgonia.Nodes, out, dloss *gorgonia.Node) (gorgonia.Nodes, error) {
		dy, err := addBackwardOperation(backward, attr, out, in[0], in[0], in[1], dloss)
		return gorgonia.Nodes{dy, nil}, err
	}
	return addOperation(o, y, t)
}
