package plan

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/internal/device"
)

// LossScaleInput is the name of an input that ConvertToMixedPrecision adds to fp16 programs. The
// gradient of the loss, and thereby every parameter's gradient, is multiplied by this input, so
// that small gradients do not underflow in fp16.
const LossScaleInput = "loss_scale"

// ConvertToMixedPrecision returns a copy of p that stores activations and their gradients in the
// type low (fp16 or bf16). The weights of convolutions and linear layers are rounded to low
// once per step. Sums are computed in fp32 and rounded when they are written
// (Tensor.Stored). These tensors remain in fp32:
//
//   - parameters (the master weights, which the optimizer updates), their gradients,
//     and running statistics;
//   - vectors: biases, scales and statistics of batch norm, losses;
//   - the targets of losses;
//   - the logits of a segmentation head, their gradient and the head's weights: see
//     matchSegmentationHead.
//
// Other logits are rounded, as in PyTorch's autocast; losses compute with them in fp32.
//
// In fp16 the gradient of the loss is multiplied by the input LossScaleInput.
//
// Micikevicius et al., Mixed Precision Training, 2018, arXiv:1710.03740, section 3.
func ConvertToMixedPrecision(p *Program, low device.ElementType) (*Program, error) {
	if low != device.F16 && low != device.BF16 {
		return nil, fmt.Errorf("convert program to mixed precision: unsupported type %s: use fp16 or bf16", low)
	}
	if p.FindTensor(Input, LossScaleInput) >= 0 {
		return nil, fmt.Errorf("convert program to mixed precision: the network already has an input %q: rename it, because mixed precision adds an input with this name", LossScaleInput)
	}
	m := precisionConverter{Program: p.clone(), low: low}
	m.chooseStorageTypes()
	m.addWeightCasts()
	if low == device.F16 {
		if err := m.addLossScale(); err != nil {
			return nil, fmt.Errorf("convert program to mixed precision: %w", err)
		}
	}
	for i := range m.Tensors {
		m.Tensors[i].First, m.Tensors[i].Last = -1, -1
	}
	m.setTensorLifetimes()
	if err := Validate(m.Program); err != nil {
		return nil, fmt.Errorf("convert program to mixed precision: the result is inconsistent, which is a bug of package plan: %w", err)
	}
	return m.Program, nil
}

type precisionConverter struct {
	*Program
	low   device.ElementType
	heads []int // kernel indexes of segmentation heads
}

func (p *Program) clone() *Program {
	c := *p
	c.Tensors, c.Inputs, c.Buckets = slices.Clone(p.Tensors), slices.Clone(p.Inputs), slices.Clone(p.Buckets)
	c.Kernels = slices.Clone(p.Kernels)
	for i := range c.Kernels {
		c.Kernels[i].In = slices.Clone(c.Kernels[i].In)
	}
	return &c
}

// chooseStorageTypes sets Tensor.Stored of tensors that are stored in the low type.
func (m *precisionConverter) chooseStorageTypes() {
	full := make([]bool, len(m.Tensors)) // whether a tensor stays in fp32
	for id, t := range m.Tensors {
		full[id] = len(t.Shape) == 1 || t.Role == Parameter || t.Role == State || t.Role == Gradient
	}
	for at, k := range m.Kernels {
		switch k.Op {
		case OpConvBackwardWeights, OpConvTransposeBackwardWeights, OpLinearBackwardWeights:
			full[k.Out[0]] = true
		case OpAdd, OpSlice, OpReshape: // copies, and sums of the gradients of weights that several layers share
			if !slices.ContainsFunc(k.In, func(id int) bool { return !full[id] }) {
				full[k.Out[0]] = true
			}
		case OpConv:
			if gradient, ok := m.matchSegmentationHead(k); ok {
				m.heads = append(m.heads, at)
				full[k.Out[0]] = true
				if gradient >= 0 {
					full[gradient] = true
				}
			}
		}
		if isLossOp(k.Op) {
			full[k.In[1]] = true
		}
	}
	for id := range m.Tensors {
		if !full[id] {
			m.Tensors[id].Stored = m.low
		}
	}
}

