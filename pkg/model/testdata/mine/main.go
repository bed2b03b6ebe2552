// Command mine trains a network of its own as a worker of lockstep.
package main

import (
	"log"

	"gorgonia.org/gorgonia"

	_ "lockstep/pkg/engine/all" // the engines that it can train on
	"lockstep/pkg/nn"
	"lockstep/pkg/train"
)

// build adds the layers: two levels, joined by a sum.
func build(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	conv := func(name string, x *gorgonia.Node, out int) *gorgonia.Node {
		return g.ReLU(g.Conv(name, x, nn.Convolution{Out: out, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
	}
	fine := conv("fine", image, 8)
	coarse := conv("coarse", g.MaxPool2D(fine, 2, 2), 16)
	up := g.ConvTranspose("up", coarse, nn.Convolution{Out: 8, Kernel: []int{2}, Stride: []int{2}, Bias: true})
	return g.Conv("head", conv("join", g.Add(fine, up), 8), nn.Convolution{Out: 1, Kernel: []int{1}, Bias: true})
}

func main() {
	cfg, err := train.Named("unet2d-cells", "name=mine", "epochs=3")
	if err != nil {
		log.Fatal(err)
	}
	train.Main(cfg, build)
}
