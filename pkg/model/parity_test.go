package model_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/weights"
)

// TestParity: with PyTorch's weights and batch, a network gives PyTorch's
// logits, loss, gradients and running statistics. testdata/parity/make.py made
// the files with PyTorch in float64 and stored them in float32, whose rounding
// of 6e-8 is what the tolerances are for; float32 adds that of its sums.
func TestParity(t *testing.T) {
	tests := []struct {
		file          string
		config        model.Config
		image, target []int
		naming        model.Naming
	}{
		{
			"resnet-2x1",
			model.Config{Kind: "resnet", Base: 4, Blocks: []int{2, 1}, Classes: 5, LabelSmoothing: 0.1},
			[]int{3, 33, 38},
			[]int{1},
			model.NamesPyTorch,
		},
		{
			"resnetv2-2x3",
			model.Config{Kind: "resnetv2", Base: 4, Blocks: []int{2, 3}, Classes: 5},
			[]int{3, 33, 38},
			[]int{1},
			model.NamesKeras,
		},
		{
			"unet3d-2x3",
			model.Config{Kind: "unet3d", Base: 2, Depth: 3, ExpWeight: 0.01},
			[]int{3, 8, 16, 8},
			[]int{2, 8, 16, 8},
			model.NamesPyTorch,
		},
		{
			"unet2d-3x2",
			model.Config{Kind: "unet2d", Base: 3, Depth: 2, Norm: "batch", Bias: true},
			[]int{1, 12, 16},
			[]int{1, 12, 16},
			model.NamesPyTorch,
		},
	}
	for _, tt := range tests {
		f, err := weights.Read(filepath.Join("testdata", "parity", tt.file+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		net, err := tt.config.Network(tt.image, tt.target)
		if err != nil {
			t.Fatal(err)
		}
		given := group(f, "weights.")
		if got := model.NamingOf(given); tt.naming == model.NamesKeras && got != tt.naming {
			t.Errorf("%s: the names look like those of %s, want %s", tt.file, got, tt.naming)
		}
		tensors, err := model.Rename(net, given, tt.naming, model.NamesLockstep)
		if err != nil {
			t.Fatal(err)
		}
		for _, precision := range []struct {
			name      string
			tolerance float64 // of the largest value of a tensor
		}{{"fp64", 2e-7}, {"fp32", 2e-5}} {
			t.Run(tt.file+" "+precision.name, func(t *testing.T) {
				compareWithPyTorch(t, net, f, tensors, precision.name, precision.tolerance)
			})
		}
	}
}

// group is the tensors of f whose names begin with prefix, without it.
func group(f *weights.File, prefix string) *weights.File {
	var g weights.File
	for _, t := range f.Tensors {
		if name, ok := strings.CutPrefix(t.Name, prefix); ok {
			t.Name = name
			g.Tensors = append(g.Tensors, t)
		}
	}
	return &g
}

func compareWithPyTorch(t *testing.T, net model.Network, f *weights.File, tensors []weights.Tensor, precision string, tolerance float64) {
	value := func(name string) weights.Tensor {
		v, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	// A bias before a batch norm has the gradient 0, and both have rounding there:
	// a hundredth of the largest gradient of all is the least that counts.
	least := 0.0
	check := func(what string, got []float64, want weights.Tensor) {
		t.Helper()
		if len(got) != want.Len() {
			t.Fatalf("%s has %d values, PyTorch's %d", what, len(got), want.Len())
		}
		largest, off := least, 0.0
		for i, w := range want.Float64s() {
			largest, off = max(largest, math.Abs(w)), max(off, math.Abs(got[i]-w))
		}
		if !(off <= tolerance*largest) || largest == 0 {
			t.Errorf("%s is off by %g, the largest value is %g", what, off, largest)
		}
	}
	ctx := context.Background()
	o := engine.DefaultOptions()
	o.Device, o.Precision = "reference", precision
	e, err := reference.New(o)
	if err != nil {
		t.Fatal(err)
	}
	batch := value("image").Shape[0]
	load := func(mode nn.Mode) engine.Executable {
		p, err := plan.Lower(graph(t, net, batch, mode), plan.Options{Fuse: true})
		if err != nil {
			t.Fatal(err)
		}
		exe, err := e.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range tensors {
			if err := exe.Set(w.Name, w.Float64s()); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{model.ImageInput, model.TargetInput} {
			if err := exe.SetInput(name, value(name).F32); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := exe.Step(ctx, nil, nil); err != nil {
			t.Fatal(err)
		}
		return exe
	}
	logits := func(exe engine.Executable) []float64 {
		v := make([]float32, value("logits").Len())
		if err := exe.Output(model.LogitsOutput, v); err != nil {
			t.Fatal(err)
		}
		all := make([]float64, len(v))
		for i, x := range v {
			all[i] = float64(x)
		}
		return all
	}
	check("logits for evaluation", logits(load(nn.Eval)), value("eval.logits"))
	exe := load(nn.Train)
	check("logits", logits(exe), value("logits"))
	check("loss", []float64{exe.Loss()}, value("loss"))
	for _, g := range group(f, "gradient.").Tensors {
		for _, v := range g.F32 {
			least = max(least, math.Abs(float64(v))/100)
		}
	}
	compared := 0
	for _, p := range exe.Program().Params {
		g, err := exe.Gradient(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		check("gradient of "+p.Name, g, value("gradient."+p.Name))
		compared++
	}
	least = 0
	for _, want := range group(f, "after.").Tensors {
		got, err := exe.Get(want.Name)
		if err != nil {
			t.Fatal(err)
		}
		check("after the step, "+want.Name, got, want)
		compared++
	}
	// Every parameter and statistic, or the comparison is none.
	if compared != len(tensors) || !slices.ContainsFunc(tensors, func(w weights.Tensor) bool { return len(w.Shape) > 1 }) {
		t.Errorf("%d tensors were compared, the network has %d", compared, len(tensors))
	}
}
