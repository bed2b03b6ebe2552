package cpu

import (
	"context"
	"strings"
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestRules checks that every rule of an update, with and without clipping, computes what
// optim.Apply64 computes from the same gradients.
func TestRules(t *testing.T) {
	g, p := lowered(t, smallUNet(), 2, nn.Train, plan.Options{Fuse: true})
	for _, u := range []optim.Update{
		{Rule: optim.RuleSGD, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01},
		{Rule: optim.RuleSGD, ClipNorm: 0.5},
		{Rule: optim.RuleAdam, WeightDecay: 0.1, ClipNorm: 0.3},
		{Rule: optim.RuleAdamW, WeightDecay: 0.1},
		{Rule: optim.RuleAdamW, ClipNorm: 1e6},
		{Rule: optim.RuleLARS, Momentum: 0.9, Trust: 0.02, WeightDecay: 0.01},
		{Rule: optim.RuleLAMB, WeightDecay: 0.01, ClipNorm: 1},
	} {
		u.LearningRate, u.Beta1, u.Beta2, u.Epsilon = 1e-2, 0.9, 0.99, 1e-3
		for _, threads := range []int{1, 3} {
			x, ok := loaded(t, open(t, "", threads), p, g).(*executable)
			if !ok {
				t.Fatal("no executable of this package")
			}
			var want []optim.Tensor64
			for _, q := range p.Params {
				w, err1 := x.Get(q.Name)
				d, err2 := x.Gradient(q.Name)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				v := optim.Tensor64{Weights: w, Gradient: d, Vector: len(p.Tensors[q.Tensor].Shape) == 1}
				for range u.Slots() {
					v.Slots = append(v.Slots, make([]float64, len(w)))
				}
				want = append(want, v)
			}
			for u.Step = 1; u.Step <= 3; u.Step++ {
				x.prepareUpdate(&u)
				if err := x.updateParameters(&u, false); err != nil {
					t.Fatal(err)
				}
				if err := optim.Apply64(u, want); err != nil {
					t.Fatal(err)
				}
			}
			for i, q := range p.Params {
				got, err := x.Get(q.Name)
				if err != nil {
					t.Fatal(err)
				}
				near(t, u.Rule+" "+q.Name, got, want[i].Weights, 1e-5)
			}
			if err := checkPadding(x); err != nil {
				t.Fatal(err)
			}
		}
	}
	x := loaded(t, open(t, "", 1), p, g)
	for _, c := range []struct {
		u    optim.Update
		want string
	}{
		{optim.Update{Rule: "adagrad"}, `unknown rule "adagrad"`},
		{optim.Update{Rule: optim.RuleLAMB}, "invalid step 0"},
		{optim.Update{Rule: optim.RuleSGD, Nesterov: true}, "nesterov"},
	} {
		if _, err := x.Step(context.Background(), nil, &c.u); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, not %q", c.u, err, c.want)
		}
	}
}
