package cuda

import (
	"slices"
	"testing"

	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// TestReLUOfOneReader checks that a ReLU is fused with the convolution before it only if no
// other kernel reads the convolution's result.
func TestReLUOfOneReader(t *testing.T) {
	for _, shared := range []bool{false, true} {
		p := &plan.Program{Loss: -1}
		tensor := func(role plan.TensorRole, name string, shape ...int) int {
			return workload.AddTensor(p, role, name, shape)
		}
		x, w, b := tensor(plan.Input, "x", 2, 8, 6, 6), tensor(plan.Input, "w", 8, 8, 3, 3), tensor(plan.Input, "b", 8)
		y, r := tensor(plan.Activation, "y", 2, 8, 6, 6), tensor(plan.Activation, "r", 2, 8, 6, 6)
		z := tensor(plan.Output, "z", 2, 8, 6, 6)
		other := x
		if shared {
			other = y
		}
		p.Kernels = []plan.Kernel{
			{Op: plan.OpConv, Name: "conv", In: []int{x, w, b}, Out: []int{y}, Attr: plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}}},
			{Op: plan.OpReLU, Name: "relu", In: []int{y}, Out: []int{r}},
			{Op: plan.OpAdd, Name: "add", In: []int{other, r}, Out: []int{z}},
		}
		p.Forward = len(p.Kernels)
		l, err := lowerProgram(p, device.BF16, fusing(true, true))
		if err != nil {
			t.Fatal(err)
		}
		alone := slices.ContainsFunc(l.tasks, func(t loweredTask) bool { return t.op == plan.OpReLU })
		if alone != shared {
			t.Errorf("another reader of the convolution: %v; a ReLU of its own: %v", shared, alone)
		}
	}
}

// TestSegments: parameters are updated in one run only where parameters and gradients
// both go on without a gap.
func TestSegments(t *testing.T) {
	var s parameterSegments
	for _, p := range []parameterSegment{
		{param: 0, grad: 0, size: 8},
		{param: 8, grad: 8, size: 8},   // goes on
		{param: 16, grad: 24, size: 8}, // a gap between the gradients
		{param: 32, grad: 32, size: 8}, // one between the parameters
		{param: 40, grad: 40, size: 4}, // goes on
	} {
		s.add(p)
	}
	want := []parameterSegment{{param: 0, grad: 0, size: 16}, {param: 16, grad: 24, size: 8}, {param: 32, grad: 32, size: 12}}
	if !slices.Equal(s.runs, want) || len(s.parts) != 5 {
		t.Errorf("runs %v of %d parameters, expected %v of 5", s.runs, len(s.parts), want)
	}
}
