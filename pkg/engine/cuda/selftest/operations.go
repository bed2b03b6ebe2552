package selftest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/plan"
)

// operation is one kernel of a plan as a separate program. Its operands are the program's
// inputs (or states, if state lists them), its results are the outputs.
type operation struct {
	name    string // empty: the name of op
	op      plan.Op
	attr    plan.Attr
	in, out [][]int
	state   []int // indexes in in
	// fill changes the random values of operand i; nil leaves them normally distributed.
	fill func(i int, v []float32, before [][]float32)
	// want returns the expected results; nil: engine/reference computes them.
	want  func(in [][]float64) [][]float64
	bound float64
	plans bool // each of cuDNN's plans is run too
}

func (o operation) String() string {
	var s []string
	for _, shape := range o.in {
		s = append(s, strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", "×"))
	}
	text := strings.Join(s, ", ")
	if len(o.attr.Kernel) > 0 {
		text += fmt.Sprint(" window ", o.attr.Kernel)
	}
	if len(o.attr.Stride) > 0 {
		text += fmt.Sprint(" stride ", o.attr.Stride)
	}
	if len(o.attr.Pad) > 0 {
		text += fmt.Sprint(" pad ", o.attr.Pad)
	}
	return text
}

// title returns the name of the check.
func (o operation) title() string {
	if o.name == "" {
		return string(o.op)
	}
	return o.name
}

// operandName returns the name of operand or result i in the program.
func operandName(kind string, i int) string { return fmt.Sprint(kind, i) }

func (o operation) program() *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 1}
	k := plan.Kernel{Op: o.op, Name: "layer", Attr: o.attr}
	add := func(role plan.Role, name string, shape []int) int {
		p.Tensors = append(p.Tensors, plan.Tensor{Name: name, Shape: shape, Role: role})
		return len(p.Tensors) - 1
	}
	for i, s := range o.in {
		role, list := plan.Input, &p.Inputs
		if slices.Contains(o.state, i) {
			role, list = plan.State, &p.States
		}
		id := add(role, operandName("in", i), s)
		*list, k.In = append(*list, id), append(k.In, id)
	}
	for i, s := range o.out {
		id := add(plan.Output, operandName("out", i), s)
		p.Outputs, k.Out = append(p.Outputs, id), append(k.Out, id)
	}
	p.Kernels = []plan.Kernel{k}
	return p
}

// operations checks every operation of a plan.
func (t *tester) operations() error {
	for _, o := range t.listOperations() {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if !t.wanted(o.title()) {
			continue
		}
		if err := t.operation(o); err != nil {
			return err
		}
	}
	return nil
}

// operation checks one operation on two batches of data, so that a result that was left
// over from the first batch is noticed in the second.
func (t *tester) operation(o operation) error {
	c := Check{Name: o.title(), Shape: o.String(), Bound: o.bound}
	loaded, err := t.engine.Load(o.program(), nil)
	if err != nil {
		return t.failed(c, err)
	}
	x := loaded.(probe.Executable) // the GPU engine's own
	defer func() { _ = x.Close() }()
	var in [][]float32
	var want [][]float64
	for range 2 {
		in = t.operands(o)
		if want, err = t.expected(o, in); err != nil {
			return err
		}
		if err := x.Poison(); err != nil {
			return t.failed(c, err)
		}
		got, err := results(t, x, o, in)
		if err != nil {
			return t.failed(c, err)
		}
		for i := range want {
			c.Error = max(c.Error, mismatch(got[i], want[i]))
		}
		err = x.CheckPadding()
		if err != nil {
			return t.failed(c, err)
		}
	}
	c.Kernels = t.ran(x.Launched())
	t.add(c)
	if o.plans {
		return t.everyPlan(x, o, want[0])
	}
	return nil
}

// operands returns random operands, rounded to the precision, so that the check measures
// only the error of the kernel.
func (t *tester) operands(o operation) [][]float32 {
	var in [][]float32
	for i, shape := range o.in {
		v := t.normal(elements(shape))
		if o.fill != nil {
			o.fill(i, v, in)
		}
		if slices.Contains(o.state, i) {
			for j := range v {
				v[j] = float32(math.Abs(float64(v[j]))) // it may be a variance
			}
		}
		if len(shape) > 1 {
			v = t.rounded(v)
		}
		in = append(in, v)
	}
	return in
}

func (t *tester) expected(o operation, in [][]float32) ([][]float64, error) {
	if o.want != nil {
		var all [][]float64
		for _, v := range in {
			all = append(all, number.Widen(v))
		}
		return o.want(all), nil
	}
	x, err := t.truth.Load(o.program(), nil)
	if err != nil {
		return nil, err
	}
	return results(t, x, o, in)
}

