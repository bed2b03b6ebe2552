package layer

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// l1ExpTermFactor is the factor 14 in the term |e^{14y}−e^{14t}| of the loss.
const l1ExpTermFactor = 14

// buildL1Loss builds the L1 loss or its gradient. The loss is the mean absolute difference plus a
// weighted term on the exponentials of channel 0. Padding adds nothing to it, because padding
// is 0 in both operands.
func (x *Builder) buildL1Loss(c Operation) ([]threads.Task, error) {
	y, t := c.Inputs[0], c.Inputs[1]
	if !slices.Equal(y.Logical, t.Logical) || y.Layout != t.Layout || y.Layout == tensor.WeightLayout {
		return nil, c.errorf("want two tensors of the same shape")
	}
	weight := c.Attr.ExpWeight
	if weight != 0 && y.Layout != tensor.ActivationLayout {
		return nil, c.errorf("the exponential term needs an activation [n,c,…]")
	}
	size := y.Layout.FloatCount(y.Shape)
	pieces, images := tensor.CeilDiv(size, workspace.TaskItemFloats), 0
	plane, image := 0, 0
	if weight != 0 {
		plane, images = y.PlaneFloats(), y.Shape[0]
		image = tensor.ChannelBlockCount(y.Shape[1]) * plane
	}
	first := float64(max(1, images*plane/lanes)) // number of elements of channel 0
	k := x.Set
	if c.Op == plan.OpL1 {
		loss := c.Outputs[0]
		if !loss.IsVector(1) {
			return nil, c.errorf("want a result of shape [1]")
		}
		parts, more := make([]float64, pieces), make([]float64, images)
		return []threads.Task{{Items: pieces, Run: func(_ *threads.Worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				var sum kernel.FloatBlock
				k.Distances(&y.Data[i*workspace.TaskItemFloats], &t.Data[i*workspace.TaskItemFloats], &sum[0], min(workspace.TaskItemFloats, size-i*workspace.TaskItemFloats))
				parts[i] = 0
				for _, v := range sum {
					parts[i] += float64(v)
				}
			}
		}}, {Items: images, Run: func(_ *threads.Worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				more[i] = 0
				for at := i * image; at < i*image+plane; at += lanes {
					more[i] += math.Abs(math.Exp(l1ExpTermFactor*float64(y.Data[at])) - math.Exp(l1ExpTermFactor*float64(t.Data[at])))
				}
			}
		}}, {Items: 1, Run: func(*threads.Worker, int, int) {
			sum, exps := 0.0, 0.0
			for _, v := range parts {
				sum += v
			}
			for _, v := range more {
				exps += v
			}
			loss.Data[0] = float32(sum/float64(y.Elements()) + weight*exps/first)
		}}}, nil
	}
	dloss, dy := c.Inputs[2], c.Outputs[0]
	if !dloss.IsVector(1) || !slices.Equal(dy.Logical, y.Logical) || dy.Layout != y.Layout {
		return nil, c.errorf("want a gradient of the loss of shape [1] and a result with the shape of the first input")
	}
	return []threads.Task{{Items: pieces, Run: func(_ *threads.Worker, lo, hi int) {
		scale := float32(float64(dloss.Data[0]) / float64(y.Elements()))
		for i := lo; i < hi; i++ {
			k.Signs(&y.Data[i*workspace.TaskItemFloats], &t.Data[i*workspace.TaskItemFloats], &dy.Data[i*workspace.TaskItemFloats], &scale, min(workspace.TaskItemFloats, size-i*workspace.TaskItemFloats))
		}
	}}, {Items: images, Run: func(_ *threads.Worker, lo, hi int) {
		scale := float64(dloss.Data[0]) * weight * l1ExpTermFactor / first
		for i := lo; i < hi; i++ {
			for at := i * image; at < i*image+plane; at += lanes {
				v, w := float64(y.Data[at]), float64(t.Data[at])
				switch e := math.Exp(l1ExpTermFactor * v); {
				case v > w:
					dy.Data[at] += float32(scale * e)
				case v < w:
					dy.Data[at] -= float32(scale * e)
				}
			}
		}
	}}}, nil
}
