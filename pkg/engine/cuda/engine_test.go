package cuda

import (
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
)

// TestMain demands that every engine's goroutines end with it. Simulated machines make much
// garbage, so it is collected less often than usual.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}

// TestLoadErrors: what this engine cannot run is an error that names kernel and shapes.
func TestLoadErrors(t *testing.T) {
	e := open(t, gpuOptions("fp32"))
	conv := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	for _, c := range []struct {
		node node
		want []string
	}{
		{node{op: plan.OpConv, attr: conv, in: [][]int{{1, 2, 4, 4}, {3, 5, 3, 3}}, out: [][]int{{1, 3, 4, 4}}}, []string{"conv", "layer", "[3 5 3 3]"}},
		{node{op: plan.OpConv, in: [][]int{{1, 2, 4, 4}, {3, 2, 3, 3}}, out: [][]int{{1, 3, 2, 2}}}, []string{"conv", "layer", "stride"}},
		{node{op: "softmax", in: [][]int{{1, 4, 1, 1}}, out: [][]int{{1, 4, 1, 1}}}, []string{"softmax", "unknown operation"}},
		{node{op: plan.OpConcat, in: [][]int{{4}, {4}}, out: [][]int{{8}}}, []string{"concat", "layer", "[n,c,h,w]"}},
		{node{op: plan.OpMaxPool, attr: plan.KernelAttr{Kernel: []int{2, 2}, Stride: []int{0, 2}}, in: [][]int{{1, 1, 4, 4}}, out: [][]int{{1, 1, 2, 2}}}, []string{"max_pool", "stride [0 2]"}},
		{node{op: plan.OpAdd, in: [][]int{{1, 0, 4, 4}, {1, 0, 4, 4}}, out: [][]int{{1, 0, 4, 4}}}, []string{"[1 0 4 4]"}},
		{node{op: plan.OpReLU, in: [][]int{{3, 1, 1 << 14, 1 << 14}}, out: [][]int{{3, 1, 1 << 14, 1 << 14}}}, []string{
			"needs 54 GiB of GPU memory at batch 3", "8 GiB free of 8 GiB", "not even one image fits", "CUDA_ERROR_OUT_OF_MEMORY",
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

// TestContextAndStreams: an engine that ends leaves the primary context to the process, and
// the exchange has the highest priority.
func TestContextAndStreams(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	s, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // another engine after the first
		e, err := NewWithLibraries(s, func(string) string { return "off" }, gpuOptions("fp32"), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	calls := strings.Join(m.Calls(), "\n")
	if n := strings.Count(calls, "cuDevicePrimaryCtxRelease"); n > 0 {
		t.Errorf("the primary context was released %d times", n)
	}
	for name, want := range map[string]int{"cuStreamCreateWithPriority 1, 0 = ": 4, "cuStreamCreateWithPriority 1, -5 = ": 2} {
		if n := strings.Count(calls, name); n != want {
			t.Errorf("%q was called %d times, want %d", name, n, want)
		}
	}
}
