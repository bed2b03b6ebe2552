package model

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// UNet3DConfig says which 3-D U-Net.
type UNet3DConfig struct {
	Base        int   // channels of the first level, 64 as published; the next have 2, 4, 8, 8, 8… times as many
	Depth       int   // levels, 6 as published; each halves every side
	InChannels  int   // fields given
	OutChannels int   // fields asked for
	Size        []int // depth, height, width of the volume, each a multiple of 2^Depth
	// ExpWeight is λ of the loss' second term, which weighs dense regions: 0 as
	// published; see nn.L1.
	ExpWeight float64
}

// Validate reports the first field that cannot be.
func (c UNet3DConfig) Validate() error {
	const maxDepth = 10
	for _, f := range []struct {
		name      string
		value, hi int
	}{
		{"base", c.Base, 1 << 12}, {"depth", c.Depth, maxDepth}, {"input channels", c.InChannels, 1 << 12}, {"output channels", c.OutChannels, 1 << 12},
	} {
		if f.value < 1 || f.value > f.hi {
			return fmt.Errorf("validate unet3d: %s is %d: use 1 to %d", f.name, f.value, f.hi)
		}
	}
	if len(c.Size) != 3 {
		return fmt.Errorf("validate unet3d: size is %v: give depth, height and width", c.Size)
	}
	step := 1 << c.Depth
	for i, side := range c.Size {
		if side < step || side%step != 0 || side > maxSide {
			return fmt.Errorf("validate unet3d: %s is %d: depth %d halves it %d times, so it must be a multiple of %d: the nearest is %d",
				[]string{"depth of the volume", "height", "width"}[i], side, c.Depth, c.Depth, step, max(step, (min(side, maxSide)+step/2)/step*step))
		}
	}
	if !(c.ExpWeight >= 0 && c.ExpWeight <= 1e6) {
		return fmt.Errorf("validate unet3d: exp weight is %g: use 0 to 1e6", c.ExpWeight)
	}
	return nil
}

// UNet3DNetwork is a 3-D U-Net that turns fields on a grid into others: the SC21
// tutorial's, from N-body simulations to hydrodynamics. Its loss is the mean
// absolute difference. It has no normalisation, so that N workers equal one
// with an N-fold batch.
//
// Convolutions of 4×4×4 and stride 2 halve the volume, each with a leaky ReLU
// (0.01); transposed ones double it, each with a ReLU and the concatenation
// [up, skip], and tanh behind the last. Weights begin with N(0, 0.02²), biases
// with 0.
type UNet3DNetwork struct {
	config     UNet3DConfig
	parameters int
}

var _ Network = (*UNet3DNetwork)(nil)

// UNet3D is the 3-D U-Net of that configuration.
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

// Name is unet3d-<base>x<depth>.
func (u *UNet3DNetwork) Name() string {
	return fmt.Sprintf("unet3d-%dx%d", u.config.Base, u.config.Depth)
}

// Config is the configuration that u was made with.
func (u *UNet3DNetwork) Config() UNet3DConfig {
	c := u.config
	c.Size = slices.Clone(c.Size)
	return c
}

// Task is Regression.
func (u *UNet3DNetwork) Task() Task { return Regression }

// InputShape is channels, depth, height, width of the fields given.
func (u *UNet3DNetwork) InputShape() []int {
	return append([]int{u.config.InChannels}, u.config.Size...)
}

// TargetShape is channels, depth, height, width of the fields asked for.
func (u *UNet3DNetwork) TargetShape() []int {
	return append([]int{u.config.OutChannels}, u.config.Size...)
}

// Parameters is the number of trained numbers.
func (u *UNet3DNetwork) Parameters() int { return u.parameters }

// channels are those of a level, from 0.
func (c UNet3DConfig) channels(level int) int { return c.Base << min(level, 3) }

// Graph builds the network.
func (u *UNet3DNetwork) Graph(batch int, mode nn.Mode) (*nn.Graph, error) {
	if batch < 1 {
		return nil, fmt.Errorf("build %s: batch is %d: use at least 1", u.Name(), batch)
	}
	c := u.config
	g := nn.NewGraph(mode)
	x := g.Input(ImageInput, append([]int{batch}, u.InputShape()...)...)
	target := g.Input(TargetInput, append([]int{batch}, u.TargetShape()...)...)
	layer := func(out int) nn.Convolution {
		return nn.Convolution{
			Out: out, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true,
			Weight: nn.Same(nn.Normal(0.02)), BiasInit: nn.Same(nn.Constant(0)),
		}
	}
	skips := make([]*gorgonia.Node, c.Depth)
	for i := range c.Depth {
		x = g.LeakyReLU(g.Conv(fmt.Sprintf("down.%d", i), x, layer(c.channels(i))), leakySlope)
		skips[i] = x
	}
	for i := c.Depth - 1; i > 0; i-- {
		x = g.ReLU(g.ConvTranspose(fmt.Sprintf("up.%d", i), x, layer(c.channels(i-1))))
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
