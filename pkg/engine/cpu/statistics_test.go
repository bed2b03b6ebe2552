package cpu

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
)

// TestStatistics compares the statistics that a convolution takes of its output with
// float64, where a bias of 100 puts the mean far from zero: cancellation would
// show. The normalized values have the convolution's error, at most
// winogradTolerance of about 140, in units of a deviation of about 9.
func TestStatistics(t *testing.T) {
	shape := func(role plan.TensorRole, name string, s ...int) plan.Tensor {
		return plan.Tensor{Name: name, Shape: s, Role: role, First: 0, Last: 0}
	}
	last := func(t plan.Tensor, first, last int) plan.Tensor { t.First, t.Last = first, last; return t }
	for _, s := range [][]int{{3, 9, 11, 13}, {2, 9, 61, 33}, {5, 9, 3, 2}, {2, 9, 7, 11, 13}, {1, 9, 1, 4, 9}, {1, 9, 70, 9, 17}} {
		y := append([]int{s[0], 20}, s[2:]...)
		ones := slices.Repeat([]int{1}, len(s)-2)
		w := append([]int{20, 9}, slices.Repeat([]int{3}, len(s)-2)...)
		p := &plan.Program{
			Loss: -1, Forward: 2, Inputs: []int{0, 1, 2, 4, 5}, States: []int{6, 7}, Outputs: []int{8, 9, 10},
			Tensors: []plan.Tensor{
				shape(plan.Input, "x", s...), shape(plan.Input, "w", w...), shape(plan.Input, "b", 20),
				last(shape(plan.Activation, "y", y...), 0, 1),
				last(shape(plan.Input, "gamma", 20), 1, 1), last(shape(plan.Input, "beta", 20), 1, 1),
				last(shape(plan.State, "mean", 20), 1, 1), last(shape(plan.State, "var", 20), 1, 1),
				last(shape(plan.Output, "z", y...), 1, 1), last(shape(plan.Output, "m", 20), 1, 1), last(shape(plan.Output, "inv", 20), 1, 1),
			},
			Kernels: []plan.Kernel{
				{Op: plan.OpConv, Name: "conv", Attr: plan.KernelAttr{Stride: ones, Pad: ones}, In: []int{0, 1, 2}, Out: []int{3}},
				{Op: plan.OpBatchNorm, Name: "norm", Attr: plan.KernelAttr{Training: true, Epsilon: 1e-5, Momentum: 0.1}, In: []int{3, 4, 5, 6, 7}, Out: []int{8, 9, 10}},
			},
		}
		run := func(e engine.Engine) map[string][]float64 {
			x, err := e.Load(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			poison(x)
			if x, ok := x.(*executable); ok && len(x.work.Partial) == 0 {
				t.Error("the convolution takes no statistics")
			}
			rng := rand.New(rand.NewPCG(6, 6))
			for _, id := range p.Inputs {
				v := make([]float32, p.Tensors[id].Elements())
				for i := range v {
					if v[i] = float32(rng.NormFloat64()); id == 2 {
						v[i] += 100
					}
				}
				if err := x.SetInput(p.Tensors[id].Name, v); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := x.Step(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			all := map[string][]float64{}
			for _, id := range p.Outputs {
				v := make([]float32, p.Tensors[id].Elements())
				if err := x.Output(p.Tensors[id].Name, v); err != nil {
					t.Fatal(err)
				}
				for _, f := range v {
					all[p.Tensors[id].Name] = append(all[p.Tensors[id].Name], float64(f))
				}
			}
			return all
		}
		want := run(truth(t))
		for _, convolution := range []string{"direct", "winograd"} {
			everyway(t, func(t *testing.T, set string, threads int) {
				got := run(openWith(t, set, threads, convolution))
				near(t, "mean", got["m"], want["m"], 1e-6)
				near(t, "1/σ", got["inv"], want["inv"], 2e-5)
				near(t, "normalised", got["z"], want["z"], 3e-4)
			})
		}
	}
}
