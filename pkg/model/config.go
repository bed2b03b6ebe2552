package model

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/nn"
)

// Config describes a network except for the shapes of its samples, which depend on the
// data. For a field that is zero, the default of the kind is used. It is an error to set a
// field that the kind does not use.
type Config struct {
	Kind  string `yaml:"kind" json:"kind"`   // one of Kinds
	Base  int    `yaml:"base" json:"base"`   // channels of the first level or stage; 0: 64, but unet2d needs it
	Depth int    `yaml:"depth" json:"depth"` // U-Nets: levels; 0: 6, but unet2d needs it
	Norm  string `yaml:"norm" json:"norm"`   // unet2d: "batch" or "none"
	Bias  bool   `yaml:"bias" json:"bias"`   // unet2d: biases of the convolutions before batch norm

	// Dice is the weight of soft Dice in unet2d's loss, in [0,1]. The weight of the
	// cross-entropy is 1 − Dice.
	Dice float64 `yaml:"dice" json:"dice,omitempty"`

	// Classes is the number of classes. For ResNets, 0 means 10. For unet2d, it is the number of
	// classes of a pixel, 2 to 255, and the mask contains the index of each pixel's class; 0 means
	// that the mask contains 0 and 1, and that there is one logit per channel of the mask.
	Classes int `yaml:"classes" json:"classes,omitempty"`
	// ClassWeights contains the weight of each class in the cross-entropy of a unet2d with
	// Classes: 0 or more, and not all 0. Empty means 1 for each. The loss is divided by the number
	// of pixels whatever the weights are; see nn.PixelCrossEntropy.
	ClassWeights []float64 `yaml:"class_weights,omitempty" json:"class_weights,omitempty"`

	Stem           string  `yaml:"stem" json:"stem,omitempty"`                       // ResNets: "imagenet" or "cifar"; empty: imagenet
	Blocks         []int   `yaml:"blocks" json:"blocks,omitempty"`                   // resnet, resnetv2: blocks of each stage; empty: 3, 4, 6, 3
	LabelSmoothing float64 `yaml:"label_smoothing" json:"label_smoothing,omitempty"` // ResNets: in [0,1)
	ExpWeight      float64 `yaml:"exp_weight" json:"exp_weight,omitempty"`           // unet3d: λ of the loss' second term
	// BatchNormMomentum is the weight of a batch in the running statistics of a
	// ResNet's batch norms, in [0,1]. 0 means the kind's default: 0.1 as in PyTorch, or
	// 0.01 for V2 networks (Keras calls this a momentum of 0.99).
	BatchNormMomentum float64 `yaml:"batchnorm_momentum,omitempty" json:"batchnorm_momentum,omitempty"`

	Task Task   `yaml:"task" json:"task,omitempty"` // own: what the network learns; the other kinds define it
	File string `yaml:"file" json:"file,omitempty"` // spec: the YAML file that Resolve reads
	Spec *Spec  `yaml:"spec" json:"spec,omitempty"` // spec: the graph itself

	// Weights is a safetensors file with the initial weights: a checkpoint, or a file with
	// the tensor names of PyTorch or Keras. Empty means random weights. It applies to all
	// kinds.
	Weights string `yaml:"weights" json:"weights,omitempty"`
}

// The kinds of network.
const (
	KindUNet2D      = "unet2d"
	KindUNet3D      = "unet3d"
	KindResNet50V2  = "resnet50v2"  // as in keras.applications, blocks 3, 4, 6, 3
	KindResNet152V2 = "resnet152v2" // the same, blocks 3, 8, 36, 3
	KindResNetV2    = "resnetv2"    // the same with custom Blocks
	KindResNet50    = "resnet50"    // v1.5 as in torchvision, blocks 3, 4, 6, 3
	KindResNet      = "resnet"      // the same with custom Blocks
	KindSpec        = "spec"        // a graph in YAML
	KindOwn         = "own"         // built by the program that trains it
)

// networkKind describes a kind of network that Config.Kind can select.
type networkKind struct {
	name string
	uses []string // fields of Config that the kind uses, in addition to kind and weights
	// image and target are shapes of one sample that every valid network of the kind
	// accepts. build returns a function that builds the network for samples of the given
	// shapes, or an error if the network cannot have these shapes. All three are nil for
	// the kinds spec and own, whose networks are not defined by a Config's sizes.
	image, target []int
	build         func(c Config, image, target []int) (func() (Network, error), error)
}

