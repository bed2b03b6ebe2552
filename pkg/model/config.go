package model

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Config says which network, but for the shapes of its samples, which the data
// decide. A field that is zero is the kind's own; one that the kind has no use
// for is refused, so that nothing is set in vain.
type Config struct {
	Kind  string `yaml:"kind" json:"kind"`   // one of Kinds
	Base  int    `yaml:"base" json:"base"`   // channels of the first level or stage; 0: 64, but unet2d needs it
	Depth int    `yaml:"depth" json:"depth"` // U-Nets: levels; 0: 6, but unet2d needs it
	Norm  string `yaml:"norm" json:"norm"`   // unet2d: "batch" or "none"
	Bias  bool   `yaml:"bias" json:"bias"`   // unet2d: biases of the convolutions before batch norm

	// Dice is the part of unet2d's loss that is soft Dice, in [0,1]; the rest is
	// binary cross-entropy.
	Dice float64 `yaml:"dice" json:"dice,omitempty"`

	Classes        int     `yaml:"classes" json:"classes,omitempty"`                 // ResNets: classes told apart; 0: 10
	Stem           string  `yaml:"stem" json:"stem,omitempty"`                       // ResNets: "imagenet" or "cifar"; empty: imagenet
	Blocks         []int   `yaml:"blocks" json:"blocks,omitempty"`                   // resnet, resnetv2: blocks of each stage; empty: 3, 4, 6, 3
	LabelSmoothing float64 `yaml:"label_smoothing" json:"label_smoothing,omitempty"` // ResNets: in [0,1)
	ExpWeight      float64 `yaml:"exp_weight" json:"exp_weight,omitempty"`           // unet3d: λ of the loss' second term
	// BatchNormMomentum is the weight of a batch in the running statistics of a
	// ResNet's batch norms, in [0,1]. 0 is the kind's own: 0.1 as in PyTorch, or for
	// V2 networks 0.01, which Keras writes as a momentum of 0.99.
	BatchNormMomentum float64 `yaml:"batchnorm_momentum,omitempty" json:"batchnorm_momentum,omitempty"`

	Task Task   `yaml:"task" json:"task,omitempty"` // own: what it learns; the others know
	File string `yaml:"file" json:"file,omitempty"` // spec: the YAML file that Resolve reads
	Spec *Spec  `yaml:"spec" json:"spec,omitempty"` // spec: the graph itself

	// Weights is a safetensors file to begin with, in place of values drawn by the
	// seed: a checkpoint, or one with PyTorch's or Keras' names. Any kind.
	Weights string `yaml:"weights" json:"weights,omitempty"`
}

// The kinds of network.
const (
	KindUNet2D      = "unet2d"
	KindUNet3D      = "unet3d"
	KindResNet50V2  = "resnet50v2"  // as in keras.applications, blocks 3, 4, 6, 3
	KindResNet152V2 = "resnet152v2" // the same, blocks 3, 8, 36, 3
	KindResNetV2    = "resnetv2"    // the same with Blocks of one's own
	KindResNet50    = "resnet50"    // v1.5 as in torchvision, blocks 3, 4, 6, 3
	KindResNet      = "resnet"      // the same with Blocks of one's own
	KindSpec        = "spec"        // a graph in YAML
	KindOwn         = "own"         // built by the program that trains it
)

// Kinds are the kinds that a Config may name.
func Kinds() []string {
	return []string{KindUNet2D, KindUNet3D, KindResNet50V2, KindResNet152V2, KindResNetV2, KindResNet50, KindResNet, KindSpec, KindOwn}
}

// uses are the fields beside Kind that each kind has a use for.
func uses(kind string) []string {
	switch kind {
	case KindUNet2D:
		return []string{"base", "depth", "norm", "bias", "dice"}
	case KindUNet3D:
		return []string{"base", "depth", "exp_weight"}
	case KindResNet50V2, KindResNet152V2, KindResNet50:
		return []string{"base", "classes", "stem", "label_smoothing", "batchnorm_momentum"}
	case KindResNetV2, KindResNet:
		return []string{"base", "blocks", "classes", "stem", "label_smoothing", "batchnorm_momentum"}
	case KindSpec:
		return []string{"file", "spec"}
	}
	return []string{"task"}
}

// Validate reports the first field that cannot be, with what would do.
func (c Config) Validate() error {
	if !slices.Contains(Kinds(), c.Kind) {
		return fmt.Errorf("model.kind %q is not known: use one of %s", c.Kind, strings.Join(Kinds(), ", "))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"base", c.Base != 0},
		{"depth", c.Depth != 0},
		{"norm", c.Norm != ""},
		{"bias", c.Bias},
		{"dice", c.Dice != 0},
		{"classes", c.Classes != 0},
		{"stem", c.Stem != ""},
		{"blocks", len(c.Blocks) > 0},
		{"label_smoothing", c.LabelSmoothing != 0},
		{"exp_weight", c.ExpWeight != 0},
		{"batchnorm_momentum", c.BatchNormMomentum != 0},
		{"task", c.Task != ""},
		{"file", c.File != ""},
		{"spec", c.Spec != nil},
	} {
		if f.set && !slices.Contains(uses(c.Kind), f.name) {
			return fmt.Errorf("model.%s has no use with model.kind %s: leave it out (this kind has %s)", f.name, c.Kind, strings.Join(uses(c.Kind), ", "))
		}
	}
	switch c.Kind {
	case KindSpec:
		if c.Spec == nil {
			if c.File == "" {
				return errors.New("model.kind spec needs model.file, a YAML file with the graph, or the graph itself as model.spec")
			}
			return nil
		}
		return c.Spec.Validate()
	case KindOwn:
		return cmp.Or(c.Task, Segmentation).Validate()
	}
	_, err := c.sized(c.anyShapes())
	return err
}

