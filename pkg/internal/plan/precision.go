package plan

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/internal/device"
)

// LossScale is the name of the input that a program for fp16 has beside those
// of its graph: a number that the gradient of the loss is multiplied by, so
// that small gradients are not lost below fp16's smallest number. Every
// parameter's gradient comes out multiplied by it.
const LossScale = "loss_scale"

// MixedPrecision is p with activations and their gradients stored in low (fp16
// or bf16), and with the weights that convolutions and linear layers multiply
// by rounded to it once a step; p stays as it is. Everything is added up in
// fp32, and rounded when it is written (Tensor.Stored). These stay fp32:
//
//   - parameters (the master weights, which the optimiser updates), their
//     gradients, and running statistics;
//   - vectors: biases, scales and statistics of batch norm, losses;
//   - what a loss compares with;
//   - logits, their gradient and weights of a head: see headOf.
//
// Other logits are rounded, as PyTorch's autocast does too; losses compute with
// them in fp32.
//
// In fp16 the gradient of the loss is multiplied by the input LossScale.
//
// Micikevicius et al., Mixed Precision Training, 2018, arXiv:1710.03740,
// section 3.
func MixedPrecision(p *Program, low device.Type) (*Program, error) {
	if low != device.F16 && low != device.BF16 {
		return nil, fmt.Errorf("lower precision: to %s: use fp16 or bf16", low)
	}
	if p.Lookup(Input, LossScale) >= 0 {
		return nil, fmt.Errorf("lower precision: the network has an input %q of its own, a name that this needs: call it otherwise", LossScale)
	}
	m := mixing{Program: p.clone(), low: low}
	m.store()
	m.castWeights()
	if low == device.F16 {
		if err := m.scaleLoss(); err != nil {
			return nil, fmt.Errorf("lower precision: %w", err)
		}
	}
	for i := range m.Tensors {
		m.Tensors[i].First, m.Tensors[i].Last = -1, -1
	}
	m.lifetimes()
	if err := Validate(m.Program); err != nil {
		return nil, fmt.Errorf("lower precision: the result is inconsistent, which is a bug of package plan: %w", err)
	}
	return m.Program, nil
}

// mixing is the state of one call of MixedPrecision.
type mixing struct {
	*Program
	low   device.Type
	heads []int // kernels
}

// clone is p with kernels and tensors of its own.
func (p *Program) clone() *Program {
	c := *p
	c.Tensors, c.Inputs, c.Buckets = slices.Clone(p.Tensors), slices.Clone(p.Inputs), slices.Clone(p.Buckets)
	c.Kernels = slices.Clone(p.Kernels)
	for i := range c.Kernels {
		c.Kernels[i].In = slices.Clone(c.Kernels[i].In)
	}
	return &c
}

// store decides what is stored in the low type.
func (m *mixing) store() {
	full := make([]bool, len(m.Tensors))
	for id, t := range m.Tensors {
		full[id] = len(t.Shape) == 1 || t.Role == Parameter || t.Role == State || t.Role == Gradient
	}
	for at, k := range m.Kernels {
		switch k.Op {
		case OpConvBackwardWeights, OpConvTransposeBackwardWeights, OpLinearBackwardWeights:
			full[k.Out[0]] = true
		case OpAdd, OpSlice, OpReshape: // sums of gradients of weights that several layers share, and copies
			if !slices.ContainsFunc(k.In, func(id int) bool { return !full[id] }) {
				full[k.Out[0]] = true
			}
		case OpConv:
			if gradient, ok := m.headOf(k); ok {
				m.heads = append(m.heads, at)
				full[k.Out[0]] = true
				if gradient >= 0 {
					full[gradient] = true
				}
			}
		}
		if isLoss(k.Op) {
			full[k.In[1]] = true
		}
	}
	for id := range m.Tensors {
		if !full[id] {
			m.Tensors[id].Stored = m.low
		}
	}
}

// isLoss says whether op is a loss or the gradient of one: it reads the
// prediction, the target and, for the gradient, what that is multiplied by.
func isLoss(op Op) bool {
	switch op {
	case OpBCEWithLogits, OpBCEWithLogitsBackward, OpSoftmaxCrossEntropy, OpSoftmaxCrossEntropyBackward,
		OpDiceBCE, OpDiceBCEBackward, OpL1, OpL1Backward:
		return true
	}
	return false
}

// onlyLosses says whether nothing but losses reads id, as their prediction.
func (m *mixing) onlyLosses(id int) bool {
	for _, k := range m.Kernels {
		if slices.Contains(k.In, id) && !(isLoss(k.Op) && k.In[0] == id && k.In[1] != id) {
			return false
		}
	}
	return true
}

