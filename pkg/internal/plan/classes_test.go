package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gorgonia.org/gorgonia"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// classifier is a small network with a residual block of either kind.
func classifier(t testing.TB, mode nn.Mode) *nn.Graph {
	t.Helper()
	g := nn.NewGraph(mode)
	x := g.Conv2D("stem", g.Input("image", 2, 3, 8, 8), 4, 3, 2, 1, false)
	x = g.MaxPool(x, nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}, PadZeros: true})
	h := g.ReLU(g.BatchNormWith("preact", x, 1.001e-5, 0.01))
	h = g.Add(g.MaxPool(x, nn.Pool{Kernel: []int{1}, Stride: []int{2}}), g.Conv2D("conv", h, 4, 3, 2, 1, true))
	h = g.ReLU(g.Add(g.BatchNorm("norm", h), h))
	z := g.Output("logits", g.Linear("fc", g.GlobalAvgPool(h), nn.Dense{Out: 10, Bias: true}))
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Input("target", 2, 1), 0.1))
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	return g
}

// volumes is one level of a network on volumes.
func volumes(t testing.TB) *nn.Graph {
	t.Helper()
	k4 := nn.Convolution{Out: 4, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true}
	g := nn.NewGraph(nn.Train)
	x := g.Input("image", 1, 4, 4, 4, 4)
	skip := g.LeakyReLU(g.Conv("down.0", x, k4), 0.01)
	h := g.ReLU(g.ConvTranspose("up.1", g.LeakyReLU(g.Conv("down.1", skip, k4), 0.01), k4))
	z := g.Output("logits", g.Tanh(g.ConvTranspose("up.0", g.Concat(h, skip), k4)))
	g.SetLoss(g.L1(z, g.Input("target", 1, 4, 4, 4, 4), 0.5))
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	return g
}

