package model

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// UNet2DConfig configures a 2-D U-Net.
type UNet2DConfig struct {
	Base        int    // channels of the first level; each level below has twice as many
	Depth       int    // levels above the bridge, each halves height and width
	InChannels  int    // channels of the image
	OutChannels int    // channels of the logits: of the mask, or classes if Softmax is set
	Height      int    // height of the image, a multiple of 2^Depth
	Width       int    // width of the image, a multiple of 2^Depth
	Bias        bool   // the 3×3 convolutions have biases (batch norm makes them superfluous; the study has them)
	Norm        string // "batch" or "none"
	// DiceWeight is the weight of soft Dice in the loss, in [0,1]. The weight of the
	// cross-entropy is 1 − DiceWeight. See nn.DiceBCE and nn.PixelCrossEntropy.
	DiceWeight float64
	// Softmax is set if each pixel has one of OutChannels classes, 2 to 255. The target then has
	// one channel with the index of the class, or IgnoredTarget. ClassWeights contains the weight
	// of each class in the cross-entropy; nil means 1 for each.
	Softmax      bool
	ClassWeights []float64
}

// maxUNetDepth limits the depth: with 10 levels the bridge has 1024 times fewer pixels per
// side.
const maxUNetDepth = 10

// IgnoredTarget is the target of pixels that count in no loss and no score. It equals
// data.Ignored.
const IgnoredTarget = 255

// Validate returns an error for the first invalid field.
func (c UNet2DConfig) Validate() error {
	for _, f := range []struct {
		name      string
		value, hi int
	}{
		{"base", c.Base, 1 << 12}, {"depth", c.Depth, maxUNetDepth}, {"input channels", c.InChannels, 1 << 12}, {"output channels", c.OutChannels, 1 << 12},
	} {
		if f.value < 1 || f.value > f.hi {
			return fmt.Errorf("validate unet2d: invalid %s %d: use 1 to %d", f.name, f.value, f.hi)
		}
	}
	step := 1 << c.Depth
	for _, side := range []struct {
		name  string
		value int
	}{{"height", c.Height}, {"width", c.Width}} {
		if side.value < step || side.value%step != 0 {
			return fmt.Errorf("validate unet2d: invalid %s %d: depth %d halves it %d times, so it must be a multiple of %d: the nearest is %d",
				side.name, side.value, c.Depth, c.Depth, step, max(step, (side.value+step/2)/step*step))
		}
	}
	if c.Norm != "batch" && c.Norm != "none" {
		return fmt.Errorf("validate unet2d: unknown norm %q: use batch or none", c.Norm)
	}
	if !(c.DiceWeight >= 0 && c.DiceWeight <= 1) {
		return fmt.Errorf("validate unet2d: invalid weight of Dice %g: use 0 to 1", c.DiceWeight)
	}
	if !c.Softmax {
		if c.ClassWeights != nil {
			return errors.New("validate unet2d: class weights apply only to masks with classes: set the number of classes, or leave the weights out")
		}
		return nil
	}
	if c.OutChannels < 2 || c.OutChannels > IgnoredTarget {
		return fmt.Errorf("validate unet2d: invalid number of classes %d: use 2 to %d", c.OutChannels, IgnoredTarget)
	}
	if err := nn.CheckClassWeights(c.ClassWeights, c.OutChannels); err != nil {
		return fmt.Errorf("validate unet2d: class weights: %w", err)
	}
	return nil
}

// UNet2DNetwork is a 2-D U-Net for segmentation. Its loss is the binary cross-entropy of
// its logits, or, with Softmax, the cross-entropy over classes, combined with soft Dice if
// DiceWeight is set.
//
// Ronneberger et al., U-Net, 2015, arXiv:1505.04597; with padded convolutions and batch
// norm, as is usual today.
type UNet2DNetwork struct {
	config     UNet2DConfig
	parameters int
}

var _ Network = (*UNet2DNetwork)(nil)

// UNet2D returns the U-Net with the given configuration.
func UNet2D(c UNet2DConfig) (*UNet2DNetwork, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u := &UNet2DNetwork{config: c}
	g, err := u.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	u.parameters = g.ParameterCount()
	return u, nil
}