// results runs an operation and returns its outputs, followed by its states.
func results(t *tester, x engine.Executable, o operation, in [][]float32) ([][]float64, error) {
	for i, v := range in {
		var err error
		if slices.Contains(o.state, i) {
			err = x.Set(operandName("in", i), number.Widen(v))
		} else {
			err = x.SetInput(operandName("in", i), v)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := x.Step(t.ctx, nil, nil); err != nil {
		return nil, err
	}
	var all [][]float64
	for i, shape := range o.out {
		v := make([]float32, elements(shape))
		if err := x.Output(operandName("out", i), v); err != nil {
			return nil, err
		}
		wide := number.Widen(v)
		if ours, ok := x.(probe.Executable); ok && scaled(o.op) {
			for j := range wide {
				wide[j] /= ours.GradientScale() // in fp16 the gradients of a loss are scaled
			}
		}
		all = append(all, wide)
	}
	for _, i := range o.state {
		v, err := x.Get(operandName("in", i))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// scaled reports whether op is the gradient of a loss, which is scaled in fp16.
func scaled(op plan.Op) bool {
	return op == plan.OpBCEWithLogitsBackward || op == plan.OpL1Backward || op == plan.OpSoftmaxCrossEntropyBackward || op == plan.OpDiceBCEBackward
}

// everyPlan runs each of cuDNN's plans for x's convolution, with an output filled with NaN:
// tuning may choose any of them. Winograd algorithms, and algorithms that report sums in a
// lower precision, lose some bits: their bound is eight times as large.
func (t *tester) everyPlan(x probe.Executable, o operation, want []float64) error {
	c := Check{Name: o.title() + ", every plan", Shape: o.String(), Bound: o.bound}
	lossy := Check{Name: o.title() + ", every plan with reduced precision", Shape: c.Shape, Bound: 8 * o.bound}
	plans, lossyPlans, fused := 0, 0, 0
	all, err := x.EachPlan(o.op, probe.AllGraphs, func(p probe.Plan) error {
		to, count := &c, &plans
		if p.Reduced {
			to, count = &lossy, &lossyPlans
		}
		*count++
		if p.Fused {
			fused++
		}
		t.compare(to, p, mismatch(p.Result, want))
		return t.ctx.Err()
	})
	if err = errors.Join(err, all.None); err != nil {
		return t.failed(c, err)
	}
	for _, done := range []struct {
		check Check
		plans int
	}{{c, plans}, {lossy, lossyPlans}} {
		if done.plans == 0 && done.check.Name == lossy.Name {
			continue
		}
		if done.check.Detail == "" {
			done.check.Detail = fmt.Sprintf("%d plans", done.plans)
			if all.Fusible {
				done.check.Detail += fmt.Sprintf(", %d of all in one graph", fused)
			}
			done.check.Detail += without(all.Missing)
		}
		t.add(done.check)
	}
	return nil
}

// compare adds the mismatch of one plan to a check.
func (t *tester) compare(c *Check, p probe.Plan, off float64) {
	if p.Err != nil {
		c.Error, c.Detail = math.Inf(1), fmt.Sprintf("%s: %v", p.Name, p.Err)
		return
	}
	t.ran(p.Kernels)
	if c.Error = max(c.Error, off); !(off <= c.Bound) {
		c.Detail = fmt.Sprintf("off is %s", p.Name)
	}
}

// without returns text about graphs that have no plan, or "" if all have one.
func without(missing error) string {
	if missing == nil {
		return ""
	}
	return fmt.Sprintf("; without %v", missing)
}

// fusions checks convolutions with bias and ReLU, which cuDNN may compute in one graph:
// each of its plans, and our kernels after its convolution.
func (t *tester) fusions() error {
	for _, s := range [][]int{{2, 16, 9, 13, 24}, {1, 8, 16, 16, 8}, {3, 21, 7, 5, 13}} {
		o := operation{
			name: "conv with bias and ReLU", op: plan.OpConv, attr: plan.Attr{Stride: []int{1, 1}, Pad: []int{1, 1}},
			in: [][]int{s[:4], {s[4], s[1], 3, 3}, {s[4]}}, out: [][]int{{s[0], s[4], s[2], s[3]}}, bound: t.terms(9*s[1], 2),
		}
		if !t.wanted(o.title()) {
			return nil
		}
		if err := t.fusion(o); err != nil {
			return err
		}
	}
	return nil
}

func (t *tester) fusion(o operation) error {
	p := o.program()
	return t.followed(o, p, plan.Kernel{Op: plan.OpReLU, Name: "layer", In: []int{p.Outputs[0]}})
}

// followed checks an operation in a program p where the same task also computes the next
// kernel: first as a step, then each plan.
func (t *tester) followed(o operation, p *plan.Program, next plan.Kernel) (err error) {
	raw := p.Outputs[0]
	p.Tensors = append(p.Tensors, p.Tensors[raw])
	p.Tensors[raw].Name, p.Tensors[raw].Role = "raw", plan.Activation
	y := len(p.Tensors) - 1
	p.Outputs, p.Forward = []int{y}, 2
	next.Out = []int{y}
	p.Kernels = append(p.Kernels, next)
	workload.SetLifetimes(p)
	in := t.operands(o)
	var all [2][][]float64
	for i, e := range []engine.Engine{t.truth, t.engine} {
		x, err := e.Load(p, nil)
		if err != nil {
			return t.failed(Check{Name: o.title(), Shape: o.String(), Bound: o.bound}, err)
		}
		defer func() { err = errors.Join(err, x.Close()) }()
		if all[i], err = results(t, x, o, in); err != nil {
			return t.failed(Check{Name: o.title(), Shape: o.String(), Bound: o.bound}, err)
		}
		if ours, ok := x.(probe.Executable); ok {
			if ours.Tasks() != 1 {
				return t.failed(Check{Name: o.title(), Shape: o.String(), Bound: o.bound}, fmt.Errorf("it became %d tasks, not one", ours.Tasks()))
			}
			t.add(Check{Name: o.title(), Shape: o.String(), Bound: o.bound, Error: mismatch(all[1][0], all[0][0]), Kernels: t.ran(ours.Launched())})
			return t.everyPlan(ours, o, all[0][0])
		}
	}
	return nil
}
