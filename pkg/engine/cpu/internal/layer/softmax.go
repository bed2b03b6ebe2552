package layer

import (
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/plan"
)

// softmax prepares the cross-entropy of class indexes, or its gradient. Each row of
// logits is computed by one worker in float64, since there are few.
func (x *Builder) softmax(c Call) ([]threads.Task, error) {
	z, t := c.Inputs[0], c.Inputs[1]
	if len(z.Logical) != 2 || z.Layout != tensor.ActivationLayout || !slices.Equal(t.Logical, []int{z.Logical[0], 1}) || t.Layout != tensor.ActivationLayout {
		return nil, c.errorf("it takes logits [n,classes] and class indexes [n,1]")
	}
	n, classes := z.Logical[0], z.Logical[1]
	stride := tensor.Blocks(classes) * lanes
	even := c.Attr.Smoothing / float64(classes) // probability that smoothing adds to each class
	if c.Op == plan.OpSoftmaxCrossEntropy {
		loss := c.Outputs[0]
		if !loss.IsVector(1) {
			return nil, c.errorf("it writes [1]")
		}
		parts := make([]float64, n)
		return []threads.Task{{Items: n, Run: func(_ *threads.Worker, lo, hi int) {
			for i := lo; i < hi; i++ {
				row := z.Data[i*stride:][:classes]
				top, sum := logSum(row)
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
		return nil, c.errorf("it takes the loss's gradient [1] too and writes a tensor of the logits' shape")
	}
	return []threads.Task{{Items: n, Run: func(_ *threads.Worker, lo, hi int) {
		scale := float64(dloss.Data[0]) / float64(n)
		for i := lo; i < hi; i++ {
			row, to := z.Data[i*stride:][:classes], dz.Data[i*stride:][:stride]
			clear(to[classes:])
			top, sum := logSum(row)
			for j, v := range row {
				to[j] = float32(scale * (math.Exp(float64(v)-top-sum) - even))
			}
			class := int(t.Data[i*lanes])
			to[class] = float32(scale * (math.Exp(float64(row[class])-top-sum) - even - (1 - c.Attr.Smoothing)))
		}
	}}}, nil
}

// logSum returns the greatest value of row, and log Σ exp(v − top) over its values v.
func logSum(row []float32) (top, sum float64) {
	top = float64(slices.Max(row))
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	return top, math.Log(sum)
}