// Name returns unet2d-<base>x<depth>, with suffixes for options that differ from the
// defaults.
func (u *UNet2DNetwork) Name() string {
	name := fmt.Sprintf("unet2d-%dx%d", u.config.Base, u.config.Depth)
	if u.config.Bias {
		name += "-bias"
	}
	if u.config.Norm != "batch" {
		name += "-norm-" + u.config.Norm
	}
	if u.config.Softmax {
		name += fmt.Sprintf("-k%d", u.config.OutChannels)
	}
	return name
}

// Config returns the configuration of u.
func (u *UNet2DNetwork) Config() UNet2DConfig { return u.config }

// Task returns Segmentation.
func (u *UNet2DNetwork) Task() Task { return Segmentation }

// InputShape returns the channels, height and width of an image.
func (u *UNet2DNetwork) InputShape() []int {
	return []int{u.config.InChannels, u.config.Height, u.config.Width}
}

// TargetShape returns the channels, height and width of a mask.
func (u *UNet2DNetwork) TargetShape() []int {
	channels := u.config.OutChannels
	if u.config.Softmax {
		channels = 1
	}
	return []int{channels, u.config.Height, u.config.Width}
}

// Parameters returns the number of trainable elements.
func (u *UNet2DNetwork) Parameters() int { return u.parameters }

// Graph builds the network: Depth levels down, each with two blocks of convolution, batch
// norm and ReLU, and a 2×2 max-pool after them; two blocks as a bridge; Depth levels up,
// each with a 2×2 transposed convolution, the concatenation [up, skip] and two blocks;
// and a 1×1 convolution as head.
func (u *UNet2DNetwork) Graph(batch int, mode nn.Mode) (*nn.Graph, error) {
	if batch < 1 {
		return nil, fmt.Errorf("build %s: invalid batch %d: use at least 1", u.Name(), batch)
	}
	c := u.config
	g := nn.NewGraph(mode)
	x := g.Input(ImageInput, batch, c.InChannels, c.Height, c.Width)
	target := g.Input(TargetInput, append([]int{batch}, u.TargetShape()...)...)

	var skips []*gorgonia.Node
	for i := range c.Depth {
		x = u.addBlocks(g, fmt.Sprintf("down.%d", i), x, c.Base<<i)
		skips = append(skips, x)
		x = g.MaxPool2D(x, 2, 2)
	}
	x = u.addBlocks(g, "bridge", x, c.Base<<c.Depth)
	for i := c.Depth - 1; i >= 0; i-- {
		name := fmt.Sprintf("up.%d", i)
		x = g.ConvTranspose2D(name+".transpose", x, c.Base<<i, 2, 2, 0, true)
		x = g.Concat(x, skips[i])
		x = u.addBlocks(g, name, x, c.Base<<i)
	}
	logits := g.Output(LogitsOutput, g.Conv2D("head", x, c.OutChannels, 1, 1, 0, true))
	switch {
	case c.Softmax:
		g.SetLoss(g.PixelCrossEntropy(logits, target, nn.PixelLoss{ClassWeights: c.ClassWeights, Ignore: IgnoredTarget, DiceWeight: c.DiceWeight}))
	case c.DiceWeight > 0:
		g.SetLoss(g.DiceBCE(logits, target, c.DiceWeight))
	default:
		g.SetLoss(g.BCEWithLogits(logits, target))
	}
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("build %s: %w", u.Name(), err)
	}
	return g, nil
}

func (u *UNet2DNetwork) addBlocks(g *nn.Graph, name string, x *gorgonia.Node, channels int) *gorgonia.Node {
	for _, part := range []string{".a", ".b"} {
		// Without batch norm after it, a convolution needs a bias.
		x = g.Conv2D(name+part+".conv", x, channels, 3, 1, 1, u.config.Bias || u.config.Norm == "none")
		if u.config.Norm == "batch" {
			x = g.BatchNorm(name+part+".norm", x)
		}
		x = g.ReLU(x)
	}
	return x
}
