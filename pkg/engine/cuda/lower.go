package cuda

import (
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// The following operations occur only in this engine's tasks, not in plans. These operations
// occur in both, but have other operands in tasks:
//
//	max_pool             x → y, index (−1 if no backward pass needs it)
//	max_pool_backward    dy, index → dx
//	batch_norm_backward  x, gamma, mean, invstd, dy, y, beta → dx, dgamma, dbeta; with
//	                     Attr.ReLU either y or beta is present: with beta, y is computed again
//	bias_backward        dy, y → db, dx; if y is present (not −1), dx is dy where y > 0 and 0
//	                     elsewhere, and db is the sum of dx
const (
	// opBias adds a bias b to each channel of y, in place: y, b → y + b; with Attr.ReLU,
	// y, b → max(0, y + b).
	opBias plan.Op = "bias"
	// opCopy copies channels of x to y. Attr.Offset is the first copied channel in x if
	// task.slice is set, otherwise in y.
	opCopy plan.Op = "copy"
	// opClear fills its only output, y, with zeros.
	opClear plan.Op = "clear"
	// opHead, opHeadBackwardData and opHeadBackwardWeights compute a head convolution and its
	// gradients; see headConvolution. opHead: x, w and optionally b → z. opHeadBackwardData: w,
	// dz → dx. opHeadBackwardWeights: x, dz → dw and optionally db.
	opHead                plan.Op = "head"
	opHeadBackwardData    plan.Op = "head_backward_data"
	opHeadBackwardWeights plan.Op = "head_backward_weights"
)

// loweredTask is one step of the lowered program: a kernel of the plan, a part of it, or several.
type loweredTask struct {
	op      plan.Op
	kernel  int // index in Program.Kernels
	name    string
	attr    plan.KernelAttr
	in, out []int // tensor ids
	acc     int   // id of a tensor that is added to the result, or −1
	slice   bool  // of opCopy: Attr.Offset is an offset in x, not in y
	// If stats is not nil, a convolution also computes the statistics of its result, for
	// the batch norm after it. (If it has a third operand, the bias, it adds the bias; with
	// Attr.ReLU it applies ReLU.)
	stats *fusedNormStatistics
	// If sums is not nil, a data gradient also computes the sums of the gradient of the
	// batch norm before the convolution.
	sums *normGradientSums
	// If precomputed is set, another task computes the statistics of this batch norm, or
	// the sums of this gradient of a batch norm.
	precomputed bool
}

// normGradientSums contains the tensor ids of the operands and the results of the sums in the
// gradient of a batch norm with ReLU.
type normGradientSums struct {
	x, gamma, beta, mean, invstd int
	dgamma, dbeta                int
	factors                      [3]int // further outputs of cuDNN's graph; unused
}

// tensorIDs returns the ids of all tensors of t, with −1 for absent operands.
func (t loweredTask) tensorIDs() []int {
	all := slices.Concat(t.in, t.out, []int{t.acc})
	if s := t.stats; s != nil {
		all = append(all, s.mean, s.invstd, s.sum, s.square)
	}
	if s := t.sums; s != nil {
		all = append(all, s.x, s.mean, s.invstd, s.dgamma, s.dbeta)
		all = append(all, s.factors[:]...)
	}
	return all
}

// acceptsBias reports whether t may have a bias, as third operand.
func (t loweredTask) acceptsBias() bool {
	return t.op == plan.OpConv || t.op == plan.OpConvTranspose || t.op == plan.OpLinear
}

// tensorAlias is the position of a tensor that is stored within tensor parent: its first
// channel is at index channel of parent.
type tensorAlias struct{ parent, channel int }

type loweredProgram struct {
	tasks   []loweredTask
	layouts []layout // of the program's tensors, then of the tensors that the engine adds
	aliases map[int]tensorAlias
}

type lowering struct {
	loweredProgram
	program *plan.Program
	fuse    bool
	readers [][]int      // by tensor: the indexes of the kernels that read it
	writer  []int        // by tensor: the index of the kernel that writes it, or −1
	done    map[int]bool // by index of a kernel: another kernel's task computes it
	index   map[int]int  // by result of a max pooling: the tensor with the position of each maximum
	moved   map[int]int  // by result of a kernel that also adds: the tensor that receives the sum
	added   map[int]int  // by result of a kernel that also adds: the tensor that it adds
}

// lowerProgram converts p to tasks, in order. low is the element type of activations.
//
// With o.ConcatInPlace, the operands of concatenations and the results of slices become
// aliases where they start at a multiple of eight channels; so they need no copies. With
// o.Fuse, a bias and the ReLU after it become one task, and so do their gradients; a sum of
// gradients or of a residual block becomes part of the task that computes the sum's last
// term. With o.FuseNorm too, fp16 data gradients may compute the sums of batch norms'
// gradients; see findFusableGradientSums.
func lowerProgram(p *plan.Program, low device.ElementType, o engine.Options) (loweredProgram, error) {
	layouts, err := chooseLayouts(p, low)
	if err != nil {
		return loweredProgram{}, err
	}
	l := &lowering{
		loweredProgram: loweredProgram{layouts: layouts, aliases: map[int]tensorAlias{}},
		program:        p, fuse: o.Fuse,
		readers: make([][]int, len(p.Tensors)), writer: slices.Repeat([]int{-1}, len(p.Tensors)),
		done: map[int]bool{}, index: map[int]int{}, moved: map[int]int{}, added: map[int]int{},
	}
	for at, k := range p.Kernels {
		for _, id := range k.In {
			l.readers[id] = append(l.readers[id], at)
		}
		for _, id := range k.Out {
			if id >= 0 {
				l.writer[id] = at
			}
		}
	}
	if o.ConcatInPlace {
		l.findTensorAliases()
	}
	l.findFusableSums()
	for at, k := range p.Kernels {
		if !l.done[at] {
			l.lowerKernel(at, k)
		}
	}
	if o.Fuse && low == device.F16 {
		l.findFusableStatistics()
		if o.FuseNorm {
			l.findFusableGradientSums()
		}
	}
	return l.loweredProgram, nil
}

func (l *lowering) addTensor(of layout) int {
	l.layouts = append(l.layouts, of)
	return len(l.layouts) - 1
}

// findTensorAliases records operands of concatenations and results of slices that need no copy.
func (l *lowering) findTensorAliases() {
	for _, k := range l.program.Kernels {
		switch k.Op {
		case plan.OpConcat:
			a, b, y := k.In[0], k.In[1], k.Out[0]
			ca := l.layouts[a].channels()
			// Otherwise a's padding would overlap b's first channels.
			if ca%channelMultiple != 0 || a == b {
				continue
			}
			for i, id := range k.In {
				if l.canAlias(id) && l.layouts[id].typ == l.layouts[y].typ {
					l.aliases[id] = tensorAlias{y, i * ca}
				}
			}
		case plan.OpSlice:
			x, y := k.In[0], k.Out[0]
			end := k.Attr.Offset + l.layouts[y].channels()
			whole := end == l.layouts[x].channels() || end%channelMultiple == 0
			if k.Attr.Offset%channelMultiple == 0 && whole && l.program.Tensors[y].Role == plan.Activation && l.layouts[y].form == mapForm && l.layouts[x].form == mapForm {
				l.aliases[y] = tensorAlias{x, k.Attr.Offset}
			}
		}
	}
}

// canAlias reports whether a tensor can be stored within another: a feature map that a
// kernel computes, that the host does not read, and that is not an alias yet.
func (l *lowering) canAlias(id int) bool {
	if _, aliased := l.aliases[id]; aliased || l.writer[id] < 0 {
		return false
	}
	op := l.program.Kernels[l.writer[id]].Op
	return l.program.Tensors[id].Role == plan.Activation && l.layouts[id].form == mapForm && op != plan.OpConcat && op != plan.OpSlice
}

// findFusableSums finds additions (of gradients or in a residual block) that the kernel of the
// last operand can compute. It records them in moved and added.
func (l *lowering) findFusableSums() {
	if !l.fuse {
		return
	}
	for at, k := range l.program.Kernels {
		if k.Op != plan.OpAdd || k.In[0] == k.In[1] {
			continue
		}
		last, other := k.In[0], k.In[1]
		if l.writer[other] > l.writer[last] {
			last, other = other, last
		}
		w := l.writer[last]
		if w < 0 || len(l.readers[last]) != 1 || l.program.Tensors[last].Role != plan.Activation || l.layouts[other].form != mapForm {
			continue
		}
		_, aliased := l.aliases[last]
		switch by := l.program.Kernels[w]; {
		case aliased || by.Out[0] != last:
		case by.Op == plan.OpMaxPoolBackward, by.Op == plan.OpReLUBackward, by.Op == plan.OpBatchNormBackward,
			by.Op == plan.OpAvgPoolBackward, by.Op == plan.OpGlobalAvgPoolBackward, by.Op == plan.OpLeakyReLUBackward, by.Op == plan.OpTanhBackward, by.Op == plan.OpPadBackward,
			(by.Op == plan.OpConv || by.Op == plan.OpConvBackwardData) && l.haveSameMapType(last, other) && l.haveSameMapType(last, k.Out[0]):
			if by.Op == plan.OpReLUBackward && l.findBiasBackward(last) >= 0 {
				continue
			}
			l.moved[last], l.added[last], l.done[at] = k.Out[0], other, true
		}
	}
}

func (l *lowering) haveSameMapType(a, b int) bool {
	return l.layouts[a].form == mapForm && l.layouts[b].form == mapForm && l.layouts[a].typ == l.layouts[b].typ
}

func (l *lowering) lowerKernel(index int, k plan.Kernel) {
	t := loweredTask{op: k.Op, kernel: index, name: k.Name, attr: k.Attr, in: k.In, out: slices.Clone(k.Out), acc: -1}
	if id := k.Out[0]; id >= 0 {
		if sum, ok := l.moved[id]; ok {
			t.out[0], t.acc = sum, l.added[id]
		}
	}
	switch k.Op {
	case plan.OpConv, plan.OpConvTranspose, plan.OpLinear:
		l.lowerConv(t, k)
		return
	case plan.OpConvBackwardData:
		if l.layouts[k.In[1]].form == denseForm {
			t.op = opHeadBackwardData
		}
	case plan.OpConvBackwardWeights:
		if l.layouts[k.In[1]].form == denseForm {
			l.lowerHeadWeights(t, k)
			return
		}
	case plan.OpBiasBackward:
		t.in, t.out = []int{k.In[0], -1}, []int{k.Out[0], -1}
	case plan.OpReLUBackward:
		if b := l.findBiasBackward(k.Out[0]); b >= 0 && t.acc < 0 {
			l.done[b] = true
			t.op, t.in, t.out = plan.OpBiasBackward, []int{k.In[1], k.In[0]}, []int{l.program.Kernels[b].Out[0], k.Out[0]}
		}
	case plan.OpBatchNormBackward:
		l.lowerBatchNormBackward(&t, k)
	case plan.OpMaxPool:
		t.out = []int{k.Out[0], l.addMaxPoolIndexTensor(k.In[0], k.Out[0])}
	case plan.OpMaxPoolBackward:
		l.lowerMaxPoolBackward(t, k)
		return
	case plan.OpConcat:
		l.lowerConcat(t, k)
		return
	case plan.OpSlice:
		if _, ok := l.aliases[k.Out[0]]; ok {
			return
		}
		if l.layouts[k.Out[0]].channels()%channelMultiple != 0 {
			l.tasks = append(l.tasks, loweredTask{op: opClear, kernel: index, name: k.Name, out: k.Out, acc: -1})
		}
		t.op, t.slice = opCopy, true
	}
	l.tasks = append(l.tasks, t)
}

// lowerBatchNormBackward replaces t's operands and results by the tensors that the engine's
// kernel uses. Some are results of the forward pass, if the program contains it.
func (l *lowering) lowerBatchNormBackward(t *loweredTask, k plan.Kernel) {
	y, beta := -1, -1
	if k.Attr.ReLU {
		y = k.In[5]
	}
	if w := l.writer[k.In[2]]; w >= 0 {
		if f := l.program.Kernels[w]; f.Op == plan.OpBatchNorm && f.Attr.ReLU == k.Attr.ReLU && f.In[0] == k.In[0] && f.In[1] == k.In[1] {
			y, beta = -1, f.In[2] // recomputing y from x is faster than reading y
		}
	}
	t.in = []int{k.In[0], k.In[1], k.In[2], k.In[3], k.In[4], y, beta}
	for i := 1; i < 3; i++ {
		if t.out[i] < 0 { // the program does not need this gradient, but the kernel writes it
			t.out[i] = l.addTensor(l.layouts[k.In[1]])
		}
	}
}

// addMaxPoolIndexTensor adds a tensor for the positions of the maxima in y and returns its id. It
// returns −1 if the program has no backward pass of this pooling.
func (l *lowering) addMaxPoolIndexTensor(x, y int) int {
	for _, r := range l.readers[y] {
		if b := l.program.Kernels[r]; b.Op == plan.OpMaxPoolBackward && b.In[1] == y && b.In[0] == x {
			l.index[y] = l.addTensor(layout{form: rawForm, shape: []int{l.layouts[y].paddedElementCount()}})
			return l.index[y]
		}
	}
	return -1
}

// lowerMaxPoolBackward appends a task for the gradient k of a max pooling. If the program has
// no forward pass of the pooling, it first appends a task that finds the maxima.
func (l *lowering) lowerMaxPoolBackward(t loweredTask, k plan.Kernel) {
	index, ok := l.index[k.In[1]]
	if !ok {
		index = l.addTensor(layout{form: rawForm, shape: []int{l.layouts[k.In[1]].paddedElementCount()}})
		again := l.addTensor(l.layouts[k.In[1]])
		l.tasks = append(l.tasks, loweredTask{op: plan.OpMaxPool, kernel: t.kernel, name: k.Name, attr: k.Attr, in: k.In[:1], out: []int{again, index}, acc: -1})
	}
	t.in = []int{k.In[2], index}
	l.tasks = append(l.tasks, t)
}

// lowerConcat appends tasks that copy the operands of concatenation k to y, unless they are
// aliases in y. If all operands are copied and y has padding, a first task clears y.
func (l *lowering) lowerConcat(t loweredTask, k plan.Kernel) {
	y := k.Out[0]
	var copies []loweredTask
	channel, clear := 0, false
	for _, id := range k.In {
		if a, ok := l.aliases[id]; !ok || a.parent != y {
			c := t
			c.op, c.in, c.attr = opCopy, []int{id}, plan.KernelAttr{Offset: channel}
			copies = append(copies, c)
			clear = l.layouts[y].paddedChannels() != l.layouts[y].channels()
		}
		channel += l.layouts[id].channels()
	}
	if clear && len(copies) == len(k.In) {
		l.tasks = append(l.tasks, loweredTask{op: opClear, kernel: t.kernel, name: k.Name, out: k.Out, acc: -1})
	}
	l.tasks = append(l.tasks, copies...)
}
