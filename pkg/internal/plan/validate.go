package plan

import (
	"fmt"
	"slices"
)

// arity contains the valid numbers of an operation's inputs (in to inMax) and outputs (out to
// outMax).
type arity struct{ in, inMax, out, outMax int }

var arities = map[Op]arity{
	OpConv:                         {2, 3, 1, 1},
	OpConvBackwardData:             {2, 2, 1, 1},
	OpConvBackwardWeights:          {2, 2, 1, 1},
	OpConvTranspose:                {2, 3, 1, 1},
	OpConvTransposeBackwardData:    {2, 2, 1, 1},
	OpConvTransposeBackwardWeights: {2, 2, 1, 1},
	OpBiasBackward:                 {1, 1, 1, 1},
	OpBatchNorm:                    {5, 5, 1, 3},
	OpBatchNormBackward:            {5, 7, 3, 3},
	OpReLU:                         {1, 1, 1, 1},
	OpReLUBackward:                 {2, 2, 1, 1},
	OpMaxPool:                      {1, 1, 1, 1},
	OpMaxPoolBackward:              {3, 3, 1, 1},
	OpConcat:                       {2, 2, 1, 1},
	OpSlice:                        {1, 1, 1, 1},
	OpAdd:                          {2, 2, 1, 1},
	OpBCEWithLogits:                {2, 2, 1, 1},
	OpBCEWithLogitsBackward:        {3, 3, 1, 1},
	OpAvgPool:                      {1, 1, 1, 1},
	OpAvgPoolBackward:              {1, 1, 1, 1},
	OpGlobalAvgPool:                {1, 1, 1, 1},
	OpGlobalAvgPoolBackward:        {1, 1, 1, 1},
	OpLinear:                       {2, 3, 1, 1},
	OpLinearBackwardData:           {2, 2, 1, 1},
	OpLinearBackwardWeights:        {2, 2, 1, 1},
	OpReshape:                      {1, 1, 1, 1},
	OpCast:                         {1, 1, 1, 1},
	OpPad:                          {1, 1, 1, 1},
	OpPadBackward:                  {1, 1, 1, 1},
	OpLeakyReLU:                    {1, 1, 1, 1},
	OpLeakyReLUBackward:            {2, 2, 1, 1},
	OpTanh:                         {1, 1, 1, 1},
	OpTanhBackward:                 {2, 2, 1, 1},
	OpSoftmaxCrossEntropy:          {2, 2, 1, 1},
	OpSoftmaxCrossEntropyBackward:  {3, 3, 1, 1},
	OpDiceBCE:                      {2, 2, 1, 1},
	OpDiceBCEBackward:              {3, 3, 1, 1},
	OpPixelCrossEntropy:            {2, 2, 1, 1},
	OpPixelCrossEntropyBackward:    {3, 3, 1, 1},
	OpL1:                           {2, 2, 1, 1},
	OpL1Backward:                   {3, 3, 1, 1},
}

// Validate returns an error for the first inconsistency of p that an engine could not
// handle. Examples are a tensor that is read before it is written, a tensor that is written
// twice, shapes that are invalid for an operation, and a gradient in no bucket.
func Validate(p *Program) error {
	for _, check := range []func(*Program) error{validateTensors, validateKernels, validateBuckets} {
		if err := check(p); err != nil {
			return fmt.Errorf("validate program: %w", err)
		}
	}
	return nil
}

// validateTensors checks all shapes, and the roles of inputs, states, outputs and loss.
func validateTensors(p *Program) error {
	for id, t := range p.Tensors {
		if len(t.Shape) == 0 || slices.Min(t.Shape) < 1 {
			return fmt.Errorf("tensor %d (%s) has invalid shape %v: want one dimension or more, each at least 1", id, t.Name, t.Shape)
		}
	}
	lists := []struct {
		what string
		role TensorRole
		ids  []int
	}{{"input", Input, p.Inputs}, {"state", State, p.States}, {"output", Output, p.Outputs}}
	for _, l := range lists {
		for _, id := range l.ids {
			if id < 0 || id >= len(p.Tensors) || p.Tensors[id].Role != l.role {
				return fmt.Errorf("the list of %ss contains tensor %d, which does not exist or has another role", l.what, id)
			}
		}
	}
	if p.Loss >= len(p.Tensors) || p.Loss >= 0 && p.Tensors[p.Loss].Elements() != 1 {
		return fmt.Errorf("loss (tensor %d) is not a scalar", p.Loss)
	}
	return nil
}

