package model

import (
	"cmp"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// Kinds of losses in a spec. A Summary lists losses under the same kinds.
const (
	lossBCE     = "BCEWithLogits"
	lossDice    = "DiceBCE"
	lossSoftmax = "SoftmaxCrossEntropy"
	lossPixel   = "PixelCrossEntropy"
	lossL1      = "L1"
)

// defaultLeakySlope is the default slope of a leaky ReLU, as in PyTorch.
const defaultLeakySlope = 0.01

type specLayerKind struct {
	name       string
	about      string
	inputs     int
	parameters bool
	fields     []string // the fields that it uses, except for name, kind and in
	build      func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node
}

func specLayerKinds() []specLayerKind {
	convolution := []string{"out", "kernel", "stride", "pad", "bias", "init", "bias_init"}
	return []specLayerKind{
		{"Conv", "convolution", 1, true, convolution, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.Conv(l.Name, in[0], l.toConvolution())
		}},
		{"ConvTranspose", "transposed convolution", 1, true, convolution, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.ConvTranspose(l.Name, in[0], l.toConvolution())
		}},
		{"BatchNorm", "batch normalisation", 1, true, []string{"epsilon", "momentum"}, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.BatchNormWith(l.Name, in[0], cmp.Or(l.Epsilon, nn.BatchNormEpsilon), cmp.Or(l.Momentum, nn.BatchNormMomentum))
		}},
		{"Linear", "fully connected layer", 1, true, []string{"out", "bias", "init", "bias_init"}, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.Linear(l.Name, in[0], nn.Dense{Out: l.Out, Bias: l.hasBias(), Weight: mustParseInitScheme(l.Init), BiasInit: mustParseInitScheme(l.BiasInit)})
		}},
		{"ReLU", "max(0, x)", 1, false, nil, func(g *nn.Graph, _ SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.ReLU(in[0])
		}},
		{"LeakyReLU", "x where positive, else slope·x", 1, false, []string{"slope"}, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.LeakyReLU(in[0], cmp.Or(l.Slope, defaultLeakySlope))
		}},
		{"Tanh", "hyperbolic tangent", 1, false, nil, func(g *nn.Graph, _ SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.Tanh(in[0])
		}},
		{"MaxPool", "maximum over windows", 1, false, []string{"kernel", "stride", "pad", "pad_zeros"}, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.MaxPool(in[0], nn.Pool{Kernel: l.Kernel, Stride: l.Stride, Pad: l.Pad, PadZeros: l.PadZeros})
		}},
		{"AvgPool", "mean over windows", 1, false, []string{"kernel", "stride"}, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.AvgPool(in[0], nn.Pool{Kernel: l.Kernel, Stride: l.Stride})
		}},
		{"GlobalAvgPool", "mean of each channel", 1, false, nil, func(g *nn.Graph, _ SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.GlobalAvgPool(in[0])
		}},
		{"Flatten", "a sample's elements in a row", 1, false, nil, func(g *nn.Graph, _ SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.Flatten(in[0])
		}},
		{"ZeroPad", "zeros around: pad before, pad_end behind (without it pad)", 1, false, []string{"pad", "pad_end"}, func(g *nn.Graph, l SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			end := l.PadEnd
			if len(end) == 0 {
				end = l.Pad
			}
			return g.ZeroPad(in[0], l.Pad, end)
		}},
		{"Concat", "the channels of both", 2, false, nil, func(g *nn.Graph, _ SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.Concat(in[0], in[1])
		}},
		{"Add", "the sum of both", 2, false, nil, func(g *nn.Graph, _ SpecLayer, in []*gorgonia.Node) *gorgonia.Node {
			return g.Add(in[0], in[1])
		}},
	}
}

func findLayerKind(name string) (specLayerKind, bool) {
	all := specLayerKinds()
	i := slices.IndexFunc(all, func(k specLayerKind) bool { return k.name == name })
	if i < 0 {
		return specLayerKind{}, false
	}
	return all[i], true
}

// LayerKinds returns the names of the kinds of layers that a spec can contain.
func LayerKinds() []string {
	var names []string
	for _, k := range specLayerKinds() {
		names = append(names, k.name)
	}
	return names
}

// hasBias reports whether the layer has a bias; the default is true.
func (l SpecLayer) hasBias() bool { return l.Bias == nil || *l.Bias }

func (l SpecLayer) toConvolution() nn.Convolution {
	return nn.Convolution{
		Out: l.Out, Kernel: l.Kernel, Stride: l.Stride, Pad: l.Pad,
		Bias: l.hasBias(), Weight: mustParseInitScheme(l.Init), BiasInit: mustParseInitScheme(l.BiasInit),
	}
}

// setGraphLoss sets the loss of g to l, computed from logits and the target, g's second input.
func (l *SpecLoss) setGraphLoss(g *nn.Graph, logits *gorgonia.Node) {
	target := g.Inputs()[1].Node
	switch l.Kind {
	case lossBCE:
		g.SetLoss(g.BCEWithLogits(logits, target))
	case lossDice:
		g.SetLoss(g.DiceBCE(logits, target, l.Dice))
	case lossSoftmax:
		g.SetLoss(g.SoftmaxCrossEntropy(logits, target, l.Smoothing))
	case lossPixel:
		g.SetLoss(g.PixelCrossEntropy(logits, target, nn.PixelLoss{ClassWeights: l.ClassWeights, Ignore: IgnoredTarget, DiceWeight: l.Dice}))
	case lossL1:
		g.SetLoss(g.L1(logits, target, l.ExpWeight))
	default:
		g.Fail(fmt.Errorf("loss: unknown kind %q", l.Kind))
	}
}
