package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// Stems of a ResNet: the layers before its first stage.
const (
	StemImageNet = "imagenet" // 7×7 convolution, stride 2, and 3×3 max-pool, stride 2
	StemCIFAR    = "cifar"    // 3×3 convolution, stride 1, no pooling: for images of some 32×32
)

// ResNetConfig configures a ResNet with bottleneck blocks.
type ResNetConfig struct {
	Blocks         []int   // of each stage: 3, 4, 6, 3 is ResNet-50, 3, 8, 36, 3 is ResNet-152
	Base           int     // channels within the blocks of the first stage, 64 as published; each further stage has twice as many
	Classes        int     // number of classes
	InChannels     int     // of the image
	Height         int     // of the image
	Width          int     // of the image
	Stem           string  // StemImageNet or StemCIFAR
	LabelSmoothing float64 // in [0,1): part of a label that all classes share

	// BatchNormMomentum is the weight of a batch in the running statistics, in [0,1]. 0
	// means nn.BatchNormMomentum in ResNetV1, and Keras' 0.01 in ResNetV2.
	BatchNormMomentum float64
}

// bottleneckExpansion is the ratio of a block's output channels to its inner channels.
const bottleneckExpansion = 4

// Validate returns an error for the first invalid field.
func (c ResNetConfig) Validate() error {
	for _, f := range []struct {
		name      string
		value, hi int
	}{
		{"base", c.Base, 1 << 12},
		{"classes", c.Classes, maxChannels},
		{"input channels", c.InChannels, 1 << 12},
		{"height", c.Height, maxSide},
		{"width", c.Width, maxSide},
	} {
		if f.value < 1 || f.value > f.hi {
			return fmt.Errorf("validate resnet: invalid %s %d: use 1 to %d", f.name, f.value, f.hi)
		}
	}
	const maxStages, maxBlocks = 6, 1000
	switch {
	case len(c.Blocks) < 1 || len(c.Blocks) > maxStages:
		return fmt.Errorf("validate resnet: blocks %v has %d stages: use 1 to %d", c.Blocks, len(c.Blocks), maxStages)
	case slices.Min(c.Blocks) < 1 || slices.Max(c.Blocks) > maxBlocks:
		return fmt.Errorf("validate resnet: invalid blocks %v: use 1 to %d per stage", c.Blocks, maxBlocks)
	case c.Stem != StemImageNet && c.Stem != StemCIFAR:
		return fmt.Errorf("validate resnet: unknown stem %q: use %s or %s", c.Stem, StemImageNet, StemCIFAR)
	case !(c.BatchNormMomentum >= 0 && c.BatchNormMomentum <= 1):
		return fmt.Errorf("validate resnet: invalid batchnorm_momentum %g: use the weight of a batch in the running statistics, above 0 and at most 1, or 0 for the network's default", c.BatchNormMomentum)
	case !(c.LabelSmoothing >= 0 && c.LabelSmoothing < 1):
		return fmt.Errorf("validate resnet: invalid label smoothing %g: use 0 or more, and less than 1", c.LabelSmoothing)
	}
	return nil
}

// publishedDepth returns the name of the published network that has these blocks, such as
// ResNet-50, or "" if there is none.
func (c ResNetConfig) publishedDepth() string {
	switch {
	case slices.Equal(c.Blocks, []int{3, 4, 6, 3}):
		return "50"
	case slices.Equal(c.Blocks, []int{3, 4, 23, 3}):
		return "101"
	case slices.Equal(c.Blocks, []int{3, 8, 36, 3}):
		return "152"
	}
	return ""
}

// ResNet is a residual network for classification, with softmax cross-entropy
// on its logits as loss.
type ResNet struct {
	config     ResNetConfig
	v2         bool
	parameters int
}

var _ Network = (*ResNet)(nil)

// ResNetV1 returns torchvision's ResNet, version 1.5: the stride of a stage is in the 3×3
// convolution of its first block. Its parameters have torchvision's names
// ("layer1.0.conv1.weight").
//
// He et al., Deep Residual Learning, 2015, arXiv:1512.03385; torchvision,
// models/resnet.py.
func ResNetV1(c ResNetConfig) (*ResNet, error) { return newResNet(c, false) }

