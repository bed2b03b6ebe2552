package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// tensorOrigin describes where the values of a tensor are: in its own memory or in the memory
// of other tensors.
type tensorOrigin struct {
	kind    tensorOriginKind
	sources []int     // the tensors whose memory contains the values
	first   int       // of a slice: its first channel block in sources[0]
	norm    []float32 // of a normalized tensor: the constants, which its batch norm writes
}

// tensorOriginKind says how a tensor's values are obtained. It is stored for a tensor with
// memory of its own; the other kinds say how the values result from the memory of other
// tensors.
type tensorOriginKind uint8

const (
	stored       tensorOriginKind = iota
	normalized                    // its readers normalize sources[0]
	concatenated                  // the channels of sources[0], then those of sources[1]
	sliced                        // some channel blocks of sources[0]
	overwriting                   // written over sources[0], which nothing reads any more
)

// operandSupport describes which operands without memory of their own a kernel can read.
type operandSupport struct {
	norm bool // operands that it must normalize
	many bool // operands of several pieces
	part bool // operands that are part of a larger tensor
}

// chooseTensorOrigins chooses the tensors that need no memory of their own, so that operations
// that only move or scale values need no pass over memory. Such a tensor is the output of a
// batch norm, a concatenation or a slice, if all its readers can read the operands instead,
// or a gradient that can overwrite another tensor. chooseTensorOrigins runs before memory is laid
// out. Without Options.Fuse all tensors have memory of their own.
func (l *loader) chooseTensorOrigins() {
	l.origins = make([]tensorOrigin, len(l.program.Tensors))
	l.inPlace = make([]bool, len(l.program.Kernels))
	l.matchMaxPoolGradients()
	if !l.fuse {
		return
	}
	for _, choose := range []func(index int, k plan.Kernel){l.chooseConcatOrigin, l.chooseSliceOrigin, l.chooseNormOrigin, l.chooseAccumulationOrigin, l.chooseOverwriteOrigin} {
		for index, k := range l.program.Kernels {
			choose(index, k)
		}
	}
}

// ignoresOperand reports whether the kernel with the given index never reads the memory of
// operand i. The gradient of a batch norm with ReLU recomputes from x where the ReLU was
// active instead of reading y. The gradient of a max pooling reads the indexes of the
// maxima.
func (l *loader) ignoresOperand(index, i int) bool {
	switch l.program.Kernels[index].Op {
	case plan.OpBatchNormBackward:
		return i == 5
	case plan.OpMaxPoolBackward:
		return i == 1 || i == 0 && l.pooling[index] != index
	}
	return false
}

func (l *loader) supportOfOperand(index, i int) operandSupport {
	if l.ignoresOperand(index, i) {
		return operandSupport{true, true, true}
	}
	switch k := l.program.Kernels[index]; {
	case k.Op == plan.OpConcat && l.origins[k.Out[0]].kind == concatenated,
		k.Op == plan.OpMaxPool,
		(k.Op == plan.OpConv || k.Op == plan.OpConvTranspose || k.Op == plan.OpLinear) && i == 0,
		(k.Op == plan.OpConvBackwardData || k.Op == plan.OpConvTransposeBackwardData || k.Op == plan.OpLinearBackwardData) && i == 1,
		k.Op == plan.OpConvBackwardWeights, k.Op == plan.OpConvTransposeBackwardWeights, k.Op == plan.OpLinearBackwardWeights:
		return operandSupport{true, true, true}
	case k.Op == plan.OpBiasBackward, k.Op == plan.OpBatchNormBackward && i == 4, k.Op == plan.OpMaxPoolBackward && i == 2, k.Op == plan.OpAdd:
		return operandSupport{many: true, part: true}
	}
	return operandSupport{}
}

func (l *loader) allReadersSupport(id int, condition func(s operandSupport) bool) bool {
	for index, k := range l.program.Kernels {
		for i, in := range k.In {
			if in == id && !condition(l.supportOfOperand(index, i)) {
				return false
			}
		}
	}
	return true
}

