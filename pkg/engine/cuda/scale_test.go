package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/strategy"
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
		return x.gpu.writeMemory(x.memory.control.ptr, x.last.control.Bytes())
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
	if x := setControl(t, e, func(*executable) {}); x.last.control.LossScale != 65536 || x.last.control.FoundInf != 0 {
		t.Fatalf("the first scale is %v, found %d", x.last.control.LossScale, x.last.control.FoundInf)
	}

	// 2^24 times the gradient of a logit, at most 1/(2·16·16), is 32768: it fits,
	// but sums of a few do not.
	x := setControl(t, e, func(x *executable) { x.last.control.LossScale, x.last.control.Skipped = 1<<28, 0 })
	initialise(t, x, g)
	before := snapshot(t, x)
	skipped := 0
	for step := 1; step <= 20; step++ {
		scale := x.last.control.LossScale
		if _, err := x.Step(context.Background(), nil, adam(step)); err != nil {
			t.Fatal(err)
		}
		if x.last.control.FoundInf == 0 {
			if x.last.control.LossScale != scale {
				t.Errorf("step %d was good, and the scale went from %v to %v", step, scale, x.last.control.LossScale)
			}
			break
		}
		skipped++
		if x.last.control.LossScale != scale/2 {
			t.Errorf("step %d overflowed, and the scale went from %v to %v", step, scale, x.last.control.LossScale)
		}
		for _, q := range p.Params {
			near(t, q.Name+" after a step that was left out", mustGet(t, x, q.Name), before[q.Name], 0)
		}
	}
	if skipped < 2 || skipped == 20 || int(x.last.control.Skipped) != skipped {
		t.Errorf("%d steps were left out, the GPU counted %d", skipped, x.last.control.Skipped)
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

	setControl(t, e, func(x *executable) { x.last.control.LossScale, x.last.control.GoodSteps = 1024, 1998 })
	for i, want := range []float32{1024, 2048, 2048} {
		if _, err := x.Step(context.Background(), nil, adam(1)); err != nil {
			t.Fatal(err)
		}
		if x.last.control.LossScale != want {
			t.Errorf("after %d good steps the scale is %v, want %v", 1999+i, x.last.control.LossScale, want)
		}
	}
}

// TestLossScaleOfANewTraining: updates that were left out in one training do not count
// in Adam's corrections of the next, however few steps it has done: the first update
// of it is the same as on a new executable.
func TestLossScaleOfANewTraining(t *testing.T) {
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	e := open(t, gpuOptions("fp16"))
	first := func(x engine.Executable) []float64 {
		initialise(t, x, g)
		feed(t, x, 1)
		if _, err := x.Step(context.Background(), nil, adam(1)); err != nil {
			t.Fatal(err)
		}
		return mustGet(t, x, "head.weight")
	}
	want := first(loaded(t, e, p, g))
	for skipped := int32(1); skipped <= 3; skipped++ {
		x := setControl(t, loaded(t, e, p, g), func(x *executable) { x.last.control.Skipped = skipped })
		near(t, "a weight after the first update", first(x), want, 0)
		if x.last.control.Skipped != 0 {
			t.Errorf("%d updates are said to be left out", x.last.control.Skipped)
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

// TestNonFiniteEverywhere: in fp32 and fp16, recorded or not, a loss that is
// not finite leaves all as it was, and the next step goes on.
func TestNonFiniteEverywhere(t *testing.T) {
	for _, precision := range []string{"fp32", "fp16"} {
		g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
		x := loaded(t, open(t, gpuOptions(precision)), p, g)
		for step := 1; step <= 3; step++ { // as it is, recorded, launched
			feed(t, x, 1)
			if _, err := x.Step(context.Background(), nil, adam(2*step-1)); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, x)
			v := make([]float32, p.Tensors[p.FindTensor(plan.Input, model.ImageInput)].Elements())
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

// TestInfiniteLossOfFiniteGradients: the gradients of L1 are signs, however large its
// loss: where that overflows, all stays as it was, although every gradient is finite.
func TestInfiniteLossOfFiniteGradients(t *testing.T) {
	g, err := workload.New3DNetwork()
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Lower(g, plan.Options{Fuse: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, precision := range []string{"fp32", "fp16"} {
		x, err := open(t, gpuOptions(precision)).Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		initialise(t, x, g)
		for step := 1; step <= 3; step++ { // as it is, recorded, launched
			if err := workload.SetRandomInputs(x, uint64(step)); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Step(t.Context(), nil, adam(2*step-1)); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, x)
			v := make([]float32, p.Tensors[p.FindTensor(plan.Input, model.TargetInput)].Elements())
			for i := range v {
				v[i] = 3e38
			}
			if err := x.SetInput(model.TargetInput, v); err != nil {
				t.Fatal(err)
			}
			if _, err := x.Step(t.Context(), nil, adam(2*step)); !errors.Is(err, engine.ErrNonFinite) {
				t.Errorf("%s: step says %v", precision, err)
			}
			unchanged(t, x, before)
		}
		for _, q := range p.Params {
			for _, v := range mustGradient(t, x, q.Name) {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%s: the gradient of %s is %v: the test means nothing", precision, q.Name, v)
				}
			}
		}
	}
}

// TestSetAfterAStep checks that the next step uses weights that are set after an update,
// including their 16-bit copies.
func TestSetAfterAStep(t *testing.T) {
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, err := open(t, gpuOptions("bf16")).Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	var losses [2]float64
	for i := range losses {
		initialise(t, x, g)
		feed(t, x, 1)
		for step := 1; step <= 3; step++ {
			u := adam(3*i + step)
			u.LearningRate = 0.1 // far enough for the copies to change
			if _, err := x.Step(t.Context(), nil, u); err != nil {
				t.Fatal(err)
			}
			if step == 1 {
				losses[i] = x.Loss()
			}
		}
		if x.Loss() == losses[i] {
			t.Fatal("training changes nothing: the test means nothing")
		}
	}
	if losses[0] != losses[1] {
		t.Errorf("the same weights have the losses %v and %v", losses[0], losses[1])
	}
}

// TestNonFiniteOfAnotherRank: where one rank's loss is not finite, every rank says so,
// and none takes the update.
func TestNonFiniteOfAnotherRank(t *testing.T) {
	ranks := onTheirOwn(t, 2, gpuOptions("fp32"), strategy.NCCLOptions{}, cudatest.NewMachine)
	g, p := programOf(t, plainUNet(), 1, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096, FirstBucketBytes: 1024})
	exes := make([]engine.Executable, len(ranks))
	for i, r := range ranks {
		x, err := r.engine.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		initialise(t, x, g)
		exes[i] = x
	}
	before := snapshot(t, exes[0])
	together(t, len(ranks), func(i int) error {
		feed(t, exes[i], 1)
		if i == 1 {
			v := make([]float32, p.Tensors[p.FindTensor(plan.Input, model.ImageInput)].Elements())
			v[3] = float32(math.NaN())
			if err := exes[i].SetInput(model.ImageInput, v); err != nil {
				return err
			}
		}
		_, err := exes[i].Step(t.Context(), ranks[i].sync, adam(1))
		if !errors.Is(err, engine.ErrNonFinite) || (i == 0) != strings.Contains(err.Error(), "loss of another rank") {
			return fmt.Errorf("rank %d: step says %w", i, err)
		}
		return nil
	})
	for i, x := range exes {
		unchanged(t, x, before)
		if err := errors.Join(x.Close(), ranks[i].sync.Close()); err != nil {
			t.Error(err)
		}
	}
}
