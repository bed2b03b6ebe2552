// Package model holds networks, built from package nn: U-Nets in two and three
// dimensions, ResNets, and those of one's own.
//
// A Network makes a graph for any batch size, for training or evaluation, with
// the same parameter names each time: so one set of weights serves all of them.
// Named gives the networks of the studies and courses by name, Config says one
// in YAML with other sizes, and Summarize shows one, layer by layer.
//
// A network of one's own is a Builder, a function that adds layers to a graph,
// which Own makes a Network; or a Spec, the same as a YAML file, which SpecOf
// writes of any network that is made of layers. Rename gives weights the names
// of PyTorch and Keras.
package model

import (
	"fmt"
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
	// Task says what it learns: what its loss is, and how it is scored.
	Task() Task
	// InputShape and TargetShape are the shapes of one sample, without the
	// batch: an image [C,H,W] or a volume [C,D,H,W]; a mask [1,H,W], a class
	// index [1] or a volume [C',D,H,W]. The caller may change what it gets.
	InputShape() []int
	TargetShape() []int
	// Parameters is the number of trained numbers.
	Parameters() int
}

// The names of the tensors that every Network has.
const (
	ImageInput   = "image"
	TargetInput  = "target"
	LogitsOutput = "logits"
)

// known is a network that Named knows.
type known struct {
	name, about   string
	image, target []int // of one sample
	config        Config
}

// catalogue is the networks that Named knows, at their published sizes.
func catalogue() []known {
	return []known{
		{
			"resnet152v2", "keras.applications' ResNet152V2, 10 classes of images 3×128×128",
			[]int{3, 128, 128},
			[]int{1},
			Config{Kind: KindResNet152V2},
		},
		{
			"resnet50", "torchvision's ResNet-50 (v1.5), 1000 classes of images 3×224×224",
			[]int{3, 224, 224},
			[]int{1},
			Config{Kind: KindResNet50, Classes: 1000},
		},
		{
			"resnet50v2", "keras.applications' ResNet50V2, 10 classes of images 3×128×128",
			[]int{3, 128, 128},
			[]int{1},
			Config{Kind: KindResNet50V2},
		},
		{
			"unet2d-bench", "the benchmarks' U-Net, 1×128×128",
			[]int{1, 128, 128},
			[]int{1, 128, 128},
			Config{Kind: KindUNet2D, Base: 32, Depth: 4, Norm: "batch"},
		},
		{
			"unet2d-study", "the scaling study's U-Net, 1×768×1024",
			[]int{1, 768, 1024},
			[]int{1, 768, 1024},
			Config{Kind: KindUNet2D, Base: 8, Depth: 4, Bias: true, Norm: "batch"},
		},
		{
			"unet3d-sc21", "the SC21 tutorial's 3-D U-Net, 4 fields on 64³ points to 5",
			[]int{4, 64, 64, 64},
			[]int{5, 64, 64, 64},
			Config{Kind: KindUNet3D},
		},
	}
}

// Names are the names that Named knows.
func Names() []string {
	var names []string
	for _, c := range catalogue() {
		names = append(names, c.name)
	}
	return names
}

// About says in a line what the network of that name is.
func About(name string) string {
	for _, c := range catalogue() {
		if c.name == name {
			return c.about
		}
	}
	return ""
}

// Named is the network of that name, at its published size.
func Named(name string) (Network, error) {
	c, image, target, err := NamedConfig(name)
	if err != nil {
		return nil, err
	}
	return c.Network(image, target)
}

// NamedConfig is the config of the network of that name, with the shapes of one
// sample that it was published with: to change something of it.
func NamedConfig(name string) (c Config, image, target []int, err error) {
	for _, k := range catalogue() {
		if k.name == name {
			return k.config, k.image, k.target, nil
		}
	}
	return Config{}, nil, nil, fmt.Errorf("find network %q: it is not known: use one of %s", name, strings.Join(Names(), ", "))
}
