package plan_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// recomputed is p with recomputation.
func recomputed(t testing.TB, p *plan.Program) *plan.Program {
	t.Helper()
	r, err := plan.AddRecomputation(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deep are networks with something to save.
func deep(t testing.TB) map[string]*plan.Program {
	t.Helper()
	unet, err1 := model.UNet2D(model.UNet2DConfig{Base: 8, Depth: 4, InChannels: 1, OutChannels: 1, Height: 64, Width: 64, Norm: "batch"})
	c := model.ResNetConfig{Blocks: []int{3, 4, 6, 3}, Base: 8, Classes: 10, InChannels: 3, Height: 32, Width: 32, Stem: model.StemCIFAR}
	v1, err2 := model.ResNetV1(c)
	v2, err3 := model.ResNetV2(c)
	volume, err4 := model.UNet3D(model.UNet3DConfig{Base: 8, Depth: 4, InChannels: 1, OutChannels: 1, Size: []int{32, 32, 32}})
	list := map[string]*plan.Program{}
	for i, net := range []model.Network{unet, v1, v2, volume} {
		for _, err := range []error{err1, err2, err3, err4} {
			if err != nil {
				t.Fatal(err)
			}
		}
		g, err := net.Graph(4, nn.Train)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		list[[]string{"unet2d", "resnet50", "resnet50v2", "unet3d"}[i]] = p
	}
	return list
}

// TestRecomputeMemory: the plan's own memory plan says what is saved, at the
// price of at most one more forward pass.
func TestRecomputeMemory(t *testing.T) {
	// At most this part of the activations' memory is left: what this plan
	// reached when it was made, rounded up to a percent.
	left := map[string]float64{"unet2d": 0.4, "resnet50": 0.32, "resnet50v2": 0.44, "unet3d": 0.89}
	for name, p := range deep(t) {
		r := recomputed(t, p)
		before, after := p.Memory(), r.Memory()
		part := float64(after.Activations) / float64(before.Activations)
		var forward, again int64
		for _, k := range r.Kernels {
			switch {
			case k.Recomputed:
				again += r.FLOPs(k)
			case !k.Backward:
				forward += r.FLOPs(k)
			}
		}
		t.Logf("%s: activations %.2f MiB, recomputed %.2f MiB (%.3f); %.3f of the forward pass again", name,
			float64(before.Activations)/(1<<20), float64(after.Activations)/(1<<20), part, float64(again)/float64(forward))
		if part > left[name] || again > forward {
			t.Errorf("%s: %d bytes of activations became %d, want at most %g of it; %d FLOPs again of %d", name, before.Activations, after.Activations, left[name], again, forward)
		}
		if r.StepFLOPs() != p.StepFLOPs() {
			t.Errorf("%s: a step stands for %d FLOPs, not %d", name, r.StepFLOPs(), p.StepFLOPs())
		}
		before.Activations, after.Activations = 0, 0
		if before != after {
			t.Errorf("%s: beside activations %+v became %+v", name, before, after)
		}
	}
}

// TestRecomputeKeeps: the program that is given, the forward pass, the order in
// which gradients become final, and the running statistics.
func TestRecomputeKeeps(t *testing.T) {
	again := deep(t)
	for name, p := range deep(t) {
		r := recomputed(t, p)
		if d := cmp.Diff(again[name], p); d != "" {
			t.Errorf("%s: the program changed:\n%s", name, d)
		}
		if d := cmp.Diff(p.Kernels[:p.Forward], r.Kernels[:r.Forward]); d != "" {
			t.Errorf("%s: the forward pass changed:\n%s", name, d)
		}
		if len(p.Buckets) < 3 || len(p.Buckets) != len(r.Buckets) {
			t.Fatalf("%s: %d buckets became %d", name, len(p.Buckets), len(r.Buckets))
		}
		for i, b := range r.Buckets {
			if !slices.Equal(b.Params, p.Buckets[i].Params) || p.Kernels[p.Buckets[i].Ready].Name != r.Kernels[b.Ready].Name {
				t.Errorf("%s: bucket %d is ready after %v", name, i, r.Kernels[b.Ready])
			}
		}
		for _, k := range r.Kernels[r.Forward:] {
			for _, id := range k.In {
				if r.Tensors[id].Role == plan.State {
					t.Errorf("%s: %s %s touches %s in the backward pass", name, k.Op, k.Name, r.Tensors[id].Name)
				}
			}
		}
	}
}

// TestRecomputeGolden compares a small network's program with a file that was
// read and found right by hand.
func TestRecomputeGolden(t *testing.T) {
	c := small()
	c.Depth, c.Height, c.Width = 2, 16, 16
	got := recomputed(t, lowered(t, c, 2, nn.Train, plan.Options{Fuse: true})).String()
	golden := filepath.Join("testdata", "recompute.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("program differs from %s (-want +got):\n%s", golden, d)
	}
}

// TestRecomputeLeaves: what has no backward pass, and what nothing is saved of,
// stays; mixed precision can follow.
func TestRecomputeLeaves(t *testing.T) {
	eval := lowered(t, small(), 2, nn.Eval, plan.Options{Fuse: true})
	if d := cmp.Diff(eval, recomputed(t, eval)); d != "" {
		t.Errorf("a program for evaluation changed:\n%s", d)
	}
	for name, p := range deep(t) {
		r := recomputed(t, p)
		m := mixed(t, r, device.F16)
		if full, half := r.Memory().Activations, m.Memory().Activations; half > full*3/4 {
			t.Errorf("%s: %d bytes in fp32 are %d in fp16", name, full, half)
		}
	}
}
