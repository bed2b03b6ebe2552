package model_test

import (
	"slices"
	"testing"

	"lockstep/pkg/model"
	"lockstep/pkg/train"
	"lockstep/pkg/weights"
)

// trained is what two replicas on the CPU engine come to, with the network that
// the config's model is.
func trained(t *testing.T, c model.Config) []weights.Tensor {
	t.Helper()
	cfg, err := train.Named("unet2d-cells", "data.count=14", "data.height=32", "data.width=32", "data.test_images=2", "batch=2", "epochs=2")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model = c
	out, err := train.Replicas(t.Context(), cfg, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out.Weights()
}

// TestSpecTrainsAlike: the built-in U-Net, the spec that SpecOf writes of it and
// the one that a person wrote train to the same weights, bit for bit.
func TestSpecTrainsAlike(t *testing.T) {
	builtin := model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch"}
	want := trained(t, builtin)
	net, err := builtin.Network([]int{1, 32, 32}, []int{1, 32, 32})
	if err != nil {
		t.Fatal(err)
	}
	of, err := model.SpecOf(net)
	if err != nil {
		t.Fatal(err)
	}
	written, err := model.ReadSpec("testdata/specs/unet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]*model.Spec{"SpecOf": of, "unet.yaml": written} {
		got := trained(t, model.Config{Kind: "spec", Spec: spec})
		if len(got) != len(want) || len(want) == 0 {
			t.Fatalf("%s: %d tensors, want %d", name, len(got), len(want))
		}
		for i, w := range got {
			if w.Name != want[i].Name || !slices.Equal(w.F32, want[i].F32) {
				t.Errorf("%s: %s differs from the built-in's %s", name, w.Name, want[i].Name)
			}
		}
	}
	begin := graph(t, net, 1, 0).InitialValues(1)[want[0].Name]
	if slices.Equal(begin, want[0].Float64s()) {
		t.Error("nothing was learnt, so that the comparison says nothing")
	}
}
