package cpu

import (
	"context"
	"fmt"
	"math"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestUNetGradients compares a whole network's loss, logits, gradients and
// running statistics with the reference in float64. Roundings may turn a
// ReLU's or a pool's decision (see TestFlips), so 1e-3 of the greatest gradient is allowed;
// single kernels are held to 1e-5 and winogradTolerance elsewhere.
func TestUNetGradients(t *testing.T) {
	for _, c := range []struct {
		net    model.UNet2DConfig
		fuse   bool
		Direct string
	}{
		{smallUNet(), true, "direct"},
		{smallUNet(), false, "winograd"},
		{smallUNet(), true, "winograd"},
		{alignedUNet(), true, "direct"},
		{alignedUNet(), true, "winograd"},
		{classesUNet(), true, "winograd"},
	} {
		convolution := c.Direct
		g, p := lowered(t, c.net, 3, nn.Train, plan.Options{Fuse: c.fuse, BucketBytes: 4096})
		want := loaded(t, truth(t), p, g)
		everyway(t, func(t *testing.T, set string, threads int) {
			x := loaded(t, openWith(t, set, threads, convolution), p, g)
			if d := math.Abs(x.Loss() - want.Loss()); !(d < 1e-5) {
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
					near(t, "gradient of "+q.Name, a, b, 1e-3)
				}
			}
			for _, id := range p.States {
				name := p.Tensors[id].Name
				a, err1 := x.Get(name)
				b, err2 := want.Get(name)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				near(t, name, a, b, 1e-4)
			}
			if err := checkPadding(x); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// classesUNet returns the config of a U-Net with more classes than a channel block has lanes.
func classesUNet() model.UNet2DConfig {
	c := smallUNet()
	c.OutChannels, c.Softmax, c.DiceWeight = 9, true, 0.5
	return c
}

// TestUNetIsReproducible trains five steps with each number of threads and
// demands the same bits, with Winograd's convolutions (TestConvolution demands
// it of either algorithm).
func TestUNetIsReproducible(t *testing.T) {
	for _, net := range []model.UNet2DConfig{smallUNet(), alignedUNet(), classesUNet()} {
		g, p := lowered(t, net, 3, nn.Train, plan.Options{Fuse: true})
		reproducible(t, g, p)
	}
}

func reproducible(t *testing.T, g *nn.Graph, p *plan.Program) {
	t.Helper()
	var want map[string][]float64
	for _, threads := range []int{1, 2, 5} {
		x, err := openWith(t, "", threads, "winograd").Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		initialise(t, x, g)
		for step := 1; step <= 5; step++ {
			feed(t, x, uint64(step))
			u := optim.Update{Rule: "adam", LearningRate: 1e-2, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
			if _, err := x.Step(context.Background(), nil, &u); err != nil {
				t.Fatal(err)
			}
		}
		got := map[string][]float64{}
		for _, name := range x.Names() {
			if got[name], err = x.Get(name); err != nil {
				t.Fatal(err)
			}
		}
		if want == nil {
			want = got
		}
		for name := range want {
			near(t, name, got[name], want[name], 0)
		}
	}
}

// BenchmarkUNet is the step (forward, backward, Adam) of the benchmarks' U-Net,
// of the demo's small one and of that with 4 classes, with the milliseconds of each part.
func BenchmarkUNet(b *testing.B) {
	for _, c := range []struct{ base, depth, batch, classes int }{{32, 4, 8, 0}, {8, 3, 4, 0}, {8, 3, 4, 4}} {
		net := model.UNet2DConfig{Base: c.base, Depth: c.depth, InChannels: 1, OutChannels: max(1, c.classes), Softmax: c.classes > 0, Height: 128, Width: 128, Norm: "batch"}
		for _, convolution := range []string{"auto", "direct"} {
			for threads := 1; threads <= 2; threads++ {
				b.Run(fmt.Sprintf("base-%d/classes-%d/%s/threads-%d", c.base, c.classes, convolution, threads), func(b *testing.B) {
					g, p := lowered(b, net, c.batch, nn.Train, plan.Options{Fuse: true})
					benchmarkStep(b, loaded(b, openWith(b, "", threads, convolution), p, g), c.batch)
				})
			}
		}
	}
}

// benchmarkStep reports what steps of x take.
func benchmarkStep(b *testing.B, x engine.Executable, batch int) {
	u := optim.Update{Rule: "adam", LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	var sum engine.Timing
	for b.Loop() {
		u.Step++
		t, err := x.Step(context.Background(), nil, &u)
		if err != nil {
			b.Fatal(err)
		}
		sum.Forward += t.Forward
		sum.Backward += t.Backward
		sum.Optimizer += t.Optimizer
	}
	n := float64(b.N)
	b.ReportMetric(float64(batch)*n/b.Elapsed().Seconds(), "images/s")
	b.ReportMetric(1e3*sum.Forward.Seconds()/n, "forward-ms")
	b.ReportMetric(1e3*sum.Backward.Seconds()/n, "backward-ms")
	b.ReportMetric(1e3*sum.Optimizer.Seconds()/n, "optimizer-ms")
	b.ReportMetric(float64(x.MemoryBytes())/(1<<20), "MiB")
}
