package cpu

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// softmax prepares the cross-entropy of class indexes, and its gradient. There
// are few logits: each row is one worker's, in float64.
func (x *builder) softmax(c call) ([]task, error) {
	z, t := c.in[0], c.in[1]
	if len(z.logical) != 2 || z.layout != activationLayout || !slices.Equal(t.logical, []int{z.logical[0], 1}) || t.layout != activationLayout {
		return nil, c.errorf("it takes logits [n,classes] and class indexes [n,1]")
	}
	n, classes := z.logical[0], z.logical[1]
	stride := blocks(classes) * kernel.Lanes
	even := c.Attr.Smoothing / float64(classes) // of each class
	if c.Op == plan.OpSoftmaxCrossEntropy {
		loss := c.out[0]
		if !loss.vector(1) {
			return nil, c.errorf("it writes [1]")
		}
		parts := make([]float64, n)
		return []task{{n, func(_ *worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				row := z.data[i*stride:][:classes]
				top, sum := logSum(row)
				total := 0.0 // Σ of −log softmax
				for _, v := range row {
					total -= float64(v) - top - sum
				}
				class := row[int(t.data[i*kernel.Lanes])]
				parts[i] = even*total - (1-c.Attr.Smoothing)*(float64(class)-top-sum)
			}
		}}, {1, func(*worker, int, int) {
			sum := 0.0
			for _, v := range parts {
				sum += v
			}
			loss.data[0] = float32(sum / float64(n))
		}}}, nil
	}
	dloss, dz := c.in[2], c.out[0]
	if !dloss.vector(1) || !slices.Equal(dz.logical, z.logical) {
		return nil, c.errorf("it takes the loss's gradient [1] too and writes a tensor of the logits' shape")
	}
	return []task{{n, func(_ *worker, lo, hi int) {
		scale := float64(dloss.data[0]) / float64(n)
		for i := lo; i < hi; i++ {
			row, to := z.data[i*stride:][:classes], dz.data[i*stride:][:stride]
			clear(to[classes:])
			top, sum := logSum(row)
			for j, v := range row {
				to[j] = float32(scale * (math.Exp(float64(v)-top-sum) - even))
			}
			class := int(t.data[i*kernel.Lanes])
			to[class] = float32(scale * (math.Exp(float64(row[class])-top-sum) - even - (1 - c.Attr.Smoothing)))
		}
	}}}, nil
}

// logSum is the greatest of some values, and the logarithm of the sum of the
// exponentials of their distances from it.
func logSum(row []float32) (top, sum float64) {
	top = float64(slices.Max(row))
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	return top, math.Log(sum)
}
