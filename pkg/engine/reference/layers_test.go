package reference_test

import (
	"slices"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

type node = gorgonia.Node

// classificationCases are the layers that ResNets are made of.
func classificationCases() []gradientCase {
	linear := func(bias bool) func(*nn.Graph, *node) *node {
		return func(g *nn.Graph, x *node) *node { return g.Linear("l", x, nn.Dense{Out: 4, Bias: bias}) }
	}
	classes := func(smoothing float64) func(*nn.Graph, *node) *node {
		return func(g *nn.Graph, x *node) *node {
			return g.SoftmaxCrossEntropy(x, g.Input("class", x.Shape()[0], 1), smoothing)
		}
	}
	pixels := func(o nn.PixelLoss) func(*nn.Graph, *node) *node {
		o.Ignore = 255
		return func(g *nn.Graph, x *node) *node {
			s := slices.Clone(x.Shape())
			s[1] = 1
			return g.PixelCrossEntropy(x, g.Input("t", s...), o)
		}
	}
	ramp := make([]float64, 20)
	for i := range ramp {
		ramp[i] = 0.25 * float64(i)
	}
	pool := func(p nn.Pool) func(*nn.Graph, *node) *node {
		return func(g *nn.Graph, x *node) *node { return g.MaxPool(x, p) }
	}
	return []gradientCase{
		{"linear", []int{3, 5}, linear(true)},
		{"linear, batch 1, no bias", []int{1, 5}, linear(false)},
		{"linear, one feature", []int{2, 1}, linear(true)},
		{"linear of one number", []int{1, 1}, func(g *nn.Graph, x *node) *node { return g.Linear("l", x, nn.Dense{Out: 1, Bias: true}) }},
		{"two linear layers", []int{3, 4}, func(g *nn.Graph, x *node) *node {
			return g.Linear("b", g.ReLU(g.Linear("a", x, nn.Dense{Out: 6, Bias: true})), nn.Dense{Out: 2})
		}},
		{"softmax cross-entropy", []int{4, 3}, classes(0)},
		{"softmax cross-entropy, batch 1", []int{1, 5}, classes(0)},
		{"softmax cross-entropy, smoothed", []int{4, 3}, classes(0.1)},
		{"dice", []int{2, 2, 3, 3}, func(g *nn.Graph, x *node) *node { return g.DiceBCE(x, g.Input("t", 2, 2, 3, 3), 1) }},
		{"dice and cross-entropy", []int{2, 1, 2, 3, 2}, func(g *nn.Graph, x *node) *node { return g.DiceBCE(x, g.Input("t", 2, 1, 2, 3, 2), 0.25) }},
		{"pixel cross-entropy", []int{2, 4, 3, 3}, pixels(nn.PixelLoss{})},
		{"pixel cross-entropy, weighted", []int{2, 4, 3, 3}, pixels(nn.PixelLoss{ClassWeights: []float64{0.5, 2, 0, 1}})},
		{"pixel cross-entropy of 2 classes, and Dice", []int{3, 2, 2, 3}, pixels(nn.PixelLoss{ClassWeights: []float64{1, 3}, DiceWeight: 0.25})},
		{"pixel cross-entropy of 20 classes of a volume, and Dice", []int{2, 20, 2, 1, 3}, pixels(nn.PixelLoss{ClassWeights: ramp, DiceWeight: 0.5})},
		{"Dice of 4 classes", []int{2, 4, 3, 3}, pixels(nn.PixelLoss{DiceWeight: 1})},
		{"global average pool", []int{2, 3, 4, 5}, func(g *nn.Graph, x *node) *node { return g.GlobalAvgPool(x) }},
		{"global average pool of a pixel", []int{1, 1, 1, 1}, func(g *nn.Graph, x *node) *node { return g.GlobalAvgPool(x) }},
		{"flatten", []int{2, 3, 2, 2}, func(g *nn.Graph, x *node) *node { return g.Linear("l", g.Flatten(x), nn.Dense{Out: 2}) }},
		{"average pool", []int{2, 2, 4, 6}, func(g *nn.Graph, x *node) *node { return g.AvgPool(x, nn.Pool{Kernel: []int{2}}) }},
		{"average pool, overlapping, rows left over", []int{1, 2, 6, 5}, func(g *nn.Graph, x *node) *node {
			return g.AvgPool(x, nn.Pool{Kernel: []int{3, 2}, Stride: []int{2, 1}})
		}},
		{"max pool 3 stride 2 pad 1", []int{2, 2, 6, 7}, pool(nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}})},
		{"max pool 3 stride 2 over padded zeros", []int{2, 2, 6, 7}, pool(nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}, PadZeros: true})},
		{"max pool 1 stride 2", []int{2, 2, 5, 6}, pool(nn.Pool{Kernel: []int{1}, Stride: []int{2}})},
		{"max pool 3x2 stride 1x2 pad 1x0", []int{1, 3, 4, 5}, pool(nn.Pool{Kernel: []int{3, 2}, Stride: []int{1, 2}, Pad: []int{1, 0}})},
		{"zero pad, asymmetric", []int{2, 2, 3, 4}, func(g *nn.Graph, x *node) *node {
			return g.Conv2D("c", g.ZeroPad(x, []int{0, 1}, []int{1, 2}), 2, 3, 2, 0, false)
		}},
		{"convolution of a window and a stride of its own", []int{1, 2, 5, 6}, func(g *nn.Graph, x *node) *node {
			return g.Conv("c", x, nn.Convolution{Out: 3, Kernel: []int{3, 2}, Stride: []int{1, 3}, Pad: []int{1, 0}, Bias: true})
		}},
		{"batch norm with other constants", []int{3, 2, 3, 4}, func(g *nn.Graph, x *node) *node { return g.BatchNormWith("n", x, 1e-2, 0.01) }},
		{"add, relu", []int{2, 3}, func(g *nn.Graph, x *node) *node { return g.ReLU(g.Add(x, g.Parameter("y", uniform, 2, 3))) }},
		{"one vector of two layers", []int{2, 3}, func(g *nn.Graph, x *node) *node {
			// The gradient of x is that of the sum, for which it is y's too: a copy.
			return g.Add(x, g.Parameter("y", uniform, 2, 3))
		}},
		{"bottleneck before activation, shortcut by pool", []int{2, 4, 5, 4}, func(g *nn.Graph, x *node) *node {
			h := g.ReLU(g.BatchNorm("n1", x))
			h = g.ReLU(g.BatchNorm("n2", g.Conv2D("c1", h, 2, 1, 1, 0, false)))
			h = g.ReLU(g.BatchNorm("n3", g.Conv2D("c2", h, 2, 3, 2, 1, false)))
			return g.Add(g.MaxPool(x, nn.Pool{Kernel: []int{1}, Stride: []int{2}}), g.Conv2D("c3", h, 4, 1, 1, 0, true))
		}},
		{"bottleneck after activation, to classes", []int{2, 3, 5, 4}, func(g *nn.Graph, x *node) *node {
			h := g.ReLU(g.BatchNorm("n1", g.Conv2D("c1", x, 2, 1, 1, 0, false)))
			h = g.BatchNorm("n2", g.Conv2D("c2", h, 4, 3, 2, 1, false))
			h = g.ReLU(g.Add(h, g.BatchNorm("n3", g.Conv2D("c3", x, 4, 1, 2, 0, false))))
			z := g.Linear("fc", g.GlobalAvgPool(h), nn.Dense{Out: 3, Bias: true})
			return g.SoftmaxCrossEntropy(z, g.Input("class", 2, 1), 0)
		}},
	}
}

