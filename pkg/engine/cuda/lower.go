package cuda

import (
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// Operations that this engine has in addition to those of a plan. Some operations of a plan
// have other operands in tasks of this engine:
//
//	max_pool             x → y, index (−1 if no backward pass needs it)
//	max_pool_backward    dy, index → dx
//	batch_norm_backward  x, gamma, mean, invstd, dy, y, beta → dx, dgamma, dbeta; with
//	                     Attr.ReLU either y or beta is present: with beta, y is computed again
//	bias_backward        dy, y → db, dx; if y is present (not −1), dx is dy where y > 0 and 0
//	                     elsewhere, and db is the sum of dx
const (
	// opBias adds a bias b to each channel of y in place: y, b → y + b; with Attr.ReLU,
	// max(0, y + b).
	opBias plan.Op = "bias"
	// opCopy copies c channels of x to y. They start at channel Attr.Offset of x
	// (task.slice set) or of y (otherwise).
	opCopy plan.Op = "copy"
	// opClear fills its only output, y, with zeros.
	opClear plan.Op = "clear"
	// opHead, opHeadBackwardData and opHeadBackwardWeights compute a convolution with one
	// output channel and its gradients; see head. Operands: x, w (, b) → z; w, dz → dx; x,
	// dz → dw (, db).
	opHead                plan.Op = "head"
	opHeadBackwardData    plan.Op = "head_backward_data"
	opHeadBackwardWeights plan.Op = "head_backward_weights"
)

// task is one computation of the lowered program: one kernel of the plan, a part of a
// kernel, or several kernels.
type task struct {
	op      plan.Op
	kernel  int // index in Program.Kernels
	name    string
	attr    plan.Attr
	in, out []int // tensor ids
	acc     int   // id of a tensor that is added to the result; −1 if there is none
	slice   bool  // opCopy: Attr.Offset is an offset in x, not in y
	// A convolution or linear layer with a bias as its third operand adds the bias, and
	// applies ReLU if Attr.ReLU is set. If stats is not nil, it also computes the
	// statistics of its result for the batch norm after it. A gradient of data with sums
	// also computes the sums of the gradient of the batch norm before it. given marks a
	// batch norm, or its gradient, whose statistics or sums another task computes.
	stats *statistics
	sums  *normSums
	given bool
	// If prologue is not nil, a convolution may compute its input from the input of a batch
	// norm while it reads. The batch norm's own task has the same prologue.
	prologue *prologue
}

// normSums contains the tensor ids of the operands and results of the sums in the gradient
// of a batch norm with ReLU.
type normSums struct {
	x, gamma, beta, mean, invstd int
	dgamma, dbeta                int
	factors                      [3]int // further outputs of cuDNN's graph; unused
}

// touched returns the ids of the tensors that t reads or writes, −1 for absent operands.
func (t task) touched() []int {
	all := slices.Concat(t.in, t.out, []int{t.acc})
	if s := t.stats; s != nil {
		all = append(all, s.mean, s.invstd, s.sum, s.square)
	}
	if s := t.sums; s != nil {
		all = append(all, s.x, s.mean, s.invstd, s.dgamma, s.dbeta)
		all = append(all, s.factors[:]...)
	}
	if p := t.prologue; p != nil {
		all = append(all, p.x, p.scale, p.shift)
		if sums, ok := p.unwanted[t.out[0]]; ok {
			all = append(all, sums[0], sums[1])
		}
	}
	return all
}

// convolutional reports whether t is a convolution, a transposed convolution or a linear
// layer, whose result may include a bias.
func (t task) convolutional() bool {
	return t.op == plan.OpConv || t.op == plan.OpConvTranspose || t.op == plan.OpLinear
}

// alias places a tensor in the channels of another tensor (of), starting at channel.
type alias struct{ of, channel int }

// lowered is a program as a list of this engine's tasks.
type lowered struct {
	tasks     []task
	layouts   []layout // of the program's tensors, then of the tensors that the engine adds
	aliases   map[int]alias
	prologues []*prologue
}

// lowering is the state of lower while it turns a program into tasks.
type lowering struct {
	lowered
	program *plan.Program
	fuse    bool
	readers [][]int // by tensor: the indexes of the kernels that read it
	writer  []int   // by tensor: the index of the kernel that writes it, −1 if none does
	done    map[int]bool
	index   map[int]int // by result y of a max pooling: the tensor with the position of each maximum
	moved   map[int]int // by result of a kernel that can also add: the tensor that receives the sum
	added   map[int]int // by the same result: the tensor that is added to it
}

// lower turns p into tasks, in order. low is the type of activations.
//
// With o.ConcatInPlace, concatenations and slices at multiples of eight channels become
// aliases, which cost no time. With o.Fuse, a bias and the ReLU after it become one task,
// and so do their gradients; a sum of gradients or of a residual block becomes part of the
// task that computes its last term. If o.FuseNorm is set too, fp16 convolutions may do the
// work of batch norms; see prologue.
func lower(p *plan.Program, low device.Type, o engine.Options) (lowered, error) {
	layouts, err := chooseLayouts(p, low)
	if err != nil {
		return lowered{}, err
	}
	l := &lowering{
		lowered: lowered{layouts: layouts, aliases: map[int]alias{}},
		program: p, fuse: o.Fuse,
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
		l.alias()
	}
	l.sums()
	for at, k := range p.Kernels {
		if !l.done[at] {
			l.kernel(at, k)
		}
	}
	if o.Fuse && low == device.F16 {
		l.statistics()
		if o.FuseNorm {
			l.gradientSums()
			l.findPrologues()
		}
	}
	return l.lowered, nil
}

// newTensor adds a tensor with layout of to the program's tensors and returns its id.
func (l *lowering) newTensor(of layout) int {
	l.layouts = append(l.layouts, of)
	return len(l.layouts) - 1
}

// alias makes aliases of the operands of concatenations and the results of slices that need
// no copy.
func (l *lowering) alias() {
	for _, k := range l.program.Kernels {
		switch k.Op {
		case plan.OpConcat:
			a, b, y := k.In[0], k.In[1], k.Out[0]
			ca := l.layouts[a].channels()
			// The padding of a would overlap the first channels of b.
			if ca%lanes != 0 || a == b {
				continue
			}
			for i, id := range k.In {
				if l.canAlias(id) && l.layouts[id].typ == l.layouts[y].typ {
					l.aliases[id] = alias{y, i * ca}
				}
			}
		case plan.OpSlice:
			x, y := k.In[0], k.Out[0]
			end := k.Attr.Offset + l.layouts[y].channels()
			whole := end == l.layouts[x].channels() || end%lanes == 0
			if k.Attr.Offset%lanes == 0 && whole && l.program.Tensors[y].Role == plan.Activation && l.layouts[y].form == mapForm && l.layouts[x].form == mapForm {
				l.aliases[y] = alias{x, k.Attr.Offset}
			}
		}
	}
}

// canAlias reports whether a tensor can be stored within another one: it is a feature map
// that a kernel computes, is not read from outside, and is not an alias yet.
func (l *lowering) canAlias(id int) bool {
	if _, aliased := l.aliases[id]; aliased || l.writer[id] < 0 {
		return false
	}
	op := l.program.Kernels[l.writer[id]].Op
	return l.program.Tensors[id].Role == plan.Activation && l.layouts[id].form == mapForm && op != plan.OpConcat && op != plan.OpSlice
}

// sums finds the sums, of gradients or of a residual block, that the kernel of their last
// term can compute, and records them in moved and added.
func (l *lowering) sums() {
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
			(by.Op == plan.OpConv || by.Op == plan.OpConvBackwardData) && l.sameMapType(last, other) && l.sameMapType(last, k.Out[0]):
			if by.Op == plan.OpReLUBackward && l.biasOf(last) >= 0 {
				continue
			}
			l.moved[last], l.added[last], l.done[at] = k.Out[0], other, true
		}
	}
}

