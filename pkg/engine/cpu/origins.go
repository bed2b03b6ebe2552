package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
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
func (x *executable) chooseOrigins() {
	x.origins = make([]origin, len(x.program.Tensors))
	x.inPlace = make([]bool, len(x.program.Kernels))
	x.pairPools()
	if !x.engine.options.Fuse {
		return
	}
	for _, choose := range []func(at int, k plan.Kernel){x.join, x.slicing, x.normalizing, x.accumulating, x.overwriting} {
		for at, k := range x.program.Kernels {
			choose(at, k)
		}
	}
}

// unread says whether kernel at leaves operand i alone: a ReLU's decision is
// computed again from x, a pooling's is kept.
func (x *executable) unread(at, i int) bool {
	switch x.program.Kernels[at].Op {
	case plan.OpBatchNormBackward:
		return i == 5
	case plan.OpMaxPoolBackward:
		return i == 1 || i == 0 && x.pooling[at] != at
	}
	return false
}

// ability is what kernel at can do with its operand i.
func (x *executable) ability(at, i int) ability {
	if x.unread(at, i) {
		return ability{true, true, true}
	}
	switch k := x.program.Kernels[at]; {
	case k.Op == plan.OpConcat && x.origins[k.Out[0]].how == joined,
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
func (x *executable) readers(id int, can func(a ability) bool) bool {
	for at, k := range x.program.Kernels {
		for i, in := range k.In {
			if in == id && !can(x.ability(at, i)) {
				return false
			}
		}
	}
	return true
}

// free says whether id is an activation that is stored so far.
func (x *executable) free(id int) bool {
	return id >= 0 && x.program.Tensors[id].Role == plan.Activation && x.layouts[id] == activationLayout && x.origins[id].how == own
}

// join leaves the parts of a concatenation where they are.
func (x *executable) join(_ int, k plan.Kernel) {
	if k.Op != plan.OpConcat || !x.free(k.Out[0]) || x.program.Tensors[k.In[0]].Shape[1]%kernel.Lanes != 0 ||
		x.layouts[k.In[0]] != activationLayout || x.layouts[k.In[1]] != activationLayout {
		return
	}
	if x.readers(k.Out[0], func(a ability) bool { return a.norm && a.many }) {
		x.origins[k.Out[0]] = origin{how: joined, of: k.In}
	}
}

// slicing leaves the slices of a tensor where they are, which nothing else reads.
func (x *executable) slicing(_ int, k plan.Kernel) {
	if k.Op != plan.OpSlice || !x.free(k.In[0]) {
		return
	}
	t := k.In[0]
	channels := x.program.Tensors[t].Shape[1]
	taken := make([]bool, blocks(channels))
	var list []plan.Kernel
	for _, r := range x.program.Kernels {
		if !slices.Contains(r.In, t) {
			continue
		}
		if r.Op != plan.OpSlice || !x.free(r.Out[0]) || r.Attr.Offset%kernel.Lanes != 0 ||
			!x.readers(r.Out[0], func(a ability) bool { return a.part }) {
			return
		}
		end := r.Attr.Offset + x.program.Tensors[r.Out[0]].Shape[1]
		if end%kernel.Lanes != 0 && end != channels {
			return // the last block has other channels where padding must be
		}
		for b := r.Attr.Offset / kernel.Lanes; b < blocks(end); b++ {
			if taken[b] {
				return // who writes over one would change the other
			}
			taken[b] = true
		}
		list = append(list, r)
	}
	for _, r := range list {
		x.origins[r.Out[0]] = origin{how: sliced, of: r.In, at: r.Attr.Offset / kernel.Lanes}
	}
}

// normalizing leaves a batch norm's output to its readers.
func (x *executable) normalizing(_ int, k plan.Kernel) {
	if k.Op != plan.OpBatchNorm || !x.free(k.Out[0]) || x.origins[k.In[0]].how != own || x.layouts[k.In[0]] != activationLayout {
		return
	}
	if x.readers(k.Out[0], func(a ability) bool { return a.norm }) {
		x.origins[k.Out[0]] = origin{how: normalized, of: k.In, norm: kernel.AlignedFloats(blocks(x.program.Tensors[k.Out[0]].Shape[1]) * kernel.NormFloats)}
	}
}

// accumulating lets a pooling's gradient be added to what it is the only one to
// be added to: the sum needs no pass of its own.
func (x *executable) accumulating(at int, k plan.Kernel) {
	if k.Op != plan.OpMaxPoolBackward || !x.free(k.Out[0]) {
		return
	}
	d, sum := k.Out[0], -1
	for i, r := range x.program.Kernels {
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
	add := x.program.Kernels[sum]
	other := add.In[0] + add.In[1] - d
	if other == d || !x.free(add.Out[0]) || !x.writable(other, add.Out[0]) || x.program.Tensors[other].First >= at {
		return
	}
	for i := at; i < len(x.program.Kernels); i++ {
		if i != sum && x.touches(i, other) {
			return
		}
	}
	x.origins[d] = origin{how: shared, of: []int{other}}
	x.origins[add.Out[0]] = origin{how: shared, of: []int{other}}
	x.inPlace[at], x.inPlace[sum] = true, true
}

// overwriting lets a batch norm's gradient be written over the one that it is
// computed from.
func (x *executable) overwriting(at int, k plan.Kernel) {
	if k.Op != plan.OpBatchNormBackward || !x.free(k.Out[0]) || !x.writable(k.In[4], k.Out[0]) || x.region(k.In[0]) == x.region(k.In[4]) {
		return
	}
	for i := at + 1; i < len(x.program.Kernels); i++ {
		if x.touches(i, k.In[4]) {
			return
		}
	}
	x.origins[k.Out[0]] = origin{how: shared, of: []int{k.In[4]}}
}

// writable says whether id is one piece of the arena, which the readers of to
// can take in its place.
func (x *executable) writable(id, to int) bool {
	at := x.region(id)
	if at < 0 {
		return false
	}
	part := x.origins[at].how == sliced
	root := at
	if part {
		root = x.origins[at].of[0]
	}
	return x.program.Tensors[root].Role == plan.Activation && x.layouts[root] == activationLayout &&
		(!part || x.readers(to, func(a ability) bool { return a.part }))
}

// region is the tensor whose memory id is, −1 where it is more than one. A slice
// is a region of its own, for slices do not overlap.
func (x *executable) region(id int) int {
	switch o := &x.origins[id]; o.how {
	case joined:
		return -1
	case shared, normalized:
		return x.region(o.of[0])
	}
	return id
}

// touches says whether kernel at reads or writes the memory of id.
func (x *executable) touches(at, id int) bool {
	r := x.region(id)
	var within func(id int) bool
	within = func(id int) bool {
		if o := &x.origins[id]; o.how == joined {
			return within(o.of[0]) || within(o.of[1])
		}
		return x.region(id) == r
	}
	k := x.program.Kernels[at]
	for i, in := range k.In {
		if in >= 0 && !x.unread(at, i) && within(in) {
			return true
		}
	}
	return slices.ContainsFunc(k.Out, func(id int) bool { return id >= 0 && within(id) })
}

// eachUse calls f for every tensor with memory that kernel at reads or writes.
func (x *executable) eachUse(at int, f func(id int)) {
	var roots func(id int)
	roots = func(id int) {
		o := &x.origins[id]
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
	k := x.program.Kernels[at]
	for i, id := range k.In {
		if id >= 0 && !x.unread(at, i) {
			roots(id)
		}
	}
	for _, id := range k.Out {
		if id >= 0 {
			roots(id)
		}
	}
}
