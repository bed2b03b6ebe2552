// Package model contains networks built from package nn: U-Nets in two and three
// dimensions, ResNets, and custom networks.
//
// A Network builds a graph for any batch size, for training or evaluation, with the same
// parameter names each time, so that all of them can use the same weights. Named returns
// the networks of the studies and courses by name, a Config describes a network with
// other sizes in YAML, and Summarize lists a network's layers.
//
// A custom network is a Builder, a function that adds layers to a graph, which Own
// converts to a Network; or a Spec, a graph in a YAML file. SpecOf returns the Spec of
// any network made of layers. Rename converts weights between the names of Lockstep,
// PyTorch and Keras.
package model

import (
	"fmt"
	"strings"

	"lockstep/pkg/nn"
)

// Network is a network with its loss. Its graphs have the inputs "image" and "target" and
// the output "logits".
type Network interface {
	// Name returns the network's name with its size, such as "unet2d-8x4".
	Name() string
	// Graph builds the network's graph for a batch size of at least 1.
	Graph(batch int, mode nn.Mode) (*nn.Graph, error)
	// Task returns what the network learns, which determines its loss and its scores.
	Task() Task
	// InputShape and TargetShape return the shapes of one sample, without the batch: an
	// image [C,H,W] or a volume [C,D,H,W]; a mask [1,H,W], a class index [1] or a volume
	// [C',D,H,W]. The caller may change the slices.
	InputShape() []int
	TargetShape() []int
	// Parameters returns the number of trainable elements.
	Parameters() int
}

// Names of the tensors that every Network has.
const (
	ImageInput   = "image"
	TargetInput  = "target"
	LogitsOutput = "logits"
)

type namedNetwork struct {
	name, about   string
	image, target []int // of one sample
	config        Config
}

// namedNetworks returns the networks with their published sizes.
func namedNetworks() []namedNetwork {
	return []namedNetwork{
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

// Names returns the names that Named supports.
func Names() []string {
	var names []string
	for _, c := range namedNetworks() {
		names = append(names, c.name)
	}
	return names
}

// Describe describes the network with the given name in one line, or returns "" if it is
// unknown.
func Describe(name string) string {
	for _, c := range namedNetworks() {
		if c.name == name {
			return c.about
		}
	}
	return ""
}

// Named returns the network with the given name, with its published size.
func Named(name string) (Network, error) {
	c, image, target, err := NamedConfig(name)
	if err != nil {
		return nil, err
	}
	return c.Network(image, target)
}

// NamedConfig returns the config of the network with the given name, and the published shapes of
// one sample. The caller may change fields of the config.
func NamedConfig(name string) (c Config, image, target []int, err error) {
	for _, k := range namedNetworks() {
		if k.name == name {
			return k.config, k.image, k.target, nil
		}
	}
	return Config{}, nil, nil, fmt.Errorf("unknown network %q: use one of %s", name, strings.Join(Names(), ", "))
}