// networkKinds returns all kinds, in the order in which messages list them.
func networkKinds() []networkKind {
	const side = 1 << 12 // halved as often as any network halves it
	picture, class := []int{3, side, side}, []int{1}
	resNet := []string{"base", "classes", "stem", "label_smoothing", "batchnorm_momentum"}
	ownBlocks := []string{"base", "blocks", "classes", "stem", "label_smoothing", "batchnorm_momentum"}
	return []networkKind{
		{KindUNet2D, []string{"base", "depth", "norm", "bias", "dice", "classes", "class_weights"}, []int{1, side, side}, []int{1, side, side}, Config.newUNet2DBuilder},
		{KindUNet3D, []string{"base", "depth", "exp_weight"}, []int{1, side, side, side}, []int{1, side, side, side}, Config.newUNet3DBuilder},
		{KindResNet50V2, resNet, picture, class, newResNetBuilder(ResNetV2, ResNetConfig.validateV2, 3, 4, 6, 3)},
		{KindResNet152V2, resNet, picture, class, newResNetBuilder(ResNetV2, ResNetConfig.validateV2, 3, 8, 36, 3)},
		{KindResNetV2, ownBlocks, picture, class, newResNetBuilder(ResNetV2, ResNetConfig.validateV2, 3, 4, 6, 3)},
		{KindResNet50, resNet, picture, class, newResNetBuilder(ResNetV1, ResNetConfig.Validate, 3, 4, 6, 3)},
		{KindResNet, ownBlocks, picture, class, newResNetBuilder(ResNetV1, ResNetConfig.Validate, 3, 4, 6, 3)},
		{KindSpec, []string{"file", "spec"}, nil, nil, nil},
		{KindOwn, []string{"task"}, nil, nil, nil},
	}
}

func findNetworkKind(name string) (k networkKind, ok bool) {
	all := networkKinds()
	i := slices.IndexFunc(all, func(k networkKind) bool { return k.name == name })
	if i < 0 {
		return networkKind{}, false
	}
	return all[i], true
}

// Kinds returns the names that Config.Kind may have.
func Kinds() []string {
	var names []string
	for _, k := range networkKinds() {
		names = append(names, k.name)
	}
	return names
}

type configFieldUse struct {
	name string // in YAML
	set  bool
}

// kindSpecificFields lists the fields of c except kind and weights, which apply to all kinds.
func (c Config) kindSpecificFields() []configFieldUse {
	return []configFieldUse{
		{"base", c.Base != 0},
		{"depth", c.Depth != 0},
		{"norm", c.Norm != ""},
		{"bias", c.Bias},
		{"dice", c.Dice != 0},
		{"classes", c.Classes != 0},
		{"class_weights", len(c.ClassWeights) > 0},
		{"stem", c.Stem != ""},
		{"blocks", len(c.Blocks) > 0},
		{"label_smoothing", c.LabelSmoothing != 0},
		{"exp_weight", c.ExpWeight != 0},
		{"batchnorm_momentum", c.BatchNormMomentum != 0},
		{"task", c.Task != ""},
		{"file", c.File != ""},
		{"spec", c.Spec != nil},
	}
}