// validateKernels checks that each tensor is written before it is read, and that the lifetimes
// are correct.
func validateKernels(p *Program) error {
	written := make([]bool, len(p.Tensors))
	first := make([]int, len(p.Tensors))
	last := make([]int, len(p.Tensors))
	for id, t := range p.Tensors {
		first[id], last[id] = -1, -1
		written[id] = t.Role == Input || t.Role == Parameter || t.Role == State || t.Role == Constant
	}
	touch := func(id, at int) {
		if first[id] < 0 {
			first[id] = at
		}
		last[id] = at
	}
	for at, k := range p.Kernels {
		if k.Backward != (at >= p.Forward) {
			return fmt.Errorf("kernel %d (%s) is in the wrong pass: the backward pass starts at kernel %d", at, k.Op, p.Forward)
		}
		a, ok := arities[k.Op]
		if !ok {
			return fmt.Errorf("kernel %d: unknown operation %q", at, k.Op)
		}
		if len(k.In) < a.in || len(k.In) > a.inMax || len(k.Out) < a.out || len(k.Out) > a.outMax {
			return fmt.Errorf("kernel %d (%s): got %d inputs and %d outputs, want %d to %d inputs and %d to %d outputs", at, k.Op, len(k.In), len(k.Out), a.in, a.inMax, a.out, a.outMax)
		}
		for _, id := range k.In {
			if id < 0 || id >= len(p.Tensors) || !written[id] {
				return fmt.Errorf("kernel %d (%s) reads tensor %d before it is written", at, k.Op, id)
			}
			touch(id, at)
		}
		for _, id := range k.Out {
			if id == -1 {
				continue
			}
			if id < 0 || id >= len(p.Tensors) || written[id] {
				return fmt.Errorf("kernel %d (%s) writes tensor %d, which an earlier kernel has written", at, k.Op, id)
			}
			written[id] = true
			touch(id, at)
		}
		if err := validateShapes(p, k); err != nil {
			return fmt.Errorf("kernel %d (%s %s): %w", at, k.Op, k.Name, err)
		}
	}
	for id, t := range p.Tensors {
		if !written[id] {
			return fmt.Errorf("tensor %d (%s) is never written", id, t.Name)
		}
		if t.First != first[id] || t.Last != last[id] {
			return fmt.Errorf("tensor %d (%s) is used by kernels %d to %d, but its lifetime is %d to %d", id, t.Name, first[id], last[id], t.First, t.Last)
		}
	}
	return nil
}

// validateBuckets checks the buckets, and that each gradient is in exactly one.
func validateBuckets(p *Program) error {
	producer := map[int]int{} // gradient → kernel
	for at, k := range p.Kernels {
		for _, id := range k.Out {
			if id >= 0 && p.Tensors[id].Role == Gradient {
				producer[id] = at
			}
		}
		for _, id := range k.In {
			if p.Tensors[id].Role == Gradient {
				return fmt.Errorf("kernel %d (%s) reads the gradient of %s, which may have been reduced already", at, k.Op, p.Tensors[id].Name)
			}
		}
	}
	ready, grouped := -1, 0
	for i, b := range p.Buckets {
		latest, bytes := -1, 0
		for _, j := range b.Params {
			if j < 0 || j >= len(p.Params) || p.Params[j].Bucket != i {
				return fmt.Errorf("bucket %d: parameter %d does not exist or is assigned to another bucket", i, j)
			}
			g := p.Params[j].Grad
			at, ok := producer[g]
			if !ok || at < latest {
				return fmt.Errorf("bucket %d: the gradient of %s is never written, or not in the order of the bucket", i, p.Params[j].Name)
			}
			latest = at
			bytes += 4 * p.Tensors[g].Elements()
			grouped++
		}
		if b.Ready != latest || latest < ready || bytes != b.Bytes {
			return fmt.Errorf("bucket %d is marked ready after kernel %[4]d with %[5]d bytes, want kernel %[2]d and %[3]d bytes", i, latest, bytes, b.Ready, b.Bytes)
		}
		ready = latest
	}
	backward := len(p.Kernels) > p.Forward
	for _, q := range p.Params {
		switch {
		case backward && q.Grad < 0:
			return fmt.Errorf("parameter %s has no gradient", q.Name)
		case !backward && q.Grad >= 0:
			return fmt.Errorf("parameter %s has a gradient, but the plan has no backward pass", q.Name)
		case backward && !slices.Equal(p.Tensors[q.Grad].Shape, p.Tensors[q.Tensor].Shape):
			return fmt.Errorf("parameter %s has shape %v, but its gradient has shape %v", q.Name, p.Tensors[q.Tensor].Shape, p.Tensors[q.Grad].Shape)
		}
	}
	if backward && grouped != len(p.Params) {
		return fmt.Errorf("only %d of %d gradients are in buckets", grouped, len(p.Params))
	}
	return nil
}
