package cuda

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/plan"
)

// statistics checks the convolutions that sum up for the batch norm behind them: each
// plan's mean and deviation, against those of the result that the same plan wrote.
func (t *tester) statistics() error {
	const name = "conv with the statistics of its batch norm"
	if t.precision != "fp16" || !t.wanted(name) {
		return nil
	}
	for _, s := range [][]int{{2, 16, 9, 13, 24, 3}, {3, 64, 16, 16, 32, 1}, {4, 24, 7, 7, 72, 3}} {
		c := Check{Name: name, Shape: fmt.Sprintf("%d×%d×%d×%d to %d, window %d", s[0], s[1], s[2], s[3], s[4], s[5]), Bound: 1e-3}
		if err := t.statisticsOf(&c, s); err != nil {
			if err := t.failed(c, err); err != nil {
				return err
			}
			continue
		}
		t.add(c)
	}
	return nil
}

// declare adds a tensor to p.
func declare(p *plan.Program, role plan.Role, name string, shape []int) int {
	p.Tensors = append(p.Tensors, plan.Tensor{Name: name, Shape: shape, Role: role})
	id := len(p.Tensors) - 1
	switch role {
	case plan.Input:
		p.Inputs = append(p.Inputs, id)
	case plan.State:
		p.States = append(p.States, id)
	case plan.Output:
		p.Outputs = append(p.Outputs, id)
	}
	return id
}

// normedProgram is a convolution and a batch norm in training behind it.
func normedProgram(s []int) *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 2}
	add := func(role plan.Role, name string, shape ...int) int { return declare(p, role, name, shape) }
	n, c, h, w, k, window := s[0], s[1], s[2], s[3], s[4], s[5]
	x, weights := add(plan.Input, "in0", n, c, h, w), add(plan.Input, "in1", k, c, window, window)
	gamma, beta := add(plan.Input, "in2", k), add(plan.Input, "in3", k)
	mean, variance := add(plan.State, "in4", k), add(plan.State, "in5", k)
	raw := add(plan.Activation, "raw", n, k, h, w)
	y := add(plan.Output, "out0", n, k, h, w)
	saved, invstd := add(plan.Activation, "saved", k), add(plan.Activation, "invstd", k)
	p.Kernels = []plan.Kernel{
		{Op: plan.OpConv, Name: "conv", In: []int{x, weights}, Out: []int{raw}, Attr: plan.Attr{Stride: []int{1, 1}, Pad: []int{window / 2, window / 2}}},
		{
			Op: plan.OpBatchNorm, Name: "norm", In: []int{raw, gamma, beta, mean, variance}, Out: []int{y, saved, invstd},
			Attr: plan.Attr{Training: true, ReLU: true, Epsilon: 1e-5, Momentum: 0.1},
		},
	}
	live(p)
	return p
}

// live notes the first and the last kernel that touch each tensor of p.
func live(p *plan.Program) {
	for id := range p.Tensors {
		p.Tensors[id].First, p.Tensors[id].Last = -1, -1
	}
	for at, k := range p.Kernels {
		for _, id := range slices.Concat(k.In, k.Out) {
			if q := &p.Tensors[id]; q.First < 0 {
				q.First, q.Last = at, at
			} else {
				q.Last = at
			}
		}
	}
}

func (t *tester) statisticsOf(c *Check, s []int) error {
	loaded, err := t.engine.Load(normedProgram(s), nil)
	if err != nil {
		return err
	}
	x := loaded.(*executable) // this engine's own
	defer func() { _ = x.Close() }()
	for i, id := range x.program.Inputs {
		v := t.rounded(t.normal(x.program.Tensors[id].Elements()))
		if err := x.SetInput(operandName("in", i), v); err != nil {
			return err
		}
	}
	if _, err := x.Step(t.ctx, nil, nil); err != nil { // brings the operands into place
		return err
	}
	c.Kernels = t.launched(x.ofExecutable()...)
	fused := 0
	err = x.do(func() error {
		task := x.tasks[0]
		if task.stats == nil {
			return fmt.Errorf("the convolution leaves no statistics")
		}
		conv, _ := x.asConvolution(task)
		list, err := x.variants(task, conv)
		if err != nil {
			return err
		}
		all, missing, err := x.candidates(conv, list, cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
		if err != nil {
			return err
		}
		for _, one := range all {
			if one.plan.Workspace > tuneLimit {
				err = firstOf(err, one.plan.Close())
				continue
			}
			if len(list[one.variant].ops) > 1 {
				fused++
			}
			off, runErr := x.statisticsOff(one, list[one.variant], task)
			t.launched(list[one.variant].after)
			if runErr != nil {
				err = firstOf(err, fmt.Errorf("%s: %w", one.plan, runErr))
			} else if c.Error = max(c.Error, off); !(off <= c.Bound) {
				c.Detail = fmt.Sprintf("off is %s", one.plan)
			}
			err = firstOf(err, one.plan.Close())
		}
		if err == nil && c.Detail == "" {
			c.Detail = fmt.Sprintf("%d plans, %d of them in one graph", len(all), fused)
			if missing != nil {
				c.Detail += fmt.Sprintf("; without %v", missing)
			}
		}
		return err
	})
	return err
}

// statisticsOff runs a plan with what belongs behind it, and says how far its mean and
// 1/deviation are from those of what it wrote.
func (x *executable) statisticsOff(c candidate, v variant, t task) (float64, error) {
	got, err := x.runPlan(c, v, x.places[t.out[0]], x.address(t.out[0]))
	if err != nil {
		return 0, err
	}
	p := x.places[t.out[0]]
	channels, points := p.channels(), p.points()
	mean, invstd := make([]float64, channels), make([]float64, channels)
	n := float64(len(got) / channels)
	for i, g := range got {
		mean[i/points%channels] += g / n
	}
	for i, g := range got {
		d := g - mean[i/points%channels]
		invstd[i/points%channels] += d * d / n
	}
	for i := range invstd {
		invstd[i] = 1 / math.Sqrt(invstd[i]+t.stats.epsilon)
	}
	off := 0.0
	for id, want := range map[int][]float64{t.stats.mean: mean, t.stats.invstd: invstd} {
		memory, err := x.gpu.read(x.address(id), int64(4*channels))
		if err != nil {
			return 0, err
		}
		values := decode(x.places[id].typ, memory)
		have := make([]float64, channels)
		for i := range have {
			have[i] = float64(values[i])
		}
		off = max(off, mismatch(have, want))
	}
	return off, nil
}
