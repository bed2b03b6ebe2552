package cuda

import (
	"context"
	"errors"
	"math"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// setControl changes the control block of x.
func setControl(t *testing.T, e engine.Executable, change func(x *executable)) *executable {
	t.Helper()
	x, ok := e.(*executable)
	if !ok {
		t.Fatalf("it is a %T", e)
	}
	err := x.do(func() error {
		change(x)
		return x.gpu.write(x.control.ptr, x.after.Bytes())
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestLossScale: in fp16 a gradient that overflows leaves the update out and
// halves the scale, until it fits; 2000 good steps double it. Gradients are those
// of the loss itself, whatever the scale. (torch.amp.GradScaler's rules.)
func TestLossScale(t *testing.T) {
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	e := loaded(t, open(t, gpuOptions("fp16")), p, g)
	reference := map[string][]float64{}
	for _, q := range p.Params {
		v, err := e.Gradient(q.Name)
		if err != nil {
			t.Fatal(err)
		}
		reference[q.Name] = v
	}
	if x := setControl(t, e, func(*executable) {}); x.after.LossScale != 65536 || x.after.FoundInf != 0 {
		t.Fatalf("the first scale is %v, found %d", x.after.LossScale, x.after.FoundInf)
	}

	// 2^24 times the gradient of a logit, at most 1/(2·16·16), is 32768: it fits,
	// but sums of a few do not.
	x := setControl(t, e, func(x *executable) { x.after.LossScale, x.after.Skipped = 1<<28, 0 })
	initialise(t, x, g)
	before := snapshot(t, x)
	skipped := 0
	for step := 1; step <= 20; step++ {
		scale := x.after.LossScale
		if _, err := x.Step(context.Background(), nil, adam(step)); err != nil {
			t.Fatal(err)
		}
		if x.after.FoundInf == 0 {
			if x.after.LossScale != scale {
				t.Errorf("step %d was good, and the scale went from %v to %v", step, scale, x.after.LossScale)
			}
			break
		}
		skipped++
		if x.after.LossScale != scale/2 {
			t.Errorf("step %d overflowed, and the scale went from %v to %v", step, scale, x.after.LossScale)
		}
		for _, q := range p.Params {
			near(t, q.Name+" after a step that was left out", mustGet(t, x, q.Name), before[q.Name], 0)
		}
	}
	if skipped < 2 || skipped == 20 || int(x.after.Skipped) != skipped {
		t.Errorf("%d steps were left out, the GPU counted %d", skipped, x.after.Skipped)
	}
	near(t, "a weight after a good step", []float64{distance(before["head.weight"], mustGet(t, x, "head.weight"))}, []float64{0.01}, 10)
	if distance(before["head.weight"], mustGet(t, x, "head.weight")) == 0 {
		t.Error("a good step changed nothing")
	}

	// The gradients are the same numbers at another scale, but for roundings.
	initialise(t, x, g)
	if _, err := x.Step(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	near(t, "gradient of the head at another scale", mustGradient(t, x, "head.weight"), reference["head.weight"], 1e-2)

	setControl(t, e, func(x *executable) { x.after.LossScale, x.after.GoodSteps = 1024, 1998 })
	for i, want := range []float32{1024, 2048, 2048} {
		if _, err := x.Step(context.Background(), nil, adam(1)); err != nil {
			t.Fatal(err)
		}
		if x.after.LossScale != want {
			t.Errorf("after %d good steps the scale is %v, want %v", 1999+i, x.after.LossScale, want)
		}
	}
}

func mustGet(t *testing.T, x engine.Executable, name string) []float64 {
	t.Helper()
	v, err := x.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustGradient(t *testing.T, x engine.Executable, name string) []float64 {
	t.Helper()
	v, err := x.Gradient(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestNonFiniteEverywhere: in every precision, recorded or not, a loss that is
// not finite leaves all as it was, and the next step goes on.
func TestNonFiniteEverywhere(t *testing.T) {
	for _, precision := range []string{"fp32", "bf16", "fp16"} {
		g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
		x := loaded(t, open(t, gpuOptions(precision)), p, g)
		for step := 1; step <= 3; step++ { // as it is, recorded, launched
			feed(t, x, 1)
			if _, err := x.Step(context.Background(), nil, adam(2*step-1)); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, x)
			v := make([]float32, p.Tensors[p.Lookup(plan.Input, model.ImageInput)].Elements())
			v[7] = float32(math.NaN())
			if err := x.SetInput(model.ImageInput, v); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Step(context.Background(), nil, adam(2*step)); !errors.Is(err, engine.ErrNonFinite) {
				t.Errorf("%s: step says %v", precision, err)
			}
			unchanged(t, x, before)
		}
	}
}
