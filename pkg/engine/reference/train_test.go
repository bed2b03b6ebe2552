package reference_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/internal/enginetest"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

func open(t testing.TB, precision string) engine.Engine {
	t.Helper()
	o := engine.DefaultOptions()
	o.Device, o.Precision = "reference", precision
	e, err := reference.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tinyUNet(t testing.TB) *model.UNet2DNetwork {
	t.Helper()
	u, err := model.UNet2D(model.UNet2DConfig{Base: 4, Depth: 2, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// load builds, lowers and loads a network; the parameters are initialised
// unless they are shared.
func load(t testing.TB, e engine.Engine, n model.Network, batch int, mode nn.Mode, o plan.Options, share engine.Executable) engine.Executable {
	t.Helper()
	g, p := enginetest.LowerNetwork(t, n, batch, mode, o)
	x, err := e.Load(p, share)
	if err != nil {
		t.Fatal(err)
	}
	if share == nil {
		for name, v := range g.InitialValues(1) {
			if err := x.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	return x
}

// blobs is a batch of noisy images whose bright part is the mask.
func blobs(n, size int) (image, mask []float32) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range n {
		cx, cy := rng.IntN(size), rng.IntN(size)
		for i := range size * size {
			dx, dy := i%size-cx, i/size-cy
			in := float32(0)
			if dx*dx+dy*dy < size {
				in = 1
			}
			mask = append(mask, in)
			image = append(image, in*0.5+rng.Float32()*0.3)
		}
	}
	return image, mask
}

func set(t testing.TB, x engine.Executable, image, mask []float32) {
	t.Helper()
	for name, v := range map[string][]float32{model.ImageInput: image, model.TargetInput: mask} {
		if err := x.SetInput(name, v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUNetOverfits trains on one batch: the whole path from the graph to the
// optimiser must work for the loss to fall to a tenth.
func TestUNetOverfits(t *testing.T) {
	x := load(t, open(t, "fp32"), tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true}, nil)
	image, mask := blobs(2, 16)
	set(t, x, image, mask)
	var first float64
	for step := 1; step <= 80; step++ {
		u := optim.Update{Rule: "adam", LearningRate: 2e-2, Step: step, Beta1: .9, Beta2: .999, Epsilon: 1e-8}
		if _, err := x.Step(context.Background(), nil, &u); err != nil {
			t.Fatal(err)
		}
		if step == 1 {
			first = x.Loss()
		}
	}
	t.Logf("loss %.4f → %.4f", first, x.Loss())
	if x.Loss() > first/10 {
		t.Errorf("loss fell from %v to %v only", first, x.Loss())
	}
}
