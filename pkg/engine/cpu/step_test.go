package cpu

import (
	"context"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestStepAllocates checks that a step allocates nothing once the optimizer's slots exist.
func TestStepAllocates(t *testing.T) {
	for _, threads := range []int{1, 2} {
		g, p := lowered(t, smallUNet(), 2, nn.Train, plan.Options{Fuse: true})
		x := loaded(t, open(t, "", threads), p, g)
		u := optim.Update{Rule: "adam", LearningRate: 1e-3, Step: 1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
		var sync engine.GradSync = quietSync{}
		n := testing.AllocsPerRun(5, func() {
			if _, err := x.Step(context.Background(), sync, &u); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("a step with %d threads allocates %v times", threads, n)
		}
	}
}
