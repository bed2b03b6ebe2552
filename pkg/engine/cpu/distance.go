package cpu

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// l1Exponent is the factor in the exponent of the second term of the loss.
const l1Exponent = 14

// l1 prepares the mean absolute difference, with its term on exponentials of
// channel 0, and its gradient. Padding adds nothing: it is 0 on both sides.
func (x *builder) l1(c call) ([]task, error) {
	y, t := c.in[0], c.in[1]
	if !slices.Equal(y.logical, t.logical) || y.layout != t.layout || y.layout == weightLayout {
		return nil, c.errorf("it takes two tensors of one shape")
	}
	weight := c.Attr.ExpWeight
	if weight != 0 && y.layout != activationLayout {
		return nil, c.errorf("its term on exponentials takes an activation [n,c,…]")
	}
	size := y.layout.size(y.Shape)
	pieces, images := ceilDiv(size, pieceFloats), 0
	plane, image := 0, 0
	if weight != 0 {
		plane, images = y.plane(), y.Shape[0]
		image = blocks(y.Shape[1]) * plane
	}
	first := float64(max(1, images*plane/kernel.Lanes)) // elements of channel 0
	k := x.set
	if c.Op == plan.OpL1 {
		loss := c.out[0]
		if !loss.vector(1) {
			return nil, c.errorf("it writes [1]")
		}
		parts, more := make([]float64, pieces), make([]float64, images)
		return []task{{pieces, func(_ *worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				var sum kernel.Block
				k.Distances(&y.data[i*pieceFloats], &t.data[i*pieceFloats], &sum[0], min(pieceFloats, size-i*pieceFloats))
				parts[i] = 0
				for _, v := range sum {
					parts[i] += float64(v)
				}
			}
		}}, {images, func(_ *worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				more[i] = 0
				for at := i * image; at < i*image+plane; at += kernel.Lanes {
					more[i] += math.Abs(math.Exp(l1Exponent*float64(y.data[at])) - math.Exp(l1Exponent*float64(t.data[at])))
				}
			}
		}}, {1, func(*worker, int, int) {
			sum, exps := 0.0, 0.0
			for _, v := range parts {
				sum += v
			}
			for _, v := range more {
				exps += v
			}
			loss.data[0] = float32(sum/float64(y.Elements()) + weight*exps/first)
		}}}, nil
	}
	dloss, dy := c.in[2], c.out[0]
	if !dloss.vector(1) || !slices.Equal(dy.logical, y.logical) || dy.layout != y.layout {
		return nil, c.errorf("it takes the loss's gradient [1] too and writes a tensor of the first one's shape")
	}
	return []task{{pieces, func(_ *worker, lo, hi int) {
		scale := float32(float64(dloss.data[0]) / float64(y.Elements()))
		for i := lo; i < hi; i++ {
			k.Signs(&y.data[i*pieceFloats], &t.data[i*pieceFloats], &dy.data[i*pieceFloats], &scale, min(pieceFloats, size-i*pieceFloats))
		}
	}}, {images, func(_ *worker, lo, hi int) {
		scale := float64(dloss.data[0]) * weight * l1Exponent / first
		for i := lo; i < hi; i++ {
			for at := i * image; at < i*image+plane; at += kernel.Lanes {
				v, w := float64(y.data[at]), float64(t.data[at])
				switch e := math.Exp(l1Exponent * v); {
				case v > w:
					dy.data[at] += float32(scale * e)
				case v < w:
					dy.data[at] -= float32(scale * e)
				}
			}
		}
	}}}, nil
}
