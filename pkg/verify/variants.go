package verify

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// newVerifyConfig returns a config with a small network without batch norm. With batch norm, the
// invariant would hold only if it is synchronized (see addSyncedBatchNorm).
func newVerifyConfig() train.Config {
	c := train.DefaultConfig()
	c.Name = "verify-dp"
	c.Model = train.ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Bias: true}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 25, 16, 16, 1
	c.Data.Augment.Flip, c.Data.Augment.Rotate = true, true
	c.Batch = 2
	c.BucketMiB = 0.01 // several buckets even in a small network
	return c
}

// trainingVariant is one kind of training for which DataParallelism checks the invariant.
type trainingVariant struct {
	name      string
	tolerance float64               // largest relative difference of a parameter
	change    func(c *train.Config) // changes the result of newVerifyConfig
	build     model.Builder         // builds the network; nil: the config's network
	layers    int                   // convolutions and linear layers of the network of build
}

// newCPUVariants returns the trainings that DataParallelism compares on the CPU.
func newCPUVariants() []trainingVariant {
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
	all := []trainingVariant{
		{"SGD with momentum, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, heavy), nil, 0},
		{"Adam, float64 reference engine", toleranceFloat64, exact("adam", optim.DefaultConfig().LearningRate, nil), nil, 0},
		{"SGD with momentum, float32 CPU engine", toleranceFloat32, func(c *train.Config) {
			c.Engine.Device, c.Engine.Precision = "cpu", "fp32"
			c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
		}, nil, 0},
		{"Nesterov's momentum, clipped gradients of 2 accumulated batches, averaged parameters, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			c.Optimizer.Momentum, c.Optimizer.Nesterov, c.Optimizer.ClipNorm = 0.9, true, gradientClipNorm
			c.Accumulate, c.EMA.Decay = 2, 0.9
		}), nil, 0},
		{"AdamW on soft Dice and BCE, float64 reference engine", toleranceFloat64, exact("adamw", 1e-3, func(c *train.Config) {
			c.Optimizer.WeightDecay, c.Model.Dice = 0.01, 0.5
		}), nil, 0},
		{"LARS, float64 reference engine", toleranceFloat64, exact("lars", 1, func(c *train.Config) {
			c.Optimizer.Momentum, c.Optimizer.WeightDecay, c.Optimizer.Trust = 0.9, 1e-4, 0.01
		}), nil, 0},
		{"LAMB, float64 reference engine", toleranceFloat64, exact("lamb", 0.01, func(c *train.Config) { c.Optimizer.WeightDecay = 0.01 }), nil, 0},
		{"classes with smoothed labels, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			c.Optimizer.Momentum = 0.9
			c.Data = newLabeledDataConfig()
		}), buildLabelSmoothedClassifier, 2},
		{"volumes, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			c.Model = train.ModelConfig{Kind: model.KindUNet3D, Base: 2, Depth: 2}
			c.Data = train.DataConfig{Kind: data.KindFields, Count: 2, Edge: 12, TestImages: 1, Samples: 24, TestSamples: 1, Augment: data.Augment{Rotate: true, Crop: 8}}
		}), nil, 0},
		{"synchronized batch norm, SGD with momentum, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			addSyncedBatchNorm(c)
			c.Optimizer.Momentum = 0.9
		}), nil, 0},
		{"synchronized batch norm, Adam on 2 accumulated batches, activations recomputed, float64 reference engine", toleranceFloat64, exact("adam", optim.DefaultConfig().LearningRate, func(c *train.Config) {
			addSyncedBatchNorm(c)
			c.Accumulate, c.Recompute = 2, true
		}), nil, 0},
		{"synchronized batch norm, SGD with momentum, float32 CPU engine", toleranceFloat32, func(c *train.Config) {
			c.Engine.Device, c.Engine.Precision = "cpu", "fp32"
			c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
			c.Data, c.SyncBatchNorm = newLabeledDataConfig(), true
		}, buildSmoothClassifier, 3},
		{"pixels of classes with weights, some ignored, soft Dice, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
			c.Optimizer.Momentum = 0.9
			setPixelClassModel(c)
		}), nil, 0},
		{"pixels of classes with weights, some ignored, soft Dice, float32 CPU engine", toleranceFloat32, func(c *train.Config) {
			c.Engine.Device, c.Engine.Precision = "cpu", "fp32"
			c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
			setPixelClassModel(c)
		}, nil, 0},
	}
	for _, s := range strategy.Kinds() {
		if s.Exact && s.Name != strategy.NameDDP { // the variants above use the default
			all = append(all, trainingVariant{strategyVariantPrefix + s.Name + ", SGD with momentum, float64 reference engine", toleranceFloat64, exact("sgd", 0.05, func(c *train.Config) {
				c.Strategy.Name, c.Optimizer.Momentum = s.Name, 0.9
				if c.Strategy.Staged() {
					adaptToPipelineStages(c)
				}
			}), nil, 0})
		}
	}
	return all
}