// sameMapType reports whether two tensors are feature maps of one type.
func (l *lowering) sameMapType(a, b int) bool {
	return l.layouts[a].form == mapForm && l.layouts[b].form == mapForm && l.layouts[a].typ == l.layouts[b].typ
}

// kernel appends the tasks of kernel k, which has index at in the program.
func (l *lowering) kernel(at int, k plan.Kernel) {
	t := task{op: k.Op, kernel: at, name: k.Name, attr: k.Attr, in: k.In, out: slices.Clone(k.Out), acc: -1}
	if id := k.Out[0]; id >= 0 {
		if sum, ok := l.moved[id]; ok {
			t.out[0], t.acc = sum, l.added[id]
		}
	}
	switch k.Op {
	case plan.OpConv, plan.OpConvTranspose, plan.OpLinear:
		l.conv(t, k)
		return
	case plan.OpConvBackwardData:
		if l.layouts[k.In[1]].form == denseForm {
			t.op = opHeadBackwardData
		}
	case plan.OpConvBackwardWeights:
		if l.layouts[k.In[1]].form == denseForm {
			l.headWeights(t, k)
			return
		}
	case plan.OpBiasBackward:
		t.in, t.out = []int{k.In[0], -1}, []int{k.Out[0], -1}
	case plan.OpReLUBackward:
		if b := l.biasOf(k.Out[0]); b >= 0 && t.acc < 0 {
			l.done[b] = true
			t.op, t.in, t.out = plan.OpBiasBackward, []int{k.In[1], k.In[0]}, []int{l.program.Kernels[b].Out[0], k.Out[0]}
		}
	case plan.OpBatchNormBackward:
		l.batchNormBackward(&t, k)
	case plan.OpMaxPool:
		t.out = []int{k.Out[0], l.poolIndex(k.In[0], k.Out[0])}
	case plan.OpMaxPoolBackward:
		l.maxPoolBackward(t, k)
		return
	case plan.OpConcat:
		l.concat(t, k)
		return
	case plan.OpSlice:
		if _, ok := l.aliases[k.Out[0]]; ok {
			return
		}
		if l.layouts[k.Out[0]].channels()%lanes != 0 {
			l.tasks = append(l.tasks, task{op: opClear, kernel: at, name: k.Name, out: k.Out, acc: -1})
		}
		t.op, t.slice = opCopy, true
	}
	l.tasks = append(l.tasks, t)
}

