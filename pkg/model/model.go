// Package model holds networks, built from package nn.
//
// A Network makes a graph for any batch size, for training or evaluation, with
// the same parameter names each time: so one set of weights serves all of them.
// Named gives the networks of the studies by name; Summarize shows one, layer
// by layer.
package model

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/nn"
)

// Network is a network with its loss. Its graphs have the inputs "image" and
// "target" and the output "logits".
type Network interface {
	// Name says which network it is, with its size ("unet2d-8x4").
	Name() string
	// Graph builds it for a batch size of at least 1.
	Graph(batch int, mode nn.Mode) (*nn.Graph, error)
	// InputShape and TargetShape are channels, height, width of one sample.
	InputShape() [3]int
	TargetShape() [3]int
	// Parameters is the number of trained numbers.
	Parameters() int
}

// The names of the tensors that every Network has.
const (
	ImageInput   = "image"
	TargetInput  = "target"
	LogitsOutput = "logits"
)

// catalogue is the networks that Named knows, with what they are.
func catalogue() []struct {
	name, about string
	config      UNet2DConfig
} {
	return []struct {
		name, about string
		config      UNet2DConfig
	}{
		{"unet2d-study", "the scaling study's U-Net, 1×768×1024", UNet2DConfig{
			Base: 8, Depth: 4, InChannels: 1, OutChannels: 1, Height: 768, Width: 1024, Bias: true, Norm: "batch",
		}},
		{"unet2d-bench", "the benchmarks' U-Net, 1×128×128", UNet2DConfig{
			Base: 32, Depth: 4, InChannels: 1, OutChannels: 1, Height: 128, Width: 128, Norm: "batch",
		}},
	}
}

// Names are the names that Named knows.
func Names() []string {
	var names []string
	for _, c := range catalogue() {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}

// Named is the network of that name.
func Named(name string) (Network, error) {
	for _, c := range catalogue() {
		if c.name == name {
			return UNet2D(c.config)
		}
	}
	return nil, fmt.Errorf("find network %q: it is not known: use one of %s", name, strings.Join(Names(), ", "))
}
