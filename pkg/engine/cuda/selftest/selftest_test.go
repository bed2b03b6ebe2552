package selftest

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/engine/cuda/kernels/hostsim"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nccl"
)

func selfTested(t *testing.T, o clibtest.Options, s Options) []Check {
	t.Helper()
	m := cudatest.NewMachine(t, o)
	libraries, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	checks, err := RunWithLibraries(t.Context(), libraries, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(checks) == 0 {
		t.Fatal("no check ran")
	}
	return checks
}

// TestFirst: the properties of the device come back, and the checks of small networks.
func TestFirst(t *testing.T) {
	t.Setenv(autotune.CacheVariable, "off")
	s, err := cudatest.NewMachine(t, clibtest.Options{}).OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	f, err := CollectFirstReportWithLibraries(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if f.Missing != "" || !strings.Contains(string(f.DeviceProperties), "Simulated H200") || len(f.Checks) == 0 || CountFailed(f.Checks) > 0 {
		t.Errorf("%+v", f)
	}
}

// TestSelfTest: on the simulated machine everything holds, and every kernel runs.
// One precision of 16 bits has all of them; the others differ in numbers alone,
// and a GPU is asked for all.
func TestSelfTest(t *testing.T) {
	for _, c := range selfTested(t, clibtest.Options{}, Options{Seed: 1, Precisions: []string{"fp16"}}) {
		if !c.OK {
			t.Errorf("%s, %s, %s: %v, may be %v: %s", c.Name, c.Type, c.Shape, c.Error, c.Bound, c.Detail)
		}
	}
	for _, only := range []string{"3-D", "linear", "softmax", "l1", "classifier", "dice", "pad", "by lamb", "exchange by NCCL"} {
		precisions := []string{"fp32", "bf16"}
		if only == "linear" {
			precisions = append(precisions, "tf32") // the simulator computes as in fp32
		}
		for _, c := range selfTested(t, clibtest.Options{}, Options{Seed: 2, Precisions: precisions, Only: only}) {
			if !c.OK || strings.HasSuffix(c.Name, "every plan") && !strings.Contains(c.Detail, "plans") {
				t.Errorf("%+v", c)
			}
		}
	}
}

// TestSelfTestOfNCCL: one rank's exchange is recorded and changes nothing; one that
// changes a gradient is found, a library that is not there is named.
func TestSelfTestOfNCCL(t *testing.T) {
	o := Options{Seed: 4, Precisions: []string{"bf16"}, Only: "exchange by NCCL"}
	m := cudatest.NewMachine(t, clibtest.Options{})
	libraries, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	checks, err := RunWithLibraries(t.Context(), libraries, o)
	if err != nil || len(checks) != 1 || !checks[0].OK || checks[0].Detail != "" {
		t.Fatalf("%+v, %v", checks, err)
	}
	calls := strings.Join(m.Calls(), "\n")
	if n := strings.Count(calls, "ncclCommInitRankScalable 1, 0"); n != 2 || strings.Count(calls, "ncclCommDestroy") != n {
		t.Errorf("%d communicators were made, %d destroyed", n, strings.Count(calls, "ncclCommDestroy"))
	}
	// There are several buckets per step, in 5 steps without graphs and in the 2 steps with graphs
	// that are not replayed.
	if n := strings.Count(calls, "ncclAllReduce"); n < 2*(5+2) {
		t.Errorf("%d buckets were reduced", n)
	}
	reduce := libraries.NCCL.AllReduce
	libraries.NCCL.AllReduce = func(send, recv driver.Ptr, n int64, typ nccl.DataType, op nccl.ReduceOp, c nccl.Comm, s driver.Stream) error {
		return errors.Join(reduce(send, recv, n, typ, op, c, s), libraries.Driver.MemsetD32Async(recv, 0, 1, s))
	}
	if checks, err = RunWithLibraries(t.Context(), libraries, o); err != nil || len(checks) != 1 || checks[0].OK {
		t.Errorf("an exchange that changes gradients: %+v, %v", checks, err)
	}
	libraries, err = cudatest.NewMachine(t, clibtest.Options{Absent: []clib.LibraryName{clib.NCCL}}).OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	if checks, err = RunWithLibraries(t.Context(), libraries, o); err != nil || len(checks) != 1 || !strings.Contains(checks[0].Detail, "left out: ") {
		t.Errorf("without NCCL: %+v, %v", checks, err)
	}
}

// TestSelfTestSeesFaults: kernels that write nothing are found by the checks of them,
// and by no others; one that fails ends the test with an error.
func TestSelfTestSeesFaults(t *testing.T) {
	cudatest.NewMachine(t, clibtest.Options{}) // skips the test if there is no C++ compiler
	run := func(name string, grid, block [3]uint32, shared uint32, args []byte) error {
		s, err := hostsim.OpenShared()
		if err != nil {
			return err
		}
		return s.Run(name, grid, block, shared, args)
	}
	for _, c := range []struct {
		name, only string
		execute    clibtest.Executor
		failing    []string // parts of the names of the checks that must fail
	}{
		{"a kernel that does nothing", "max_pool", func(name string, grid, block [3]uint32, shared uint32, args []byte) error {
			if name == "max_pool_bf16" {
				return nil
			}
			return run(name, grid, block, shared, args)
		}, []string{"max_pool"}},
		{"another one", "relu", func(name string, grid, block [3]uint32, shared uint32, args []byte) error {
			if name == "relu_backward_bf16" {
				return nil
			}
			return run(name, grid, block, shared, args)
		}, []string{"relu_backward"}},
		{"a kernel that fails", "fill_u32", func(string, [3]uint32, [3]uint32, uint32, []byte) error {
			return errors.New("out of its memory")
		}, []string{"fill_u32"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := clibtest.New(clibtest.Options{Execute: c.execute})
			libraries, err := m.OpenStack()
			if err != nil {
				t.Fatal(err)
			}
			checks, err := RunWithLibraries(t.Context(), libraries, Options{Seed: 3, Precisions: []string{"bf16"}, Only: c.only})
			if err != nil && c.name != "a kernel that fails" { // which loses the device
				t.Fatal(err)
			}
			if err == nil && CountFailed(checks) == 0 {
				t.Fatal("nothing failed")
			}
			for _, k := range checks {
				if !k.OK && !strings.Contains(k.Name, c.failing[0]) {
					t.Errorf("%s failed too: %s", k.Name, k.Detail)
				}
			}
		})
	}
	// What cuDNN's statistics need is fp16's alone.
	for precision, want := range map[string]bool{"fp32": true, "bf16": true, "fp16": false} {
		if got := (&tester{low: number.ActivationType(precision)}).isKernelForOtherPrecision("bn_sums"); got != want {
			t.Errorf("%s: the kernel behind cuDNN's statistics is run elsewhere: %v", precision, got)
		}
	}
	// A kernel that nothing runs is a failed check.
	tester := &tester{precision: "bf16", low: number.ActivationType("bf16"), kernels: map[string]bool{}}
	for _, k := range kernels.ListKernels(kernels.F32, kernels.BF16) {
		tester.kernels[k.Name] = k.Name != "bn_apply_bf16" && k.Name != "bn_sums"
	}
	tester.failUnlaunchedKernels()
	if len(tester.checks) != 1 || tester.checks[0].OK || tester.checks[0].Name != "bn_apply_bf16" {
		t.Errorf("checks are %+v", tester.checks)
	}
}

// TestMain demands that every engine's goroutines end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
