package model_test

import (
	"math"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestDiceWeight: the loss of a U-Net is model.dice parts of soft Dice,
// 1 − (2Σpt+1)/(Σp+Σt+1) of each sample, and the rest binary cross-entropy, both
// computed here from its logits.
func TestDiceWeight(t *testing.T) {
	const batch, pixels = 2, 4 * 4
	o := engine.DefaultOptions()
	o.Device, o.Precision = "reference", "fp64"
	e, err := reference.New(o)
	if err != nil {
		t.Fatal(err)
	}
	image, target := make([]float32, batch*pixels), make([]float32, batch*pixels)
	for i := range image {
		image[i], target[i] = float32(i%7)/7, float32(i%3/2)
	}
	for _, weight := range []float64{0, 0.25, 1} {
		net, err := model.Config{Kind: "unet2d", Base: 2, Depth: 1, Norm: "none", Dice: weight}.Network([]int{1, 4, 4}, []int{1, 4, 4})
		if err != nil {
			t.Fatal(err)
		}
		g := graph(t, net, batch, nn.Train)
		p, err := plan.Lower(g, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		exe, err := e.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range g.InitialValues(1) {
			if err := exe.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
		for name, v := range map[string][]float32{model.ImageInput: image, model.TargetInput: target} {
			if err := exe.SetInput(name, v); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := exe.Step(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		logits := make([]float32, batch*pixels)
		if err := exe.Output(model.LogitsOutput, logits); err != nil {
			t.Fatal(err)
		}
		dice, cross := 0.0, 0.0
		for s := range batch {
			both, either := 0.0, 0.0
			for i := s * pixels; i < (s+1)*pixels; i++ {
				q := 1 / (1 + math.Exp(-float64(logits[i])))
				y := float64(target[i])
				both, either = both+q*y, either+q+y
				cross -= (y*math.Log(q) + (1-y)*math.Log(1-q)) / (batch * pixels)
			}
			dice += (1 - (2*both+1)/(either+1)) / batch
		}
		// The logits come out as float32.
		if want := weight*dice + (1-weight)*cross; math.Abs(exe.Loss()-want) > 1e-6 || math.Abs(dice-cross) < 0.05 {
			t.Errorf("dice %g: loss %g, want %g (soft Dice %g, cross-entropy %g)", weight, exe.Loss(), want, dice, cross)
		}
		if err := exe.Close(); err != nil {
			t.Error(err)
		}
	}
}
