package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gorgonia.org/gorgonia"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

var update = flag.Bool("update", false, "write golden files anew")

// lowered builds the U-Net of c and lowers it.
func lowered(t testing.TB, c model.UNet2DConfig, batch int, mode nn.Mode, o plan.Options) *plan.Program {
	t.Helper()
	u, err := model.UNet2D(c)
	if err != nil {
		t.Fatal(err)
	}
	g, err := u.Graph(batch, mode)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Lower(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func small() model.UNet2DConfig {
	return model.UNet2DConfig{Base: 2, Depth: 1, InChannels: 1, OutChannels: 1, Height: 4, Width: 4, Norm: "batch"}
}

// TestLowerGolden compares the kernels of a one-level U-Net with files that
// were read and found right by hand.
func TestLowerGolden(t *testing.T) {
	tests := []struct {
		name string
		mode nn.Mode
		fuse bool
	}{
		{"train-fused", nn.Train, true},
		{"train-plain", nn.Train, false},
		{"eval-fused", nn.Eval, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := lowered(t, small(), 2, tt.mode, plan.Options{Fuse: tt.fuse}).String()
			golden := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
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
		})
	}
}

// TestLowerIsDeterministic: ranks lower on their own and must agree on buckets.
func TestLowerIsDeterministic(t *testing.T) {
	c := small()
	c.Depth, c.Height, c.Width = 3, 16, 16
	want := lowered(t, c, 2, nn.Train, plan.Options{Fuse: true})
	for range 20 {
		if d := cmp.Diff(want, lowered(t, c, 2, nn.Train, plan.Options{Fuse: true})); d != "" {
			t.Fatalf("a second lowering differs (-first +second):\n%s", d)
		}
	}
}

func TestFusion(t *testing.T) {
	count := func(p *plan.Program, op plan.Op) int {
		n := 0
		for _, k := range p.Kernels {
			if k.Op == op {
				n++
			}
		}
		return n
	}
	c := small()
	c.Depth, c.Height, c.Width = 2, 8, 8
	// Ten blocks: two in each of two levels down, the bridge and two levels up.
	for _, fuse := range []bool{false, true} {
		p := lowered(t, c, 1, nn.Train, plan.Options{Fuse: fuse})
		relu := 10
		if fuse {
			relu = 0
		}
		for op, want := range map[plan.Op]int{
			plan.OpBatchNorm: 10, plan.OpBatchNormBackward: 10, plan.OpReLU: relu, plan.OpReLUBackward: relu,
			plan.OpConv: 11, plan.OpConvBackwardWeights: 11,
			plan.OpConvBackwardData: 10, // the image needs no gradient
			plan.OpAdd:              2,  // one a skip connection
		} {
			if got := count(p, op); got != want {
				t.Errorf("fuse=%v: %d kernels %s, want %d", fuse, got, op, want)
			}
		}
	}
}

// TestFusionNeedsOneReader: a batch norm whose result is read twice, or is an
// output, keeps its own kernel.
func TestFusionNeedsOneReader(t *testing.T) {
	tests := []struct {
		name  string
		build func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node
		fused bool
	}{
		{"one reader", func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ReLU(g.BatchNorm("n", x)) }, true},
		{"read twice", func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			h := g.BatchNorm("n", x)
			return g.Add(g.ReLU(h), h)
		}, false},
		{"output", func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ReLU(g.Output("h", g.BatchNorm("n", x))) }, false},
		{"activation read twice", func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			h := g.ReLU(g.BatchNorm("n", x))
			return g.Concat(h, h)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := nn.NewGraph(nn.Train)
			z := tt.build(g, g.Conv2D("c", g.Input("x", 2, 1, 3, 3), 2, 1, 1, 0, false))
			if g.Err() != nil {
				t.Fatal(g.Err())
			}
			g.SetLoss(g.BCEWithLogits(z, g.Input("t", z.Shape()...)))
			p, err := plan.Lower(g, plan.Options{Fuse: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range p.Kernels {
				if (k.Op == plan.OpBatchNorm || k.Op == plan.OpBatchNormBackward) && k.Attr.ReLU != tt.fused {
					t.Errorf("%s has ReLU %v, want %v", k.Op, k.Attr.ReLU, tt.fused)
				}
			}
		})
	}
}