// ResNetV2 returns the ResNet of keras.applications.ResNet50V2: batch norm and ReLU come
// before each convolution. The stride of a stage is in the 3×3 convolution of its last
// block, with a max-pool as shortcut; the last stage has no stride. Its parameters have
// Keras' layer names ("conv2_block1_1_conv.weight").
//
// He et al., Identity Mappings, 2016, arXiv:1603.05027; keras/applications/resnet.py and
// resnet_v2.py.
func ResNetV2(c ResNetConfig) (*ResNet, error) {
	if err := c.validateV2(); err != nil {
		return nil, err
	}
	return newResNet(c, true)
}

// validateV2 is Validate for ResNetV2, which needs at least two blocks per stage.
func (c ResNetConfig) validateV2() error {
	if err := c.Validate(); err != nil {
		return err
	}
	// In a stage of one block, this block would be both the first and the last.
	if slices.Min(c.Blocks) < 2 {
		return fmt.Errorf("validate resnetv2: invalid blocks %v: use at least 2 per stage, one with the shortcut's convolution and one with the stride", c.Blocks)
	}
	return nil
}

func newResNet(c ResNetConfig, v2 bool) (*ResNet, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Blocks = slices.Clone(c.Blocks)
	r := &ResNet{config: c, v2: v2}
	g, err := r.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	r.parameters = g.ParameterCount()
	return r, nil
}

// Name returns resnet50, resnet50v2 and so on for published networks. The names of other
// networks contain their settings, as in resnetv2-2x2-base8-cifar.
func (r *ResNet) Name() string {
	c := r.config
	name := "resnet" + c.publishedDepth()
	if r.v2 {
		name += "v2"
	}
	if c.publishedDepth() == "" {
		name += "-" + strings.ReplaceAll(strings.Trim(fmt.Sprint(c.Blocks), "[]"), " ", "x")
	}
	if c.Base != resNetBase {
		name += fmt.Sprintf("-base%d", c.Base)
	}
	if c.Stem != StemImageNet {
		name += "-" + c.Stem
	}
	return name + fmt.Sprintf("-%dclasses", c.Classes)
}

// Config returns the configuration of r.
func (r *ResNet) Config() ResNetConfig {
	c := r.config
	c.Blocks = slices.Clone(c.Blocks)
	return c
}

// IsV2 reports whether r is a ResNetV2.
func (r *ResNet) IsV2() bool { return r.v2 }

// BatchNormMomentum returns the batch's weight in the running statistics.
func (r *ResNet) BatchNormMomentum() float64 {
	if r.v2 {
		return cmp.Or(r.config.BatchNormMomentum, kerasMomentum)
	}
	return cmp.Or(r.config.BatchNormMomentum, nn.BatchNormMomentum)
}

// Task returns Classification.
func (r *ResNet) Task() Task { return Classification }

// InputShape returns the channels, height and width of an image.
func (r *ResNet) InputShape() []int {
	return []int{r.config.InChannels, r.config.Height, r.config.Width}
}

// TargetShape returns [1]: the target is a class index.
func (r *ResNet) TargetShape() []int { return []int{1} }

// Parameters returns the number of trainable elements. Keras' summaries also count
// running statistics, two per channel of a batch norm.
func (r *ResNet) Parameters() int { return r.parameters }

// Graph builds the network for the given batch size.
func (r *ResNet) Graph(batch int, mode nn.Mode) (*nn.Graph, error) {
	if batch < 1 {
		return nil, fmt.Errorf("build %s: invalid batch %d: use at least 1", r.Name(), batch)
	}
	c := r.config
	g := nn.NewGraph(mode)
	x := g.Input(ImageInput, batch, c.InChannels, c.Height, c.Width)
	target := g.Input(TargetInput, batch, 1)
	if r.v2 {
		x = r.addKerasLayers(g, x)
	} else {
		x = r.addTorchvisionLayers(g, x)
	}
	logits := g.Output(LogitsOutput, x)
	g.SetLoss(g.SoftmaxCrossEntropy(logits, target, c.LabelSmoothing))
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("build %s for images %d×%d×%d: %w", r.Name(), c.InChannels, c.Height, c.Width, err)
	}
	return g, nil
}

