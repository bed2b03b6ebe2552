package selftest

import (
	"errors"
	"fmt"
	"math"

	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/plan"
)

// checkFusedStatistics checks convolutions that compute statistics for the batch norm after
// them. It compares the statistics of each plan with the plan's own result.
func (t *tester) checkFusedStatistics() error {
	const name = "conv with the statistics of its batch norm"
	if t.precision != "fp16" || !t.isSelected(name) {
		return nil
	}
	for _, s := range [][]int{{2, 16, 9, 13, 24, 3}, {3, 64, 16, 16, 32, 1}, {4, 24, 7, 7, 72, 3}} {
		c := Check{Name: name, Shape: fmt.Sprintf("%d×%d×%d×%d to %d, window %d", s[0], s[1], s[2], s[3], s[4], s[5]), Bound: 1e-3}
		if err := t.checkPlanStatistics(&c, s); err != nil {
			if err := t.addFailure(c, err); err != nil {
				return err
			}
			continue
		}
		t.addCheck(c)
	}
	return nil
}

func newBatchNormProgram(s []int) *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 2}
	add := func(role plan.TensorRole, name string, shape ...int) int {
		return workload.AddTensor(p, role, name, shape)
	}
	n, c, h, w, k, window := s[0], s[1], s[2], s[3], s[4], s[5]
	x, weights := add(plan.Input, "in0", n, c, h, w), add(plan.Input, "in1", k, c, window, window)
	gamma, beta := add(plan.Input, "in2", k), add(plan.Input, "in3", k)
	mean, variance := add(plan.State, "in4", k), add(plan.State, "in5", k)
	raw := add(plan.Activation, "raw", n, k, h, w)
	y := add(plan.Output, "out0", n, k, h, w)
	saved, invstd := add(plan.Activation, "saved", k), add(plan.Activation, "invstd", k)
	p.Kernels = []plan.Kernel{
		{Op: plan.OpConv, Name: "conv", In: []int{x, weights}, Out: []int{raw}, Attr: plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{window / 2, window / 2}}},
		{
			Op: plan.OpBatchNorm, Name: "norm", In: []int{raw, gamma, beta, mean, variance}, Out: []int{y, saved, invstd},
			Attr: plan.KernelAttr{Training: true, ReLU: true, Epsilon: normEpsilon, Momentum: 0.1},
		},
	}
	workload.SetLifetimes(p)
	return p
}

func (t *tester) checkPlanStatistics(c *Check, s []int) error {
	loaded, err := t.engine.Load(newBatchNormProgram(s), nil)
	if err != nil {
		return err
	}
	x := loaded.(probe.Executable)
	defer func() { _ = x.Close() }()
	p := x.Program()
	for i, id := range p.Inputs {
		v := t.roundToPrecision(t.randomNumbers(p.Tensors[id].Elements()))
		if err := x.SetInput(operandName("in", i), v); err != nil {
			return err
		}
	}
	if _, err := x.Step(t.ctx, nil, nil); err != nil { // prepares the operands
		return err
	}
	c.Kernels = t.recordKernels(x.LaunchedKernels())
	plans, fused := 0, 0
	all, err := x.RunPlans(plan.OpConv, func(p probe.PlanResult) error {
		if p.Err == nil && p.FurtherOutputs["mean"] == nil {
			return errors.New("the convolution computed no statistics")
		}
		plans++
		if p.Fused {
			fused++
		}
		t.addPlanMismatch(c, p, statisticsMismatch(p, s[4], s[2]*s[3]))
		return t.ctx.Err()
	})
	if err = errors.Join(err, all.NoPlan); err != nil {
		return err
	}
	if c.Detail == "" {
		c.Detail = fmt.Sprintf("%d plans, %d of them in one graph", plans, fused) + describeMissingPlans(all.Missing)
	}
	return nil
}

// statisticsMismatch returns the mismatch between the statistics that a plan computed (mean
// and 1/standard deviation per channel) and the statistics of the plan's result.
func statisticsMismatch(p probe.PlanResult, channels, points int) float64 {
	mean, invstd := make([]float64, channels), make([]float64, channels)
	n := float64(len(p.Result) / channels)
	for i, g := range p.Result {
		mean[i/points%channels] += g / n
	}
	for i, g := range p.Result {
		d := g - mean[i/points%channels]
		invstd[i/points%channels] += d * d / n
	}
	for i := range invstd {
		invstd[i] = 1 / math.Sqrt(invstd[i]+normEpsilon)
	}
	return max(maxRelativeError(p.FurtherOutputs["mean"], mean), maxRelativeError(p.FurtherOutputs["invstd"], invstd))
}

const normEpsilon = 1e-5
