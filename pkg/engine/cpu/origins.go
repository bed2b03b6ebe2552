package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// origin describes where the values of a tensor come from.
type origin struct {
	how  how
	of   []int     // the tensors that it comes from
	at   int       // of a slice: its first channel block in of[0]
	norm []float32 // of a normalized tensor: the constants, which its batch norm writes
}

// how is the way in which a tensor comes from other tensors.
type how uint8

const (
	stored      how = iota // it has memory of its own
	normalized             // its readers normalize of[0]
	joined                 // the channels of of[0], then those of of[1]
	sliced                 // some channel blocks of of[0]
	overwriting            // written over of[0], which nothing reads any more
)

// ability is which kinds of operands without memory of their own a kernel can read.
type ability struct {
	norm bool // operands that it must normalize
	many bool // operands of several pieces
	part bool // operands that are part of a larger tensor
}

// chooseOrigins finds the tensors that need no memory of their own, so that operations
// that only move or scale values cost no pass over memory: outputs of batch norms,
// concatenations and slices, if every reader can read their operands instead, and
// gradients that can overwrite others. It runs before memory is laid out. Without
// Options.Fuse every tensor is stored.
func (l *loader) chooseOrigins() {
	l.origins = make([]origin, len(l.program.Tensors))
	l.inPlace = make([]bool, len(l.program.Kernels))
	l.pairPoolings()
	if !l.fuse {
		return
	}
	for _, choose := range []func(at int, k plan.Kernel){l.chooseJoined, l.chooseSliced, l.chooseNormalized, l.chooseAccumulated, l.chooseOverwriting} {
		for at, k := range l.program.Kernels {
			choose(at, k)
		}
	}
}

// unread reports whether kernel at does not read the memory of its operand i. The
// gradient of a batch norm computes the decision of a ReLU again from x, and the
// gradient of a max pooling reads the index of the maxima.
func (l *loader) unread(at, i int) bool {
	switch l.program.Kernels[at].Op {
	case plan.OpBatchNormBackward:
		return i == 5
	case plan.OpMaxPoolBackward:
		return i == 1 || i == 0 && l.pooling[at] != at
	}
	return false
}

// ability returns which kinds of operands kernel at can read as its operand i.
func (l *loader) ability(at, i int) ability {
	if l.unread(at, i) {
		return ability{true, true, true}
	}
	switch k := l.program.Kernels[at]; {
	case k.Op == plan.OpConcat && l.origins[k.Out[0]].how == joined,
		k.Op == plan.OpMaxPool,
		(k.Op == plan.OpConv || k.Op == plan.OpConvTranspose || k.Op == plan.OpLinear) && i == 0,
		(k.Op == plan.OpConvBackwardData || k.Op == plan.OpConvTransposeBackwardData || k.Op == plan.OpLinearBackwardData) && i == 1,
		k.Op == plan.OpConvBackwardWeights, k.Op == plan.OpConvTransposeBackwardWeights, k.Op == plan.OpLinearBackwardWeights:
		return ability{true, true, true}
	case k.Op == plan.OpBiasBackward, k.Op == plan.OpBatchNormBackward && i == 4, k.Op == plan.OpMaxPoolBackward && i == 2, k.Op == plan.OpAdd:
		return ability{many: true, part: true}
	}
	return ability{}
}

// readers reports whether can is true for every kernel that reads tensor id.
func (l *loader) readers(id int, can func(a ability) bool) bool {
	for at, k := range l.program.Kernels {
		for i, in := range k.In {
			if in == id && !can(l.ability(at, i)) {
				return false
			}
		}
	}
	return true
}

// free reports whether id is an activation for which no other origin has been chosen.
func (l *loader) free(id int) bool {
	return id >= 0 && l.program.Tensors[id].Role == plan.Activation && l.layouts[id] == tensor.ActivationLayout && l.origins[id].how == stored
}

// chooseJoined lets the readers of a concatenation read its operands.
func (l *loader) chooseJoined(_ int, k plan.Kernel) {
	if k.Op != plan.OpConcat || !l.free(k.Out[0]) || l.program.Tensors[k.In[0]].Shape[1]%kernel.Lanes != 0 ||
		l.layouts[k.In[0]] != tensor.ActivationLayout || l.layouts[k.In[1]] != tensor.ActivationLayout {
		return
	}
	if l.readers(k.Out[0], func(a ability) bool { return a.norm && a.many }) {
		l.origins[k.Out[0]] = origin{how: joined, of: k.In}
	}
}

// chooseSliced lets the readers of slices read the sliced tensor, if nothing but slices
// reads that.
func (l *loader) chooseSliced(_ int, k plan.Kernel) {
	if k.Op != plan.OpSlice || !l.free(k.In[0]) {
		return
	}
	t := k.In[0]
	channels := l.program.Tensors[t].Shape[1]
	taken := make([]bool, tensor.Blocks(channels))
	var list []plan.Kernel
	for _, r := range l.program.Kernels {
		if !slices.Contains(r.In, t) {
			continue
		}
		if r.Op != plan.OpSlice || !l.free(r.Out[0]) || r.Attr.Offset%kernel.Lanes != 0 ||
			!l.readers(r.Out[0], func(a ability) bool { return a.part }) {
			return
		}
		end := r.Attr.Offset + l.program.Tensors[r.Out[0]].Shape[1]
		if end%kernel.Lanes != 0 && end != channels {
			return // its last block holds other channels in place of padding
		}
		for b := r.Attr.Offset / kernel.Lanes; b < tensor.Blocks(end); b++ {
			if taken[b] {
				return // overwriting one of the slices would change the other
			}
			taken[b] = true
		}
		list = append(list, r)
	}
	for _, r := range list {
		l.origins[r.Out[0]] = origin{how: sliced, of: r.In, at: r.Attr.Offset / kernel.Lanes}
	}
}