// canChooseOrigin reports whether the origin of tensor id can be changed: the tensor is an
// activation in the usual layout, and no origin other than stored has been chosen for it.
func (l *loader) canChooseOrigin(id int) bool {
	return id >= 0 && l.program.Tensors[id].Role == plan.Activation && l.layouts[id] == tensor.ActivationLayout && l.origins[id].kind == stored
}

func (l *loader) chooseConcatOrigin(_ int, k plan.Kernel) {
	if k.Op != plan.OpConcat || !l.canChooseOrigin(k.Out[0]) || l.program.Tensors[k.In[0]].Shape[1]%kernel.Lanes != 0 ||
		l.layouts[k.In[0]] != tensor.ActivationLayout || l.layouts[k.In[1]] != tensor.ActivationLayout {
		return
	}
	if l.allReadersSupport(k.Out[0], func(s operandSupport) bool { return s.norm && s.many }) {
		l.origins[k.Out[0]] = tensorOrigin{kind: concatenated, sources: k.In}
	}
}

// chooseSliceOrigin makes the readers of slices read the sliced tensor directly, if only slices
// read that tensor.
func (l *loader) chooseSliceOrigin(_ int, k plan.Kernel) {
	if k.Op != plan.OpSlice || !l.canChooseOrigin(k.In[0]) {
		return
	}
	t := k.In[0]
	channels := l.program.Tensors[t].Shape[1]
	taken := make([]bool, tensor.ChannelBlockCount(channels))
	var list []plan.Kernel
	for _, r := range l.program.Kernels {
		if !slices.Contains(r.In, t) {
			continue
		}
		if r.Op != plan.OpSlice || !l.canChooseOrigin(r.Out[0]) || r.Attr.Offset%kernel.Lanes != 0 ||
			!l.allReadersSupport(r.Out[0], func(s operandSupport) bool { return s.part }) {
			return
		}
		end := r.Attr.Offset + l.program.Tensors[r.Out[0]].Shape[1]
		if end%kernel.Lanes != 0 && end != channels {
			return // its last block holds other channels in place of padding
		}
		for b := r.Attr.Offset / kernel.Lanes; b < tensor.ChannelBlockCount(end); b++ {
			if taken[b] {
				return // overwriting one of the slices would change the other
			}
			taken[b] = true
		}
		list = append(list, r)
	}
	for _, r := range list {
		l.origins[r.Out[0]] = tensorOrigin{kind: sliced, sources: r.In, first: r.Attr.Offset / kernel.Lanes}
	}
}

func (l *loader) chooseNormOrigin(_ int, k plan.Kernel) {
	if k.Op != plan.OpBatchNorm || !l.canChooseOrigin(k.Out[0]) || l.origins[k.In[0]].kind != stored || l.layouts[k.In[0]] != tensor.ActivationLayout {
		return
	}
	if l.allReadersSupport(k.Out[0], func(s operandSupport) bool { return s.norm }) {
		l.origins[k.Out[0]] = tensorOrigin{kind: normalized, sources: k.In, norm: kernel.NewAlignedFloats(tensor.ChannelBlockCount(l.program.Tensors[k.Out[0]].Shape[1]) * kernel.NormConstantFloats)}
	}
}

// chooseAccumulationOrigin handles the gradient of a max pooling whose only reader is a sum.
// The gradient is added directly to the sum's other operand, so that the sum needs no pass over
// memory.
func (l *loader) chooseAccumulationOrigin(index int, k plan.Kernel) {
	if k.Op != plan.OpMaxPoolBackward || !l.canChooseOrigin(k.Out[0]) {
		return
	}
	d, sum := k.Out[0], -1
	for i, r := range l.program.Kernels {
		if !slices.Contains(r.In, d) {
			continue
		}
		if sum >= 0 || r.Op != plan.OpAdd {
			return
		}
		sum = i
	}
	if sum < 0 {
		return
	}
	add := l.program.Kernels[sum]
	other := add.In[0] + add.In[1] - d
	if other == d || !l.canChooseOrigin(add.Out[0]) || !l.canOverwrite(other, add.Out[0]) || l.program.Tensors[other].First >= index {
		return
	}
	for i := index; i < len(l.program.Kernels); i++ {
		if i != sum && l.kernelUsesMemory(i, other) {
			return
		}
	}
	l.origins[d] = tensorOrigin{kind: overwriting, sources: []int{other}}
	l.origins[add.Out[0]] = tensorOrigin{kind: overwriting, sources: []int{other}}
	l.inPlace[index], l.inPlace[sum] = true, true
}

