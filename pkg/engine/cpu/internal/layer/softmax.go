package layer

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/plan"
)

// buildSoftmaxCrossEntropy builds the softmax cross-entropy with class indexes, or its gradient. One
// worker computes each row, in float64, because there are few logits.
func (x *Builder) buildSoftmaxCrossEntropy(c Operation) ([]threads.Task, error) {
	z, t := c.Inputs[0], c.Inputs[1]
	if len(z.Logical) != 2 || z.Layout != tensor.ActivationLayout || !slices.Equal(t.Logical, []int{z.Logical[0], 1}) || t.Layout != tensor.ActivationLayout {
		return nil, c.errorf("want logits [n,classes] and class indexes [n,1]")
	}
	n, classes := z.Logical[0], z.Logical[1]
	stride := tensor.ChannelBlockCount(classes) * lanes
	even := c.Attr.Smoothing / float64(classes) // probability that smoothing adds to each class
	if c.Op == plan.OpSoftmaxCrossEntropy {
		loss := c.Outputs[0]
		if !loss.IsVector(1) {
			return nil, c.errorf("want a result of shape [1]")
		}
		parts := make([]float64, n)
		return []threads.Task{{Items: n, Run: func(_ *threads.Worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				row := z.Data[i*stride:][:classes]
				top, sum := logSumExp(row)
				total := 0.0 // Σ of −log softmax
				for _, v := range row {
					total -= float64(v) - top - sum
				}
				class := row[int(t.Data[i*lanes])]
				parts[i] = even*total - (1-c.Attr.Smoothing)*(float64(class)-top-sum)
			}
		}}, {Items: 1, Run: func(*threads.Worker, int, int) {
			sum := 0.0
			for _, v := range parts {
				sum += v
			}
			loss.Data[0] = float32(sum / float64(n))
		}}}, nil
	}
	dloss, dz := c.Inputs[2], c.Outputs[0]
	if !dloss.IsVector(1) || !slices.Equal(dz.Logical, z.Logical) {
		return nil, c.errorf("want a gradient of the loss of shape [1] and a result with the shape of the logits")
	}
	return []threads.Task{{Items: n, Run: func(_ *threads.Worker, lo, hi int) {
		scale := float64(dloss.Data[0]) / float64(n)
		for i := lo; i < hi; i++ {
			row, to := z.Data[i*stride:][:classes], dz.Data[i*stride:][:stride]
			clear(to[classes:])
			top, sum := logSumExp(row)
			for j, v := range row {
				to[j] = float32(scale * (math.Exp(float64(v)-top-sum) - even))
			}
			class := int(t.Data[i*lanes])
			to[class] = float32(scale * (math.Exp(float64(row[class])-top-sum) - even - (1 - c.Attr.Smoothing)))
		}
	}}}, nil
}

// logSumExp returns top = max v and sum = log Σ exp(v − top) over the values v of row, so
// that log Σ exp(v) is top + sum.
func logSumExp(row []float32) (top, sum float64) {
	top = float64(slices.Max(row))
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	return top, math.Log(sum)
}
