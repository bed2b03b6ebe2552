package model_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "lockstep/pkg/engine/all"
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
	out, err := train.Replicas(t.Context(), cfg, nil, 2)
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
	initialValues := graph(t, net, 1, 0).InitialValues(1)[want[0].Name]
	if slices.Equal(initialValues, want[0].Float64s()) {
		t.Error("nothing was learnt, so that the comparison says nothing")
	}
}

// TestNetworksLearn: each kind, small, fits a few samples within seconds on two
// replicas. (That a ResNet tells pictures apart that it has not seen takes some
// thousand of them.)
func TestNetworksLearn(t *testing.T) {
	shapes := "data={kind: shapes, count: 40, classes: 4, edge: 16, test_images: 8, augment: {flip: false, rotate: false}}"
	fields := "data={kind: fields, count: 3, edge: 24, test_images: 1, samples: 24, test_samples: 4, augment: {crop: 16}}"
	tests := []struct {
		model, data, epochs string
	}{
		{"{kind: resnetv2, base: 8, blocks: [2, 2], classes: 4, stem: cifar}", shapes, "epochs=25"},
		{"{kind: resnet, base: 8, blocks: [2, 2], classes: 4, stem: cifar}", shapes, "epochs=25"},
		{"{kind: unet3d, base: 4, depth: 3}", fields, "epochs=6"},
	}
	for _, tt := range tests {
		t.Run(tt.model, func(t *testing.T) {
			cfg, err := train.Named("unet2d-cells", "model="+tt.model, tt.data, tt.epochs, "batch=4",
				"optimizer={name: adam, learning_rate: 0.003}", "schedule={scaling: none}")
			if err != nil {
				t.Fatal(err)
			}
			out, err := train.Replicas(t.Context(), cfg, nil, 2)
			if err != nil {
				t.Fatal(err)
			}
			first, last := out.Epochs[0], out.Epochs[len(out.Epochs)-1]
			if !(last.TrainLoss < 0.7*first.TrainLoss) {
				t.Errorf("the loss went from %g to %g:\n%s", first.TrainLoss, last.TrainLoss, out)
			}
		})
	}
}

// TestBeginsWithWeights: a run begins with the weights of a file, here Keras'
// names of what another run came to: with a rate of next to nothing it stays
// there.
func TestBeginsWithWeights(t *testing.T) {
	c := model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none"}
	want := trained(t, c)
	net, err := c.Network([]int{1, 32, 32}, []int{1, 32, 32})
	if err != nil {
		t.Fatal(err)
	}
	keras, err := model.Rename(net, &weights.File{Tensors: want}, model.NamesLockstep, model.NamesKeras)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := weights.Write(filepath.Join(dir, "keras.safetensors"), keras, nil); err != nil {
		t.Fatal(err)
	}
	config := "model: {kind: unet2d, base: 4, depth: 2, norm: none, weights: keras.safetensors}\n" +
		"data: {kind: cells, count: 4, height: 32, width: 32, test_images: 2}\nbatch: 2\nepochs: 1\noptimizer: {name: sgd, learning_rate: 1e-30}\n"
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := train.Named(filepath.Join(dir, "c.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := train.Replicas(t.Context(), cfg, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range out.Weights() {
		if !slices.Equal(w.F32, want[i].F32) {
			t.Errorf("%s is not what the file has", w.Name)
		}
	}
	cfg.Model.Base = 8
	if _, err := train.Replicas(t.Context(), cfg, nil, 1); err == nil || !strings.Contains(err.Error(), "load model.weights: read "+filepath.Join(dir, "keras.safetensors")) || !strings.Contains(err.Error(), "does the network have another size") {
		t.Errorf("another size: %v", err)
	}
}