// isLossOp reports whether op is a loss or its gradient: an operation on a prediction, a
// target and, for a gradient, the gradient of the loss.
func isLossOp(op Op) bool {
	switch op {
	case OpBCEWithLogits, OpBCEWithLogitsBackward, OpSoftmaxCrossEntropy, OpSoftmaxCrossEntropyBackward,
		OpDiceBCE, OpDiceBCEBackward, OpPixelCrossEntropy, OpPixelCrossEntropyBackward, OpL1, OpL1Backward:
		return true
	}
	return false
}

// isReadByLossesOnly reports whether tensor id is read only by losses and their gradients, as
// their prediction.
func (m *precisionConverter) isReadByLossesOnly(id int) bool {
	for _, k := range m.Kernels {
		if slices.Contains(k.In, id) && !(isLossOp(k.Op) && k.In[0] == id && k.In[1] != id) {
			return false
		}
	}
	return true
}

// matchSegmentationHead reports whether k is the head of a segmentation network: a convolution
// with a window of 1 and one output channel whose result is read only by a binary cross-entropy,
// with or without a Dice term. gradient is the ID of the gradient of the head's logits, or −1 if
// there is no backward pass.
//
// A GPU library would pad the single channel to eight. The engine therefore has separate kernels
// for heads, which multiply by the fp32 weights and keep the logits and their gradient in fp32.
func (m *precisionConverter) matchSegmentationHead(k Kernel) (gradient int, ok bool) {
	gradient = -1
	z := k.Out[0]
	if !m.isSingle1x1Filter(k.In[1], k.Attr) || m.Tensors[k.In[1]].Role != Parameter || !m.isReadByLossesOnly(z) {
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
		case r.Op == OpConvBackwardWeights && m.isSingle1x1Filter(r.Out[0], r.Attr) && r.In[0] != gradient:
		case r.Op == OpConvBackwardData && m.isSingle1x1Filter(r.In[0], r.Attr):
		default:
			return -1, false
		}
	}
	return gradient, gradient < 0 || m.Tensors[gradient].Role == Activation
}

// isSingle1x1Filter reports whether tensor w is a single filter with window 1, and a specifies
// stride 1 and no padding.
func (m *precisionConverter) isSingle1x1Filter(w int, a KernelAttr) bool {
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

// addWeightCasts adds kernels that round weights to the low type. Each weight is rounded once,
// before the first of the kernels that multiply by it.
func (m *precisionConverter) addWeightCasts() {
	masters := map[int]bool{} // weights of heads
	for _, at := range m.heads {
		masters[m.Kernels[at].In[1]] = true
	}
	copies := map[int]int{}
	var kernels []Kernel
	forward := 0
	moved := make([]int, len(m.Kernels))
	for at, k := range m.Kernels {
		if i := weightInputIndex(k.Op); i >= 0 && m.Tensors[k.In[i]].Role == Parameter && !masters[k.In[i]] {
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

// weightInputIndex returns the index of the input of op that contains weights, or −1 if there is
// none.
func weightInputIndex(op Op) int {
	switch op {
	case OpConv, OpConvTranspose, OpLinear:
		return 1
	case OpConvBackwardData, OpConvTransposeBackwardData, OpLinearBackwardData:
		return 0
	}
	return -1
}

// addLossScale replaces the constant 1, the gradient of the loss, with the input LossScaleInput.
func (m *precisionConverter) addLossScale() error {
	if m.Forward == len(m.Kernels) {
		return nil
	}
	id := len(m.Tensors)
	m.Tensors = append(m.Tensors, Tensor{Name: LossScaleInput, Shape: []int{1}, Role: Input})
	m.Inputs = append(m.Inputs, id)
	found := false
	for _, k := range m.Kernels {
		if isLossOp(k.Op) && len(k.In) == 3 {
			if t := m.Tensors[k.In[2]]; t.Role != Constant || t.Value != 1 {
				return fmt.Errorf("the gradient of loss %s is not computed from the constant 1", k.Name)
			}
			k.In[2], found = id, true
		}
	}
	if !found {
		return errors.New("the backward pass computes no gradient of a loss")
	}
	return nil
}
