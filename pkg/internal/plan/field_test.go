package plan_test

import (
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

func field(t *testing.T, net model.Network, err error) (plan.ReceptiveField, bool) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Lower(g, plan.Options{Fuse: true})
	if err != nil {
		t.Fatal(err)
	}
	return p.ReceptiveField(model.ImageInput, model.LogitsOutput)
}

// TestReceptiveFieldOfUNets: two 3×3 convolutions reach 2 pixels of their level. From the head of
// a U-Net of depth 1: 2 pixels, 1 pixel of the bridge's level, 1+2 after the bridge, 3·2+2 = 8.
// Each further level adds two convolutions up, and doubles what is below.
func TestReceptiveFieldOfUNets(t *testing.T) {
	for depth, want := range map[int]plan.ReceptiveField{1: {Step: 2, Reach: 8}, 2: {Step: 4, Reach: 22}, 3: {Step: 8, Reach: 46}, 4: {Step: 16, Reach: 94}} {
		net, err := model.UNet2D(model.UNet2DConfig{Base: 1, Depth: depth, InChannels: 1, OutChannels: 1, Height: 32, Width: 64, Norm: "batch"})
		if got, ok := field(t, net, err); !ok || got != want {
			t.Errorf("depth %d: got %+v, %t, want %+v", depth, got, ok, want)
		}
	}
	if halo := (plan.ReceptiveField{Step: 8, Reach: 46}).Halo(); halo != 48 {
		t.Errorf("got halo %d, want 48", halo)
	}
}

// TestReceptiveField: the fields of single layers, and of networks without a bounded one.
func TestReceptiveField(t *testing.T) {
	conv := func(g *nn.Graph, name string, x *gorgonia.Node, kernel, stride, pad int) *gorgonia.Node {
		return g.Conv2D(name, x, 1, kernel, stride, pad, true)
	}
	for name, c := range map[string]struct {
		build   model.Builder
		want    plan.ReceptiveField
		bounded bool
	}{
		"one layer": {func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return conv(g, "a", x, 7, 1, 3) }, plan.ReceptiveField{Step: 1, Reach: 3}, true},
		"stride 3 and back": {func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.ConvTranspose2D("b", conv(g, "a", x, 3, 3, 0), 1, 3, 3, 0, true)
		}, plan.ReceptiveField{Step: 3}, true},
		// Output 0 reads pixel −1 of half size, which reads −2−1; output −1 reads 0, which reads up to 2·0−1+3.
		"overlapping strides": {func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.ConvTranspose2D("b", conv(g, "a", x, 4, 2, 1), 1, 4, 2, 1, true)
		}, plan.ReceptiveField{Step: 2, Reach: 3}, true},
		"two branches": {func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Add(conv(g, "a", x, 1, 1, 0), conv(g, "b", x, 5, 1, 2))
		}, plan.ReceptiveField{Step: 1, Reach: 2}, true},
		"padding as a layer": {func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return conv(g, "a", g.ZeroPad(x, []int{1, 1}, []int{1, 1}), 3, 1, 0)
		}, plan.ReceptiveField{}, false},
		"linear": {func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Linear("a", g.GlobalAvgPool(x), nn.Dense{Out: 1})
		}, plan.ReceptiveField{}, false},
	} {
		shape := []int{1, 12, 12}
		target := shape
		if name == "linear" {
			target = []int{1}
		}
		net, err := model.Own(name, model.Segmentation, shape, target, c.build)
		if got, ok := field(t, net, err); ok != c.bounded || got != c.want {
			t.Errorf("%s: got %+v, %t, want %+v, %t", name, got, ok, c.want, c.bounded)
		}
	}
}