// anyShapes are shapes of samples that every valid network of the kind takes.
func (c Config) anyShapes() (image, target []int) {
	const side = 1 << 12 // halved as often as any network halves it
	switch c.Kind {
	case KindUNet2D:
		return []int{1, side, side}, []int{1, side, side}
	case KindUNet3D:
		return []int{1, side, side, side}, []int{1, side, side, side}
	}
	return []int{3, side, side}, []int{1}
}

// Network is the network for samples of these shapes, without the batch.
func (c Config) Network(image, target []int) (Network, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	switch c.Kind {
	case KindSpec:
		if c.Spec == nil {
			return nil, fmt.Errorf("build model from %s: it was not read: call Resolve", c.File)
		}
		return c.Spec.Network(image, target)
	case KindOwn:
		return nil, errors.New("build model: one of kind own is built by the program that trains it: run that program, or save the network as a spec (model.SpecOf) and use kind spec")
	}
	build, err := c.sized(image, target)
	if err != nil {
		return nil, err
	}
	return build()
}

// sized is what builds the network, with its sizes checked.
func (c Config) sized(image, target []int) (build func() (Network, error), err error) {
	for _, s := range [][]int{image, target} {
		if len(s) == 0 || slices.Min(s) < 1 {
			return nil, fmt.Errorf("build %s: samples have shapes %v and %v: each dimension must be at least 1", c.Kind, image, target)
		}
	}
	switch c.Kind {
	case KindUNet2D:
		if len(image) != 3 || len(target) != 3 {
			return nil, fmt.Errorf("build %s: samples have shapes %v and %v: it needs images and masks (channels, height, width)", c.Kind, image, target)
		}
		u := UNet2DConfig{
			Base: c.Base, Depth: c.Depth, InChannels: image[0], OutChannels: target[0],
			Height: image[1], Width: image[2], Bias: c.Bias, Norm: c.Norm, DiceWeight: c.Dice,
		}
		return func() (Network, error) { return UNet2D(u) }, u.Validate()
	case KindUNet3D:
		if len(image) != 4 || len(target) != 4 || !slices.Equal(image[1:], target[1:]) {
			return nil, fmt.Errorf("build %s: samples have shapes %v and %v: it needs volumes of one size (channels, depth, height, width)", c.Kind, image, target)
		}
		u := UNet3DConfig{
			Base: cmp.Or(c.Base, unet3DBase), Depth: cmp.Or(c.Depth, unet3DDepth), InChannels: image[0], OutChannels: target[0],
			Size: image[1:], ExpWeight: c.ExpWeight,
		}
		return func() (Network, error) { return UNet3D(u) }, u.Validate()
	}
	return c.resNet(image, target)
}

// The published sizes.
const (
	resNetBase  = 64
	unet3DBase  = 64
	unet3DDepth = 6
)

// resNet is what builds a ResNet, with its sizes checked.
func (c Config) resNet(image, target []int) (build func() (Network, error), err error) {
	if len(image) != 3 || !slices.Equal(target, []int{1}) {
		return nil, fmt.Errorf("build %s: samples have shapes %v and %v: it needs images (channels, height, width) and the index of a class [1]", c.Kind, image, target)
	}
	r := ResNetConfig{
		Blocks: c.Blocks, Base: cmp.Or(c.Base, resNetBase), Classes: cmp.Or(c.Classes, 10), Stem: cmp.Or(c.Stem, StemImageNet),
		InChannels: image[0], Height: image[1], Width: image[2], LabelSmoothing: c.LabelSmoothing,
		BatchNormMomentum: c.BatchNormMomentum,
	}
	switch {
	case c.Kind == KindResNet152V2:
		r.Blocks = []int{3, 8, 36, 3}
	case len(r.Blocks) == 0:
		r.Blocks = []int{3, 4, 6, 3}
	}
	if c.Kind == KindResNet50 || c.Kind == KindResNet {
		return func() (Network, error) { return ResNetV1(r) }, r.Validate()
	}
	return func() (Network, error) { return ResNetV2(r) }, r.validateV2()
}

// Resolve is c with its File read into Spec: what is recorded of a run and handed
// to its workers is then the graph itself. File and Weights are relative to dir
// where they are relative. A spec that is there already stays as it is.
func (c Config) Resolve(dir string) (Config, error) {
	within := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	if c.Weights != "" {
		c.Weights = within(c.Weights)
	}
	if c.Kind != KindSpec || c.File == "" || c.Spec != nil {
		return c, nil
	}
	s, err := ReadSpec(within(c.File))
	if err != nil {
		return c, err
	}
	c.Spec = s
	return c, nil
}

// UnmarshalYAML reads what a document sets over what is there. A document that
// names another kind begins anew: the sizes of a U-Net are none of a ResNet's.
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	type plain Config
	if err := knownKeys(n, "model", "kind", "base", "depth", "norm", "bias", "dice", "classes", "stem", "blocks", "label_smoothing", "exp_weight", "batchnorm_momentum", "task", "file", "spec", "weights"); err != nil {
		return err
	}
	var named struct {
		Kind string `yaml:"kind"`
	}
	if err := n.Decode(&named); err != nil {
		return err
	}
	if named.Kind != "" && named.Kind != c.Kind {
		*c = Config{}
	}
	return n.Decode((*plain)(c))
}
