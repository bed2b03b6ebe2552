package cuda

import (
	"slices"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// isPackedF16Map reports whether tensor id is a two-dimensional fp16 map that is not an
// alias.
func (l *lowering) isPackedF16Map(id int) bool {
	if id < 0 || l.layouts[id].form != mapForm || l.layouts[id].typ != device.F16 || len(l.layouts[id].shape) != 4 {
		return false
	}
	_, aliased := l.aliases[id]
	return !aliased
}

// findFusableGradientSums finds batch norms with ReLU whose output gradient is computed by a
// single task: the data gradient of a convolution. That task can also compute the sums of
// the batch norm's gradient. cuDNN supports this for two-dimensional fp16 maps that are not
// aliases (DgradDreluBNBwdWeight in its developer guide); its result includes the gradient
// of ReLU.
func (l *lowering) findFusableGradientSums() {
	for i := range l.tasks {
		b := &l.tasks[i]
		if b.op != plan.OpBatchNormBackward || !b.attr.ReLU || b.attr.Sync || b.in[5] >= 0 || b.in[6] < 0 || b.out[0] < 0 || !l.isPackedF16Map(b.in[0]) {
			continue
		}
		dy := b.in[4]
		if !l.isPackedF16Map(dy) || l.program.Tensors[dy].Role != plan.Activation {
			continue
		}
		from, others := -1, 0
		for j := range l.tasks {
			switch t := &l.tasks[j]; {
			case j == i || !slices.Contains(t.tensorIDs(), dy):
			case t.op == plan.OpConvBackwardData && t.out[0] == dy && t.acc < 0:
				from = j
			default:
				others++
			}
		}
		if from < 0 || others > 0 {
			continue
		}
		vector := l.layouts[b.in[1]]
		l.tasks[from].sums = &normGradientSums{
			x: b.in[0], gamma: b.in[1], mean: b.in[2], invstd: b.in[3], beta: b.in[6], dgamma: b.out[1], dbeta: b.out[2],
			factors: [3]int{l.addTensor(vector), l.addTensor(vector), l.addTensor(vector)},
		}
		b.precomputed = true
	}
}
