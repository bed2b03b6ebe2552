// Package workload builds the small networks, programs and data sets that package selftest
// and the tests of the GPU engine use.
package workload

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// BatchSize is the batch size of the networks of NewClassifier and New3DNetwork.
const BatchSize = 3

// UNetConfigs returns the configurations of three small U-Nets. The first has biases, channel
// counts that are not multiples of 8, and maps smaller than a tile. The second has the usual
// options. The third has no batch norms.
func UNetConfigs() []model.UNet2DConfig {
	return []model.UNet2DConfig{
		{Base: 5, Depth: 3, InChannels: 2, OutChannels: 1, Height: 24, Width: 16, Bias: true, Norm: "batch"},
		{Base: 8, Depth: 2, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"},
		{Base: 6, Depth: 2, InChannels: 1, OutChannels: 1, Height: 12, Width: 20, Bias: true, Norm: "none", DiceWeight: 0.5},
	}
}

// NewClassifier builds a small classifier with all layer types of a ResNet: a strided first
// convolution, an overlapping padded max pooling, blocks with and without a projection,
// batch norms before and after convolutions, a global average pooling and a linear layer.
func NewClassifier() (*nn.Graph, error) {
	g := nn.NewGraph(nn.Train)
	conv := func(name string, x *gorgonia.Node, out, kernel, stride int, bias bool) *gorgonia.Node {
		return g.Conv2D(name, x, out, kernel, stride, kernel/2, bias)
	}
	x := conv("stem", g.Input(model.ImageInput, BatchSize, 3, 34, 30), 16, 7, 2, true)
	x = g.MaxPool(x, nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}, PadZeros: true})
	for i, stride := range []int{1, 2} {
		name := fmt.Sprint("block", i)
		pre := g.ReLU(g.BatchNorm(name+".bn0", x))
		short := conv(name+".project", pre, 24, 1, stride, true)
		y := g.ReLU(g.BatchNorm(name+".bn1", conv(name+".a", pre, 8, 1, 1, false)))
		y = g.ReLU(g.BatchNorm(name+".bn2", conv(name+".b", y, 8, 3, stride, false)))
		x = g.Add(short, conv(name+".c", y, 24, 1, 1, true))
	}
	// A block of the original ResNet: ReLU after the sum, and no projection.
	y := g.BatchNorm("last.bn", conv("last.a", x, 24, 3, 1, false))
	x = g.ReLU(g.Add(x, y))
	z := g.Linear("fc", g.GlobalAvgPool(x), nn.Dense{Out: 10, Bias: true})
	g.Output(model.LogitsOutput, z)
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Input(model.TargetInput, BatchSize, 1), 0.1))
	return g, g.Err()
}

// New3DNetwork builds a small network with the layer types of a 3-D U-Net for
// regression: strided and transposed convolutions, LeakyReLU, concatenation, tanh and an L1
// loss.
func New3DNetwork() (*nn.Graph, error) {
	g := nn.NewGraph(nn.Train)
	half := nn.Convolution{Out: 8, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}}
	x := g.LeakyReLU(g.Conv("down0", g.Input(model.ImageInput, BatchSize, 2, 8, 12, 10), half), 0.2)
	y := g.BatchNorm("bn1", g.Conv("down1", g.LeakyReLU(x, 0.2), nn.Convolution{Out: 16, Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}}))
	y = g.ConvTranspose("up1", g.ReLU(y), nn.Convolution{Out: 8, Kernel: []int{4, 4, 3}, Stride: []int{2}, Pad: []int{1}, Bias: true})
	y = g.Concat(x, y)
	y = g.Tanh(g.ConvTranspose("up0", g.ReLU(y), nn.Convolution{Out: 2, Kernel: []int{2}, Stride: []int{2}, Bias: true}))
	g.Output(model.LogitsOutput, y)
	g.SetLoss(g.L1(y, g.Input(model.TargetInput, BatchSize, 2, 8, 12, 10), 0))
	return g, g.Err()
}

// SetRandomInputs sets the inputs of x to random numbers from seed: images from 0 to 1, and
// targets that are masks of 0 and 1, or class indexes if the program expects classes.
func SetRandomInputs(x engine.Executable, seed uint64) error {
	p, random := x.Program(), rand.New(rand.NewPCG(seed, 1))
	for _, name := range []string{model.ImageInput, model.TargetInput} {
		id := p.FindTensor(plan.Input, name)
		v := make([]float32, p.Tensors[id].Elements())
		for i := range v {
			v[i] = random.Float32()
			if name == model.TargetInput {
				v[i] = float32(math.Round(float64(v[i])))
			}
			if classes := p.ClassCount(id); classes > 0 {
				v[i] = float32(random.IntN(classes))
			}
		}
		if err := x.SetInput(name, v); err != nil {
			return err
		}
	}
	return nil
}
