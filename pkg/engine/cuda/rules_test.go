package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
)

// testedRules are the updates beyond plain SGD and Adam.
func testedRules() []optim.Update {
	list := []optim.Update{
		{Rule: optim.RuleSGD, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01},
		{Rule: optim.RuleSGD, ClipNorm: 0.05},
		{Rule: optim.RuleAdam, WeightDecay: 0.1, ClipNorm: 0.05},
		{Rule: optim.RuleAdamW, WeightDecay: 0.1},
		{Rule: optim.RuleAdamW, ClipNorm: 1e6},
		{Rule: optim.RuleLARS, Momentum: 0.9, Trust: 0.02, WeightDecay: 0.01, ClipNorm: 0.1},
		{Rule: optim.RuleLARS, Trust: 0.02},
		{Rule: optim.RuleLAMB, WeightDecay: 0.01},
		{Rule: optim.RuleLAMB, WeightDecay: 0.01, ClipNorm: 0.05},
	}
	for i := range list {
		list[i].LearningRate, list[i].Beta1, list[i].Beta2, list[i].Epsilon = 1e-2, 0.9, 0.99, 1e-3
	}
	return list
}

func ruleName(u optim.Update) string {
	return fmt.Sprintf("%s-nesterov-%v-clip-%g", u.Rule, u.Nesterov, u.ClipNorm)
}

// TestRules: every rule does to the weights what optim.Apply64 does with the step's
// own gradients, unrecorded and recorded; gradients are read as clipping left them, and
// their norm is the one asked for. In fp16 the scale is so high that the first steps are
// left out: nothing changes then, and the bias correction does not count them. The
// precisions take turns, since the kernels' own tests run each rule in fp32 and bf16.
func TestRules(t *testing.T) {
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	for i, u := range testedRules() {
		precision := []string{"fp32", "bf16", "fp16"}[i%3]
		t.Run(ruleName(u)+"/"+precision, func(t *testing.T) {
			x := loaded(t, open(t, gpuOptions(precision)), p, g)
			initialise(t, x, g)
			if precision == "fp16" {
				setControl(t, x, func(x *executable) { x.last.control.LossScale, x.last.control.Skipped = 1<<28, 0 })
			}
			skipped := followed(t, x.(*executable), u)
			if precision == "fp16" && (skipped == 0 || skipped > 15) || precision != "fp16" && skipped > 0 {
				t.Errorf("%d steps were left out", skipped)
			}
		})
	}
}

// followed does steps until four were good, beside optim.Apply64.
func followed(t *testing.T, x *executable, u optim.Update) (skipped int) {
	t.Helper()
	for step := 1; step-skipped <= 4 && step < 20; step++ {
		feed(t, x, uint64(step))
		before := snapshot(t, x)
		u.Step = step
		if _, err := x.Step(context.Background(), nil, &u); err != nil {
			t.Fatal(err)
		}
		if x.last.control.FoundInf != 0 {
			skipped++
			for _, q := range x.program.Params {
				near(t, q.Name+" after a step that was left out", mustGet(t, x, q.Name), before[q.Name], 0)
			}
			continue
		}
		want := u
		want.Step, want.ClipNorm = step-skipped, 0 // they are clipped already
		var list []optim.Tensor64
		norm := 0.0
		for _, q := range x.program.Params {
			v := optim.Tensor64{Weights: before[q.Name], Gradient: mustGradient(t, x, q.Name), Vector: len(x.program.Tensors[q.Tensor].Shape) == 1}
			for _, d := range v.Gradient {
				norm += d * d
			}
			for _, slot := range u.Slots() {
				v.Slots = append(v.Slots, before[optimizerSlotPrefix+slot+"."+q.Name])
			}
			list = append(list, v)
		}
		if norm = math.Sqrt(norm); u.ClipNorm > 0 && u.ClipNorm < 1 && math.Abs(norm-u.ClipNorm) > 1e-4*u.ClipNorm {
			t.Errorf("the gradients' norm is %g, clipped to %g", norm, u.ClipNorm)
		}
		if err := optim.Apply64(want, list); err != nil {
			t.Fatal(err)
		}
		for i, q := range x.program.Params {
			near(t, fmt.Sprintf("step %d: %s", step, q.Name), mustGet(t, x, q.Name), list[i].Weights, 2e-6)
			for k, slot := range u.Slots() {
				name := optimizerSlotPrefix + slot + "." + q.Name
				near(t, fmt.Sprintf("step %d: %s", step, name), mustGet(t, x, name), list[i].Slots[k], 1e-5)
			}
		}
	}
	if err := checkPadding(x); err != nil {
		t.Error(err)
	}
	return skipped
}

