package cuda

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

// fusedNormStatistics contains tensor ids and parameters for the statistics that a convolution
// computes for the batch norm after it.
type fusedNormStatistics struct {
	mean, invstd, runningMean, runningVar int
	sum, square                           int // sum and sum of squares per channel, if cuDNN computes them
	epsilon, momentum                     float64
	layer                                 string // name of the batch norm
	sync                                  bool   // the batch norm is synchronized
}

func (l *lowering) lowerConv(t loweredTask, k plan.Kernel) {
	if k.Op == plan.OpConv && l.layouts[k.Out[0]].form == denseForm {
		t.op = opHead
		l.tasks = append(l.tasks, t)
		return
	}
	bias := loweredTask{op: opBias, kernel: t.kernel, name: t.name, acc: -1}
	if len(k.In) == 3 {
		if r := l.findReLUAfter(k.Out[0]); r >= 0 {
			l.done[r], bias.attr.ReLU = true, true
			t.out = l.program.Kernels[r].Out
		}
	}
	if l.fuse {
		// One task computes all: in one cuDNN graph, or with our own kernel after cuDNN's.
		t.attr.ReLU = bias.attr.ReLU
		l.tasks = append(l.tasks, t)
		return
	}
	t.in = k.In[:2]
	l.tasks = append(l.tasks, t)
	if len(k.In) == 3 {
		bias.in, bias.out = []int{t.out[0], k.In[2]}, t.out
		l.tasks = append(l.tasks, bias)
	}
}

// findReLUAfter returns the index of the kernel of a ReLU that is the only reader of y and can
// be fused, or −1 if there is none.
func (l *lowering) findReLUAfter(y int) int {
	if !l.fuse || l.program.Tensors[y].Role != plan.Activation || len(l.readers[y]) != 1 {
		return -1
	}
	// If y is stored within another tensor, the ReLU must not overwrite it.
	if _, aliased := l.aliases[y]; aliased {
		return -1
	}
	if r := l.readers[y][0]; l.program.Kernels[r].Op == plan.OpReLU {
		return r
	}
	return -1
}

// findBiasBackward returns the index of a kernel that computes the gradient of a bias from dx,
// the gradient of a ReLU. It returns −1 if there is none or it cannot be fused.
func (l *lowering) findBiasBackward(dx int) int {
	if !l.fuse {
		return -1
	}
	for _, r := range l.readers[dx] {
		if l.program.Kernels[r].Op == plan.OpBiasBackward && l.layouts[dx].form == mapForm {
			return r
		}
	}
	return -1
}

// lowerHeadWeights appends one task for the gradients of a head's weights and its bias. The
// program contains them as two kernels, in either order.
func (l *lowering) lowerHeadWeights(t loweredTask, k plan.Kernel) {
	t.op, t.out = opHeadBackwardWeights, []int{k.Out[0], -1}
	for i := range l.tasks {
		if b := &l.tasks[i]; b.op == plan.OpBiasBackward && b.in[0] == k.In[1] {
			t.out[1] = b.out[0]
			l.tasks = slices.Delete(l.tasks, i, i+1)
			break
		}
	}
	for _, r := range l.readers[k.In[1]] {
		if b := l.program.Kernels[r]; t.out[1] < 0 && r > t.kernel && b.Op == plan.OpBiasBackward {
			t.out[1], l.done[r] = b.Out[0], true
		}
	}
	l.tasks = append(l.tasks, t)
}

// findFusableStatistics finds the convolutions that can compute the statistics of the batch norm
// after them. cuDNN supports this for two-dimensional fp16 maps that are not aliases.
func (l *lowering) findFusableStatistics() {
	for i := range l.tasks {
		t := &l.tasks[i]
		y := t.out[0]
		if t.op != plan.OpConv || t.attr.ReLU || y < 0 || len(l.layouts[y].shape) != 4 {
			continue
		}
		if _, aliased := l.aliases[y]; aliased {
			continue
		}
		at := slices.IndexFunc(l.tasks, func(n loweredTask) bool {
			return n.op == plan.OpBatchNorm && n.attr.Training && n.in[0] == y && !n.precomputed
		})
		if at < i {
			continue
		}
		n := &l.tasks[at]
		if n.attr.Sync && (len(t.in) != 2 || t.acc >= 0) {
			continue // only a convolution without additions computes statistics that workers exchange
		}
		vector := l.layouts[n.out[1]]
		t.stats = &fusedNormStatistics{
			mean: n.out[1], invstd: n.out[2], runningMean: n.in[3], runningVar: n.in[4],
			sum: l.addTensor(vector), square: l.addTensor(vector), epsilon: n.attr.Epsilon, momentum: n.attr.Momentum,
			layer: n.name, sync: n.attr.Sync,
		}
		n.precomputed = true
	}
}
