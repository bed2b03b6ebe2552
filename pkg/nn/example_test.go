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

// A classifier in the manner of a residual network: the loss takes the index of
// each sample's class, and the weights start as Keras' do.
func ExampleGraph_SoftmaxCrossEntropy() {
	g := nn.NewGraph(nn.Train)
	image := g.Input("image", 8, 3, 32, 32)
	class := g.Input("target", 8, 1)

	x := g.Conv("stem", image, nn.Convolution{Out: 16, Kernel: []int{3}, Pad: []int{1}, Weight: nn.GlorotUniform})
	h := g.ReLU(g.BatchNormWith("norm", x, 1.001e-5, 0.01)) // Keras' momentum of 0.99
	h = g.Conv("conv", h, nn.Convolution{Out: 16, Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}, Weight: nn.GlorotUniform})
	x = g.Add(h, g.MaxPool(x, nn.Pool{Kernel: []int{1}, Stride: []int{2}}))
	logits := g.Output("logits", g.Linear("head", g.GlobalAvgPool(x), nn.Dense{Out: 10, Bias: true}))
	g.SetLoss(g.SoftmaxCrossEntropy(logits, class, 0.1))
	if err := g.Err(); err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range g.Layers() {
		fmt.Println(l.Name, l.Kind, l.Shape)
	}
	// Output:
	// stem Conv2D [8 16 32 32]
	// norm BatchNorm [8 16 32 32]
	// relu.0 ReLU [8 16 32 32]
	// conv Conv2D [8 16 16 16]
	// pool.0 MaxPool2D [8 16 16 16]
	// add.0 Add [8 16 16 16]
	// globalavgpool.0 GlobalAvgPool [8 16]
	// head Linear [8 10]
	// loss.0 SoftmaxCrossEntropy []
}

// Volumes have five dimensions, and the same layers.
func ExampleGraph_Conv() {
	g := nn.NewGraph(nn.Train)
	box := g.Input("image", 1, 4, 16, 16, 16) // batch, channels, depth, height, width
	half := nn.Convolution{Out: 8, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true, Weight: nn.FixedScheme(nn.Normal(0.02)), BiasInit: nn.FixedScheme(nn.Constant(0))}

	down := g.LeakyReLU(g.Conv("down", box, half), 0.01)
	half.Out = 5
	y := g.Output("logits", g.Tanh(g.ConvTranspose("up", down, half)))
	g.SetLoss(g.L1(y, g.Input("target", 1, 5, 16, 16, 16), 0))
	fmt.Println(down.Shape(), y.Shape(), g.ParameterCount(), g.Err())
	// Output: (1, 8, 8, 8, 8) (1, 5, 16, 16, 16) 4621 <nil>
}
