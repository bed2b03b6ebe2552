package cuda

import (
	"fmt"
	"math"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/plan"
)

// residuals checks convolutions with a bias and a map that is added to their result, and
// data gradients that are added to another one, which cuDNN may do in one graph: each of
// its plans, and ours behind its convolution.
func (t *tester) residuals() error {
	for _, s := range [][]int{{2, 16, 9, 13, 24}, {3, 21, 7, 5, 13}} {
		y := []int{s[0], s[4], s[2], s[3]}
		for _, o := range []operation{
			{
				name: "conv with bias and a residual sum", op: plan.OpConv, attr: plan.Attr{Stride: []int{1, 1}, Pad: []int{1, 1}},
				in: [][]int{s[:4], {s[4], s[1], 3, 3}, {s[4]}, y}, out: [][]int{y}, bound: t.terms(9*s[1], 2),
			},
			{
				name: "conv backward data added to another", op: plan.OpConvBackwardData, attr: plan.Attr{Stride: []int{1, 1}, Pad: []int{1, 1}},
				in: [][]int{{s[4], s[1], 3, 3}, y, s[:4]}, out: [][]int{s[:4]}, bound: t.terms(9*s[4], 2),
			},
		} {
			if !t.wanted(o.title()) {
				continue
			}
			// The last operand is what a kernel of its own adds in the program.
			p := o.program()
			k := &p.Kernels[0]
			other := k.In[len(k.In)-1]
			k.In = k.In[:len(k.In)-1]
			if err := t.followed(o, p, plan.Kernel{Op: plan.OpAdd, Name: "layer", In: []int{other, k.Out[0]}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// normedGradients is a batch norm with ReLU and a convolution behind it with its gradients: what
// cuDNN may do in three graphs. The outputs are the convolution's result, and the gradients
// of its weights, of x, gamma and beta.
func normedGradients(s []int) *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 2}
	add := func(role plan.Role, name string, shape ...int) int { return declare(p, role, name, shape) }
	n, c, h, w, k, window, stride := s[0], s[1], s[2], s[3], s[4], s[5], s[6]
	attr := plan.Attr{Stride: []int{stride, stride}, Pad: []int{window / 2, window / 2}}
	norm := plan.Attr{Training: true, ReLU: true, Epsilon: 1e-5, Momentum: 0.1}
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
	live(p)
	return p
}

// normGraphs checks the convolutions that apply the batch norm in front of them, and the data
// gradients that sum for it: every plan, with what it leaves beside its result.
func (t *tester) normGraphs() error {
	if t.precision != "fp16" {
		return nil
	}
	for _, s := range [][]int{{2, 16, 9, 13, 24, 3, 1}, {3, 64, 16, 16, 32, 1, 1}, {2, 21, 11, 8, 13, 3, 2}, {2, 24, 7, 7, 72, 1, 2}} {
		shape := fmt.Sprintf("%d×%d×%d×%d to %d, window %d, stride %d", s[0], s[1], s[2], s[3], s[4], s[5], s[6])
		checks := []Check{
			{Name: "conv behind a norm, with statistics", Shape: shape, Bound: t.terms(s[5]*s[5]*s[1], 4)},
			{Name: "conv backward weights behind a norm", Shape: shape, Bound: t.terms(s[0]*s[2]*s[3], 4)},
			{Name: "conv backward data with the sums of a norm's gradient", Shape: shape, Bound: t.terms(s[5]*s[5]*s[4], 4)},
		}
		if !t.wanted(checks[0].Name) && !t.wanted(checks[1].Name) && !t.wanted(checks[2].Name) {
			continue
		}
		if err := t.normsOf(s, checks); err != nil {
			return err
		}
	}
	return nil
}

// normsOf checks a program of normedGradients: as it is run, then each plan of the three.
func (t *tester) normsOf(s []int, checks []Check) (err error) {
	p := normedGradients(s)
	values := map[string][]float32{}
	for _, q := range p.Tensors {
		v := t.normal(q.Elements())
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
			return t.failed(checks[0], err)
		}
		defer func() { err = firstOf(err, x.Close()) }()
		if all[i], err = t.outputs(x, values); err != nil {
			return t.failed(checks[0], err)
		}
		if ours, ok := x.(*executable); ok {
			off := 0.0
			for i, want := range all[0] {
				off = max(off, mismatch(all[1][i], want))
			}
			t.add(Check{
				Name: "norm, conv and their gradients", Shape: checks[0].Shape, Error: off, Bound: checks[0].Bound,
				Kernels: t.launched(ours.ofExecutable()...), Detail: fmt.Sprintf("%d of %d norms part of the convolution", ours.folded(), len(ours.prologues)),
			})
			for _, c := range checks {
				if !t.wanted(c.Name) {
					continue
				}
				if err := ours.do(func() error { return t.normPlans(ours, &c, all[0]) }); err != nil {
					if err := t.failed(c, err); err != nil {
						return err
					}
					continue
				}
				t.add(c)
			}
		}
	}
	return nil
}

// outputs feeds a program, steps and reads all outputs.
func (t *tester) outputs(x engine.Executable, values map[string][]float32) (all [][]float64, err error) {
	if ours, ok := x.(*executable); ok {
		if err := ours.poisonAll(); err != nil {
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
		if err := x.Set(p.Tensors[id].Name, widened(values[p.Tensors[id].Name])); err != nil {
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
		all = append(all, widened(v))
	}
	return all, nil
}

// normPlans runs every plan of one of the three graphs behind the batch norm's own
// kernels, into results full of NaN.
func (t *tester) normPlans(x *executable, c *Check, want [][]float64) error {
	site := x.prologues[0]
	was := site.on
	defer func() { site.on = was }()
	site.on = true
	norm, err := x.compile(x.tasks[site.norm])
	if err != nil {
		return err
	}
	if err := x.gpu.runAll(norm, x.gpu.compute); err != nil {
		return err
	}
	t.launched(norm)
	for i, task := range x.tasks {
		conv, ok := x.asConvolution(task)
		switch {
		case !ok, conv.relation == forward && c.Name != "conv behind a norm, with statistics",
			conv.relation == filterGrad && c.Name != "conv backward weights behind a norm",
			conv.relation == dataGrad && c.Name != "conv backward data with the sums of a norm's gradient":
			continue
		}
		var list []variant
		if conv.relation == dataGrad {
			list, err = x.variants(task, conv)
			list = list[min(1, len(list)):] // cuDNN's graph, not its convolution alone
		} else {
			list, err = x.withPrologue(task, conv)
		}
		if err != nil {
			return err
		}
		candidates, missing, err := x.candidates(conv, list, cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
		if err != nil {
			c.Detail = "not there: " + err.Error() // as the engine does without
			return x.gpu.lost
		}
		for _, one := range candidates {
			if one.plan.Workspace <= tuneLimit {
				off, runErr := t.normPlan(x, i, one, list[one.variant], norm, want)
				if runErr != nil {
					err = firstOf(err, fmt.Errorf("%s: %w", one.plan, runErr))
				} else if c.Error = max(c.Error, off); !(off <= c.Bound) {
					c.Detail = fmt.Sprintf("off is %s", one.plan)
				}
			}
			err = firstOf(err, one.plan.Close())
		}
		if err != nil {
			return err
		}
		if c.Detail == "" {
			c.Detail = fmt.Sprintf("%d plans", len(candidates))
			if missing != nil {
				c.Detail += fmt.Sprintf("; without %v", missing)
			}
		}
	}
	return nil
}

// normPlan runs one plan for a task and says how far off its results are, those that it
// leaves beside its first included.
func (t *tester) normPlan(x *executable, i int, one candidate, v variant, norm []command, want [][]float64) (float64, error) {
	if err := x.gpu.runAll(norm, x.gpu.compute); err != nil {
		return 0, err
	}
	task := x.tasks[i]
	var beside []int
	if task.sums != nil {
		beside = []int{task.sums.dgamma, task.sums.dbeta}
	} else if sums, ok := task.prologue.unwanted[task.out[0]]; ok {
		beside = sums[:]
	}
	for _, id := range beside {
		if err := x.gpu.driver.MemsetD8Async(x.address(id), 0xff, int64(x.places[id].bytes()), x.gpu.compute); err != nil {
			return 0, x.gpu.failed(err)
		}
	}
	got, err := x.runPlan(one, v, x.places[task.out[0]], x.address(task.out[0]))
	if err != nil {
		return 0, err
	}
	t.launched(v.after)
	var vectors [][]float64
	for _, id := range beside {
		memory, err := x.gpu.read(x.address(id), int64(x.places[id].bytes()))
		if err != nil {
			return 0, err
		}
		vectors = append(vectors, widened(decode(x.places[id].typ, memory))[:x.places[id].channels()])
	}
	switch {
	case task.op == plan.OpConvBackwardWeights:
		return mismatch(got, want[1]), nil
	case task.sums == nil:
		p := x.places[task.out[0]]
		sums, squares := make([]float64, p.channels()), make([]float64, p.channels())
		for j, g := range got {
			sums[j/p.points()%p.channels()] += g
			squares[j/p.points()%p.channels()] += g * g
		}
		return max(mismatch(got, want[0]), mismatch(vectors[0], sums), mismatch(vectors[1], squares)), nil
	}
	// The gradient went through ReLU: what the batch norm makes of it counts.
	for j := range x.tasks {
		if x.tasks[j].op == plan.OpBatchNormBackward {
			if err := x.gpu.runAll(x.steps[j], x.gpu.compute); err != nil {
				return 0, err
			}
		}
	}
	dx := x.program.Outputs[2]
	memory, err := x.gpu.read(x.address(dx), int64(x.places[dx].bytes()))
	if err != nil {
		return 0, err
	}
	made := make([]float64, elements(x.places[dx].shape))
	unpack(x.places[dx].layout, made, decode(x.places[dx].typ, memory))
	return max(mismatch(made, want[2]), mismatch(vectors[0], want[3]), mismatch(vectors[1], want[4])), nil
}
