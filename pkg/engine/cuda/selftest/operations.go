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

// operation is one kernel of a plan, which is checked as a separate program. Its operands
// are the inputs of the program, or states if their indexes are in state; its results are
// the outputs.
type operation struct {
	name    string // empty: the name of op
	op      plan.Op
	attr    plan.KernelAttr
	in, out [][]int
	state   []int // indexes of the operands in in that are states
	// fill changes the random values v of operand i, given the operands before it. If fill
	// is nil, they are normally distributed.
	fill func(i int, v []float32, before [][]float32)
	// want returns the expected results. If want is nil, engine/reference computes them.
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

func (o operation) title() string {
	if o.name == "" {
		return string(o.op)
	}
	return o.name
}

// operandName returns the name of operand i (if kind is "in") or of result i (if kind is
// "out").
func operandName(kind string, i int) string { return fmt.Sprint(kind, i) }

func (o operation) newProgram() *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 1}
	k := plan.Kernel{Op: o.op, Name: "layer", Attr: o.attr}
	add := func(role plan.TensorRole, name string, shape []int) int {
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

func (t *tester) checkOperations() error {
	for _, o := range t.allOperations() {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if !t.isSelected(o.title()) {
			continue
		}
		if err := t.checkOperation(o); err != nil {
			return err
		}
	}
	return nil
}

// checkOperation checks one operation with two sets of operands. If the second run does not
// overwrite a result of the first, the check fails.
func (t *tester) checkOperation(o operation) error {
	c := Check{Name: o.title(), Shape: o.String(), Bound: o.bound}
	loaded, err := t.engine.Load(o.newProgram(), nil)
	if err != nil {
		return t.addFailure(c, err)
	}
	x := loaded.(probe.Executable)
	defer func() { _ = x.Close() }()
	var in [][]float32
	var want [][]float64
	for range 2 {
		in = t.randomOperands(o)
		if want, err = t.expectedResults(o, in); err != nil {
			return err
		}
		if err := x.FillWithNaN(); err != nil {
			return t.addFailure(c, err)
		}
		got, err := runOperation(t, x, o, in)
		if err != nil {
			return t.addFailure(c, err)
		}
		for i := range want {
			c.Error = max(c.Error, maxRelativeError(got[i], want[i]))
		}
		err = x.CheckPadding()
		if err != nil {
			return t.addFailure(c, err)
		}
	}
	c.Kernels = t.recordKernels(x.LaunchedKernels())
	t.addCheck(c)
	if o.plans {
		return t.checkEveryPlan(x, o, want[0])
	}
	return nil
}

// randomOperands returns random operands, rounded to the precision, so that the check
// measures only the error of the kernel.
func (t *tester) randomOperands(o operation) [][]float32 {
	var in [][]float32
	for i, shape := range o.in {
		v := t.randomNumbers(elementCount(shape))
		if o.fill != nil {
			o.fill(i, v, in)
		}
		if slices.Contains(o.state, i) {
			for j := range v {
				v[j] = float32(math.Abs(float64(v[j]))) // the state may be a variance
			}
		}
		if len(shape) > 1 {
			v = t.roundToPrecision(v)
		}
		in = append(in, v)
	}
	return in
}

func (t *tester) expectedResults(o operation, in [][]float32) ([][]float64, error) {
	if o.want != nil {
		var all [][]float64
		for _, v := range in {
			all = append(all, number.ToFloat64(v))
		}
		return o.want(all), nil
	}
	x, err := t.truth.Load(o.newProgram(), nil)
	if err != nil {
		return nil, err
	}
	return runOperation(t, x, o, in)
}

// runOperation returns o's outputs, then its states. Gradients of losses are unscaled.
func runOperation(t *tester, x engine.Executable, o operation, in [][]float32) ([][]float64, error) {
	for i, v := range in {
		var err error
		if slices.Contains(o.state, i) {
			err = x.Set(operandName("in", i), number.ToFloat64(v))
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
		v := make([]float32, elementCount(shape))
		if err := x.Output(operandName("out", i), v); err != nil {
			return nil, err
		}
		wide := number.ToFloat64(v)
		if ours, ok := x.(probe.Executable); ok && isLossGradient(o.op) {
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

// isLossGradient reports whether op is the gradient of a loss, which fp16 scales.
func isLossGradient(op plan.Op) bool {
	return op == plan.OpBCEWithLogitsBackward || op == plan.OpL1Backward || op == plan.OpSoftmaxCrossEntropyBackward || op == plan.OpDiceBCEBackward
}

// checkEveryPlan runs every cuDNN plan of x's convolution, because tuning may choose any of
// them. It fills the result with NaN before each. The error bound is eight times as large for
// less accurate algorithms: Winograd's, and those that, according to cuDNN, compute sums in a
// lower precision.
func (t *tester) checkEveryPlan(x probe.Executable, o operation, want []float64) error {
	c := Check{Name: o.title() + ", every plan", Shape: o.String(), Bound: o.bound}
	lossy := Check{Name: o.title() + ", every plan with reduced precision", Shape: c.Shape, Bound: 8 * o.bound}
	plans, lossyPlans, fused := 0, 0, 0
	all, err := x.RunPlans(o.op, func(p probe.PlanResult) error {
		to, count := &c, &plans
		if p.Reduced {
			to, count = &lossy, &lossyPlans
		}
		*count++
		if p.Fused {
			fused++
		}
		t.addPlanMismatch(to, p, maxRelativeError(p.Result, want))
		return t.ctx.Err()
	})
	if err = errors.Join(err, all.NoPlan); err != nil {
		return t.addFailure(c, err)
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
				done.check.Detail += fmt.Sprintf(", %d of all plans in one graph", fused)
			}
			done.check.Detail += describeMissingPlans(all.Missing)
		}
		t.addCheck(done.check)
	}
	return nil
}

func (t *tester) addPlanMismatch(c *Check, p probe.PlanResult, mismatch float64) {
	if p.Err != nil {
		c.Error, c.Detail = math.Inf(1), fmt.Sprintf("%s: %v", p.Name, p.Err)
		return
	}
	t.recordKernels(p.Kernels)
	if c.Error = max(c.Error, mismatch); !(mismatch <= c.Bound) {
		c.Detail = fmt.Sprintf("plan %s exceeds the bound", p.Name)
	}
}

// describeMissingPlans returns the end of a check's Detail: the reason why some graphs have no
// plan, or "" if missing is nil.
func describeMissingPlans(missing error) string {
	if missing == nil {
		return ""
	}
	return fmt.Sprintf("; without %v", missing)
}

// checkBiasReLUFusions checks convolutions with bias and ReLU. For each it checks all cuDNN
// plans that compute everything in one graph, and a plain convolution followed by the engine's
// own kernels.
func (t *tester) checkBiasReLUFusions() error {
	for _, s := range [][]int{{2, 16, 9, 13, 24}, {1, 8, 16, 16, 8}, {3, 21, 7, 5, 13}} {
		o := operation{
			name: "conv with bias and ReLU", op: plan.OpConv, attr: plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}},
			in: [][]int{s[:4], {s[4], s[1], 3, 3}, {s[4]}}, out: [][]int{{s[0], s[4], s[2], s[3]}}, bound: t.sumErrorBound(9*s[1], 2),
		}
		if !t.isSelected(o.title()) {
			return nil
		}
		if err := t.checkReLUFusion(o); err != nil {
			return err
		}
	}
	return nil
}

func (t *tester) checkReLUFusion(o operation) error {
	p := o.newProgram()
	return t.checkFusedKernels(o, p, plan.Kernel{Op: plan.OpReLU, Name: "layer", In: []int{p.Outputs[0]}})
}

// checkFusedKernels checks that one task computes two kernels correctly: o, which is the only kernel
// of p, and next, which checkFusedKernels appends to p. It first runs a step with the task, then each
// plan.
func (t *tester) checkFusedKernels(o operation, p *plan.Program, next plan.Kernel) (err error) {
	raw := p.Outputs[0]
	p.Tensors = append(p.Tensors, p.Tensors[raw])
	p.Tensors[raw].Name, p.Tensors[raw].Role = "raw", plan.Activation
	y := len(p.Tensors) - 1
	p.Outputs, p.Forward = []int{y}, 2
	next.Out = []int{y}
	p.Kernels = append(p.Kernels, next)
	workload.SetLifetimes(p)
	in := t.randomOperands(o)
	var all [2][][]float64
	for i, e := range []engine.Engine{t.truth, t.engine} {
		x, err := e.Load(p, nil)
		if err != nil {
			return t.addFailure(Check{Name: o.title(), Shape: o.String(), Bound: o.bound}, err)
		}
		defer func() { err = errors.Join(err, x.Close()) }()
		if all[i], err = runOperation(t, x, o, in); err != nil {
			return t.addFailure(Check{Name: o.title(), Shape: o.String(), Bound: o.bound}, err)
		}
		if ours, ok := x.(probe.Executable); ok {
			if ours.TaskCount() != 1 {
				return t.addFailure(Check{Name: o.title(), Shape: o.String(), Bound: o.bound}, fmt.Errorf("the program was lowered to %d tasks, want 1", ours.TaskCount()))
			}
			t.addCheck(Check{Name: o.title(), Shape: o.String(), Bound: o.bound, Error: maxRelativeError(all[1][0], all[0][0]), Kernels: t.recordKernels(ours.LaunchedKernels())})
			return t.checkEveryPlan(ours, o, all[0][0])
		}
	}
	return nil
}