// batchNormBackward replaces the operands and results of t by those that our kernel
// expects, using those of the forward pass if the program contains it.
func (l *lowering) batchNormBackward(t *task, k plan.Kernel) {
	y, beta := -1, -1
	if k.Attr.ReLU {
		y = k.In[5]
	}
	if w := l.writer[k.In[2]]; w >= 0 {
		if f := l.program.Kernels[w]; f.Op == plan.OpBatchNorm && f.Attr.ReLU == k.Attr.ReLU && f.In[0] == k.In[0] && f.In[1] == k.In[1] {
			y, beta = -1, f.In[2] // computing y from x again costs less than reading y
		}
	}
	t.in = []int{k.In[0], k.In[1], k.In[2], k.In[3], k.In[4], y, beta}
	for i := 1; i < 3; i++ {
		if t.out[i] < 0 { // the program does not need it, but the kernel writes it
			t.out[i] = l.newTensor(l.layouts[k.In[1]])
		}
	}
}

// poolIndex adds the tensor that contains the position of each maximum of y, and returns
// its id, or −1 if no backward pass reads it.
func (l *lowering) poolIndex(x, y int) int {
	for _, r := range l.readers[y] {
		if b := l.program.Kernels[r]; b.Op == plan.OpMaxPoolBackward && b.In[1] == y && b.In[0] == x {
			l.index[y] = l.newTensor(layout{form: rawForm, shape: []int{l.layouts[y].size()}})
			return l.index[y]
		}
	}
	return -1
}

// maxPoolBackward appends the gradient of a max pooling. If the program does not contain
// its forward pass, a forward pass that finds the positions of the maxima comes first.
func (l *lowering) maxPoolBackward(t task, k plan.Kernel) {
	index, ok := l.index[k.In[1]]
	if !ok {
		index = l.newTensor(layout{form: rawForm, shape: []int{l.layouts[k.In[1]].size()}})
		again := l.newTensor(l.layouts[k.In[1]])
		l.tasks = append(l.tasks, task{op: plan.OpMaxPool, kernel: t.kernel, name: k.Name, attr: k.Attr, in: k.In[:1], out: []int{again, index}, acc: -1})
	}
	t.in = []int{k.In[2], index}
	l.tasks = append(l.tasks, t)
}

// concat appends the copies of the operands that are not aliases of a part of y, after a
// task that clears the padding if necessary.
func (l *lowering) concat(t task, k plan.Kernel) {
	y := k.Out[0]
	var copies []task
	channel, clear := 0, false
	for _, id := range k.In {
		if a, ok := l.aliases[id]; !ok || a.of != y {
			c := t
			c.op, c.in, c.attr = opCopy, []int{id}, plan.Attr{Offset: channel}
			copies = append(copies, c)
			clear = l.layouts[y].padded() != l.layouts[y].channels()
		}
		channel += l.layouts[id].channels()
	}
	if clear && len(copies) == len(k.In) {
		l.tasks = append(l.tasks, task{op: opClear, kernel: t.kernel, name: k.Name, out: k.Out, acc: -1})
	}
	l.tasks = append(l.tasks, copies...)
}
