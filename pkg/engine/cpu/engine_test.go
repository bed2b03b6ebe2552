package cpu

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestMain demands that every engine's goroutines end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNew reads the choice of instructions and refuses what cannot be.
func TestNew(t *testing.T) {
	o := engine.DefaultOptions()
	t.Setenv(variable, "go")
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if e.Name() != "cpu (go)" || e.Options() != o {
		t.Errorf("engine is %s with %+v", e.Name(), e.Options())
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error("second close:", err)
	}
	refuses := func(o engine.Options, want string) {
		t.Helper()
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New says %v, not %q", err, want)
		}
	}
	t.Setenv(variable, "sse")
	refuses(o, `LOCKSTEP_CPU="sse" is not known: use avx2 or go`)
	t.Setenv(variable, "")
	o.Device = "reference"
	refuses(o, `use cpu`)
	o.Device, o.Threads = "cpu", 0
	refuses(o, "threads is 0")
	if runtime.GOARCH == "amd64" && assemblyKernels() != nil {
		if e := open(t, "avx2", 1); e.Name() != "cpu (avx2)" {
			t.Errorf("engine is %s", e.Name())
		}
	}
}

// TestLoadErrors: what this engine cannot run is an error that names kernel and shapes.
func TestLoadErrors(t *testing.T) {
	e := open(t, "", 1)
	conv := plan.Attr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	for _, c := range []struct {
		node node
		want []string
	}{
		{node{op: plan.OpConv, attr: conv, in: [][]int{{1, 2, 4, 4}, {3, 5, 3, 3}}, out: [][]int{{1, 3, 4, 4}}}, []string{"conv", "layer", "[3 5 3 3]"}},
		{node{op: plan.OpConv, in: [][]int{{1, 2, 4, 4}, {3, 2, 3, 3}}, out: [][]int{{1, 3, 2, 2}}}, []string{"conv", "layer", "stride"}},
		{node{op: plan.OpReLU, in: [][]int{{2, 3, 4}}, out: [][]int{{2, 3, 4}}}, []string{"relu", "layer", "[2 3 4]", "1, 2, 4 or 5 dimensions"}},
		{node{op: plan.OpReLU, in: [][]int{{1, 2, 3, 4, 5, 6}}, out: [][]int{{1, 2, 3, 4, 5, 6}}}, []string{"relu", "layer", "[1 2 3 4 5 6]"}},
		{node{op: "softmax", in: [][]int{{1, 4, 1, 1}}, out: [][]int{{1, 4, 1, 1}}}, []string{"softmax", "not known"}},
		{node{op: plan.OpReLU, in: [][]int{{1, 1, 1 << 15, 1 << 15}}, out: [][]int{{1, 1, 1 << 15, 1 << 15}}}, []string{"too large"}},
		{node{op: plan.OpConcat, in: [][]int{{4}, {4}}, out: [][]int{{8}}}, []string{"concat", "layer", "4 dimensions"}},
		{node{op: plan.OpBiasBackward, in: [][]int{{4}}, out: [][]int{{4}}}, []string{"bias_backward", "2 dimensions or more"}},
		{node{op: plan.OpMaxPool, attr: plan.Attr{Kernel: []int{2, 2}, Stride: []int{0, 2}}, in: [][]int{{1, 1, 4, 4}}, out: [][]int{{1, 1, 2, 2}}}, []string{"max_pool", "stride is [0 2]"}},
		{node{op: plan.OpConv, attr: plan.Attr{Stride: []int{1, 1}, Pad: []int{-1, 0}}, in: [][]int{{1, 1, 4, 4}, {1, 1, 1, 1}}, out: [][]int{{1, 1, 2, 4}}}, []string{"conv", "pad is [-1 0]"}},
		{node{op: plan.OpAdd, in: [][]int{{1, 0, 4, 4}, {1, 0, 4, 4}}, out: [][]int{{1, 0, 4, 4}}}, []string{"add", "at least 1"}},
	} {
		_, err := e.Load(c.node.program(), nil)
		if err == nil {
			t.Errorf("%s with shapes %v → %v loads", c.node.op, c.node.in, c.node.out)
			continue
		}
		for _, w := range append(c.want, "load program on cpu") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
	if _, err := e.Load(nil, nil); err == nil {
		t.Error("nil loads")
	}
}

// TestCompileErrors: the engine does not rely on the program's validation for
// what its kernels need.
func TestCompileErrors(t *testing.T) {
	all := node{op: plan.OpAdd, in: [][]int{{2, 8, 4, 4}, {2, 8, 4, 4}}, out: [][]int{{2, 8, 4, 4}}}.program()
	shapes := [][]int{{2, 8, 4, 4}, {2, 8, 2, 2}, {8, 8, 3, 3}, {8}, {5}, {1}, {2, 9, 4, 4}, {1, 8, 17, 17}, {1, 8, 1, 1}}
	for _, s := range shapes {
		all.Tensors = append(all.Tensors, plan.Tensor{Shape: s, Role: plan.Input, First: -1, Last: -1})
	}
	loaded, err := open(t, "", 1).Load(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, ok := loaded.(*executable)
	if !ok {
		t.Fatalf("loaded a %T", loaded)
	}
	const big, small, weights, eight, five, one, nine, wide, dot = 3, 4, 5, 6, 7, 8, 9, 10, 11
	x.layouts[weights] = weightLayout
	one3 := plan.Attr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	half := plan.Attr{Kernel: []int{2, 2}, Stride: []int{2, 2}}
	padded := half
	padded.Pad = []int{1, 1}
	training := plan.Attr{Training: true}
	for _, k := range []plan.Kernel{
		{Op: "softmax", In: []int{big}, Out: []int{big}},
		{Op: plan.OpReLU, In: []int{big}, Out: []int{-1}},
		{Op: plan.OpReLU, In: []int{big}, Out: []int{small}},
		{Op: plan.OpAdd, In: []int{weights, big}, Out: []int{big}},
		{Op: plan.OpConv, In: []int{big, big}, Out: []int{big}, Attr: one3},
		{Op: plan.OpConv, In: []int{big, weights}, Out: []int{big}},
		{Op: plan.OpConv, In: []int{big, weights}, Out: []int{small}, Attr: one3},
		{Op: plan.OpConv, In: []int{big, weights, five}, Out: []int{big}, Attr: one3},
		{Op: plan.OpConvTranspose, In: []int{small, weights}, Out: []int{big}, Attr: one3},
		{Op: plan.OpBiasBackward, In: []int{big}, Out: []int{five}},
		{Op: plan.OpBatchNorm, In: []int{big, eight, eight, eight, five}, Out: []int{big}},
		{Op: plan.OpBatchNorm, In: []int{big, eight, eight, eight, eight}, Out: []int{small}},
		{Op: plan.OpBatchNorm, In: []int{big, eight, eight, eight, eight}, Out: []int{big, five, five}, Attr: training},
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, big}, Out: []int{big, five, eight}},
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, small}, Out: []int{big, eight, eight}},
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, big}, Out: []int{big, eight, eight}, Attr: plan.Attr{ReLU: true}},
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, big, big}, Out: []int{big, eight, eight}, Attr: plan.Attr{ReLU: true}},
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, big, big, five}, Out: []int{big, eight, eight}, Attr: plan.Attr{ReLU: true}},
		{Op: plan.OpMaxPool, In: []int{wide}, Out: []int{dot}, Attr: plan.Attr{Kernel: []int{17, 17}, Stride: []int{1, 1}}},
		{Op: plan.OpMaxPool, In: []int{big}, Out: []int{small}},
		{Op: plan.OpMaxPool, In: []int{big}, Out: []int{big}, Attr: half},
		{Op: plan.OpMaxPool, In: []int{big}, Out: []int{small}, Attr: padded},
		{Op: plan.OpMaxPoolBackward, In: []int{big, small, big}, Out: []int{big}, Attr: half},
		{Op: plan.OpConcat, In: []int{big, big}, Out: []int{big}},
		{Op: plan.OpSlice, In: []int{big}, Out: []int{nine}},
		{Op: plan.OpSlice, In: []int{nine}, Out: []int{eight}},
		{Op: plan.OpBCEWithLogits, In: []int{big, small}, Out: []int{one}},
		{Op: plan.OpBCEWithLogits, In: []int{big, big}, Out: []int{five}},
		{Op: plan.OpBCEWithLogitsBackward, In: []int{big, big, five}, Out: []int{big}},
	} {
		k.Name = "layer"
		x.program.Kernels[0] = k
		_, err := x.compile(0)
		if err == nil {
			t.Errorf("%s compiles %v → %v with %+v", k.Op, k.In, k.Out, k.Attr)
			continue
		}
		for _, w := range []string{string(k.Op), `"layer"`, "shapes ["} {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %s", err, w)
			}
		}
	}
}

