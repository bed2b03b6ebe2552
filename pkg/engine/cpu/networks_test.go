package cpu

import (
	"fmt"
	"math"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// networks are some for tests: every kind of layer that the built-in ones have,
// channels that fill no block, and maps down to a pixel.
func networks(t testing.TB) []model.Network {
	t.Helper()
	resnet := model.ResNetConfig{Blocks: []int{2, 2, 2}, Base: 5, Classes: 7, InChannels: 3, Height: 32, Width: 24, Stem: model.StemImageNet, LabelSmoothing: 0.1}
	v1, err1 := model.ResNetV1(resnet)
	v2, err2 := model.ResNetV2(resnet)
	volume, err3 := model.UNet3D(model.UNet3DConfig{Base: 6, Depth: 3, InChannels: 4, OutChannels: 5, Size: []int{8, 16, 8}, ExpWeight: 0.01})
	cubes, err4 := model.Own("cubes", model.Segmentation, []int{3, 8, 12, 8}, []int{2, 8, 12, 8}, cubes(9, 16, 17, 24, 8, 11))
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return []model.Network{v1, v2, volume, cubes}
}

// cubes is a small U-Net of 3×3×3 convolutions, batch norms and poolings, with
// the channels of its convolutions a, b above, c, d below, up and e above again.
func cubes(a, b, c, d, up, e int) model.Builder {
	return func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		conv := func(name string, x *gorgonia.Node, out int) *gorgonia.Node {
			x = g.Conv(name, x, nn.Convolution{Out: out, Kernel: []int{3}, Pad: []int{1}})
			return g.ReLU(g.BatchNorm(name+".norm", x))
		}
		skip := conv("b", conv("a", x, a), b)
		x = conv("d", conv("c", g.MaxPool(skip, nn.Pool{Kernel: []int{2}}), c), d)
		x = g.Concat(g.ConvTranspose("up", x, nn.Convolution{Out: up, Kernel: []int{2}, Stride: []int{2}, Bias: true}), skip)
		return g.Conv("head", conv("e", x, e), nn.Convolution{Out: 2, Kernel: []int{1}, Bias: true})
	}
}

// TestNetworkGradients compares loss and gradients of whole networks with the
// reference in float64. As with the U-Net a rounding may turn a decision, so
// 2e-3 of the greatest gradient is allowed.
func TestNetworkGradients(t *testing.T) {
	convolution := func(net model.Network) string {
		if net.Name() == "cubes" {
			return "winograd"
		}
		return "direct"
	}
	for _, net := range networks(t) {
		for _, fuse := range []bool{true, false} {
			g, p := loweredNetwork(t, net, 4, nn.Train, plan.Options{Fuse: fuse, BucketBytes: 4096})
			want := loaded(t, truth(t), p, g)
			t.Run(fmt.Sprintf("%s/fuse-%v", net.Name(), fuse), func(t *testing.T) {
				everyway(t, func(t *testing.T, set string, threads int) {
					x := loaded(t, openWith(t, set, threads, convolution(net)), p, g)
					if d := math.Abs(x.Loss() - want.Loss()); !(d < 1e-5*max(1, want.Loss())) {
						t.Fatalf("loss is %v, the reference has %v", x.Loss(), want.Loss())
					}
					for _, q := range p.Params {
						a, err1 := x.Gradient(q.Name)
						b, err2 := want.Gradient(q.Name)
						if err1 != nil || err2 != nil {
							t.Fatal(err1, err2)
						}
						// A bias before a batch norm has no gradient but roundings.
						if scale := largest(b); scale > 1e-9 {
							near(t, "gradient of "+q.Name, a, b, 2e-3)
						}
					}
					if err := checkPadding(x); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

// TestNetworksAreReproducible: any number of threads gives the same bits.
func TestNetworksAreReproducible(t *testing.T) {
	for _, net := range networks(t) {
		g, p := loweredNetwork(t, net, 3, nn.Train, plan.Options{Fuse: true})
		reproducible(t, g, p)
	}
}

// TestNetworksEvaluate runs the forward pass that evaluation takes.
func TestNetworksEvaluate(t *testing.T) {
	for _, net := range networks(t) {
		g, p := loweredNetwork(t, net, 2, nn.Eval, plan.Options{Fuse: true})
		want, x := loaded(t, truth(t), p, g), loaded(t, open(t, "", 2), p, g)
		for _, id := range p.Outputs {
			out := p.Tensors[id]
			a, b := make([]float32, out.Elements()), make([]float32, out.Elements())
			if err := x.Output(out.Name, a); err != nil {
				t.Fatal(err)
			}
			if err := want.Output(out.Name, b); err != nil {
				t.Fatal(err)
			}
			near(t, net.Name()+" "+out.Name, wide(a), wide(b), 1e-4)
		}
	}
}

// wide is v in float64.
func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, f := range v {
		w[i] = float64(f)
	}
	return w
}
