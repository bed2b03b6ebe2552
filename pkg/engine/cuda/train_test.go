package cuda

import (
	"context"
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// trainedUNet is a U-Net as the study's, small: channels that are multiples of
// eight, so that concatenations are no copies.
func trainedUNet() model.UNet2DConfig {
	return model.UNet2DConfig{Base: 8, Depth: 2, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"}
}

// adam is the update of a step.
func adam(step int) *optim.Update {
	return &optim.Update{Rule: "adam", LearningRate: 1e-3, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-6}
}

// trained runs some steps with Adam and returns their losses and the resulting parameters.
func trained(t testing.TB, e engine.Engine, g *nn.Graph, p *plan.Program, steps int) (losses []float64, after map[string][]float64) {
	t.Helper()
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	poison(t, x)
	initialise(t, x, g)
	for step := 1; step <= steps; step++ {
		feed(t, x, uint64(step%3))
		if _, err := x.Step(context.Background(), nil, adam(step)); err != nil {
			t.Fatal(err)
		}
		losses = append(losses, x.Loss())
	}
	after = snapshot(t, x)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	return losses, after
}

// TestTraining: eight Adam steps have the reference's losses, within what a
// precision allows, and in fp32 its weights.
func TestTraining(t *testing.T) {
	const steps = 8
	g, p := programOf(t, trainedUNet(), 4, nn.Train, plan.Options{Fuse: true})
	want, weights := trained(t, truth(t), g, p, steps)
	for _, c := range []struct {
		precision string
		tolerance float64
	}{{"fp32", 1e-5}, {"fp16", 1e-3}, {"bf16", 1e-2}} {
		t.Run(c.precision, func(t *testing.T) {
			got, after := trained(t, open(t, gpuOptions(c.precision)), g, p, steps)
			for i := range want {
				if d := math.Abs(got[i] - want[i]); !(d <= c.tolerance) {
					t.Errorf("loss of step %d is %v, the reference has %v", i+1, got[i], want[i])
				}
			}
			if c.precision != "fp32" {
				return
			}
			for _, q := range p.Params {
				near(t, q.Name, after[q.Name], weights[q.Name], 2e-3)
			}
		})
	}
}

// TestOptionsGiveTheSame: each option that is no other arithmetic gives the same
// bits switched off; another order of sums or a rounding less gives the same
// loss within 1e-5 in fp32.
func TestOptionsGiveTheSame(t *testing.T) {
	const steps = 3
	g, fused := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	_, plain := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{})
	for _, precision := range []string{"fp32", "bf16"} {
		losses, after := trained(t, open(t, gpuOptions(precision)), g, fused, steps)
		for _, c := range []struct {
			name    string
			change  func(o *engine.Options)
			program *plan.Program
			exact   bool
		}{
			{"again", func(*engine.Options) {}, fused, true},
			{"graph", func(o *engine.Options) { o.Graph = false }, fused, true},
			{"fused_optimizer", func(o *engine.Options) { o.FusedOptimizer = false }, fused, true},
			{"overlap", func(o *engine.Options) { o.Overlap = false }, fused, true},
			{"convolution", func(o *engine.Options) { o.Convolution = "auto" }, fused, false},
			{"tf32", func(o *engine.Options) { o.TF32 = false }, fused, false},
			{"fuse", func(o *engine.Options) { o.Fuse = false }, plain, false},
		} {
			t.Run(fmt.Sprint(precision, "/", c.name), func(t *testing.T) {
				o := gpuOptions(precision)
				c.change(&o)
				gotLosses, got := trained(t, open(t, o), g, c.program, steps)
				if c.exact {
					for name := range after {
						near(t, name, got[name], after[name], 0)
					}
					return
				}
				for i := range losses {
					if d := math.Abs(gotLosses[i] - losses[i]); !(d <= 2*tolerance(precision)) {
						t.Errorf("loss of step %d is %v, not %v", i+1, gotLosses[i], losses[i])
					}
				}
			})
		}
	}
}

// TestGraphIsRecordedOnce: the first step runs as it is, the second is recorded,
// and from then on a step is one launch.
func TestGraphIsRecordedOnce(t *testing.T) {
	m := cudatest.NewMachine(t, clibtest.Options{})
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, err := openOn(t, m, gpuOptions("bf16")).Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	initialise(t, x, g)
	for step := 1; step <= 4; step++ {
		feed(t, x, 1)
		m.ResetCalls()
		if _, err := x.Step(context.Background(), nil, adam(step)); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, line := range m.Calls() {
			for _, call := range []string{"cuLaunchKernel", "cuGraphLaunch", "cuStreamBeginCapture"} {
				if len(line) >= len(call) && line[:len(call)] == call {
					count[call]++
				}
			}
		}
		ok := count["cuGraphLaunch"] == 1 && count["cuStreamBeginCapture"] == 0 && count["cuLaunchKernel"] == 0
		switch step {
		case 1:
			ok = count["cuGraphLaunch"] == 0 && count["cuLaunchKernel"] > 20
		case 2:
			ok = count["cuGraphLaunch"] == 1 && count["cuStreamBeginCapture"] == 1
		}
		if !ok {
			t.Errorf("step %d: %v", step, count)
		}
	}
}
