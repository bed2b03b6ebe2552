package verify

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/train"
)

// verifyConfig is small and has everything but batch norm in it, which is part of
// the invariant where it is synchronised alone: see normed.
func verifyConfig() train.Config {
	c := train.DefaultConfig()
	c.Name = "verify-dp"
	c.Model = train.ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Bias: true}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 25, 32, 32, 1
	c.Data.Augment.Flip, c.Data.Augment.Rotate = true, true
	c.Batch = 2
	c.BucketMiB = 0.01 // several buckets even in a small network
	return c
}

// variant is a way to train, and how far the two sides may differ.
type variant struct {
	name      string
	tolerance float64
	change    func(c *train.Config)
	build     model.Builder // of a network of its own; nil: the config's
}

// variants are those that VerifyDP compares.
func variants() []variant {
	exact := func(rule string, rate float64, more func(c *train.Config)) func(c *train.Config) {
		return func(c *train.Config) {
			c.Engine.Device, c.Engine.Precision = "reference", "fp64"
			c.Optimizer.Name, c.Optimizer.LearningRate = rule, rate
			if more != nil {
				more(c)
			}
		}
	}
	heavy := func(c *train.Config) { c.Optimizer.Momentum = 0.9 }
	return []variant{
		{"SGD with momentum, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, heavy), nil},
		{"Adam, float64 reference engine", toleranceFloat64, exact("adam", optim.DefaultConfig().LearningRate, nil), nil},
		{"SGD with momentum, float32 CPU engine", toleranceFloat32, func(c *train.Config) {
			c.Engine.Device, c.Engine.Precision = "cpu", "fp32"
			c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
		}, nil},
		{"Nesterov's momentum, clipped gradients of 2 accumulated batches, averaged parameters, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			c.Optimizer.Momentum, c.Optimizer.Nesterov, c.Optimizer.ClipNorm = 0.9, true, 0.5
			c.Accumulate, c.EMA.Decay = 2, 0.9
		}), nil},
		{"AdamW on soft Dice and BCE, float64 reference engine", toleranceFloat64, exact("adamw", 1e-3, func(c *train.Config) {
			c.Optimizer.WeightDecay, c.Model.Dice = 0.01, 0.5
		}), nil},
		{"LARS, float64 reference engine", toleranceFloat64, exact("lars", 1, func(c *train.Config) {
			c.Optimizer.Momentum, c.Optimizer.WeightDecay, c.Optimizer.Trust = 0.9, 1e-4, 0.01
		}), nil},
		{"LAMB, float64 reference engine", toleranceFloat64, exact("lamb", 0.01, func(c *train.Config) { c.Optimizer.WeightDecay = 0.01 }), nil},
		{"classes with smoothed labels, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			c.Optimizer.Momentum = 0.9
			c.Data = labelled()
		}), smoothed},
		{"volumes, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			c.Model = train.ModelConfig{Kind: model.KindUNet3D, Base: 2, Depth: 2}
			c.Data = train.DataConfig{Kind: data.KindFields, Count: 2, Edge: 12, TestImages: 1, Samples: 24, TestSamples: 1, Augment: data.Augment{Rotate: true, Crop: 8}}
		}), nil},
		{"synchronised batch norm, SGD with momentum, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			normed(c)
			c.Optimizer.Momentum = 0.9
		}), nil},
		{"synchronised batch norm, Adam on 2 accumulated batches, activations recomputed, float64 reference engine", toleranceFloat64, exact("adam", optim.DefaultConfig().LearningRate, func(c *train.Config) {
			normed(c)
			c.Accumulate, c.Recompute = 2, true
		}), nil},
		{"synchronised batch norm, SGD with momentum, float32 CPU engine", toleranceFloat32, func(c *train.Config) {
			c.Engine.Device, c.Engine.Precision = "cpu", "fp32"
			c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
			c.Data, c.SyncBatchNorm = labelled(), true
		}, smooth},
	}
}

// faulty is what VerifyDP breaks.
func faulty(c *train.Config) {
	c.Engine.Device, c.Engine.Precision = "reference", "fp64"
	c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
}

// normed gives c's network synchronised batch norms.
func normed(c *train.Config) { c.Model.Norm, c.Model.Bias, c.SyncBatchNorm = "batch", false, true }

// labelled are data for a classifier.
func labelled() train.DataConfig {
	return train.DataConfig{Kind: data.KindShapes, Count: 25, Edge: 16, Classes: 4, TestImages: 1, Augment: data.Augment{Flip: true}}
}

// smooth is a small classifier with batch norm whose gradient has no jumps: those
// of a ReLU and of a maximum turn the last bit of a float32 activation, once in a
// while, into a difference of the whole gradient of an element, which batch norm
// spreads. In float64 such a tie does not come up.
func smooth(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := image
	for i, channels := range []int{6, 12} {
		name := fmt.Sprint("block", i)
		x = g.Conv(name+".conv", x, nn.Convolution{Out: channels, Kernel: []int{3}, Pad: []int{1}})
		x = g.AvgPool(g.Tanh(g.BatchNorm(name+".norm", x)), nn.Pool{Kernel: []int{2}})
	}
	z := g.Linear("head", g.GlobalAvgPool(x), nn.Dense{Out: 4, Bias: true})
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Inputs()[1].Node, 0))
	return z
}

// smoothed is a small classifier without batch norm.
func smoothed(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := g.ReLU(g.Conv("conv", image, nn.Convolution{Out: 6, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
	z := g.Linear("head", g.GlobalAvgPool(x), nn.Dense{Out: 4, Bias: true})
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Inputs()[1].Node, 0.1))
	return z
}

// onGPU32 has SGD compute in fp32 on a GPU, with cuDNN's first suggestions, which are the
// same for every worker, and small images: nothing of this is about speed.
func onGPU32(device string) func(c *train.Config) {
	return func(c *train.Config) {
		c.Engine.Device, c.Engine.Precision, c.Engine.TF32, c.Engine.Convolution = device, "fp32", false, "heuristic"
		c.Data.Height, c.Data.Width = 16, 16
		c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
	}
}

// variantsOnGPU are those that VerifyDPOn compares.
func variantsOnGPU(device string) []variant {
	on := func(more func(c *train.Config)) func(c *train.Config) {
		return func(c *train.Config) {
			onGPU32(device)(c)
			more(c)
		}
	}
	return []variant{
		{"SGD with momentum, float32 on the GPU", toleranceFloat32, onGPU32(device), nil},
		{"Nesterov's momentum, clipped gradients of 2 accumulated batches, float32 on the GPU", toleranceFloat32, on(func(c *train.Config) {
			c.Optimizer.Nesterov, c.Optimizer.ClipNorm, c.Accumulate = true, 0.5, 2
		}), nil},
		{"synchronised batch norm, float32 on the GPU", toleranceFloat32, on(func(c *train.Config) { c.Data, c.SyncBatchNorm = labelled(), true }), smooth},
		{"synchronised batch norm of 2 accumulated batches, activations recomputed, float32 on the GPU", toleranceFloat32, on(func(c *train.Config) {
			c.Data, c.SyncBatchNorm, c.Accumulate, c.Recompute = labelled(), true, 2, true
		}), smooth},
	}
}