// TestBuckets checks the grouping rule of PyTorch's DistributedDataParallel:
// gradients in the order in which they become final, from the last layer to
// the first; a bucket is closed when at or above its cap.
func TestBuckets(t *testing.T) {
	c := small()
	c.Base, c.Depth, c.Height, c.Width = 4, 2, 8, 8
	tests := []struct {
		name        string
		first, size int
		check       func(p *plan.Program) error
	}{
		{"a bucket a gradient", 1, 1, func(p *plan.Program) error {
			if len(p.Buckets) != len(p.Params) {
				return fmt.Errorf("%d buckets for %d parameters", len(p.Buckets), len(p.Params))
			}
			return nil
		}},
		{"one bucket", 0, 0, func(p *plan.Program) error {
			if len(p.Buckets) != 1 || p.Buckets[0].Ready != len(p.Kernels)-1 {
				return fmt.Errorf("%d buckets, the first ready after kernel %d of %d", len(p.Buckets), p.Buckets[0].Ready, len(p.Kernels))
			}
			return nil
		}},
		{"closed at the cap", 4, 0, func(p *plan.Program) error { // the head's bias has 4 bytes
			if n := len(p.Buckets[0].Params); n != 1 || p.Buckets[0].Bytes != 4 {
				return fmt.Errorf("the first bucket has %d parameters and %d bytes", n, p.Buckets[0].Bytes)
			}
			return nil
		}},
		{"caps", 100, 5000, func(p *plan.Program) error {
			for i, b := range p.Buckets {
				limit := 5000
				if i == 0 {
					limit = 100
				}
				last := b.Params[len(b.Params)-1]
				without := b.Bytes - 4*p.Tensors[p.Params[last].Grad].Elements()
				if without >= limit || b.Bytes < limit && i < len(p.Buckets)-1 {
					return fmt.Errorf("bucket %d has %d bytes, %d without its last, at a cap of %d", i, b.Bytes, without, limit)
				}
			}
			return nil
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := lowered(t, c, 1, nn.Train, plan.Options{Fuse: true, BucketBytes: tt.size, FirstBucketBytes: tt.first})
			if err := tt.check(p); err != nil {
				t.Error(err)
			}
			first, last := p.Params[p.Buckets[0].Params[0]].Name, p.Params[p.Buckets[len(p.Buckets)-1].Params[len(p.Buckets[len(p.Buckets)-1].Params)-1]].Name
			if !strings.HasPrefix(first, "head.") || !strings.HasPrefix(last, "down.0.a.") {
				t.Errorf("buckets go from %s to %s, want from the head to the first convolution", first, last)
			}
		})
	}
}