// Validate returns an error for the first invalid field, with the valid values.
func (c Config) Validate() error {
	k, ok := findNetworkKind(c.Kind)
	if !ok {
		return fmt.Errorf("unknown model.kind %q: use one of %s", c.Kind, strings.Join(Kinds(), ", "))
	}
	for _, f := range c.kindSpecificFields() {
		if f.set && !slices.Contains(k.uses, f.name) {
			return fmt.Errorf("model.%s does not apply to model.kind %s: leave it out (this kind has %s)", f.name, c.Kind, strings.Join(k.uses, ", "))
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
	_, err := k.build(c, k.image, k.target)
	return err
}

// Network returns the network that c describes, for samples of the given shapes. The shapes do
// not include the batch.
func (c Config) Network(image, target []int) (Network, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	switch c.Kind {
	case KindSpec:
		if c.Spec == nil {
			return nil, fmt.Errorf("build model from %s: the file has not been read: call Config.Resolve first", c.File)
		}
		return c.Spec.Network(image, target)
	case KindOwn:
		return nil, errors.New("build model: a model of kind own is built by the program that trains it: run that program, or save the network as a spec (model.SpecOf) and use kind spec")
	}
	for _, s := range [][]int{image, target} {
		if len(s) == 0 || slices.Min(s) < 1 {
			return nil, fmt.Errorf("build %s: got image shape %v and target shape %v: each dimension must be at least 1", c.Kind, image, target)
		}
	}
	k, _ := findNetworkKind(c.Kind) // Validate knows it
	build, err := k.build(c, image, target)
	if err != nil {
		return nil, err
	}
	return build()
}

func (c Config) newUNet2DBuilder(image, target []int) (build func() (Network, error), err error) {
	if len(image) != 3 || len(target) != 3 {
		return nil, fmt.Errorf("build %s: got image shape %v and target shape %v, want images and masks (channels, height, width)", c.Kind, image, target)
	}
	u := UNet2DConfig{
		Base: c.Base, Depth: c.Depth, InChannels: image[0], OutChannels: target[0],
		Height: image[1], Width: image[2], Bias: c.Bias, Norm: c.Norm, DiceWeight: c.Dice,
	}
	if len(c.ClassWeights) > 0 && c.Classes == 0 {
		return nil, errors.New("model.class_weights needs model.classes, the number of classes in the masks: set it, or leave model.class_weights out")
	}
	if c.Classes != 0 {
		if c.Classes < 2 || c.Classes > IgnoredTarget {
			return nil, fmt.Errorf("model.classes is %d: use 2 to %d, the number of classes in the masks, or leave it out for masks of one foreground", c.Classes, IgnoredTarget)
		}
		if target[0] != 1 {
			return nil, fmt.Errorf("build %s: got target shape %v, want one channel with the index of each pixel's class, because model.classes is %d", c.Kind, target, c.Classes)
		}
		if len(c.ClassWeights) > 0 {
			if err := nn.CheckClassWeights(c.ClassWeights, c.Classes); err != nil {
				return nil, fmt.Errorf("model.class_weights: %w", err)
			}
			u.ClassWeights = c.ClassWeights
		}
		u.OutChannels, u.Softmax = c.Classes, true
	}
	return func() (Network, error) { return UNet2D(u) }, u.Validate()
}

func (c Config) newUNet3DBuilder(image, target []int) (build func() (Network, error), err error) {
	if len(image) != 4 || len(target) != 4 || !slices.Equal(image[1:], target[1:]) {
		return nil, fmt.Errorf("build %s: got image shape %v and target shape %v, want volumes of one size (channels, depth, height, width)", c.Kind, image, target)
	}
	u := UNet3DConfig{
		Base: cmp.Or(c.Base, unet3DBase), Depth: cmp.Or(c.Depth, unet3DDepth), InChannels: image[0], OutChannels: target[0],
		Size: image[1:], ExpWeight: c.ExpWeight,
	}
	return func() (Network, error) { return UNet3D(u) }, u.Validate()
}

// Sizes of the published networks, which are the defaults.
const (
	resNetBase  = 64
	unet3DBase  = 64
	unet3DDepth = 6
)

// newResNetBuilder returns networkKind.build for one version of ResNet. newNetwork creates the
// network, validate checks its configuration, and blocks is the default of Config.Blocks.
func newResNetBuilder(newNetwork func(ResNetConfig) (*ResNet, error), validate func(ResNetConfig) error, blocks ...int) func(Config, []int, []int) (func() (Network, error), error) {
	return func(c Config, image, target []int) (func() (Network, error), error) {
		if len(image) != 3 || !slices.Equal(target, []int{1}) {
			return nil, fmt.Errorf("build %s: got image shape %v and target shape %v, want images (channels, height, width) and the index of a class [1]", c.Kind, image, target)
		}
		r := ResNetConfig{
			Blocks: c.Blocks, Base: cmp.Or(c.Base, resNetBase), Classes: cmp.Or(c.Classes, 10), Stem: cmp.Or(c.Stem, StemImageNet),
			InChannels: image[0], Height: image[1], Width: image[2], LabelSmoothing: c.LabelSmoothing,
			BatchNormMomentum: c.BatchNormMomentum,
		}
		if len(r.Blocks) == 0 {
			r.Blocks = blocks
		}
		return func() (Network, error) { return newNetwork(r) }, validate(r)
	}
}

// Resolve returns a copy of c in which Spec has the content of File, so that a run's record
// and its workers get the graph itself. If Spec is set already, File is not read. Relative
// paths in File and Weights are interpreted relative to dir.
func (c Config) Resolve(dir string) (Config, error) {
	absolute := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	if c.Weights != "" {
		c.Weights = absolute(c.Weights)
	}
	if c.Kind != KindSpec || c.File == "" || c.Spec != nil {
		return c, nil
	}
	s, err := ReadSpec(absolute(c.File))
	if err != nil {
		return c, err
	}
	c.Spec = s
	return c, nil
}

// UnmarshalYAML sets the fields that the document contains. If the document names another
// kind, all other fields are reset first, because they belong to the previous kind.
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	type plain Config
	keys := []string{"kind"}
	for _, f := range c.kindSpecificFields() {
		keys = append(keys, f.name)
	}
	if err := checkMappingKeys(n, "model", append(keys, "weights")...); err != nil {
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
