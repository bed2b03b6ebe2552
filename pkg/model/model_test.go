package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestParameterCounts: the counts that were published, or counted in the
// framework that the network comes from. Keras counts running statistics too.
func TestParameterCounts(t *testing.T) {
	tests := []struct {
		name          string
		classes       int // 0: as named
		want, running int
	}{
		{"unet2d-study", 0, 487_145, 2 * 736},          // published with the scaling study; 2·(2·(8+16+32+64)·2 + 2·128) statistics
		{"unet2d-bench", 0, 7_762_465, 2 * 2944},       // counted in PyTorch; the same with 32…512 channels
		{"unet3d-sc21", 0, 116_977_029, 0},             // PyTorch, 446.2 MiB
		{"resnet50", 0, 25_557_032, 2 * 26_560},        // torchvision; its 53,120 running statistics
		{"resnet50v2", 0, 23_585_290 - 45_440, 45_440}, // keras.applications, 10 classes
		{"resnet50v2", 1000, 25_613_800 - 45_440, 45_440},
		{"resnet152v2", 0, 58_352_138 - 143_744, 143_744},
		{"resnet152v2", 1000, 60_380_648 - 143_744, 143_744},
	}
	for _, tt := range tests {
		c, image, target, err := model.NamedConfig(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if tt.classes > 0 {
			c.Classes = tt.classes
		}
		n, err := c.Network(image, target)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Parameters(); got != tt.want {
			t.Errorf("%s with %d classes has %d parameters, want %d", tt.name, tt.classes, got, tt.want)
		}
		s, err := model.Summarize(n, 1)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, l := range s.Layers {
			sum += l.Parameters
		}
		if sum != tt.want || s.Parameters != tt.want || s.States != tt.running {
			t.Errorf("summary of %s: layers add up to %d, total %d, want %d; %d running statistics, want %d", tt.name, sum, s.Parameters, tt.want, s.States, tt.running)
		}
	}
}

func valid() model.UNet2DConfig {
	return model.UNet2DConfig{Base: 4, Depth: 3, InChannels: 1, OutChannels: 1, Height: 16, Width: 24, Norm: "batch"}
}

func TestUNet2DErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *model.UNet2DConfig)
		want   string
	}{
		{"base", func(c *model.UNet2DConfig) { c.Base = 0 }, "invalid base 0: use 1 to 4096"},
		{"depth", func(c *model.UNet2DConfig) { c.Depth = 0 }, "invalid depth 0: use 1 to 10"},
		{"depth beyond reason", func(c *model.UNet2DConfig) { c.Depth = 64 }, "invalid depth 64"},
		{"input channels", func(c *model.UNet2DConfig) { c.InChannels = -1 }, "invalid input channels -1"},
		{"output channels", func(c *model.UNet2DConfig) { c.OutChannels = 0 }, "invalid output channels 0"},
		{"height", func(c *model.UNet2DConfig) { c.Height = 21 }, "invalid height 21: depth 3 halves it 3 times, so it must be a multiple of 8: the nearest is 24"},
		{"width below", func(c *model.UNet2DConfig) { c.Width = 19 }, "the nearest is 16"},
		{"width too small", func(c *model.UNet2DConfig) { c.Width = 1 }, "the nearest is 8"},
		{"norm", func(c *model.UNet2DConfig) { c.Norm = "layer" }, `unknown norm "layer": use batch or none`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := valid()
			tt.change(&c)
			_, err := model.UNet2D(c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	u, err := model.UNet2D(valid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Graph(0, nn.Train); err == nil || !strings.Contains(err.Error(), "invalid batch 0: use at least 1") {
		t.Errorf("batch 0: error %v", err)
	}
	if _, err := model.Named("unet3"); err == nil || !strings.Contains(err.Error(), "use one of resnet152v2") {
		t.Errorf("unknown name: error %v", err)
	}
}

// TestTypeNames: %T, which a notebook shows, has the name of the constructor.
func TestTypeNames(t *testing.T) {
	plane, err := model.UNet2D(valid())
	if err != nil {
		t.Fatal(err)
	}
	volume, err := model.UNet3D(model.UNet3DConfig{Base: 4, Depth: 1, InChannels: 1, OutChannels: 1, Size: []int{8, 8, 8}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%T %T", plane, volume); got != "*model.UNet2DNetwork *model.UNet3DNetwork" {
		t.Errorf("types are %s", got)
	}
}

// TestGraphsShareNames: one set of weights serves every batch size and mode.
func TestGraphsShareNames(t *testing.T) {
	u, err := model.UNet2D(valid())
	if err != nil {
		t.Fatal(err)
	}
	names := func(batch int, mode nn.Mode) []string {
		g, err := u.Graph(batch, mode)
		if err != nil {
			t.Fatal(err)
		}
		var n []string
		for _, v := range slices.Concat(g.Parameters(), g.States()) {
			n = append(n, v.Name)
		}
		return n
	}
	want := names(1, nn.Train)
	if !slices.Equal(want, names(5, nn.Eval)) {
		t.Error("names depend on batch or mode")
	}
	for _, n := range []string{"down.0.a.conv.weight", "down.2.b.norm.running_var", "bridge.a.norm.bias", "up.1.transpose.bias", "head.weight"} {
		if !slices.Contains(want, n) {
			t.Errorf("there is no %s", n)
		}
	}
	if slices.Contains(want, "down.0.a.conv.bias") {
		t.Error("a convolution before batch norm has a bias, though none was asked for")
	}
}

// TestClassesOfUNet: a U-Net with classes has a logit per class and one channel of targets, in
// which data.Ignored is ignored. Without classes it is the network as before.
func TestClassesOfUNet(t *testing.T) {
	config := model.Config{Kind: "unet2d", Base: 8, Depth: 3, Norm: "batch"}
	for classes, want := range map[int]string{0: "unet2d-8x3 bce_with_logits 1", 2: "unet2d-8x3-k2 pixel_cross_entropy 2", 4: "unet2d-8x3-k4 pixel_cross_entropy 4"} {
		config.Classes = classes
		net, err := config.Network([]int{3, 16, 24}, []int{1, 16, 24})
		if err != nil {
			t.Fatal(err)
		}
		g := graph(t, net, 2, nn.Train)
		loss, _ := nn.OperationInfoOf(g.Loss())
		if got := fmt.Sprint(net.Name(), " ", loss.Kind, " ", g.Outputs()[0].Shape[1]); got != want {
			t.Errorf("%d classes: got %s, want %s", classes, got, want)
		}
		if got := net.TargetShape(); !slices.Equal(got, []int{1, 16, 24}) {
			t.Errorf("%d classes: target shape %v", classes, got)
		}
		if classes > 0 && loss.Attr.Ignore != data.Ignored {
			t.Errorf("%d classes: the loss ignores %d, want %d", classes, loss.Attr.Ignore, data.Ignored)
		}
		if _, err := model.Summarize(net, 2); err != nil {
			t.Error(err)
		}
	}
}

// TestSummaryHTML: names are escaped and every layer has its row.
func TestSummaryHTML(t *testing.T) {
	s := model.Summary{Name: "a<b", Batch: 1, Layers: []nn.Layer{{Name: "x&y", Kind: "Conv2D", Shape: []int{1, 2, 3, 4}, Parameters: 1234, FLOPs: 5_000_000}}, Parameters: 1234}
	got := s.HTML()
	for _, want := range []string{"a&lt;b", "x&amp;y", "1×2×3×4", "1,234", ">5.00<"} {
		if !strings.Contains(got, want) {
			t.Errorf("HTML lacks %q: %s", want, got)
		}
	}
}