// headOf says whether k is the head of a segmentation network, and which tensor
// is the gradient of its logits (−1 without backward pass): a convolution with a
// window of 1 to one channel, whose result only a binary cross-entropy reads, with a Dice term or without. A
// GPU's library would pad the one channel to eight; kernels of its engine's own
// multiply by the fp32 weights and keep logits and their gradient in fp32.
func (m *mixing) headOf(k Kernel) (gradient int, ok bool) {
	gradient = -1
	z := k.Out[0]
	if !m.window1(k.In[1], k.Attr) || m.Tensors[k.In[1]].Role != Parameter || !m.onlyLosses(z) {
		return -1, false
	}
	for _, r := range m.Kernels {
		switch {
		case !slices.Contains(r.In, z) || r.Op == OpBCEWithLogits || r.Op == OpDiceBCE:
		case (r.Op == OpBCEWithLogitsBackward || r.Op == OpDiceBCEBackward) && gradient < 0:
			gradient = r.Out[0]
		default:
			return -1, false
		}
	}
	for _, r := range m.Kernels {
		switch {
		case gradient < 0 || !slices.Contains(r.In, gradient):
		case r.Op == OpBiasBackward:
		case r.Op == OpConvBackwardWeights && m.window1(r.Out[0], r.Attr) && r.In[0] != gradient:
		case r.Op == OpConvBackwardData && m.window1(r.In[0], r.Attr):
		default:
			return -1, false
		}
	}
	return gradient, gradient < 0 || m.Tensors[gradient].Role == Activation
}

// window1 says whether weights w are one filter of a single tap, moved by
// single steps.
func (m *mixing) window1(w int, a Attr) bool {
	t := m.Tensors[w]
	if t.Shape[0] != 1 || t.Elements() != t.Shape[1] {
		return false
	}
	for i := range a.Stride {
		if a.Stride[i] != 1 || a.Pad[i] != 0 {
			return false
		}
	}
	return true
}

// castWeights rounds each weight that something multiplies by in the low type,
// in front of the first kernel that does.
func (m *mixing) castWeights() {
	masters := map[int]bool{} // weights of heads
	for _, at := range m.heads {
		masters[m.Kernels[at].In[1]] = true
	}
	copies := map[int]int{}
	var kernels []Kernel
	forward := 0
	moved := make([]int, len(m.Kernels))
	for at, k := range m.Kernels {
		if i := weightsOf(k.Op); i >= 0 && m.Tensors[k.In[i]].Role == Parameter && !masters[k.In[i]] {
			w := k.In[i]
			c, ok := copies[w]
			if !ok {
				c = len(m.Tensors)
				copies[w] = c
				t := m.Tensors[w]
				m.Tensors = append(m.Tensors, Tensor{Name: t.Name + ".rounded", Shape: t.Shape, Role: Activation, Stored: m.low})
				kernels = append(kernels, Kernel{Op: OpCast, Name: t.Name, In: []int{w}, Out: []int{c}, Backward: k.Backward})
			}
			k.In[i] = c
		}
		kernels = append(kernels, k)
		if at < m.Forward {
			forward = len(kernels)
		}
		moved[at] = len(kernels) - 1
	}
	for i, b := range m.Buckets {
		m.Buckets[i].Ready = moved[b.Ready]
	}
	m.Kernels, m.Forward = kernels, forward
}

// weightsOf is the operand that op multiplies by as weights, −1 without one.
func weightsOf(op Op) int {
	switch op {
	case OpConv, OpConvTranspose, OpLinear:
		return 1
	case OpConvBackwardData, OpConvTransposeBackwardData, OpLinearBackwardData:
		return 0
	}
	return -1
}

// scaleLoss puts the input LossScale in the place of the constant 1 that the
// gradient of the loss begins with.
func (m *mixing) scaleLoss() error {
	if m.Forward == len(m.Kernels) {
		return nil
	}
	id := len(m.Tensors)
	m.Tensors = append(m.Tensors, Tensor{Name: LossScale, Shape: []int{1}, Role: Input})
	m.Inputs = append(m.Inputs, id)
	found := false
	for _, k := range m.Kernels {
		if isLoss(k.Op) && len(k.In) == 3 {
			if t := m.Tensors[k.In[2]]; t.Role != Constant || t.Value != 1 {
				return fmt.Errorf("the gradient of loss %s does not begin with 1", k.Name)
			}
			k.In[2], found = id, true
		}
	}
	if !found {
		return errors.New("no gradient of a loss is in the backward pass")
	}
	return nil
}