// variantsWithStrategy returns list with the strategy c instead of the default, for the given number of
// workers. It omits variants that do not apply to c. If name is empty, it returns list unchanged.
func variantsWithStrategy(list []trainingVariant, name string, c strategy.Config, workers int) []trainingVariant {
	if name == "" {
		return list
	}
	var all []trainingVariant
	for _, v := range list {
		if strings.HasPrefix(v.name, strategyVariantPrefix) {
			continue
		}
		change := v.change
		if c.NeedsSGD() && !hasLinearUpdate(change) {
			continue
		}
		if c.Staged() {
			v.name = strings.NewReplacer("synchronized batch norm", "batch norm", ", averaged parameters", "", ", activations recomputed", "").Replace(v.name)
			if v.build != nil {
				v.build = prependConvolutions(v.build, workers-v.layers)
			}
		}
		v.name += ", strategy " + c.String()
		v.change = func(cfg *train.Config) {
			change(cfg)
			cfg.Strategy = c
			if c.Staged() {
				adaptToPipelineStages(cfg)
			}
		}
		all = append(all, v)
	}
	return all
}

// hasLinearUpdate reports whether change configures an update that is linear in the gradients: SGD
// without clipping and without averaging of the parameters over the steps.
func hasLinearUpdate(change func(c *train.Config)) bool {
	var c train.Config
	change(&c)
	return c.Optimizer.Name == "sgd" && c.Optimizer.ClipNorm == 0 && c.EMA.Decay == 0
}

// adaptToPipelineStages sets several micro-batches, and disables what a pipeline does not support. Batch
// norms then use the statistics of each micro-batch, as those of one worker do.
func adaptToPipelineStages(c *train.Config) {
	c.Accumulate = max(c.Accumulate, 3)
	c.SyncBatchNorm, c.Recompute, c.EMA.Decay = false, false, 0
}

// maxPipelineStages is the largest number of stages of a pipeline: the layers of the 3D U-Net of
// newCPUVariants. prependConvolutions adds layers to smaller networks.
const maxPipelineStages = 4

// prependConvolutions returns a builder that puts n more convolutions before the network of build,
// so that it can be divided into more stages. If n is negative, it adds none.
func prependConvolutions(build model.Builder, n int) model.Builder {
	return func(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
		for i := range n {
			image = g.Tanh(g.Conv(fmt.Sprint("more", i), image, nn.Convolution{Out: 6, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
		}
		return build(g, image)
	}
}

// gradientClipNorm is far below the norm of the gradients, so that every step clips them.
const gradientClipNorm = 0.03

const strategyVariantPrefix = "strategy "

func configureFaultTest(c *train.Config) {
	c.Engine.Device, c.Engine.Precision = "reference", "fp64"
	c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
}

func addSyncedBatchNorm(c *train.Config) {
	c.Model.Norm, c.Model.Bias, c.SyncBatchNorm = "batch", false, true
}

// newLabeledDataConfig returns a small data set for a classifier.
func newLabeledDataConfig() train.DataConfig {
	return train.DataConfig{Kind: data.KindShapes, Count: 25, Edge: 16, Classes: 4, TestImages: 1, Augment: data.Augment{Flip: true}}
}

// buildSmoothClassifier builds a small classifier with batch norm and a continuous gradient. With
// ReLU or max pooling, a difference in the last bit of a float32 activation can switch an element's
// gradient on or off, and batch norm spreads this difference to other elements. In float64 this
// does not happen in practice.
func buildSmoothClassifier(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
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

// buildLabelSmoothedClassifier builds a small classifier without batch norm.
func buildLabelSmoothedClassifier(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := g.ReLU(g.Conv("conv", image, nn.Convolution{Out: 6, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
	z := g.Linear("head", g.GlobalAvgPool(x), nn.Dense{Out: 4, Bias: true})
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Inputs()[1].Node, 0.1))
	return z
}

// newGPUConfigurer returns a function that configures SGD in fp32 on the given GPU, with small images
// and the convolution algorithms that cuDNN suggests first, which are the same for every worker;
// their speed does not matter here.
func newGPUConfigurer(device string) func(c *train.Config) {
	return func(c *train.Config) {
		c.Engine.Device, c.Engine.Precision, c.Engine.TF32, c.Engine.Convolution = device, "fp32", false, "heuristic"
		c.Data.Height, c.Data.Width = 16, 16
		c.Optimizer.Name, c.Optimizer.LearningRate, c.Optimizer.Momentum = "sgd", 0.05, 0.9
	}
}

func newGPUVariants(device string) []trainingVariant {
	on := func(more func(c *train.Config)) func(c *train.Config) {
		return func(c *train.Config) {
			newGPUConfigurer(device)(c)
			more(c)
		}
	}
	return []trainingVariant{
		{"SGD with momentum, float32 on the GPU", toleranceFloat32, newGPUConfigurer(device), nil, 0},
		{"Nesterov's momentum, clipped gradients of 2 accumulated batches, float32 on the GPU", toleranceFloat32, on(func(c *train.Config) {
			c.Optimizer.Nesterov, c.Optimizer.ClipNorm, c.Accumulate = true, gradientClipNorm, 2
		}), nil, 0},
		{"synchronized batch norm, float32 on the GPU", toleranceFloat32, on(func(c *train.Config) { c.Data, c.SyncBatchNorm = newLabeledDataConfig(), true }), buildSmoothClassifier, 3},
		{"synchronized batch norm of 2 accumulated batches, activations recomputed, float32 on the GPU", toleranceFloat32, on(func(c *train.Config) {
			c.Data, c.SyncBatchNorm, c.Accumulate, c.Recompute = newLabeledDataConfig(), true, 2, true
		}), buildSmoothClassifier, 3},
	}
}