func lowerGraph(t testing.TB, g *nn.Graph) *plan.Program {
	t.Helper()
	p, err := plan.Lower(g, plan.Options{Fuse: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLowerTasksGolden compares the kernels of small networks for classes and on
// volumes with files that were read and found right by hand.
func TestLowerTasksGolden(t *testing.T) {
	for name, p := range map[string]*plan.Program{
		"classes-train": lowerGraph(t, classifier(t, nn.Train)),
		"classes-eval":  lowerGraph(t, classifier(t, nn.Eval)),
		"volumes-train": lowerGraph(t, volumes(t)),
	} {
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(p.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), p.String()); d != "" {
			t.Errorf("program differs from %s (-want +got):\n%s", golden, d)
		}
	}
}

// TestClasses: which input holds indexes, and what may stand in it.
func TestClasses(t *testing.T) {
	for _, mode := range []nn.Mode{nn.Train, nn.Eval} {
		p := lowerGraph(t, classifier(t, mode))
		if n := p.ClassCount(p.FindTensor(plan.Input, "target")); n != 10 {
			t.Errorf("%s: the target holds indexes of %d classes, want 10", mode, n)
		}
		if n := p.ClassCount(p.FindTensor(plan.Input, "image")); n != 0 {
			t.Errorf("%s: the image holds indexes of %d classes", mode, n)
		}
	}
	p := lowerGraph(t, classifier(t, nn.Eval))
	target := p.FindTensor(plan.Input, "target")
	if err := plan.CheckClassIndexes(p, target, []float32{0, 9, 4}); err != nil {
		t.Error(err)
	}
	if err := plan.CheckClassIndexes(p, p.FindTensor(plan.Input, "image"), []float32{-1, 0.5}); err != nil {
		t.Error(err)
	}
	err := plan.CheckClassIndexes(p, target, []float32{0, 10, 4})
	const want = `set input "target": invalid class 10 of sample 1: the network has classes 0 to 9: check the labels, or build the network with more classes`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestFLOPsOfLinear: 2 samples, 4 features, 10 classes, a multiplication and an
// addition: 160, forward and for each gradient.
func TestFLOPsOfLinear(t *testing.T) {
	p := lowerGraph(t, classifier(t, nn.Train))
	found := 0
	for _, k := range p.Kernels {
		if strings.HasPrefix(string(k.Op), "linear") {
			found++
			if n := p.FLOPs(k); n != 160 {
				t.Errorf("%s: %d FLOPs, want 160", k.Op, n)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d linear kernels, want 3", found)
	}
}

// TestSharedGradientsAreCopied: two parameters whose gradients are one tensor of
// two or five dimensions get one each.
func TestSharedGradientsAreCopied(t *testing.T) {
	for _, shape := range [][]int{{2, 3}, {2, 1, 2, 3}, {1, 2, 2, 2, 2}} {
		g := nn.NewGraph(nn.Train)
		z := g.Add(g.Parameter("a", nn.Constant(1), shape...), g.Parameter("b", nn.Constant(2), shape...))
		g.SetLoss(g.BCEWithLogits(z, g.Input("t", shape...)))
		p := lowerGraph(t, g)
		if p.Params[0].Grad == p.Params[1].Grad || p.Params[0].Grad < 0 {
			t.Errorf("%v: gradients are tensors %d and %d", shape, p.Params[0].Grad, p.Params[1].Grad)
		}
	}
}

// TestBucketsOfVolumes: the 3-D U-Net of the SC21 tutorial (116,977,029
// parameters) has 8 buckets at PyTorch's caps and 5 at 100 MiB, of the sizes
// that DistributedDataParallel gives it.
func TestBucketsOfVolumes(t *testing.T) {
	layer := func(out int) nn.Convolution {
		return nn.Convolution{Out: out, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}, Bias: true}
	}
	g := nn.NewGraph(nn.Train)
	h := g.Input("image", 1, 4, 64, 64, 64)
	var skips []*gorgonia.Node
	for i, c := range []int{64, 128, 256, 512, 512, 512} {
		h = g.LeakyReLU(g.Conv(fmt.Sprint("down.", i), h, layer(c)), 0.01)
		skips = append(skips, h)
	}
	for i, c := range []int{512, 512, 256, 128, 64, 5} {
		if i > 0 {
			h = g.Concat(h, skips[5-i])
		}
		h = g.ConvTranspose(fmt.Sprint("up.", i), h, layer(c))
		if i < 5 {
			h = g.ReLU(h)
		}
	}
	g.SetLoss(g.L1(g.Tanh(h), g.Input("target", 1, 5, 64, 64, 64), 0))
	if g.Err() != nil || g.ParameterCount() != 116_977_029 {
		t.Fatal(g.ParameterCount(), "parameters:", g.Err())
	}
	for limit, want := range map[int]string{
		0:         "4.16 80.00 128.00 64.00 64.00 64.00 32.00 10.06",
		100 << 20: "4.16 208.00 128.00 104.00 2.06",
	} {
		p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: limit})
		if err != nil {
			t.Fatal(err)
		}
		var sizes []string
		for _, b := range p.Buckets {
			sizes = append(sizes, fmt.Sprintf("%.2f", float64(b.Bytes)/(1<<20)))
		}
		if got := strings.Join(sizes, " "); got != want {
			t.Errorf("cap %d: buckets of %s MiB, want %s", limit, got, want)
		}
	}
}

// TestValidateFindsMutationsOfTasks breaks the programs above.
func TestValidateFindsMutationsOfTasks(t *testing.T) {
	kernel := func(p *plan.Program, op plan.Op) *plan.Kernel {
		return &p.Kernels[slices.IndexFunc(p.Kernels, func(k plan.Kernel) bool { return k.Op == op })]
	}
	for name, mutate := range map[string]func(c, v *plan.Program){
		"padding of a whole window": func(c, _ *plan.Program) { kernel(c, plan.OpMaxPool).Attr.Pad = []int{3, 3} },
		"one padding":               func(c, _ *plan.Program) { kernel(c, plan.OpMaxPool).Attr.Pad = []int{1} },
		"zeros without padding":     func(c, _ *plan.Program) { kernel(c, plan.OpMaxPool).Attr.Pad = nil },
		"padding of the gradient": func(c, _ *plan.Program) {
			for i := range c.Kernels[c.Forward:] {
				c.Kernels[c.Forward+i].Attr.PadZeros, c.Kernels[c.Forward+i].Attr.Pad = false, nil
			}
		},
		"computed classes": func(c, _ *plan.Program) {
			k := kernel(c, plan.OpSoftmaxCrossEntropy)
			k.In = []int{k.In[0], k.In[0]}
		},
		"smoothing":                func(c, _ *plan.Program) { kernel(c, plan.OpSoftmaxCrossEntropyBackward).Attr.Smoothing = 1 },
		"linear of other features": func(c, _ *plan.Program) { c.Tensors[kernel(c, plan.OpLinear).In[0]].Shape = []int{2, 5} },
		"linear of an image":       func(c, _ *plan.Program) { c.Tensors[kernel(c, plan.OpLinear).In[0]].Shape = []int{2, 4, 1, 1} },
		"mean of a row":            func(c, _ *plan.Program) { c.Tensors[kernel(c, plan.OpGlobalAvgPool).In[0]].Shape = []int{2, 4} },
		"spread mean": func(c, _ *plan.Program) {
			c.Tensors[kernel(c, plan.OpGlobalAvgPoolBackward).Out[0]].Shape = []int{2, 4}
		},
		"slope":                    func(_, v *plan.Program) { kernel(v, plan.OpLeakyReLUBackward).Attr.Slope = 0 },
		"weight of exponentials":   func(_, v *plan.Program) { kernel(v, plan.OpL1).Attr.ExpWeight = -1 },
		"stride of two dimensions": func(_, v *plan.Program) { kernel(v, plan.OpConv).Attr.Stride = []int{2, 2} },
		"padding in depth":         func(_, v *plan.Program) { kernel(v, plan.OpConvTranspose).Attr.Pad = []int{0, 1, 1} },
		"flat volume":              func(_, v *plan.Program) { v.Tensors[kernel(v, plan.OpConcat).Out[0]].Shape = []int{1, 8, 2, 4} },
		"target of another shape":  func(_, v *plan.Program) { v.Tensors[kernel(v, plan.OpL1).In[1]].Shape = []int{1, 4, 4, 4, 5} },
	} {
		c, v := lowerGraph(t, classifier(t, nn.Train)), lowerGraph(t, volumes(t))
		if err := plan.Validate(c); err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(v); err != nil {
			t.Fatal(err)
		}
		if mutate(c, v); plan.Validate(c) == nil && plan.Validate(v) == nil {
			t.Errorf("%s: the broken program passes", name)
		}
	}
}

// TestPixelClasses: the classes of pixels, the ignored ones, and broken programs.
func TestPixelClasses(t *testing.T) {
	c := small()
	c.OutChannels, c.Softmax, c.ClassWeights, c.DiceWeight = 4, true, []float64{1, 2, 0, 1}, 0.5
	p := lowered(t, c, 2, nn.Train, plan.Options{})
	target := p.FindTensor(plan.Input, "target")
	if n := p.ClassCount(target); n != 4 {
		t.Errorf("the target holds indexes of %d classes, want 4", n)
	}
	if err := plan.CheckClassIndexes(p, target, []float64{0, 3, model.IgnoredTarget}); err != nil {
		t.Error(err)
	}
	const want = `set input "target": invalid class 4 of pixel 1: the network has classes 0 to 3 (or 255: ignored): check the labels, or build the network with more classes`
	if err := plan.CheckClassIndexes(p, target, []float64{255, 4}); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if text := p.String(); !strings.Contains(text, "pixel_cross_entropy(dice weight 0.5, class weights 1 2 0 1, ignore 255)") {
		t.Errorf("the attributes of the loss are missing in\n%s", text)
	}
	// In fp16 the loss is scaled, and 255 is exact in the target, which stays in fp32.
	if m := mixed(t, p, device.F16); m.Tensors[target].Stored != device.Host || m.FindTensor(plan.Input, plan.LossScaleInput) < 0 {
		t.Errorf("in fp16 the target is stored as %s, or there is no loss scale", m.Tensors[target].Stored)
	}
	for name, mutate := range map[string]func(p *plan.Program, k *plan.Kernel){
		"ignored class":      func(_ *plan.Program, k *plan.Kernel) { k.Attr.Ignore = 3 },
		"class weights":      func(_ *plan.Program, k *plan.Kernel) { k.Attr.ClassWeights = []float64{1, 1, 1} },
		"negative weight":    func(_ *plan.Program, k *plan.Kernel) { k.Attr.ClassWeights = []float64{1, 1, -1, 1} },
		"dice":               func(_ *plan.Program, k *plan.Kernel) { k.Attr.DiceWeight = 2 },
		"computed target":    func(p *plan.Program, _ *plan.Kernel) { p.Tensors[target].Role = plan.Constant },
		"target per class":   func(p *plan.Program, _ *plan.Kernel) { p.Tensors[target].Shape = []int{2, 4, 4, 4} },
		"target of a sample": func(p *plan.Program, _ *plan.Kernel) { p.Tensors[target].Shape = []int{2, 1} },
	} {
		p := lowered(t, c, 2, nn.Train, plan.Options{})
		mutate(p, &p.Kernels[slices.IndexFunc(p.Kernels, func(k plan.Kernel) bool { return k.Op == plan.OpPixelCrossEntropyBackward })])
		p.Inputs = slices.DeleteFunc(p.Inputs, func(id int) bool { return p.Tensors[id].Role != plan.Input })
		if plan.Validate(p) == nil {
			t.Errorf("%s: the broken program passes", name)
		}
	}
}
