package cuda

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestMain demands that every engine's goroutines end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLoadErrors: what this engine cannot run is an error that names kernel and shapes.
func TestLoadErrors(t *testing.T) {
	e := open(t, gpuOptions("fp32"))
	conv := plan.Attr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	for _, c := range []struct {
		node node
		want []string
	}{
		{node{op: plan.OpConv, attr: conv, in: [][]int{{1, 2, 4, 4}, {3, 5, 3, 3}}, out: [][]int{{1, 3, 4, 4}}}, []string{"conv", "layer", "[3 5 3 3]"}},
		{node{op: plan.OpConv, in: [][]int{{1, 2, 4, 4}, {3, 2, 3, 3}}, out: [][]int{{1, 3, 2, 2}}}, []string{"conv", "layer", "stride"}},
		{node{op: plan.OpPad, attr: plan.Attr{Pad: []int{1, 0}, PadEnd: []int{0, 1}}, in: [][]int{{1, 2, 3, 4}}, out: [][]int{{1, 2, 4, 5}}}, []string{"pad", "layer", "not known to this engine"}},
		{node{op: plan.OpL1, attr: plan.Attr{ExpWeight: 0.5}, in: [][]int{{1, 2, 3, 4}, {1, 2, 3, 4}}, out: [][]int{{1}}}, []string{"l1", "weight 0.5", "not offered on a GPU", "--device cpu"}},
		{node{op: "softmax", in: [][]int{{1, 4, 1, 1}}, out: [][]int{{1, 4, 1, 1}}}, []string{"softmax", "not known"}},
		{node{op: plan.OpConcat, in: [][]int{{4}, {4}}, out: [][]int{{8}}}, []string{"concat", "layer", "[n,c,h,w]"}},
		{node{op: plan.OpMaxPool, attr: plan.Attr{Kernel: []int{2, 2}, Stride: []int{0, 2}}, in: [][]int{{1, 1, 4, 4}}, out: [][]int{{1, 1, 2, 2}}}, []string{"max_pool", "stride [0 2]"}},
		{node{op: plan.OpAdd, in: [][]int{{1, 0, 4, 4}, {1, 0, 4, 4}}, out: [][]int{{1, 0, 4, 4}}}, []string{"[1 0 4 4]"}},
		{node{op: plan.OpReLU, in: [][]int{{3, 1, 1 << 14, 1 << 14}}, out: [][]int{{3, 1, 1 << 14, 1 << 14}}}, []string{
			"needs 54 GiB of GPU memory at batch 3", "8 GiB free of 8 GiB", "even one image does not fit", "CUDA_ERROR_OUT_OF_MEMORY",
		}},
	} {
		_, err := e.Load(c.node.program(), nil)
		if err == nil {
			t.Errorf("%s with shapes %v → %v loads", c.node.op, c.node.in, c.node.out)
			continue
		}
		for _, w := range append(c.want, "load program on cuda") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
	if _, err := e.Load(nil, nil); err == nil {
		t.Error("nil loads")
	}
}

// TestShare: a program for evaluation reads what training writes, and one that
// needs more than is there is refused.
func TestShare(t *testing.T) {
	e := open(t, gpuOptions("fp32"))
	g, train := programOf(t, smallUNet(), 3, nn.Train, plan.Options{Fuse: true})
	_, eval := programOf(t, smallUNet(), 1, nn.Eval, plan.Options{Fuse: true})
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
	_, shallow := programOf(t, other, 3, nn.Train, plan.Options{})
	z, err := e.Load(shallow, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Load(train, z); err == nil || !strings.Contains(err.Error(), "share") {
		t.Errorf("a deeper network shares a shallower one's parameters: %v", err)
	}
	if _, err := open(t, gpuOptions("fp32")).Load(eval, x); err == nil || !strings.Contains(err.Error(), "another engine") {
		t.Errorf("engines share: %v", err)
	}
}

// TestNames: what is unknown or has the wrong length is an error.
func TestNames(t *testing.T) {
	e := open(t, gpuOptions("fp32"))
	_, p := programOf(t, smallUNet(), 1, nn.Train, plan.Options{})
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
