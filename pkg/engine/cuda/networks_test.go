package cuda

import (
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// networks are small ones of each family, with every loss, and padding that is not the
// same on both sides.
func networks(t testing.TB) []model.Network {
	t.Helper()
	resnet := model.ResNetConfig{Blocks: []int{2, 2}, Base: 5, Classes: 7, InChannels: 3, Height: 32, Width: 24, Stem: model.StemImageNet, LabelSmoothing: 0.1}
	v1, err1 := model.ResNetV1(resnet)
	v2, err2 := model.ResNetV2(resnet)
	volume, err3 := model.UNet3D(model.UNet3DConfig{Base: 6, Depth: 2, InChannels: 4, OutChannels: 5, Size: []int{8, 8, 4}, ExpWeight: 1e-3})
	dice, err4 := model.UNet2D(model.UNet2DConfig{Base: 8, Depth: 1, InChannels: 1, OutChannels: 1, Height: 12, Width: 16, Norm: "batch", DiceWeight: 0.5})
	several, err5 := model.UNet2D(model.UNet2DConfig{Base: 5, Depth: 1, InChannels: 2, OutChannels: 3, Height: 12, Width: 16, Norm: "batch", Bias: true, DiceWeight: 0.3})
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return []model.Network{v1, v2, volume, dice, several}
}

// TestNetworkGradients compares losses and gradients of whole networks with the
// reference in float64: each gradient in fp32, the angle between all of them in 16
// bits, where roundings turn many decisions.
func TestNetworkGradients(t *testing.T) {
	for i, net := range networks(t) {
		g, p := loweredNetwork(t, net, 3, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096})
		want := loaded(t, truth(t), p, g)
		for _, c := range []struct {
			precision    string
			loss, cosine float64
		}{{"fp32", 1e-4, 0.99999}, {"fp16", 1e-2, 0.98}, {"bf16", 5e-2, 0.85}} {
			t.Run(fmt.Sprintf("%d-%s/%s", i, net.Name(), c.precision), func(t *testing.T) {
				x := loaded(t, open(t, gpuOptions(c.precision)), p, g)
				if c.precision == "fp16" { // with the first scale, 65536, some gradients overflow
					setControl(t, x, func(x *executable) { x.last.control.LossScale = 256 })
					initialise(t, x, g)
					if _, err := x.Step(t.Context(), nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				if d := math.Abs(x.Loss() - want.Loss()); !(d < c.loss*max(1, want.Loss())) {
					t.Errorf("loss is %v, the reference has %v", x.Loss(), want.Loss())
				}
				var a, b []float64
				for _, q := range p.Params {
					own, truth := mustGradient(t, x, q.Name), mustGradient(t, want, q.Name)
					a, b = append(a, own...), append(b, truth...)
					// A bias before a batch norm has no gradient but roundings.
					if c.precision == "fp32" && largest(truth) > 1e-9 {
						near(t, "gradient of "+q.Name, own, truth, 5e-3)
					}
				}
				if cos := number.CosineSimilarity(a, b); !(cos > c.cosine) {
					t.Errorf("the gradients' cosine with the reference's is %v", cos)
				}
				if err := checkPadding(x); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestRecompute: activations that are computed again give the bits of those that were
// kept, running statistics included, as it is and recorded, and take less memory.
func TestRecompute(t *testing.T) {
	unet, err := model.UNet2D(model.UNet2DConfig{Base: 8, Depth: 3, InChannels: 2, OutChannels: 1, Height: 16, Width: 16, Bias: true, Norm: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	resnet, err := model.ResNetV2(model.ResNetConfig{Blocks: []int{2, 2}, Base: 8, Classes: 7, InChannels: 3, Height: 32, Width: 24, Stem: model.StemImageNet})
	if err != nil {
		t.Fatal(err)
	}
	for _, net := range []model.Network{unet, resnet} {
		for _, c := range []struct {
			precision string
			fuse      bool
		}{{"fp32", true}, {"fp32", false}, {"bf16", true}, {"fp16", true}} {
			t.Run(fmt.Sprintf("%s/%s/fuse-%v", net.Name(), c.precision, c.fuse), func(t *testing.T) {
				g, p := loweredNetwork(t, net, 2, nn.Train, plan.Options{Fuse: c.fuse, BucketBytes: 4096})
				r, err := plan.AddRecomputation(p)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Kernels) == len(p.Kernels) {
					t.Fatal("nothing is recomputed")
				}
				o := gpuOptions(c.precision)
				o.Fuse = c.fuse
				losses, want := trained(t, open(t, o), g, p, 3)
				again, got := trained(t, open(t, o), g, r, 3)
				near(t, "losses", again, losses, 0)
				for name := range want {
					near(t, name, got[name], want[name], 0)
				}
				kept, err := lowerProgram(p, number.ActivationType(c.precision), fusing(c.fuse, true))
				if err != nil {
					t.Fatal(err)
				}
				less, err := lowerProgram(r, number.ActivationType(c.precision), fusing(c.fuse, true))
				if err != nil {
					t.Fatal(err)
				}
				_, before, _ := layOutTensors(p, kept)
				_, after, _ := layOutTensors(r, less)
				t.Logf("an arena of %d KiB became %d KiB", before/1024, after/1024)
				if after >= before {
					t.Errorf("an arena of %d bytes became %d", before, after)
				}
			})
		}
	}
}
