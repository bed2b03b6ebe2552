package cpu

import (
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// TestMain checks that the goroutines of every engine end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNew checks the choice of the instruction set and the errors of invalid options.
func TestNew(t *testing.T) {
	o := engine.DefaultOptions()
	t.Setenv(kernel.InstructionSetEnvVar, "go")
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
	t.Setenv(kernel.InstructionSetEnvVar, "sse")
	refuses(o, `unknown instruction set LOCKSTEP_CPU="sse": use one of `)
	if runtime.GOARCH == "arm64" {
		t.Setenv(kernel.InstructionSetEnvVar, "avx2")
		refuses(o, "LOCKSTEP_CPU=avx2, but this processor or this build lacks it: use one of neon, go, or unset it")
	} else {
		t.Setenv(kernel.InstructionSetEnvVar, "neon")
		refuses(o, "LOCKSTEP_CPU=neon, but this processor or this build lacks it: use one of ")
	}
	t.Setenv(kernel.InstructionSetEnvVar, "")
	o.Device = "reference"
	refuses(o, `got device "reference", want cpu`)
	o.Device, o.Threads = "cpu", 0
	refuses(o, "threads is 0")
	if runtime.GOARCH == "amd64" && len(kernel.AvailableKernelSets()) > 1 {
		if e := open(t, "avx2", 1); e.Name() != "cpu (avx2)" {
			t.Errorf("engine is %s", e.Name())
		}
	}
	if runtime.GOARCH == "arm64" {
		if e := open(t, "neon", 1); e.Name() != "cpu (neon)" {
			t.Errorf("engine is %s", e.Name())
		}
	}
}

// TestLoadErrors checks that errors of programs that the engine cannot run name the
// kernel and its shapes.
func TestLoadErrors(t *testing.T) {
	e := open(t, "", 1)
	conv := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	for _, c := range []struct {
		node node
		want []string
	}{
		{node{op: plan.OpConv, attr: conv, in: [][]int{{1, 2, 4, 4}, {3, 5, 3, 3}}, out: [][]int{{1, 3, 4, 4}}}, []string{"conv", "layer", "[3 5 3 3]"}},
		{node{op: plan.OpConv, in: [][]int{{1, 2, 4, 4}, {3, 2, 3, 3}}, out: [][]int{{1, 3, 2, 2}}}, []string{"conv", "layer", "stride"}},
		{node{op: plan.OpReLU, in: [][]int{{2, 3, 4}}, out: [][]int{{2, 3, 4}}}, []string{"relu", "layer", "[2 3 4]", "1, 2, 4 or 5 dimensions"}},
		{node{op: plan.OpReLU, in: [][]int{{1, 2, 3, 4, 5, 6}}, out: [][]int{{1, 2, 3, 4, 5, 6}}}, []string{"relu", "layer", "[1 2 3 4 5 6]"}},
		{node{op: "softmax", in: [][]int{{1, 4, 1, 1}}, out: [][]int{{1, 4, 1, 1}}}, []string{"softmax", "unknown operation"}},
		{node{op: plan.OpReLU, in: [][]int{{1, 1, 1 << 15, 1 << 15}}, out: [][]int{{1, 1, 1 << 15, 1 << 15}}}, []string{"too large"}},
		{node{op: plan.OpConcat, in: [][]int{{4}, {4}}, out: [][]int{{8}}}, []string{"concat", "layer", "4 dimensions"}},
		{node{op: plan.OpBiasBackward, in: [][]int{{4}}, out: [][]int{{4}}}, []string{"bias_backward", "2 dimensions or more"}},
		{node{op: plan.OpMaxPool, attr: plan.KernelAttr{Kernel: []int{2, 2}, Stride: []int{0, 2}}, in: [][]int{{1, 1, 4, 4}}, out: [][]int{{1, 1, 2, 2}}}, []string{"max_pool", "invalid stride [0 2]"}},
		{node{op: plan.OpConv, attr: plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{-1, 0}}, in: [][]int{{1, 1, 4, 4}, {1, 1, 1, 1}}, out: [][]int{{1, 1, 2, 4}}}, []string{"conv", "invalid padding [-1 0]"}},
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

// TestCompileErrors checks that operations check their operands themselves and do not
// rely on the validation of the program.
func TestCompileErrors(t *testing.T) {
	all := node{op: plan.OpAdd, in: [][]int{{2, 8, 4, 4}, {2, 8, 4, 4}}, out: [][]int{{2, 8, 4, 4}}}.program()
	shapes := [][]int{{2, 8, 4, 4}, {2, 8, 2, 2}, {8, 8, 3, 3}, {8}, {5}, {1}, {2, 9, 4, 4}, {1, 8, 17, 17}, {1, 8, 1, 1}}
	for _, s := range shapes {
		all.Tensors = append(all.Tensors, plan.Tensor{Shape: s, Role: plan.Input, First: -1, Last: -1})
	}
	l := loaderOf(t, open(t, "", 1), all)
	const big, small, weights, eight, five, one, nine, wide, dot = 3, 4, 5, 6, 7, 8, 9, 10, 11
	l.layouts[weights] = tensor.WeightLayout
	one3 := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	half := plan.KernelAttr{Kernel: []int{2, 2}, Stride: []int{2, 2}}
	padded := half
	padded.Pad = []int{1, 1}
	training := plan.KernelAttr{Training: true}
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
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, big}, Out: []int{big, eight, eight}, Attr: plan.KernelAttr{ReLU: true}},
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, big, big}, Out: []int{big, eight, eight}, Attr: plan.KernelAttr{ReLU: true}},
		{Op: plan.OpBatchNormBackward, In: []int{big, eight, eight, eight, big, big, five}, Out: []int{big, eight, eight}, Attr: plan.KernelAttr{ReLU: true}},
		{Op: plan.OpMaxPool, In: []int{wide}, Out: []int{dot}, Attr: plan.KernelAttr{Kernel: []int{17, 17}, Stride: []int{1, 1}}},
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
		l.program.Kernels[0] = k
		_, err := l.compileKernel(0)
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