// chooseNormalized lets the readers of a batch norm's output normalize its input.
func (l *loader) chooseNormalized(_ int, k plan.Kernel) {
	if k.Op != plan.OpBatchNorm || !l.free(k.Out[0]) || l.origins[k.In[0]].how != stored || l.layouts[k.In[0]] != tensor.ActivationLayout {
		return
	}
	if l.readers(k.Out[0], func(a ability) bool { return a.norm }) {
		l.origins[k.Out[0]] = origin{how: normalized, of: k.In, norm: kernel.AlignedFloats(tensor.Blocks(l.program.Tensors[k.Out[0]].Shape[1]) * kernel.NormFloats)}
	}
}

// chooseAccumulated adds the gradient of a max pooling to the other operand of the sum
// that is its only reader, so that the sum needs no pass of its own.
func (l *loader) chooseAccumulated(at int, k plan.Kernel) {
	if k.Op != plan.OpMaxPoolBackward || !l.free(k.Out[0]) {
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
	if other == d || !l.free(add.Out[0]) || !l.writable(other, add.Out[0]) || l.program.Tensors[other].First >= at {
		return
	}
	for i := at; i < len(l.program.Kernels); i++ {
		if i != sum && l.touches(i, other) {
			return
		}
	}
	l.origins[d] = origin{how: overwriting, of: []int{other}}
	l.origins[add.Out[0]] = origin{how: overwriting, of: []int{other}}
	l.inPlace[at], l.inPlace[sum] = true, true
}

// chooseOverwriting writes the gradient of a batch norm over the gradient that it is
// computed from, if no later kernel reads that.
func (l *loader) chooseOverwriting(at int, k plan.Kernel) {
	if k.Op != plan.OpBatchNormBackward || !l.free(k.Out[0]) || !l.writable(k.In[4], k.Out[0]) || l.region(k.In[0]) == l.region(k.In[4]) {
		return
	}
	for i := at + 1; i < len(l.program.Kernels); i++ {
		if l.touches(i, k.In[4]) {
			return
		}
	}
	l.origins[k.Out[0]] = origin{how: overwriting, of: []int{k.In[4]}}
}

// writable reports whether id is one piece of the arena that the readers of tensor to
// can read instead.
func (l *loader) writable(id, to int) bool {
	at := l.region(id)
	if at < 0 {
		return false
	}
	part := l.origins[at].how == sliced
	root := at
	if part {
		root = l.origins[at].of[0]
	}
	return l.program.Tensors[root].Role == plan.Activation && l.layouts[root] == tensor.ActivationLayout &&
		(!part || l.readers(to, func(a ability) bool { return a.part }))
}

// region returns the tensor whose memory id uses, −1 if there are several. A slice is
// its own region, since slices do not overlap.
func (l *loader) region(id int) int {
	switch o := &l.origins[id]; o.how {
	case joined:
		return -1
	case overwriting, normalized:
		return l.region(o.of[0])
	}
	return id
}

// touches reports whether kernel at reads or writes the memory of id.
func (l *loader) touches(at, id int) bool {
	r := l.region(id)
	var within func(id int) bool
	within = func(id int) bool {
		if o := &l.origins[id]; o.how == joined {
			return within(o.of[0]) || within(o.of[1])
		}
		return l.region(id) == r
	}
	k := l.program.Kernels[at]
	for i, in := range k.In {
		if in >= 0 && !l.unread(at, i) && within(in) {
			return true
		}
	}
	return slices.ContainsFunc(k.Out, func(id int) bool { return id >= 0 && within(id) })
}

// eachUse calls f for every stored tensor whose memory kernel at reads or writes.
func (l *loader) eachUse(at int, f func(id int)) {
	var roots func(id int)
	roots = func(id int) {
		o := &l.origins[id]
		switch o.how {
		case stored:
			f(id)
		case joined:
			roots(o.of[0])
			roots(o.of[1])
		default:
			roots(o.of[0])
		}
	}
	k := l.program.Kernels[at]
	for i, id := range k.In {
		if id >= 0 && !l.unread(at, i) {
			roots(id)
		}
	}
	for _, id := range k.Out {
		if id >= 0 {
			roots(id)
		}
	}
}

// needsStatistics reports whether kernel at should take the statistics of its output:
// whether the next kernel is a batch norm of it, in training.
func (l *loader) needsStatistics(at int) bool {
	k := l.program.Kernels
	return l.fuse && at+1 < len(k) && k[at+1].Op == plan.OpBatchNorm && k[at+1].Attr.Training && k[at+1].In[0] == k[at].Out[0]
}
