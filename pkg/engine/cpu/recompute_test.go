package cpu

import (
	"context"
	"fmt"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// afterSteps trains three steps of p and returns every persistent tensor, and the
// executable.
func afterSteps(t *testing.T, e engine.Engine, g *nn.Graph, p *plan.Program) (map[string][]float64, *executable) {
	t.Helper()
	exe, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, ok := exe.(*executable)
	if !ok {
		t.Fatal("no executable of this package")
	}
	poison(x)
	initialise(t, x, g)
	u := optim.Update{Rule: "adam", LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	for u.Step = 1; u.Step <= 3; u.Step++ {
		feed(t, x, uint64(u.Step))
		if _, err := x.Step(context.Background(), nil, &u); err != nil {
			t.Fatal(err)
		}
	}
	return snapshot(t, x), x
}

// TestRecompute checks that activations that are computed again have the same bits,
// including running statistics, and take less memory.
func TestRecompute(t *testing.T) {
	unet, err := model.UNet2D(model.UNet2DConfig{Base: 8, Depth: 3, InChannels: 2, OutChannels: 1, Height: 32, Width: 32, Bias: true, Norm: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	for i, net := range append(networks(t), unet) {
		for _, fuse := range []bool{true, false} {
			g, p := loweredNetwork(t, net, 3, nn.Train, plan.Options{Fuse: fuse, BucketBytes: 4096})
			r, err := plan.AddRecomputation(p)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Kernels) == len(p.Kernels) {
				t.Fatalf("%s: nothing is recomputed", net.Name())
			}
			for _, convolution := range []string{"winograd", "direct"} {
				name := fmt.Sprintf("%d-%s/fuse-%v/%s", i, net.Name(), fuse, convolution)
				o := engine.DefaultOptions()
				o.Fuse, o.Threads, o.Convolution = fuse, 2, convolution
				e, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				want, plain := afterSteps(t, e, g, p)
				got, saving := afterSteps(t, e, g, r)
				for n := range want {
					near(t, name+": "+n, got[n], want[n], 0)
				}
				t.Logf("%s: arena of %d KiB became %d KiB", name, len(plain.arena)/256, len(saving.arena)/256)
				if len(saving.arena) >= len(plain.arena) {
					t.Errorf("%s: an arena of %d floats became %d", name, len(plain.arena), len(saving.arena))
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
