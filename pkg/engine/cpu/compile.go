package cpu

import "lockstep/pkg/internal/plan"

// compile returns the tasks of kernel at.
func (l *loader) compile(at int) ([]task, error) {
	k := l.program.Kernels[at]
	c := call{Kernel: k, in: l.operands(k.In), out: l.operands(k.Out), tallied: l.tallied(at)}
	switch k.Op {
	case plan.OpConcat, plan.OpSlice:
		if id := k.Out[0]; id >= 0 {
			c.fused = l.origins[id].how == joined || l.origins[id].how == sliced
		}
	case plan.OpBatchNorm:
		if id := k.Out[0]; id >= 0 {
			c.norm = l.origins[id].norm
		}
	case plan.OpMaxPool, plan.OpMaxPoolBackward:
		c.index, c.indexed, c.fused = l.index[l.pooling[at]], l.pooling[at] != at, l.inPlace[at]
	default:
		c.fused = l.inPlace[at]
	}
	return l.builder.tasks(c)
}

// maxOperands is more than any kernel reads or writes.
const maxOperands = 8

// operands looks up a kernel's tensors; those beyond ids are absent.
func (l *loader) operands(ids []int) []operand {
	list := make([]operand, maxOperands)
	for i := range list {
		if i < len(ids) && ids[i] >= 0 {
			id := ids[i]
			t := l.program.Tensors[id]
			list[i] = operand{Tensor: t, logical: t.Shape, space: spatial(t.Shape), id: id, layout: l.layouts[id], data: l.data[id]}
			list[i].Shape = folded(t.Shape)
			if l.layouts[id] == activationLayout {
				list[i].pieces = l.pieces(id)
			}
		} else {
			list[i] = operand{id: -1}
		}
	}
	return list
}
