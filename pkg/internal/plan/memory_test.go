package plan_test

import (
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// TestMemory counts by hand: for evaluation of two convolutions with a ReLU
// between them, two maps of 1·2·4·4 are alive at once, then one and the output.
func TestMemory(t *testing.T) {
	const element, image = 4, 1 * 2 * 4 * 4
	build := func(mode nn.Mode) plan.MemoryUse {
		g := nn.NewGraph(mode)
		x := g.Input("image", 1, 1, 4, 4)
		y := g.Conv2D("head", g.ReLU(g.Conv2D("a", x, 2, 3, 1, 1, true)), 1, 1, 1, 0, false)
		g.Output("logits", y)
		g.SetLoss(g.BCEWithLogits(y, g.Input("target", 1, 1, 4, 4)))
		p, err := plan.Lower(g, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Memory()
	}
	want := plan.MemoryUse{Activations: element * 2 * image, Inputs: element * 2 * 16, Parameters: element * (18 + 2 + 2)}
	if got := build(nn.Eval); got != want {
		t.Errorf("evaluation needs %+v, want %+v", got, want)
	}
	train := build(nn.Train)
	if train.Gradients != want.Parameters || train.Parameters != want.Parameters || train.Activations <= want.Activations {
		t.Errorf("training needs %+v, of which the gradients must be %d and the activations more than for evaluation", train, want.Parameters)
	}
}
