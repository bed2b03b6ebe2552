package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// origin says where the values of a tensor are that has no memory of its own.
type origin struct {
	how  how
	of   []int     // tensors
	at   int       // first channel block of a slice
	norm []float32 // constants of a normalised one; its batch norm writes them
}

// how is the way in which a tensor comes from others.
type how uint8

const (
	own        how = iota // it has memory
	normalized            // of[0], normalised wherever it is read
	joined                // the channels of of[0] and then those of of[1]
	sliced                // some channel blocks of of[0]
	shared                // written over of[0], which nothing reads any more
)

// ability is what a kernel can do with an operand that is no memory of its own.
type ability struct{ norm, many, part bool }

// chooseOrigins finds the tensors that need no memory, so that what only moves
// or scales values costs no pass over memory (with Options.Fuse; without,
// everything is stored): outputs of batch norms, concatenations and slices where
// every reader can take them from where they come from, and gradients that can
// be written over others. It runs before memory is laid out.
func (l *loader) chooseOrigins() {
	l.origins = make([]origin, len(l.program.Tensors))
	l.inPlace = make([]bool, len(l.program.Kernels))
	l.pairPools()
	if !l.fuse {
		return
	}
	for _, choose := range []func(at int, k plan.Kernel){l.join, l.slicing, l.normalizing, l.accumulating, l.overwriting} {
		for at, k := range l.program.Kernels {
			choose(at, k)
		}
	}
}

// unread says whether kernel at leaves operand i alone: a ReLU's decision is
// computed again from x, a pooling's is kept.
func (l *loader) unread(at, i int) bool {
	switch l.program.Kernels[at].Op {
	case plan.OpBatchNormBackward:
		return i == 5
	case plan.OpMaxPoolBackward:
		return i == 1 || i == 0 && l.pooling[at] != at
	}
	return false
}

// ability is what kernel at can do with its operand i.
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

// readers says whether every kernel that reads id can do so as asked.
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

// free says whether id is an activation that is stored so far.
func (l *loader) free(id int) bool {
	return id >= 0 && l.program.Tensors[id].Role == plan.Activation && l.layouts[id] == tensor.ActivationLayout && l.origins[id].how == own
}

// join leaves the parts of a concatenation where they are.
func (l *loader) join(_ int, k plan.Kernel) {
	if k.Op != plan.OpConcat || !l.free(k.Out[0]) || l.program.Tensors[k.In[0]].Shape[1]%kernel.Lanes != 0 ||
		l.layouts[k.In[0]] != tensor.ActivationLayout || l.layouts[k.In[1]] != tensor.ActivationLayout {
		return
	}
	if l.readers(k.Out[0], func(a ability) bool { return a.norm && a.many }) {
		l.origins[k.Out[0]] = origin{how: joined, of: k.In}
	}
}

// slicing leaves the slices of a tensor where they are, which nothing else reads.
func (l *loader) slicing(_ int, k plan.Kernel) {
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
			return // the last block has other channels where padding must be
		}
		for b := r.Attr.Offset / kernel.Lanes; b < tensor.Blocks(end); b++ {
			if taken[b] {
				return // who writes over one would change the other
			}
			taken[b] = true
		}
		list = append(list, r)
	}
	for _, r := range list {
		l.origins[r.Out[0]] = origin{how: sliced, of: r.In, at: r.Attr.Offset / kernel.Lanes}
	}
}

// normalizing leaves a batch norm's output to its readers.
func (l *loader) normalizing(_ int, k plan.Kernel) {
	if k.Op != plan.OpBatchNorm || !l.free(k.Out[0]) || l.origins[k.In[0]].how != own || l.layouts[k.In[0]] != tensor.ActivationLayout {
		return
	}
	if l.readers(k.Out[0], func(a ability) bool { return a.norm }) {
		l.origins[k.Out[0]] = origin{how: normalized, of: k.In, norm: kernel.AlignedFloats(tensor.Blocks(l.program.Tensors[k.Out[0]].Shape[1]) * kernel.NormFloats)}
	}
}

// accumulating lets a pooling's gradient be added to what it is the only one to
// be added to: the sum needs no pass of its own.
func (l *loader) accumulating(at int, k plan.Kernel) {
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
	l.origins[d] = origin{how: shared, of: []int{other}}
	l.origins[add.Out[0]] = origin{how: shared, of: []int{other}}
	l.inPlace[at], l.inPlace[sum] = true, true
}

// overwriting lets a batch norm's gradient be written over the one that it is
// computed from.
func (l *loader) overwriting(at int, k plan.Kernel) {
	if k.Op != plan.OpBatchNormBackward || !l.free(k.Out[0]) || !l.writable(k.In[4], k.Out[0]) || l.region(k.In[0]) == l.region(k.In[4]) {
		return
	}
	for i := at + 1; i < len(l.program.Kernels); i++ {
		if l.touches(i, k.In[4]) {
			return
		}
	}
	l.origins[k.Out[0]] = origin{how: shared, of: []int{k.In[4]}}
}

// writable says whether id is one piece of the arena, which the readers of to
// can take in its place.
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

// region is the tensor whose memory id is, −1 where it is more than one. A slice
// is a region of its own, for slices do not overlap.
func (l *loader) region(id int) int {
	switch o := &l.origins[id]; o.how {
	case joined:
		return -1
	case shared, normalized:
		return l.region(o.of[0])
	}
	return id
}

// touches says whether kernel at reads or writes the memory of id.
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

// eachUse calls f for every tensor with memory that kernel at reads or writes.
func (l *loader) eachUse(at int, f func(id int)) {
	var roots func(id int)
	roots = func(id int) {
		o := &l.origins[id]
		switch o.how {
		case own:
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

// tallied reports whether the statistics of the output of kernel at are to be
// taken while it is computed: the next kernel is a batch norm of it.
func (l *loader) tallied(at int) bool {
	k := l.program.Kernels
	return l.fuse && at+1 < len(k) && k[at+1].Op == plan.OpBatchNorm && k[at+1].Attr.Training && k[at+1].In[0] == k[at].Out[0]
}
