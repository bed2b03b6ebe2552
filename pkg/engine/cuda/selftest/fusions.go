package selftest

import (
	"errors"
	"fmt"
	"math"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/plan"
)

// checkResidualFusions checks convolutions with a bias and a residual sum, and data gradients
// that are added to another gradient. For each it checks all cuDNN plans that compute
// everything in one graph, and a plain convolution followed by the engine's own kernels.
func (t *tester) checkResidualFusions() error {
	for _, s := range [][]int{{2, 16, 9, 13, 24}, {3, 21, 7, 5, 13}} {
		y := []int{s[0], s[4], s[2], s[3]}
		for _, o := range []operation{
			{
				name: "conv with bias and a residual sum", op: plan.OpConv, attr: plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}},
				in: [][]int{s[:4], {s[4], s[1], 3, 3}, {s[4]}, y}, out: [][]int{y}, bound: t.sumErrorBound(9*s[1], 2),
			},
			{
				name: "conv backward data added to another", op: plan.OpConvBackwardData, attr: plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}},
				in: [][]int{{s[4], s[1], 3, 3}, y, s[:4]}, out: [][]int{s[:4]}, bound: t.sumErrorBound(9*s[4], 2),
			},
		} {
			if !t.isSelected(o.title()) {
				continue
			}
			// In the program, a separate kernel adds the last operand.
			p := o.newProgram()
			k := &p.Kernels[0]
			other := k.In[len(k.In)-1]
			k.In = k.In[:len(k.In)-1]
			if err := t.checkFusedKernels(o, p, plan.Kernel{Op: plan.OpAdd, Name: "layer", In: []int{other, k.Out[0]}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// newBatchNormGradientProgram returns a program with a batch norm, ReLU, a convolution and their
// gradients. For the graph of the data gradient, cuDNN may also compute the sums of the batch
// norm's gradient. The outputs are the result of the convolution and the gradients of its
// weights, of x, gamma and beta.
func newBatchNormGradientProgram(s []int) *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 2}
	add := func(role plan.TensorRole, name string, shape ...int) int {
		return workload.AddTensor(p, role, name, shape)
	}
	n, c, h, w, k, window, stride := s[0], s[1], s[2], s[3], s[4], s[5], s[6]
	attr := plan.KernelAttr{Stride: []int{stride, stride}, Pad: []int{window / 2, window / 2}}
	norm := plan.KernelAttr{Training: true, ReLU: true, Epsilon: 1e-5, Momentum: 0.1}
	oh, ow := (h-1)/stride+1, (w-1)/stride+1
	x, gamma, beta := add(plan.Input, "in0", n, c, h, w), add(plan.Input, "in1", c), add(plan.Input, "in2", c)
	weights, dz := add(plan.Input, "in3", k, c, window, window), add(plan.Input, "in4", n, k, oh, ow)
	mean, variance := add(plan.State, "in5", c), add(plan.State, "in6", c)
	y, saved, invstd := add(plan.Activation, "y", n, c, h, w), add(plan.Activation, "saved", c), add(plan.Activation, "invstd", c)
	z := add(plan.Output, "out0", n, k, oh, ow)
	dw, dy := add(plan.Output, "out1", k, c, window, window), add(plan.Activation, "dy", n, c, h, w)
	dx, dgamma, dbeta := add(plan.Output, "out2", n, c, h, w), add(plan.Output, "out3", c), add(plan.Output, "out4", c)
	p.Kernels = []plan.Kernel{
		{Op: plan.OpBatchNorm, Name: "norm", In: []int{x, gamma, beta, mean, variance}, Out: []int{y, saved, invstd}, Attr: norm},
		{Op: plan.OpConv, Name: "conv", In: []int{y, weights}, Out: []int{z}, Attr: attr},
		{Op: plan.OpConvBackwardWeights, Name: "conv", In: []int{y, dz}, Out: []int{dw}, Attr: attr, Backward: true},
		{Op: plan.OpConvBackwardData, Name: "conv", In: []int{weights, dz}, Out: []int{dy}, Attr: attr, Backward: true},
		{Op: plan.OpBatchNormBackward, Name: "norm", In: []int{x, gamma, saved, invstd, dy, y, beta}, Out: []int{dx, dgamma, dbeta}, Attr: norm, Backward: true},
	}
	workload.SetLifetimes(p)
	return p
}

// checkNormGradientGraphs checks, with every plan, data gradients that also compute the sums
// for the gradient of the batch norm before the convolution.
func (t *tester) checkNormGradientGraphs() error {
	if t.precision != "fp16" {
		return nil
	}
	for _, s := range [][]int{{2, 16, 9, 13, 24, 3, 1}, {3, 64, 16, 16, 32, 1, 1}, {2, 21, 11, 8, 13, 3, 2}, {2, 24, 7, 7, 72, 1, 2}} {
		c := Check{
			Name:  "conv backward data with the sums of a norm's gradient",
			Shape: fmt.Sprintf("%d×%d×%d×%d to %d, window %d, stride %d", s[0], s[1], s[2], s[3], s[4], s[5], s[6]),
			Bound: t.sumErrorBound(s[5]*s[5]*s[4], 4),
		}
		if !t.isSelected(c.Name) {
			continue
		}
		if err := t.checkNormGradientProgram(s, c, t.sumErrorBound(s[5]*s[5]*s[1], 4)); err != nil {
			return err
		}
	}
	return nil
}

// checkNormGradientProgram checks a program of newBatchNormGradientProgram. It first runs it as a step,
// whose error must be at most bound, and then each plan of the data gradient.
func (t *tester) checkNormGradientProgram(s []int, c Check, bound float64) (err error) {
	p := newBatchNormGradientProgram(s)
	values := map[string][]float32{}
	for _, q := range p.Tensors {
		v := t.randomNumbers(q.Elements())
		if q.Role == plan.State {
			for i := range v {
				v[i] = float32(math.Abs(float64(v[i])))
			}
		}
		values[q.Name] = v
	}
	var all [2][][]float64
	for i, e := range []engine.Engine{t.truth, t.engine} {
		x, err := e.Load(p, nil)
		if err != nil {
			return t.addFailure(c, err)
		}
		defer func() { err = errors.Join(err, x.Close()) }()
		if all[i], err = t.runProgram(x, values); err != nil {
			return t.addFailure(c, err)
		}
		ours, ok := x.(probe.Executable)
		if !ok {
			continue
		}
		off := 0.0
		for i, want := range all[0] {
			off = max(off, maxRelativeError(all[1][i], want))
		}
		t.addCheck(Check{Name: "norm, conv and their gradients", Shape: c.Shape, Error: off, Bound: bound, Kernels: t.recordKernels(ours.LaunchedKernels())})
		if err := t.checkNormGradientPlans(ours, &c, all[0]); err != nil {
			return t.addFailure(c, err)
		}
		t.addCheck(c)
	}
	return nil
}

// runProgram sets the inputs of a program, runs a step, and returns all outputs.
func (t *tester) runProgram(x engine.Executable, values map[string][]float32) (all [][]float64, err error) {
	if ours, ok := x.(probe.Executable); ok {
		if err := ours.FillWithNaN(); err != nil {
			return nil, err
		}
	}
	p := x.Program()
	for _, id := range p.Inputs {
		if err := x.SetInput(p.Tensors[id].Name, values[p.Tensors[id].Name]); err != nil {
			return nil, err
		}
	}
	for _, id := range p.States {
		if err := x.Set(p.Tensors[id].Name, number.ToFloat64(values[p.Tensors[id].Name])); err != nil {
			return nil, err
		}
	}
	if _, err := x.Step(t.ctx, nil, nil); err != nil {
		return nil, err
	}
	for _, id := range p.Outputs {
		v := make([]float32, p.Tensors[id].Elements())
		if err := x.Output(p.Tensors[id].Name, v); err != nil {
			return nil, err
		}
		all = append(all, number.ToFloat64(v))
	}
	return all, nil
}

// checkNormGradientPlans runs every cuDNN plan that computes the data gradient and the sums of the
// batch norm's gradient in one graph. It compares dx, dgamma and dbeta with want, and sets the
// error and the detail of c.
func (t *tester) checkNormGradientPlans(x probe.Executable, c *Check, want [][]float64) error {
	plans := 0
	all, err := x.RunPlans(plan.OpConvBackwardData, func(p probe.PlanResult) error {
		if !p.Fused {
			return t.ctx.Err() // checked by checkEveryPlan
		}
		plans++
		off := math.Inf(1)
		if p.Err == nil {
			off = max(maxRelativeError(p.FurtherOutputs["dx"], want[2]), maxRelativeError(p.FurtherOutputs["dgamma"], want[3]), maxRelativeError(p.FurtherOutputs["dbeta"], want[4]))
		}
		t.addPlanMismatch(c, p, off)
		return t.ctx.Err()
	})
	if err = errors.Join(err, all.NoPlan); err != nil {
		return err
	}
	if c.Detail == "" {
		c.Detail = fmt.Sprintf("%d plans", plans) + describeMissingPlans(all.Missing)
	}
	return nil
}
