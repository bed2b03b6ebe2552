package cuda

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cupti"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/strategy"
)

// TestProfile: the window is what profilers see, the trace has a row a stream and
// every kernel of the window's steps, and the ranges have the names that people
// look for.
func TestProfile(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	e := openOn(t, m, gpuOptions("bf16"))
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []engine.Profile{{}, {First: 1}, {Steps: 2}} {
		if err := e.Profile(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	file := filepath.Join(t.TempDir(), "below", "trace.json")
	old := openTrace(t, file)
	if err := e.Profile(engine.Profile{First: 3, Steps: 2, Trace: file}); err != nil {
		t.Fatal(err)
	}
	m.ResetCalls()
	for i := 1; i <= 6; i++ {
		feed(t, x, 1)
		if _, err := x.Step(context.Background(), nil, adam(i)); err != nil {
			t.Fatal(err)
		}
	}
	calls := strings.Join(m.Calls(), "\n")
	for _, c := range []struct {
		call  string
		times int
	}{
		{"cuProfilerStart", 1}, {"cuProfilerStop", 1}, {"cuGraphLaunch", 3}, // steps 2, 5 and 6
		{`nvtxRangePush "step 3"`, 1}, {`nvtxRangePush "data copy in 3"`, 2}, // image and target
		{`nvtxRangePush "forward"`, 3}, {`nvtxRangePush "backward"`, 3}, {`nvtxRangePush "optimizer"`, 3}, // steps 1, 3 and 4
	} {
		if n := strings.Count(calls, c.call); n != c.times {
			t.Errorf("%s: %d times, want %d", c.call, n, c.times)
		}
	}
	if a, b := strings.Index(calls, "cuProfilerStart"), strings.Index(calls, `nvtxRangePush "step 3"`); a < b {
		t.Error("the window opens before step 3")
	}
	if a, b := strings.Index(calls, "cuProfilerStop"), strings.Index(calls, `nvtxRangePush "step 5"`); a > b {
		t.Error("the window closes after step 4")
	}

	if text, err := io.ReadAll(old); err != nil || string(text) != "old" {
		t.Errorf("the trace was written into the file that was there, not in place of it: %.20q, %v", text, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []chromeEvent `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	rows := map[int]string{}
	kernels := map[string]int{}
	last := map[int]float64{}
	for _, e := range trace.TraceEvents {
		switch {
		case e.Name == "thread_name":
			rows[e.Thread] = e.Arguments["name"]
		case e.Phase == "X":
			kernels[e.Category]++
			if e.Duration < 0 || e.Start < last[e.Thread] {
				t.Errorf("%s begins at %v, in a row that is at %v, and takes %v", e.Name, e.Start, last[e.Thread], e.Duration)
			}
			last[e.Thread] = e.Start
		}
	}
	if len(rows) != 3 || rows[1] != "compute" || rows[2] != "copies" || rows[3] != "exchange" {
		t.Errorf("rows are %v", rows)
	}
	if kernels["forward"] < 40 || kernels["backward"] < 40 || kernels["optimizer"] < 2 || kernels["input"] != 2 {
		t.Errorf("the trace has %v", kernels)
	}
	times, err := e.KernelTimes()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(times, func(k KernelTime) bool { return k.Kernel == "bn_apply_bf16" && k.Layer == "down.0.a.norm" })
	if i < 0 || times[i].Calls != 2 || times[i].Part != "forward" {
		t.Errorf("the kernel that was looked for is number %d of %d", i, len(times))
	}
	if !slices.IsSortedFunc(times, func(a, b KernelTime) int { return cmp.Compare(b.Milliseconds, a.Milliseconds) }) {
		t.Error("the slowest kernels do not come first")
	}
}

// openTrace makes a trace of an earlier run, and opens it.
func openTrace(t *testing.T, file string) *os.File {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// tracedRanks trains two ranks with a window of two steps and returns rank 0's trace: how
// many spans each row has by name.
func tracedRanks(t *testing.T, ranks []rank) map[string]int {
	t.Helper()
	g, p := programOf(t, plainUNet(), 1, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096, FirstBucketBytes: 1024})
	if len(p.Buckets) < 3 {
		t.Fatalf("the test needs several buckets, not %d", len(p.Buckets))
	}
	file := filepath.Join(t.TempDir(), "trace.json")
	if err := ranks[0].engine.Profile(engine.Profile{First: 3, Steps: 2, Trace: file}); err != nil {
		t.Fatal(err)
	}
	together(t, len(ranks), func(i int) error {
		x, err := ranks[i].engine.Load(p, nil)
		if err != nil {
			return err
		}
		initialise(t, x, g)
		return errors.Join(shardedSteps(x, ranks[i].sync, i, len(ranks), 6), x.Close(), ranks[i].sync.Close())
	})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []chromeEvent `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	rows, spans := map[int]string{}, map[string]int{}
	for _, e := range trace.TraceEvents {
		if e.Name == "thread_name" {
			rows[e.Thread] = e.Arguments["name"]
		}
	}
	for _, e := range trace.TraceEvents {
		if e.Phase == "X" && e.Category == "exchange" {
			spans[rows[e.Thread]+": "+e.Name]++
			// The window opens before the first step: what the host does comes later.
			if e.Start < 0 || e.Duration < 0 || rows[e.Thread] == "host" && e.Start == 0 {
				t.Errorf("%s begins at %g and takes %g", e.Name, e.Start, e.Duration)
			}
		}
	}
	return spans
}

// TestExchangeTraced: each bucket has a span in each step of the window, in the stream
// that NCCL works in, or in the host's row where the exchange runs there.
func TestExchangeTraced(t *testing.T) {
	o := gpuOptions("fp32")
	for row, ranks := range map[string][]rank{
		"exchange: exchange bucket %d":  onTheirOwn(t, 2, o, strategy.NCCLOptions{}, cudatest.NewMachine),
		"host: all-reduce of bucket %d": onOneGPU(t, 2, o),
	} {
		spans := tracedRanks(t, ranks)
		for bucket := range 3 {
			if name := fmt.Sprintf(row, bucket); spans[name] != 2 {
				t.Errorf("%s has %d spans in 2 steps: %v", name, spans[name], spans)
			}
		}
	}
}

// TestPeak: what a run measures at its start is a rate, whatever the precision and the
// libraries, and 0 on an engine that is closed. cuBLASLt's products count where it is there: the simulated machine computes 2e18 operations a second with it, and its own
// kernels far fewer.
func TestPeak(t *testing.T) {
	tf32 := gpuOptions("fp32")
	tf32.TF32 = true
	fp32 := gpuOptions("fp32")
	fp32.TF32 = false
	without := clibtest.Options{Memory: 256 << 20, Absent: []clib.LibraryName{clib.CublasLt}}
	for _, c := range []struct {
		options engine.Options
		machine clibtest.Options
		lt      bool // measured by cuBLASLt
	}{
		{gpuOptions("bf16"), clibtest.Options{Memory: 256 << 20}, true},
		{tf32, clibtest.Options{Memory: 256 << 20}, true},
		{fp32, clibtest.Options{Memory: 256 << 20}, false},
		{gpuOptions("fp16"), without, false},
		{gpuOptions("bf16"), clibtest.Options{Memory: 4 << 20}, true}, // with small matrices
	} {
		peak := openOn(t, clibtest.New(c.machine), c.options).PeakFLOPS()
		if !(peak > 0) || math.IsInf(peak, 0) || (math.Abs(peak/2e18-1) < 0.05) != c.lt {
			t.Errorf("%s, TF32 %v, %+v: %g FLOP/s", c.options.Precision, c.options.TF32, c.machine, peak)
		}
	}
	e := openOn(t, clibtest.New(clibtest.Options{}), gpuOptions("bf16"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if peak := e.PeakFLOPS(); peak != 0 {
		t.Errorf("a closed engine has %g FLOP/s", peak)
	}
}

// TestKernels checks that CUPTI records each kernel of a captured step once per step, and that
// graphs from before the profile are captured exactly once more.
func TestKernels(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	e := openOn(t, m, gpuOptions("bf16"))
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	step := 0
	train := func(n int) {
		t.Helper()
		for range n {
			step++
			feed(t, x, 1)
			if _, err := x.Step(t.Context(), nil, adam(step)); err != nil {
				t.Fatal(err)
			}
		}
	}
	train(4)
	m.ResetCalls()
	if err := e.ProfileKernels(2, 3); err != nil {
		t.Fatal(err)
	}
	train(6)
	calls := strings.Join(m.Calls(), "\n")
	for call, n := range map[string]int{
		"cuptiActivityEnable": 1, "cuptiActivityDisable": 1, "cuGraphExecDestroy": 1, "cuGraphInstantiate": 1, "cuGraphLaunch": 6,
	} {
		if got := strings.Count(calls, call); got != n {
			t.Errorf("%s: %d times, want %d", call, got, n)
		}
	}
	times, err := e.KernelTimes()
	if err != nil {
		t.Fatal(err)
	}
	launched := map[string]int{}
	for _, commands := range x.(*executable).stepCommands() {
		for _, c := range commands {
			if n, ok := c.(*taskCommand); ok {
				c = n.command
			}
			if k, ok := c.(*kernelCall); ok {
				launched[k.Kernel]++
			}
		}
	}
	plans := 0
	for _, k := range times {
		if k.Part != "graph" || k.Layer != "" || !(k.Milliseconds > 0) {
			t.Errorf("%+v", k)
		}
		if n := launched[k.Kernel]; n == 0 {
			plans++ // of cuDNN's
		} else if k.Calls != 3*n {
			t.Errorf("%s ran %d times in 3 steps that have %d of it", k.Kernel, k.Calls, n)
		}
		delete(launched, k.Kernel)
	}
	if len(launched) > 0 || plans == 0 {
		t.Errorf("CUPTI did not see %v, and %d plans", launched, plans)
	}

	e = openOn(t, clibtest.New(clibtest.Options{Absent: []clib.LibraryName{clib.CUPTI}}), gpuOptions("bf16"))
	var missing *clib.NotFoundError
	if err := e.ProfileKernels(1, 1); !errors.As(err, &missing) || missing.Library != clib.CUPTI {
		t.Errorf("without CUPTI: %v", err)
	}
}

// TestKernelsRefused: where CUPTI may not look, the step says so and leaves all as it
// was, and the next one goes on without.
func TestKernelsRefused(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	libraries, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	libraries.CUPTI = func() (*cupti.Library, error) {
		l, err := m.CUPTI()
		l.Start = func() error { return cupti.InsufficientPrivileges }
		return l, err
	}
	e, err := NewWithLibraries(libraries, noEnvironment, gpuOptions("bf16"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	feed(t, x, 1)
	if err := e.ProfileKernels(1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Step(t.Context(), nil, adam(1)); !errors.Is(err, cupti.InsufficientPrivileges) || !strings.Contains(err.Error(), "NVreg_RestrictProfilingToAdminUsers") {
		t.Errorf("the step says %v", err)
	}
	for i := 1; i <= 3; i++ {
		if _, err := x.Step(t.Context(), nil, adam(i)); err != nil {
			t.Fatal(err)
		}
	}
	calls := strings.Join(m.Calls(), "\n")
	if begun, ended := strings.Count(calls, "nvtxRangePush"), strings.Count(calls, "nvtxRangePop"); begun != ended {
		t.Errorf("%d ranges are begun, %d ended", begun, ended)
	}
}

// TestTracedStepIsHeldBack checks that a traced step is enqueued after work that takes the GPU
// longer than the host needs, and that other steps are not.
func TestTracedStepIsHeldBack(t *testing.T) {
	m := clibtest.New(clibtest.Options{})
	e := openOn(t, m, gpuOptions("bf16"))
	_, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Profile(engine.Profile{First: 3, Steps: 1, Trace: filepath.Join(t.TempDir(), "trace.json")}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 4; i++ {
		feed(t, x, 1)
		m.ResetCalls()
		if _, err := x.Step(t.Context(), nil, adam(i)); err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, c := range m.Calls() {
			if strings.HasPrefix(c, "cuLaunchKernel") || strings.HasPrefix(c, "cuGraphLaunch") {
				break
			}
			if strings.HasPrefix(c, "cuMemsetD8Async") {
				held++
			}
		}
		if want := map[bool]int{true: holdCalls}[i == 3]; i > 1 && held != want { // the first also gets memory for slots
			t.Errorf("step %d begins behind %d calls, want %d", i, held, want)
		}
	}
}
