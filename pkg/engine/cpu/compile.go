package cpu

import (
	"lockstep/pkg/engine/cpu/internal/layer"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/plan"
)

func (l *loader) compileKernel(index int) ([]threads.Task, error) {
	k := l.program.Kernels[index]
	c := layer.Operation{Kernel: k, Inputs: l.newOperands(k.In), Outputs: l.newOperands(k.Out), NeedsStatistics: l.shouldComputeNormStatistics(index)}
	switch k.Op {
	case plan.OpConcat, plan.OpSlice:
		if id := k.Out[0]; id >= 0 {
			c.Fused = l.origins[id].kind == concatenated || l.origins[id].kind == sliced
		}
	case plan.OpBatchNorm:
		if id := k.Out[0]; id >= 0 {
			c.Norm = l.origins[id].norm
		}
	case plan.OpMaxPool, plan.OpMaxPoolBackward:
		c.Index, c.Indexed, c.Fused = l.index[l.pooling[index]], l.pooling[index] != index, l.inPlace[index]
	default:
		c.Fused = l.inPlace[index]
	}
	return l.builder.BuildTasks(c)
}

// maxOperands is the length of the operand lists of a layer.Operation. No kernel has more
// inputs or outputs.
const maxOperands = 8

// newOperands returns maxOperands operands: the tensors with the given IDs, and then absent
// operands.
func (l *loader) newOperands(ids []int) []tensor.Operand {
	list := make([]tensor.Operand, maxOperands)
	for i := range list {
		if i < len(ids) && ids[i] >= 0 {
			id := ids[i]
			t := l.program.Tensors[id]
			list[i] = tensor.Operand{Tensor: t, Logical: t.Shape, Space: tensor.SpatialSize(t.Shape), ID: id, Layout: l.layouts[id], Data: l.data[id]}
			list[i].Shape = tensor.ShapeTo4D(t.Shape)
			if l.layouts[id] == tensor.ActivationLayout {
				list[i].Pieces = l.listMemoryPieces(id)
			}
		} else {
			list[i] = tensor.Operand{ID: -1}
		}
	}
	return list
}
