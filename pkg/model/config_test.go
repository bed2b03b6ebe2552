package model_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestConfigYAML: what a document leaves out stays, unless it names another
// kind: a U-Net's sizes are none of a ResNet's.
func TestConfigYAML(t *testing.T) {
	c := model.Config{Kind: "unet2d", Base: 8, Depth: 3, Norm: "batch"}
	if err := yaml.Unmarshal([]byte("{depth: 2}"), &c); err != nil || c.Kind != "unet2d" || c.Base != 8 || c.Depth != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := yaml.Unmarshal([]byte("{kind: unet2d, base: 4}"), &c); err != nil || c.Depth != 2 || c.Base != 4 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := yaml.Unmarshal([]byte("kind: resnetv2\nblocks: [2, 2]"), &c); err != nil || c.Base != 0 || c.Norm != "" || !slices.Equal(c.Blocks, []int{2, 2}) {
		t.Errorf("%+v, %v", c, err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	text := "kind: spec\nspec:\n  name: n\n  task: segmentation\n  image: [1, 8, 8]\n  target: [1, 8, 8]\n  layers:\n    - {name: a, kind: Conv, out: 1, kernal: 3}\n"
	if err := yaml.Unmarshal([]byte(text), &c); err == nil || !strings.Contains(err.Error(), `line 8: layer "a" (Conv): unknown key "kernal"`) {
		t.Errorf("a mistake in a graph within a config: %v", err)
	}
	var all struct{ Model model.Config }
	text = "base: &b {kind: resnet, blocks: [1, 1], classes: 4}\nmodel: {<<: *b, stem: cifar}\n"
	if err := yaml.Unmarshal([]byte(text), &all); err != nil || all.Model.Kind != "resnet" || all.Model.Stem != "cifar" || all.Model.Classes != 4 {
		t.Errorf("merged: %+v, %v", all.Model, err)
	}
}

func TestConfigErrors(t *testing.T) {
	tests := []struct {
		name          string
		config        model.Config
		image, target []int
		want          string
	}{
		{"no kind", model.Config{}, nil, nil, `unknown model.kind "": use one of unet2d, unet3d, resnet50v2`},
		{"in vain", model.Config{Kind: "resnet50v2", Depth: 3}, nil, nil, "model.depth does not apply to model.kind resnet50v2: leave it out (this kind has base, classes, stem, label_smoothing, batchnorm_momentum)"},
		{"blocks in vain", model.Config{Kind: "resnet50", Blocks: []int{1}}, nil, nil, "model.blocks does not apply to model.kind resnet50"},
		{"base", model.Config{Kind: "unet3d", Base: -1}, nil, nil, "validate unet3d: invalid base -1: use 1 to 4096"},
		{"exp weight", model.Config{Kind: "unet3d", ExpWeight: -1}, nil, nil, "invalid exp weight -1"},
		{"dice", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Dice: 2}, nil, nil, "invalid weight of Dice 2: use 0 to 1"},
		{"stem", model.Config{Kind: "resnet50", Stem: "big"}, nil, nil, `unknown stem "big": use imagenet or cifar`},
		{"smoothing", model.Config{Kind: "resnet50", LabelSmoothing: 1}, nil, nil, "invalid label smoothing 1"},
		{"batch norm momentum", model.Config{Kind: "resnetv2", BatchNormMomentum: 99}, nil, nil, "invalid batchnorm_momentum 99: use the weight of a batch"},
		{"no batch norm momentum", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch", BatchNormMomentum: 0.1}, nil, nil, "model.batchnorm_momentum does not apply to model.kind unet2d"},
		{"classes", model.Config{Kind: "resnet50", Classes: -3}, nil, nil, "invalid classes -3"},
		{"no blocks", model.Config{Kind: "resnet", Blocks: []int{1, 0}}, nil, nil, "invalid blocks [1 0]: use 1 to 1000 per stage"},
		{"one block of V2", model.Config{Kind: "resnetv2", Blocks: []int{1, 2}}, nil, nil, "invalid blocks [1 2]: use at least 2 per stage"},
		{"stages", model.Config{Kind: "resnet", Blocks: []int{1, 1, 1, 1, 1, 1, 1}}, nil, nil, "has 7 stages: use 1 to 6"},
		{"no spec", model.Config{Kind: "spec"}, nil, nil, "model.kind spec needs model.file"},
		{"unread spec", model.Config{Kind: "spec", File: "a.yaml"}, []int{1}, []int{1}, "the file has not been read: call Config.Resolve"},
		{"own", model.Config{Kind: "own"}, []int{1}, []int{1}, "a model of kind own is built by the program that trains it"},
		{"own task", model.Config{Kind: "own", Task: "sing"}, nil, nil, `unknown task "sing"`},
		{"classes of a U-Net", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Classes: 4, ClassWeights: []float64{1, 0, 2, 1}, Dice: 0.5}, []int{3, 8, 8}, []int{1, 8, 8}, ""},
		{"one class of a U-Net", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Classes: 1}, []int{1, 8, 8}, []int{1, 8, 8}, "model.classes is 1: use 2 to 255, the number of classes in the masks, or leave it out for masks of one foreground"},
		{"too many classes", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Classes: 256}, []int{1, 8, 8}, []int{1, 8, 8}, "model.classes is 256: use 2 to 255"},
		{"masks of each class", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Classes: 4}, []int{1, 8, 8}, []int{4, 8, 8}, "want one channel with the index of each pixel's class, because model.classes is 4"},
		{"weights without classes", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", ClassWeights: []float64{1, 2}}, []int{1, 8, 8}, []int{1, 8, 8}, "model.class_weights needs model.classes"},
		{"a weight for some classes", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none", Classes: 4, ClassWeights: []float64{1, 2}}, []int{1, 8, 8}, []int{1, 8, 8}, "model.class_weights: got 2 class weights [1 2], want one for each of the 4 classes"},
		{"weights of a ResNet", model.Config{Kind: "resnet50", ClassWeights: []float64{1, 2}}, nil, nil, "model.class_weights does not apply to model.kind resnet50"},
		{"images for a 3-D U-Net", model.Config{Kind: "unet3d"}, []int{1, 64, 64}, []int{1, 64, 64}, "want volumes of one size"},
		{"a volume of another size", model.Config{Kind: "unet3d"}, []int{1, 64, 64, 64}, []int{1, 64, 64, 32}, "want volumes of one size"},
		{"a volume that does not halve", model.Config{Kind: "unet3d"}, []int{1, 64, 64, 96}, []int{1, 64, 64, 96}, "invalid width 96: depth 6 halves it 6 times, so it must be a multiple of 64: the nearest is 128"},
		{"volumes for a 2-D U-Net", model.Config{Kind: "unet2d", Base: 4, Depth: 2, Norm: "none"}, []int{1, 8, 8, 8}, []int{1, 8, 8, 8}, "want images and masks"},
		{"masks for a ResNet", model.Config{Kind: "resnet50"}, []int{3, 64, 64}, []int{1, 64, 64}, "want images (channels, height, width) and the index of a class [1]"},
		{"no shape", model.Config{Kind: "resnet50"}, nil, nil, ""},
	}
	for _, tt := range tests {
		err := tt.config.Validate()
		if err == nil && tt.image != nil {
			_, err = tt.config.Network(tt.image, tt.target)
		}
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			if _, err := tt.config.Network(nil, nil); err == nil || !strings.Contains(err.Error(), "each dimension must be at least 1") {
				t.Errorf("%s: error %v", tt.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
	if _, err := (model.Config{Kind: "spec", File: "none.yaml"}).Resolve(t.TempDir()); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a spec that is not there: %v", err)
	}
}

// TestBatchNormMomentum compares the weight of a batch in the running statistics of
// every batch norm with that of the config, and else with PyTorch's 0.1 and Keras' 0.01
// (its momentum of 0.99 is the weight of what was).
func TestBatchNormMomentum(t *testing.T) {
	for _, c := range []struct {
		kind      string
		set, want float64
	}{{"resnetv2", 0, 0.01}, {"resnetv2", 0.2, 0.2}, {"resnet", 0, 0.1}, {"resnet", 0.2, 0.2}} {
		net, err := model.Config{Kind: c.kind, Base: 4, Blocks: []int{2, 2}, Stem: "cifar", BatchNormMomentum: c.set}.Network([]int{3, 16, 16}, []int{1})
		if err != nil {
			t.Fatal(err)
		}
		spec, err := model.SpecOf(net)
		if err != nil {
			t.Fatal(err)
		}
		norms := 0
		for _, layer := range spec.Layers {
			if layer.Kind != "BatchNorm" {
				continue
			}
			norms++
			if got := cmp.Or(layer.Momentum, nn.BatchNormMomentum); got != c.want {
				t.Errorf("%s with %g: %s has momentum %g, want %g", c.kind, c.set, layer.Name, got, c.want)
			}
		}
		if norms < 10 {
			t.Errorf("%s: %d batch norms", c.kind, norms)
		}
	}
}

// TestSizes: every kind can be made small enough to train in a moment.
func TestSizes(t *testing.T) {
	for _, net := range small(t) {
		if n := net.Parameters(); n > 20_000 {
			t.Errorf("%s has %d parameters", net.Name(), n)
		}
	}
	n, err := model.Config{Kind: "resnet152v2", Base: 4, Stem: "cifar"}.Network([]int{3, 32, 32}, []int{1})
	if err != nil || n.Name() != "resnet152v2-base4-cifar-10classes" {
		t.Errorf("%v, %v", n, err)
	}
}
