package enginetest

import (
	"math/rand/v2"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// SmallUNetConfig returns the config of a U-Net whose channels do not fill a channel block and
// whose maps are smaller than a tile.
func SmallUNetConfig() model.UNet2DConfig {
	return model.UNet2DConfig{Base: 5, Depth: 3, InChannels: 2, OutChannels: 1, Height: 24, Width: 16, Bias: true, Norm: "batch"}
}

// LowerUNet returns the graph and the program of the U-Net with config c.
func LowerUNet(t testing.TB, c model.UNet2DConfig, batch int, mode nn.Mode, o plan.Options) (*nn.Graph, *plan.Program) {
	t.Helper()
	u, err := model.UNet2D(c)
	if err != nil {
		t.Fatal(err)
	}
	return LowerNetwork(t, u, batch, mode, o)
}

// LowerNetwork returns the graph and the program of a network.
func LowerNetwork(t testing.TB, net model.Network, batch int, mode nn.Mode, o plan.Options) (*nn.Graph, *plan.Program) {
	t.Helper()
	g, err := net.Graph(batch, mode)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Lower(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}

// NewReferenceEngine returns a reference engine in float64.
func NewReferenceEngine(t testing.TB) engine.Engine {
	t.Helper()
	o := engine.DefaultOptions()
	o.Device, o.Precision = "reference", "fp64"
	e, err := reference.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// SetInitialValues sets every parameter and state of x to its initial value in g.
func SetInitialValues(t testing.TB, x engine.Executable, g *nn.Graph) {
	t.Helper()
	for name, v := range g.InitialValues(3) {
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
}

// SetRandomInputs sets the inputs of x to RandomBatch(x, seed).
func SetRandomInputs(t testing.TB, x engine.Executable, seed uint64) {
	t.Helper()
	image, target := RandomBatch(x, seed)
	if err := x.SetInput(model.ImageInput, image); err != nil {
		t.Fatal(err)
	}
	if err := x.SetInput(model.TargetInput, target); err != nil {
		t.Fatal(err)
	}
}

// RandomBatch returns random values for x's inputs: images, and masks or classes as targets.
func RandomBatch(x engine.Executable, seed uint64) (image, target []float32) {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := x.Program()
	image = make([]float32, p.Tensors[p.FindTensor(plan.Input, model.ImageInput)].Elements())
	for i := range image {
		image[i] = rng.Float32()
	}
	target = make([]float32, p.Tensors[p.FindTensor(plan.Input, model.TargetInput)].Elements())
	classes := max(2, p.ClassCount(p.FindTensor(plan.Input, model.TargetInput)))
	for i := range target {
		target[i] = float32(rng.IntN(classes))
	}
	return image, target
}

// SingleKernelProgram returns a program with a single kernel. in and out are the shapes of its
// operands and results. The operands are inputs named a, b, c …, or states if their indexes are
// in state. The results are outputs named A, B, C ….
func SingleKernelProgram(op plan.Op, attr plan.KernelAttr, in, out [][]int, state []int) *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 1}
	k := plan.Kernel{Op: op, Name: "layer", Attr: attr}
	add := func(role plan.TensorRole, name string, shape []int) int {
		p.Tensors = append(p.Tensors, plan.Tensor{Name: name, Shape: shape, Role: role})
		return len(p.Tensors) - 1
	}
	states := map[int]bool{}
	for _, i := range state {
		states[i] = true
	}
	for i, s := range in {
		name := string(rune('a' + i))
		if states[i] {
			id := add(plan.State, name, s)
			p.States, k.In = append(p.States, id), append(k.In, id)
			continue
		}
		id := add(plan.Input, name, s)
		p.Inputs, k.In = append(p.Inputs, id), append(k.In, id)
	}
	for i, s := range out {
		id := add(plan.Output, string(rune('A'+i)), s)
		p.Outputs, k.Out = append(p.Outputs, id), append(k.Out, id)
	}
	p.Kernels = []plan.Kernel{k}
	return p
}