// TestShare: a program for evaluation reads what training writes, and one that
// needs more than is there is refused.
func TestShare(t *testing.T) {
	e := open(t, "", 2)
	g, train := lowered(t, smallUNet(), 3, nn.Train, plan.Options{Fuse: true})
	_, eval := lowered(t, smallUNet(), 1, nn.Eval, plan.Options{Fuse: true})
	x, err := e.Load(train, nil)
	if err != nil {
		t.Fatal(err)
	}
	initialise(t, x, g)
	y, err := e.Load(eval, x)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{train.Params[0].Name, train.Tensors[train.States[0]].Name, slotPrefix + "v." + train.Params[1].Name} {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v {
			v[i] = float64(i%7) + 1
		}
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
		if got, err := y.Get(name); err != nil || !slices.Equal(got, v) {
			t.Errorf("%s is not shared: %v", name, err)
		}
	}
	if !slices.Equal(x.Names(), y.Names()) {
		t.Error("sharing programs name different tensors")
	}
	other := smallUNet()
	other.Depth = 2
	_, shallow := lowered(t, other, 3, nn.Train, plan.Options{})
	z, err := e.Load(shallow, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Load(train, z); err == nil || !strings.Contains(err.Error(), "share") {
		t.Errorf("a deeper network shares a shallower one's parameters: %v", err)
	}
	if _, err := open(t, "", 1).Load(eval, x); err == nil || !strings.Contains(err.Error(), "another engine") {
		t.Errorf("engines share: %v", err)
	}
}

// TestNames: what is unknown or has the wrong length is an error.
func TestNames(t *testing.T) {
	e := open(t, "", 1)
	_, p := lowered(t, smallUNet(), 1, nn.Train, plan.Options{})
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := 4*len(p.Params) + len(p.States); len(x.Names()) != want {
		t.Errorf("%d names, not %d: parameters, three slots each, and states", len(x.Names()), want)
	}
	before := x.MemoryBytes()
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
		if err := x.Set(name, append(v, 0)); err == nil {
			t.Errorf("%s takes a value too many", name)
		}
	}
	// The last loop's failed sets may not make slots either.
	if after := x.MemoryBytes(); after != before {
		t.Errorf("zero slots took %d bytes", after-before)
	}
	for _, f := range []func() error{
		func() error { _, err := x.Get("nobody"); return err },
		func() error { return x.Set("optimizer.m.nobody", nil) },
		func() error { _, err := x.Gradient("nobody"); return err },
		func() error { return x.SetInput("nobody", nil) },
		func() error { return x.SetInput(model.ImageInput, make([]float32, 3)) },
		func() error { return x.Output("nobody", nil) },
		func() error { return x.Output(model.LogitsOutput, make([]float32, 3)) },
	} {
		if err := f(); err == nil {
			t.Error("an unknown name or a wrong length is taken")
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{
		func() error { return x.SetInput(model.ImageInput, nil) },
		func() error { return x.Output(model.LogitsOutput, nil) },
		func() error { _, err := x.Step(t.Context(), nil, nil); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("a closed executable answers %v", err)
		}
	}
}