// TestBucketsOfBenchmark: 7,762,465 float32 are 29.6 MiB, so the default caps
// of 1 and 25 MiB give three buckets.
func TestBucketsOfBenchmark(t *testing.T) {
	p := lowered(t, model.UNet2DConfig{Base: 32, Depth: 4, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"}, 2, nn.Train, plan.Options{Fuse: true})
	total := 0
	for _, b := range p.Buckets {
		total += b.Bytes
	}
	if len(p.Buckets) != 3 || total != 4*7_762_465 {
		t.Errorf("%d buckets of %d bytes, want 3 of %d", len(p.Buckets), total, 4*7_762_465)
	}
}

func TestFLOPs(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	x := g.Conv2D("c", g.Input("x", 2, 3, 8, 8), 4, 3, 2, 1, true) // 4×4 out: 2·2·4·16·27 = 6912
	z := g.ConvTranspose2D("t", x, 5, 2, 2, 0, false)              // 8×8 out: 2·2·4·16·5·4 = 5120
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	g.SetLoss(g.BCEWithLogits(z, g.Input("t", z.Shape()...)))
	p, err := plan.Lower(g, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[plan.Op]int64{
		plan.OpConv: 6912, plan.OpConvBackwardWeights: 6912,
		plan.OpConvTranspose: 5120, plan.OpConvTransposeBackwardData: 5120, plan.OpConvTransposeBackwardWeights: 5120,
	}
	for _, k := range p.Kernels {
		if got := p.FLOPs(k); got != want[k.Op] {
			t.Errorf("%s: %d FLOPs, want %d", k.Op, got, want[k.Op])
		}
	}
	for i, l := range g.Layers()[:2] {
		if w := []int64{6912, 5120}[i]; l.FLOPs != w {
			t.Errorf("layer %s: %d FLOPs, want %d", l.Name, l.FLOPs, w)
		}
	}
}

func TestLowerErrors(t *testing.T) {
	tests := []struct {
		name  string
		build func() *nn.Graph
		o     plan.Options
		want  string
	}{
		{"nil", func() *nn.Graph { return nil }, plan.Options{}, "lower graph: the graph is nil"},
		{"nothing asked for", func() *nn.Graph { g := nn.NewGraph(nn.Eval); g.Input("x", 1, 1, 2, 2); return g }, plan.Options{}, "neither loss nor outputs"},
		{"no loss to train", func() *nn.Graph {
			g := nn.NewGraph(nn.Train)
			g.Output("y", g.ReLU(g.Input("x", 1, 1, 2, 2)))
			return g
		}, plan.Options{}, "the graph has no loss: call SetLoss"},
		{"builder's error", func() *nn.Graph { g := nn.NewGraph(nn.Train); g.Input("x"); return g }, plan.Options{}, `add input "x"`},
		{"parameter without use", func() *nn.Graph {
			g := nn.NewGraph(nn.Train)
			g.Parameter("idle", nn.Constant(1), 3)
			z := g.Conv2D("c", g.Input("x", 1, 1, 2, 2), 1, 1, 1, 0, false)
			g.SetLoss(g.BCEWithLogits(z, g.Input("t", 1, 1, 2, 2)))
			return g
		}, plan.Options{}, `the loss does not depend on parameter "idle"`},
		{"gorgonia's own operation", func() *nn.Graph {
			g := nn.NewGraph(nn.Eval)
			y, err := gorgonia.Tanh(g.Input("x", 1, 1, 2, 2))
			if err != nil {
				t.Fatal(err)
			}
			g.Output("y", g.ReLU(y))
			return g
		}, plan.Options{}, "is not from package nn"},
		{"negative bucket", func() *nn.Graph { return nn.NewGraph(nn.Eval) }, plan.Options{BucketBytes: -1}, "must not be negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := plan.Lower(tt.build(), tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestLowerTwice: the gradients are added to the graph once.
func TestLowerTwice(t *testing.T) {
	u, err := model.UNet2D(small())
	if err != nil {
		t.Fatal(err)
	}
	g, err := u.Graph(1, nn.Train)
	if err != nil {
		t.Fatal(err)
	}
	var dumps []string
	for _, fuse := range []bool{true, false, true} {
		p, err := plan.Lower(g, plan.Options{Fuse: fuse})
		if err != nil {
			t.Fatal(err)
		}
		dumps = append(dumps, p.String())
	}
	if dumps[0] != dumps[2] || dumps[0] == dumps[1] {
		t.Error("a graph lowered again gives another program")
	}
}

// TestValidateFindsMutations breaks a program in every way that Validate looks
// for.
func TestValidateFindsMutations(t *testing.T) {
	kernel := func(p *plan.Program, op plan.Op) *plan.Kernel {
		i := slices.IndexFunc(p.Kernels, func(k plan.Kernel) bool { return k.Op == op })
		return &p.Kernels[i]
	}
	tests := []struct {
		name   string
		mutate func(p *plan.Program)
	}{
		{"order", func(p *plan.Program) { p.Kernels[0], p.Kernels[1] = p.Kernels[1], p.Kernels[0] }},
		{"unknown operation", func(p *plan.Program) { p.Kernels[0].Op = "softmax" }},
		{"too few inputs", func(p *plan.Program) { p.Kernels[0].In = p.Kernels[0].In[:1] }},
		{"written twice", func(p *plan.Program) { p.Kernels[1].Out = p.Kernels[0].Out }},
		{"stride", func(p *plan.Program) { kernel(p, plan.OpConv).Attr.Stride = []int{2, 2} }},
		{"no stride", func(p *plan.Program) { kernel(p, plan.OpMaxPool).Attr.Stride = []int{0, 2} }},
		{"negative padding", func(p *plan.Program) { kernel(p, plan.OpConv).Attr.Pad = []int{-1, 1} }},
		{"concatenated vectors", func(p *plan.Program) {
			for _, id := range kernel(p, plan.OpConcat).In {
				p.Tensors[id].Shape = p.Tensors[id].Shape[:1]
			}
		}},
		{"bias of a vector", func(p *plan.Program) {
			id := kernel(p, plan.OpBiasBackward).In[0]
			p.Tensors[id].Shape = p.Tensors[id].Shape[:1]
		}},
		{"padding of a gradient", func(p *plan.Program) { kernel(p, plan.OpConvBackwardData).Attr.Pad = []int{2, 2} }},
		{"window", func(p *plan.Program) { kernel(p, plan.OpMaxPool).Attr.Kernel = nil }},
		{"slice beyond the end", func(p *plan.Program) { kernel(p, plan.OpSlice).Attr.Offset = 3 }},
		{"batch norm without saved statistics", func(p *plan.Program) { k := kernel(p, plan.OpBatchNorm); k.Out = k.Out[:1] }},
		{"fused backward without y", func(p *plan.Program) { k := kernel(p, plan.OpBatchNormBackward); k.In = k.In[:5] }},
		{"forward count", func(p *plan.Program) { p.Forward++ }},
		{"lifetime", func(p *plan.Program) { p.Tensors[len(p.Tensors)-1].Last++ }},
		{"input of another role", func(p *plan.Program) { p.Inputs[0] = p.Loss }},
		{"loss", func(p *plan.Program) { p.Loss = p.Inputs[0] }},
		{"bucket ready early", func(p *plan.Program) { p.Buckets[0].Ready-- }},
		{"bucket order", func(p *plan.Program) { slices.Reverse(p.Buckets[0].Params) }},
		{"bucket bytes", func(p *plan.Program) { p.Buckets[0].Bytes++ }},
		{"parameter without bucket", func(p *plan.Program) { p.Buckets = nil }},
		{"parameter without gradient", func(p *plan.Program) { p.Params[0].Grad = -1 }},
		{"shape", func(p *plan.Program) { p.Tensors[p.Params[0].Grad].Shape = []int{1} }},
		{"gradient read", func(p *plan.Program) {
			last := &p.Kernels[len(p.Kernels)-1]
			last.In = slices.Clone(last.In)
			last.In[len(last.In)-1] = p.Params[len(p.Params)-1].Grad
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := lowered(t, small(), 2, nn.Train, plan.Options{Fuse: true})
			if err := plan.Validate(p); err != nil {
				t.Fatal(err)
			}
			if tt.mutate(p); plan.Validate(p) == nil {
				t.Error("the broken program passes")
			}
		})
	}
}

// residual is a network of the size of ResNet-152: 50 bottlenecks.
func residual(t testing.TB) *nn.Graph {
	g := nn.NewGraph(nn.Train)
	h := g.Conv2D("stem", g.Input("x", 2, 3, 32, 32), 16, 3, 1, 1, false)
	for i := range 50 {
		name := fmt.Sprintf("block.%d.", i)
		y := g.ReLU(g.BatchNorm(name+"n1", h))
		y = g.ReLU(g.BatchNorm(name+"n2", g.Conv2D(name+"c1", y, 8, 1, 1, 0, false)))
		y = g.ReLU(g.BatchNorm(name+"n3", g.Conv2D(name+"c2", y, 8, 3, 1, 1, false)))
		h = g.Add(h, g.Conv2D(name+"c3", y, 16, 1, 1, 0, false))
	}
	g.SetLoss(g.BCEWithLogits(h, g.Input("t", 2, 16, 32, 32)))
	if err := g.Err(); err != nil {
		t.Fatal(err)
	}
	return g
}

// BenchmarkLowerResNet differentiates and lowers some 500 forward operations.
func BenchmarkLowerResNet(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		g := residual(b)
		if _, err := g.Gradients(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := plan.Lower(g, plan.Options{Fuse: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFLOPsOfBenchmark: 18.05 GFLOP an image, as counted for the same network
// in PyTorch (three times the forward pass; the first convolution's gradient
// with respect to the image is not computed).
func TestFLOPsOfBenchmark(t *testing.T) {
	n, err := model.Named("unet2d-bench")
	if err != nil {
		t.Fatal(err)
	}
	g, err := n.Graph(1, nn.Train)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Lower(g, plan.Options{Fuse: true})
	if err != nil {
		t.Fatal(err)
	}
	var total, forward, layers int64
	for _, k := range p.Kernels {
		total += p.FLOPs(k)
		if !k.Backward {
			forward += p.FLOPs(k)
		}
	}
	for _, l := range g.Layers() {
		layers += l.FLOPs
	}
	if gflop := float64(total) / 1e9; gflop < 18.0 || gflop > 18.1 {
		t.Errorf("%.3f GFLOP a step and image, want 18.05", gflop)
	}
	if forward != layers {
		t.Errorf("forward kernels have %d FLOPs, layers %d", forward, layers)
	}
}
