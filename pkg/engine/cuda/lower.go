package cuda

import (
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// What this engine computes beside the operations of a plan. The operations of a
// plan that the GPU does otherwise have other operands here:
//
//	max_pool             x → y, index (−1: not wanted)
//	max_pool_backward    dy, index → dx
//	batch_norm_backward  x, gamma, mean, invstd, dy, y, beta → dx, dgamma, dbeta; with
//	                     Attr.ReLU either y is there, or beta to compute it anew
//	bias_backward        dy, y → db, dx; with y (else −1) dy counts where y > 0, and that is dx
const (
	// opBias: y, b → y + b of its channel, in place (, then max(0,·) with Attr.ReLU).
	opBias plan.Op = "bias"
	// opCopy: x → y, c channels from channel Attr.Offset of one of the two.
	opCopy plan.Op = "copy"
	// opClear: → y of zeros.
	opClear plan.Op = "clear"
	// opHead and the next two are a convolution with one output channel; see head.
	// x, w (, b) → z; w, dz → dx; x, dz → dw (, db).
	opHead                plan.Op = "head"
	opHeadBackwardData    plan.Op = "head_backward_data"
	opHeadBackwardWeights plan.Op = "head_backward_weights"
)

// task is one thing to compute: a kernel of the plan, or a part of one, or several.
type task struct {
	op      plan.Op
	kernel  int // index in Program.Kernels
	name    string
	attr    plan.Attr
	in, out []int // tensor ids
	acc     int   // id of a tensor that is added to the result, −1 without
	slice   bool  // opCopy: Attr.Offset counts in x, not in y
	// A convolution, or a linear layer, whose third operand is a bias adds it, and with
	// Attr.ReLU applies that. With stats it leaves the statistics of its result, for the
	// batch norm behind it, which is given them then. The gradient of its data leaves the
	// sums of the gradient of the batch norm in front, which is given them likewise.
	stats *statistics
	sums  *normSums
	given bool
	// What a convolution reads may be computed as it reads: see prologue. The batch norm's
	// own task has it too.
	prologue *prologue
}

// normSums are the operands and the results of the sums over the gradient of a batch norm
// with ReLU: tensor ids.
type normSums struct {
	x, gamma, beta, mean, invstd int
	dgamma, dbeta                int
	factors                      [3]int // what cuDNN leaves beside; unused
}

// touched are the tensors that a task reads or writes, −1 for none.
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

// convolutional reports whether a task is one whose result a bias can be part of.
func (t task) convolutional() bool {
	return t.op == plan.OpConv || t.op == plan.OpConvTranspose || t.op == plan.OpLinear
}

// alias places a tensor in a part of another one's channels.
type alias struct{ of, channel int }

// lowered is a program as this engine runs it.
type lowered struct {
	tasks     []task
	layouts   []layout // of the program's tensors, then of the engine's own
	aliases   map[int]alias
	prologues []*prologue
}

// lowering turns a program into tasks.
type lowering struct {
	lowered
	program *plan.Program
	fuse    bool
	readers [][]int // by tensor: the kernels that read it
	writer  []int   // by tensor: the kernel that writes it, −1
	done    map[int]bool
	index   map[int]int // of a pooling: y → where each maximum is
	moved   map[int]int // result of a kernel that adds too → the sum
	added   map[int]int // the same result → what is added
}

// lower turns p into tasks, in order. With o.ConcatInPlace, concatenations and slices along
// multiples of eight channels become aliases: they take no time. With o.Fuse, a bias and
// the ReLU behind it are one task, the gradients of both too, and a sum of
// gradients, or of a residual block, is part of the task that makes its last term. With
// o.FuseNorm too, convolutions in fp16 may do the work of batch norms: see prologue.
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

// own makes a tensor of the engine's own.
func (l *lowering) own(of layout) int {
	l.layouts = append(l.layouts, of)
	return len(l.layouts) - 1
}

// alias finds the concatenations and slices that need no copy.
func (l *lowering) alias() {
	for _, k := range l.program.Kernels {
		switch k.Op {
		case plan.OpConcat:
			a, b, y := k.In[0], k.In[1], k.Out[0]
			ca := l.layouts[a].channels()
			// a's padding would lie on b's first channels.
			if ca%lanes != 0 || a == b {
				continue
			}
			for i, id := range k.In {
				if l.movable(id) && l.layouts[id].typ == l.layouts[y].typ {
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

// movable reports whether a tensor may lie in another one: a feature map that a
// kernel computes, that nobody outside reads, and that lies in none yet.
func (l *lowering) movable(id int) bool {
	if _, aliased := l.aliases[id]; aliased || l.writer[id] < 0 {
		return false
	}
	op := l.program.Kernels[l.writer[id]].Op
	return l.program.Tensors[id].Role == plan.Activation && l.layouts[id].form == mapForm && op != plan.OpConcat && op != plan.OpSlice
}

// sums finds the sums, of gradients or of a residual block, that the kernel of their last
// term can make.
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
			(by.Op == plan.OpConv || by.Op == plan.OpConvBackwardData) && l.alike(last, other) && l.alike(last, k.Out[0]):
			if by.Op == plan.OpReLUBackward && l.biasOf(last) >= 0 {
				continue
			}
			l.moved[last], l.added[last], l.done[at] = k.Out[0], other, true
		}
	}
}

// alike reports whether two tensors are feature maps of one type.
func (l *lowering) alike(a, b int) bool {
	return l.layouts[a].form == mapForm && l.layouts[b].form == mapForm && l.layouts[a].typ == l.layouts[b].typ
}

// kernel appends the tasks of one kernel.
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

// batchNormBackward finds what the forward pass knows.
func (l *lowering) batchNormBackward(t *task, k plan.Kernel) {
	y, beta := -1, -1
	if k.Attr.ReLU {
		y = k.In[5]
	}
	if w := l.writer[k.In[2]]; w >= 0 {
		if f := l.program.Kernels[w]; f.Op == plan.OpBatchNorm && f.Attr.ReLU == k.Attr.ReLU && f.In[0] == k.In[0] && f.In[1] == k.In[1] {
			y, beta = -1, f.In[2] // y from x costs less than to read it
		}
	}
	t.in = []int{k.In[0], k.In[1], k.In[2], k.In[3], k.In[4], y, beta}
	for i := 1; i < 3; i++ {
		if t.out[i] < 0 { // not asked for, but the kernel writes it
			t.out[i] = l.own(l.layouts[k.In[1]])
		}
	}
}

// poolIndex is the tensor that says where each maximum of y is, −1 where no
// backward pass asks.
func (l *lowering) poolIndex(x, y int) int {
	for _, r := range l.readers[y] {
		if b := l.program.Kernels[r]; b.Op == plan.OpMaxPoolBackward && b.In[1] == y && b.In[0] == x {
			l.index[y] = l.own(layout{form: rawForm, shape: []int{l.layouts[y].size()}})
			return l.index[y]
		}
	}
	return -1
}

// maxPoolBackward appends the gradient of a pooling; without its forward pass in
// the program, the positions of the maxima are found first.
func (l *lowering) maxPoolBackward(t task, k plan.Kernel) {
	index, ok := l.index[k.In[1]]
	if !ok {
		index = l.own(layout{form: rawForm, shape: []int{l.layouts[k.In[1]].size()}})
		again := l.own(l.layouts[k.In[1]])
		l.tasks = append(l.tasks, task{op: plan.OpMaxPool, kernel: t.kernel, name: k.Name, attr: k.Attr, in: k.In[:1], out: []int{again, index}, acc: -1})
	}
	t.in = []int{k.In[2], index}
	l.tasks = append(l.tasks, t)
}

// concat appends the copies of the operands that do not lie in y already.
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