// volumeCases are the layers of networks on volumes.
func volumeCases() []gradientCase {
	k4 := nn.Convolution{Out: 3, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true}
	l1 := func(weight float64) func(*nn.Graph, *node) *node {
		return func(g *nn.Graph, x *node) *node {
			y := g.Conv("c", x, nn.Convolution{Out: 2, Kernel: []int{1}, Weight: nn.FixedScheme(nn.Constant(0.5))})
			return g.L1(y, g.Input("t", y.Shape()...), weight)
		}
	}
	return []gradientCase{
		{"convolution 4 stride 2 pad 1", []int{2, 2, 4, 6, 4}, func(g *nn.Graph, x *node) *node { return g.Conv("c", x, k4) }},
		{"convolution of its own", []int{1, 2, 3, 4, 5}, func(g *nn.Graph, x *node) *node {
			return g.Conv("c", x, nn.Convolution{Out: 2, Kernel: []int{1, 3, 2}, Stride: []int{2, 1, 3}, Pad: []int{0, 1, 1}})
		}},
		{"transposed convolution 4 stride 2 pad 1", []int{2, 2, 2, 3, 1}, func(g *nn.Graph, x *node) *node { return g.ConvTranspose("t", x, k4) }},
		{"transposed convolution of its own", []int{1, 2, 2, 3, 2}, func(g *nn.Graph, x *node) *node {
			return g.ConvTranspose("t", x, nn.Convolution{Out: 2, Kernel: []int{2, 3, 1}, Stride: []int{2, 1, 3}, Pad: []int{0, 1, 0}})
		}},
		{"max pool", []int{1, 2, 4, 5, 4}, func(g *nn.Graph, x *node) *node { return g.MaxPool(x, nn.Pool{Kernel: []int{2}}) }},
		{"max pool 3 stride 2 pad 1, but for the width", []int{1, 2, 4, 5, 3}, func(g *nn.Graph, x *node) *node {
			return g.MaxPool(x, nn.Pool{Kernel: []int{3, 3, 1}, Stride: []int{2}, Pad: []int{1, 1, 0}})
		}},
		{"average pool of a volume", []int{1, 2, 4, 3, 5}, func(g *nn.Graph, x *node) *node { return g.AvgPool(x, nn.Pool{Kernel: []int{2, 1, 3}}) }},
		{"global average pool of a volume", []int{2, 3, 2, 1, 2}, func(g *nn.Graph, x *node) *node { return g.GlobalAvgPool(x) }},
		{"zero pad of a volume", []int{1, 2, 2, 3, 1}, func(g *nn.Graph, x *node) *node { return g.ZeroPad(x, []int{1, 0, 2}, []int{0, 1, 1}) }},
		{"batch norm of a volume", []int{2, 3, 2, 3, 2}, func(g *nn.Graph, x *node) *node { return g.ReLU(g.BatchNorm("n", x)) }},
		{"concat of volumes", []int{2, 2, 2, 3, 2}, func(g *nn.Graph, x *node) *node { return g.Concat(g.Tanh(x), x) }},
		{"leaky relu", []int{2, 2, 3, 3}, func(g *nn.Graph, x *node) *node { return g.LeakyReLU(x, 0.2) }},
		{"tanh", []int{2, 3}, func(g *nn.Graph, x *node) *node { return g.Tanh(x) }},
		{"l1", []int{2, 2, 2, 1, 3}, l1(0)},
		// e^14 is 1.2 million: with this weight the second term is of the size of the first.
		{"l1 of exponentials", []int{2, 2, 2, 1, 3}, l1(1e-6)},
		{"one level of a 3-D U-Net", []int{1, 1, 4, 4, 8}, func(g *nn.Graph, x *node) *node {
			skip := g.LeakyReLU(g.Conv("d1", x, nn.Convolution{Out: 2, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true}), 0.01)
			h := g.LeakyReLU(g.Conv("d2", skip, k4), 0.01)
			h = g.ReLU(g.ConvTranspose("u2", h, nn.Convolution{Out: 2, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true}))
			h = g.Tanh(g.ConvTranspose("u1", g.Concat(h, skip), nn.Convolution{Out: 2, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true}))
			return g.L1(h, g.Input("t", h.Shape()...), 0)
		}},
	}
}