// chooseOverwriteOrigin lets the gradient of a batch norm overwrite the gradient from which
// it is computed, unless a later kernel reads the overwritten gradient.
func (l *loader) chooseOverwriteOrigin(index int, k plan.Kernel) {
	if k.Op != plan.OpBatchNormBackward || !l.canChooseOrigin(k.Out[0]) || !l.canOverwrite(k.In[4], k.Out[0]) || l.memoryOwner(k.In[0]) == l.memoryOwner(k.In[4]) {
		return
	}
	for i := index + 1; i < len(l.program.Kernels); i++ {
		if l.kernelUsesMemory(i, k.In[4]) {
			return
		}
	}
	l.origins[k.Out[0]] = tensorOrigin{kind: overwriting, sources: []int{k.In[4]}}
}

// canOverwrite reports whether result can be stored in old's memory, which must be one
// piece of the arena that all readers of result can read.
func (l *loader) canOverwrite(old, result int) bool {
	owner := l.memoryOwner(old)
	if owner < 0 {
		return false
	}
	part := l.origins[owner].kind == sliced
	root := owner
	if part {
		root = l.origins[owner].sources[0]
	}
	return l.program.Tensors[root].Role == plan.Activation && l.layouts[root] == tensor.ActivationLayout &&
		(!part || l.allReadersSupport(result, func(s operandSupport) bool { return s.part }))
}

// memoryOwner returns the ID of the tensor whose memory tensor id uses, or −1 if there are
// several such tensors. A slice is its own owner, because slices do not overlap.
func (l *loader) memoryOwner(id int) int {
	switch o := &l.origins[id]; o.kind {
	case concatenated:
		return -1
	case overwriting, normalized:
		return l.memoryOwner(o.sources[0])
	}
	return id
}

func (l *loader) kernelUsesMemory(index, id int) bool {
	owner := l.memoryOwner(id)
	var overlaps func(id int) bool
	overlaps = func(id int) bool {
		if o := &l.origins[id]; o.kind == concatenated {
			return overlaps(o.sources[0]) || overlaps(o.sources[1])
		}
		return l.memoryOwner(id) == owner
	}
	k := l.program.Kernels[index]
	for i, in := range k.In {
		if in >= 0 && !l.ignoresOperand(index, i) && overlaps(in) {
			return true
		}
	}
	return slices.ContainsFunc(k.Out, func(id int) bool { return id >= 0 && overlaps(id) })
}

// forEachStoredTensor calls f for every stored tensor whose memory the kernel with the given
// index accesses.
func (l *loader) forEachStoredTensor(index int, f func(id int)) {
	var roots func(id int)
	roots = func(id int) {
		o := &l.origins[id]
		switch o.kind {
		case stored:
			f(id)
		case concatenated:
			roots(o.sources[0])
			roots(o.sources[1])
		default:
			roots(o.sources[0])
		}
	}
	k := l.program.Kernels[index]
	for i, id := range k.In {
		if id >= 0 && !l.ignoresOperand(index, i) {
			roots(id)
		}
	}
	for _, id := range k.Out {
		if id >= 0 {
			roots(id)
		}
	}
}

// shouldComputeNormStatistics reports whether the kernel with the given index should compute the
// statistics of its output. It should if Options.Fuse is set and the next kernel is a batch
// norm in training that normalizes this output.
func (l *loader) shouldComputeNormStatistics(index int) bool {
	kernels := l.program.Kernels
	return l.fuse && index+1 < len(kernels) && kernels[index+1].Op == plan.OpBatchNorm && kernels[index+1].Attr.Training && kernels[index+1].In[0] == kernels[index].Out[0]
}