// TestRulesApart: a launch for each parameter gives the bits of one for all.
func TestRulesApart(t *testing.T) {
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	for i, u := range testedRules() {
		if i%2 == 1 {
			continue // the other rules are at least one of each kind, with clipping and without
		}
		var after [2]map[string][]float64
		for i, fused := range []bool{true, false} {
			o := gpuOptions("bf16")
			o.FusedOptimizer = fused
			x := loaded(t, open(t, o), p, g)
			initialise(t, x, g)
			for u.Step = 1; u.Step <= 3; u.Step++ {
				if _, err := x.Step(context.Background(), nil, &u); err != nil {
					t.Fatal(err)
				}
			}
			after[i] = snapshot(t, x)
		}
		for name := range after[0] {
			near(t, ruleName(u)+": "+name, after[1][name], after[0][name], 0)
		}
	}
}

// onHost hides that an accumulator can leave the sums to the engine.
type onHost struct{ engine.GradSync }

// TestAccumulate: the sums of the gradients of three batches on the GPU give the bits
// of sums on the host, recorded and not, alone, exchanged by NCCL, and cut at the
// buckets where the exchange runs on the host; the graph of each part is recorded once.
func TestAccumulate(t *testing.T) {
	for _, precision := range []string{"fp32", "fp16"} {
		for _, kind := range []string{"alone", "host", "nccl"} {
			t.Run(kind+"/"+precision, func(t *testing.T) {
				want := gathered(t, kind, precision, true)
				got := gathered(t, kind, precision, false)
				for name := range want {
					near(t, name, got[name], want[name], 0)
				}
			})
		}
	}
}

// gathered runs updates of three batches and one of two batches, and returns the resulting
// parameters. With host, gradients are accumulated on the host.
func gathered(t *testing.T, kind, precision string, host bool) map[string][]float64 {
	t.Helper()
	n := map[string]int{"alone": 1, "host": 2, "nccl": 2}[kind]
	var ranks []rank
	// NCCL exchanges GPU memory, so it is not used if gradients are accumulated on the host.
	if kind == "nccl" && !host {
		ranks = onTheirOwn(t, n, gpuOptions(precision), strategy.NCCLOptions{}, cudatest.NewMachine)
	} else {
		ranks = onOneGPU(t, n, gpuOptions(precision))
	}
	g, p := programOf(t, plainUNet(), 2, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096, FirstBucketBytes: 1024})
	after := make([]map[string][]float64, n)
	together(t, n, func(i int) error {
		x, err := ranks[i].engine.Load(p, nil)
		if err != nil {
			return err
		}
		initialise(t, x, g)
		gather := strategy.NewAccumulator(ranks[i].sync)
		sync := engine.GradSync(gather)
		if host {
			sync = onHost{gather}
		}
		for step, parts := range []int{3, 3, 2, 3} {
			gather.Begin(parts)
			for part := range parts {
				feed(t, x, uint64(100*step+10*part+i))
				u := &optim.Update{Rule: optim.RuleAdamW, LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-3, WeightDecay: 0.1, ClipNorm: 0.05, Step: step + 1}
				if part < parts-1 {
					u = nil
				}
				if _, err := x.Step(context.Background(), sync, u); err != nil {
					return err
				}
			}
		}
		if on := x.(*executable); !host && on.exchange.sums.bytes != int64(4*on.exchange.lossAt) {
			return fmt.Errorf("the sums take %d bytes", on.exchange.sums.bytes)
		}
		after[i] = snapshot(t, x)
		return errors.Join(x.Close(), ranks[i].sync.Close())
	})
	for i := range after[1:] {
		for name := range after[0] {
			near(t, fmt.Sprintf("rank %d's %s", i+1, name), after[i+1][name], after[0][name], 0)
		}
	}
	return after[0]
}

// TestAccumulateOrder: the last part alone is refused.
func TestAccumulateOrder(t *testing.T) {
	g, p := programOf(t, plainUNet(), 2, nn.Train, plan.Options{})
	x := loaded(t, open(t, gpuOptions("fp32")), p, g)
	if _, err := x.Step(context.Background(), lastOfTwo{}, nil); err == nil {
		t.Error("the second of two batches is taken as the first")
	}
}

type lastOfTwo struct{ engine.GradSync }

func (lastOfTwo) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Accumulation: &engine.Accumulation{Step: 2, Steps: 2, Done: func() {}}}
}
