package model

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// UNet3DConfig configures a 3-D U-Net.
type UNet3DConfig struct {
	Base        int   // channels of the first level, 64 as published; the next have 2, 4, 8, 8, 8… times as many
	Depth       int   // levels, 6 as published; each halves every side
	InChannels  int   // number of input fields
	OutChannels int   // number of output fields
	Size        []int // depth, height, width of the volume, each a multiple of 2^Depth
	// ExpWeight is λ, the weight of the loss' second term, which emphasizes dense
	// regions; see nn.L1. The published network has ExpWeight 0.
	ExpWeight float64
}

// Validate returns an error for the first invalid field.
func (c UNet3DConfig) Validate() error {
	const maxDepth = 10
	for _, f := range []struct {
		name      string
		value, hi int
	}{
		{"base", c.Base, 1 << 12}, {"depth", c.Depth, maxDepth}, {"input channels", c.InChannels, 1 << 12}, {"output channels", c.OutChannels, 1 << 12},
	} {
		if f.value < 1 || f.value > f.hi {
			return fmt.Errorf("validate unet3d: invalid %s %d: use 1 to %d", f.name, f.value, f.hi)
		}
	}
	if len(c.Size) != 3 {
		return fmt.Errorf("validate unet3d: invalid size %v: give depth, height and width", c.Size)
	}
	step := 1 << c.Depth
	for i, side := range c.Size {
		if side < step || side%step != 0 || side > maxSide {
			return fmt.Errorf("validate unet3d: invalid %s %d: depth %d halves it %d times, so it must be a multiple of %d: the nearest is %d",
				[]string{"depth of the volume", "height", "width"}[i], side, c.Depth, c.Depth, step, max(step, (min(side, maxSide)+step/2)/step*step))
		}
	}
	if !(c.ExpWeight >= 0 && c.ExpWeight <= 1e6) {
		return fmt.Errorf("validate unet3d: invalid exp weight %g: use 0 to 1e6", c.ExpWeight)
	}
	return nil
}

// UNet3DNetwork is a 3-D U-Net that computes fields on a grid from other fields: the SC21
// tutorial's network, from N-body simulations to hydrodynamics. Its loss is the mean
// absolute difference. It has no normalization, so that training with N workers equals
// training with one worker and N times the batch.
//
// Convolutions of 4×4×4 with stride 2 halve the volume, each followed by a leaky ReLU
// (0.01). Transposed convolutions double it, each followed by a ReLU and the
// concatenation [up, skip]; the last is followed by tanh. The initial weights are N(0,
// 0.02²), the initial biases 0.
type UNet3DNetwork struct {
	config     UNet3DConfig
	parameters int
}

var _ Network = (*UNet3DNetwork)(nil)

// UNet3D returns the 3-D U-Net with the given configuration.
func UNet3D(c UNet3DConfig) (*UNet3DNetwork, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Size = slices.Clone(c.Size)
	u := &UNet3DNetwork{config: c}
	g, err := u.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	u.parameters = g.ParameterCount()
	return u, nil
}

// Name returns unet3d-<base>x<depth>.
func (u *UNet3DNetwork) Name() string {
	return fmt.Sprintf("unet3d-%dx%d", u.config.Base, u.config.Depth)
}

// Config returns the configuration of u.
func (u *UNet3DNetwork) Config() UNet3DConfig {
	c := u.config
	c.Size = slices.Clone(c.Size)
	return c
}

// Task returns Regression.
func (u *UNet3DNetwork) Task() Task { return Regression }

// InputShape returns the channels, depth, height and width of the input fields.
func (u *UNet3DNetwork) InputShape() []int {
	return append([]int{u.config.InChannels}, u.config.Size...)
}

// TargetShape returns the channels, depth, height and width of the output fields.
func (u *UNet3DNetwork) TargetShape() []int {
	return append([]int{u.config.OutChannels}, u.config.Size...)
}

// Parameters returns the number of trainable elements.
func (u *UNet3DNetwork) Parameters() int { return u.parameters }

// channelsAtLevel returns the number of channels at a level, counted from 0.
func (c UNet3DConfig) channelsAtLevel(level int) int { return c.Base << min(level, 3) }

// Graph builds the network for the given batch size.
func (u *UNet3DNetwork) Graph(batch int, mode nn.Mode) (*nn.Graph, error) {
	if batch < 1 {
		return nil, fmt.Errorf("build %s: invalid batch %d: use at least 1", u.Name(), batch)
	}
	c := u.config
	g := nn.NewGraph(mode)
	x := g.Input(ImageInput, append([]int{batch}, u.InputShape()...)...)
	target := g.Input(TargetInput, append([]int{batch}, u.TargetShape()...)...)
	layer := func(out int) nn.Convolution {
		return nn.Convolution{
			Out: out, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true,
			Weight: nn.FixedScheme(nn.Normal(0.02)), BiasInit: nn.FixedScheme(nn.Constant(0)),
		}
	}
	skips := make([]*gorgonia.Node, c.Depth)
	for i := range c.Depth {
		x = g.LeakyReLU(g.Conv(fmt.Sprintf("down.%d", i), x, layer(c.channelsAtLevel(i))), defaultLeakySlope)
		skips[i] = x
	}
	for i := c.Depth - 1; i > 0; i-- {
		x = g.ReLU(g.ConvTranspose(fmt.Sprintf("up.%d", i), x, layer(c.channelsAtLevel(i-1))))
		x = g.Concat(x, skips[i-1])
	}
	x = g.Tanh(g.ConvTranspose("up.0", x, layer(c.OutChannels)))
	logits := g.Output(LogitsOutput, x)
	g.SetLoss(g.L1(logits, target, c.ExpWeight))
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("build %s: %w", u.Name(), err)
	}
	return g, nil
}