// addTorchvisionLayers adds the layers of torchvision's network. Its constants are PyTorch's
// defaults. Its convolutions have no biases, and their initial weights are
// kaiming_normal_ of the fan-out.
func (r *ResNet) addTorchvisionLayers(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
	c := r.config
	conv := func(name string, x *gorgonia.Node, out, kernel, stride int) *gorgonia.Node {
		return g.Conv(name, x, nn.Convolution{
			Out: out, Kernel: []int{kernel}, Stride: []int{stride}, Pad: []int{kernel / 2}, Weight: nn.KaimingFanOut,
		})
	}
	norm := func(name string, x *gorgonia.Node) *gorgonia.Node {
		return g.BatchNormWith(name, x, nn.BatchNormEpsilon, r.BatchNormMomentum())
	}
	if c.Stem == StemImageNet {
		x = g.ReLU(norm("bn1", conv("conv1", x, c.Base, 7, 2)))
		x = g.MaxPool(x, nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}})
	} else {
		x = g.ReLU(norm("bn1", conv("conv1", x, c.Base, 3, 1)))
	}
	for stage, blocks := range c.Blocks {
		inside := c.Base << stage
		for block := range blocks {
			name := fmt.Sprintf("layer%d.%d", stage+1, block)
			stride := 1
			if block == 0 && stage > 0 {
				stride = 2
			}
			y := g.ReLU(norm(name+".bn1", conv(name+".conv1", x, inside, 1, 1)))
			y = g.ReLU(norm(name+".bn2", conv(name+".conv2", y, inside, 3, stride)))
			y = norm(name+".bn3", conv(name+".conv3", y, bottleneckExpansion*inside, 1, 1))
			if block == 0 {
				x = norm(name+".downsample.1", conv(name+".downsample.0", x, bottleneckExpansion*inside, 1, stride))
			}
			x = g.ReLU(g.Add(y, x))
		}
	}
	return g.Linear("fc", g.GlobalAvgPool(x), nn.Dense{Out: c.Classes, Bias: true})
}

// Constants of the batch norms in Keras' ResNets. Keras specifies a momentum of 0.99, which is
// the weight of the previous value; kerasMomentum is the weight of the batch.
const (
	kerasEpsilon  = 1.001e-5
	kerasMomentum = 0.01
)

// addKerasLayers adds the layers of keras.applications' network. The initial weights are Glorot's
// uniform values, the initial biases 0. Convolutions have biases, including the stem's,
// unless a batch norm follows directly.
func (r *ResNet) addKerasLayers(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
	c := r.config
	conv := func(name string, x *gorgonia.Node, out, kernel, stride int, bias bool) *gorgonia.Node {
		return g.Conv(name, x, nn.Convolution{
			Out: out, Kernel: []int{kernel}, Stride: []int{stride}, Pad: []int{kernel / 2}, Bias: bias,
			Weight: nn.GlorotUniform, BiasInit: nn.FixedScheme(nn.Constant(0)),
		})
	}
	active := func(name string, x *gorgonia.Node) *gorgonia.Node {
		return g.ReLU(g.BatchNormWith(name, x, kerasEpsilon, r.BatchNormMomentum()))
	}
	if c.Stem == StemImageNet {
		x = conv("conv1_conv", x, c.Base, 7, 2, true)
		// Keras' padding of zeros counts in the maximum, because x can be negative here.
		x = g.MaxPool(x, nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}, PadZeros: true})
	} else {
		x = conv("conv1_conv", x, c.Base, 3, 1, true)
	}
	for stage, blocks := range c.Blocks {
		inside := c.Base << stage
		for block := range blocks {
			name := fmt.Sprintf("conv%d_block%d", stage+2, block+1)
			stride := 1
			if block == blocks-1 && stage < len(c.Blocks)-1 {
				stride = 2
			}
			y := active(name+"_preact_bn", x)
			switch {
			case block == 0:
				x = conv(name+"_0_conv", y, bottleneckExpansion*inside, 1, 1, true)
			case stride > 1:
				x = g.MaxPool(x, nn.Pool{Kernel: []int{1}, Stride: []int{stride}})
			}
			y = active(name+"_1_bn", conv(name+"_1_conv", y, inside, 1, 1, false))
			y = active(name+"_2_bn", conv(name+"_2_conv", y, inside, 3, stride, false))
			y = conv(name+"_3_conv", y, bottleneckExpansion*inside, 1, 1, true)
			x = g.Add(x, y)
		}
	}
	x = g.GlobalAvgPool(active("post_bn", x))
	return g.Linear("predictions", x, nn.Dense{Out: c.Classes, Bias: true, Weight: nn.GlorotUniform, BiasInit: nn.FixedScheme(nn.Constant(0))})
}
