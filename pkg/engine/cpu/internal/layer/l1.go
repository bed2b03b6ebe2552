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

// l1Exponent is the factor in the exponents of the loss's second term.
const l1Exponent = 14

// l1 prepares the mean absolute difference plus a weighted term on the exponentials
// of channel 0, or its gradient. Padding adds nothing: it is 0 in both operands.
func (x *Builder) l1(c Call) ([]threads.Task, error) {
	y, t := c.Inputs[0], c.Inputs[1]
	if !slices.Equal(y.Logical, t.Logical) || y.Layout != t.Layout || y.Layout == tensor.WeightLayout {
		return nil, c.errorf("it takes two tensors of one shape")
	}
	weight := c.Attr.ExpWeight
	if weight != 0 && y.Layout != tensor.ActivationLayout {
		return nil, c.errorf("its term on exponentials takes an activation [n,c,…]")
	}
	size := y.Layout.Size(y.Shape)
	pieces, images := tensor.CeilDiv(size, workspace.PieceFloats), 0
	plane, image := 0, 0
	if weight != 0 {
		plane, images = y.Plane(), y.Shape[0]
		image = tensor.Blocks(y.Shape[1]) * plane
	}
	first := float64(max(1, images*plane/lanes)) // number of elements of channel 0
	k := x.Set
	if c.Op == plan.OpL1 {
		loss := c.Outputs[0]
		if !loss.IsVector(1) {
			return nil, c.errorf("it writes [1]")
		}
		parts, more := make([]float64, pieces), make([]float64, images)
		return []threads.Task{{Items: pieces, Run: func(_ *threads.Worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				var sum kernel.Block
				k.Distances(&y.Data[i*workspace.PieceFloats], &t.Data[i*workspace.PieceFloats], &sum[0], min(workspace.PieceFloats, size-i*workspace.PieceFloats))
				parts[i] = 0
				for _, v := range sum {
					parts[i] += float64(v)
				}
			}
		}}, {Items: images, Run: func(_ *threads.Worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				more[i] = 0
				for at := i * image; at < i*image+plane; at += lanes {
					more[i] += math.Abs(math.Exp(l1Exponent*float64(y.Data[at])) - math.Exp(l1Exponent*float64(t.Data[at])))
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
		return nil, c.errorf("it takes the loss's gradient [1] too and writes a tensor of the first one's shape")
	}
	return []threads.Task{{Items: pieces, Run: func(_ *threads.Worker, lo, hi int) {
		scale := float32(float64(dloss.Data[0]) / float64(y.Elements()))
		for i := lo; i < hi; i++ {
			k.Signs(&y.Data[i*workspace.PieceFloats], &t.Data[i*workspace.PieceFloats], &dy.Data[i*workspace.PieceFloats], &scale, min(workspace.PieceFloats, size-i*workspace.PieceFloats))
		}
	}}, {Items: images, Run: func(_ *threads.Worker, lo, hi int) {
		scale := float64(dloss.Data[0]) * weight * l1Exponent / first
		for i := lo; i < hi; i++ {
			for at := i * image; at < i*image+plane; at += lanes {
				v, w := float64(y.Data[at]), float64(t.Data[at])
				switch e := math.Exp(l1Exponent * v); {
				case v > w:
					dy.Data[at] += float32(scale * e)
				case v < w:
					dy.Data[at] -= float32(scale * e)
				}
			}
		}
	}}}, nil
}
