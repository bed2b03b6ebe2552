package nn_test

import (
	"fmt"

	"lockstep/pkg/nn"
)

// A network of one's own: inputs, layers, an output and a loss, and one check
// for errors at the end.
func Example() {
	g := nn.NewGraph(nn.Train)
	image := g.Input("image", 8, 1, 32, 32)
	target := g.Input("target", 8, 1, 32, 32)

	x := g.ReLU(g.BatchNorm("norm", g.Conv2D("conv", image, 16, 3, 1, 1, false)))
	logits := g.Output("logits", g.Conv2D("head", x, 1, 1, 1, 0, true))
	g.SetLoss(g.BCEWithLogits(logits, target))
	if err := g.Err(); err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range g.Parameters() {
		fmt.Println(p.Name, p.Shape)
	}
	fmt.Println(g.ParameterCount(), "parameters, output", logits.Shape())
	// Output:
	// conv.weight [16 1 3 3]
	// norm.weight [16]
	// norm.bias [16]
	// head.weight [1 16 1 1]
	// head.bias [1]
	// 193 parameters, output (8, 1, 32, 32)
}
