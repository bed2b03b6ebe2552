package clibtest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/stack"
)

// source has three kernels: a plain one, one that begins with a macro and has a pasted name, and
// one with a parameter of unknown type.
const source = `
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(256) name
#define TYPED(name) name##_f32
// scale is y = a·x; __global__ void not_a_kernel(int x) is a comment.
extern "C" __global__ void scale(const float *x, float *y, long long n, float a) { }
KERNEL(TYPED(fill))(float *y, int n,
                    float a) { }
extern "C" __global__ void odd(some_struct s) { }
`

// gpu is a machine with a context that is current in the test's thread.
type gpu struct {
	machine *clibtest.Machine
	*stack.Stack
	t *testing.T
}

func ready(t *testing.T, o clibtest.Options) *gpu {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	m := clibtest.New(o)
	s, err := m.OpenStack()
	check(t, err)
	dev, err := s.Driver.DeviceGet(0)
	check(t, err)
	ctx, err := s.Driver.PrimaryCtxRetain(dev)
	check(t, err)
	check(t, s.Driver.CtxSetCurrent(ctx))
	return &gpu{m, s, t}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants fails the test unless err contains all words.
func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q\nlacks %q", err, w)
		}
	}
}

func (g *gpu) alloc(name string, n int64) cuda.Ptr {
	g.t.Helper()
	p, err := g.Driver.MemAlloc(n)
	check(g.t, err)
	g.machine.SetAllocationName(p, name)
	return p
}

func (g *gpu) stream() cuda.Stream {
	g.t.Helper()
	s, err := g.Driver.StreamCreate(cuda.StreamNonBlocking, 0)
	check(g.t, err)
	return s
}

func (g *gpu) event() cuda.Event {
	g.t.Helper()
	e, err := g.Driver.EventCreate(cuda.EventDefault)
	check(g.t, err)
	return e
}

func (g *gpu) put(p cuda.Ptr, v ...float32) {
	g.t.Helper()
	check(g.t, g.Driver.MemcpyHtoD(p, unsafe.Pointer(&v[0]), int64(4*len(v))))
	check(g.t, g.Driver.StreamSynchronize(0))
}

// floats runs all work and returns the n numbers at p.
func (g *gpu) floats(p cuda.Ptr, n int) []float32 {
	g.t.Helper()
	b, err := g.machine.Bytes(p, int64(4*n))
	check(g.t, err)
	return toFloats(b)
}

func toFloats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func (g *gpu) function(name string) cuda.Function {
	g.t.Helper()
	out, err := g.NVRTC.Compile(source, "test.cu", []string{"--gpu-architecture=sm_90"})
	check(g.t, err)
	m, err := g.Driver.ModuleLoadData(out.LoadableImage())
	check(g.t, err)
	f, err := g.Driver.ModuleGetFunction(m, name)
	check(g.t, err)
	return f
}

// execute returns an Executor for the kernels of source. *m is set after the machine is created.
func execute(m **clibtest.Machine) clibtest.Executor {
	return func(name string, _, _ [3]uint32, _ uint32, args []byte) error {
		ptr := func(i int) cuda.Ptr { return cuda.Ptr(binary.LittleEndian.Uint64(args[i:])) }
		switch name {
		case "scale":
			n := int64(binary.LittleEndian.Uint64(args[16:]))
			x, err1 := (*m).BytesDuringCall(ptr(0), 4*n)
			y, err2 := (*m).BytesDuringCall(ptr(8), 4*n)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			a := math.Float32frombits(binary.LittleEndian.Uint32(args[24:]))
			for i, v := range toFloats(x) {
				binary.LittleEndian.PutUint32(y[4*i:], math.Float32bits(a*v))
			}
		case "fill_f32":
			n := int64(binary.LittleEndian.Uint32(args[8:]))
			y := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&args[0]))), 4*n)
			for i := range n {
				copy(y[4*i:], args[12:16])
			}
		default:
			return fmt.Errorf("no such kernel")
		}
		return nil
	}
}

func withKernels(t *testing.T, o clibtest.Options) *gpu {
	var m *clibtest.Machine
	o.Execute = execute(&m)
	g := ready(t, o)
	m = g.machine
	return g
}

func (g *gpu) scale(f cuda.Function, s cuda.Stream, x, y cuda.Ptr, n int64, a float32) error {
	var args cuda.Args
	return g.Driver.LaunchKernel(f, cuda.Dim3{1, 1, 1}, cuda.Dim3{32, 1, 1}, 0, s, args.Ptr(x).Ptr(y).Int64(n).Float32(a).Bytes())
}

func TestWorkIsLateAndEventsOrderIt(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		g := withKernels(t, clibtest.Options{})
		x, y, z := g.alloc("x", 16), g.alloc("y", 16), g.alloc("z", 16)
		g.put(x, 1, 2, 3, 4)
		f, s1, s2, e := g.function("scale"), g.stream(), g.stream(), g.event()
		check(t, g.scale(f, s1, x, y, 4, 2))
		check(t, g.Driver.EventRecord(e, s1))
		if ordered {
			check(t, g.Driver.StreamWaitEvent(s2, e))
		}
		check(t, g.scale(f, s2, y, z, 4, 10))
		check(t, g.Driver.StreamSynchronize(s2))
		got := g.floats(z, 4)
		if ordered && !slices.Equal(got, []float32{20, 40, 60, 80}) {
			t.Errorf("with the event z = %v", got)
		}
		if !ordered && got[0] == got[0] {
			t.Errorf("without the event z = %v, want NaN: the second stream read y before it was written", got)
		}
	}
}

func TestMemoryIsPoisonedAndGuarded(t *testing.T) {
	g := withKernels(t, clibtest.Options{})
	x, y, s := g.alloc("weights", 16), g.alloc("out", 12), g.stream()
	for _, v := range g.floats(x, 4) {
		if v == v {
			t.Errorf("new memory holds %v, want NaN", v)
		}
	}
	var one [4]float32
	wants(t, g.Driver.MemcpyHtoD(x.Add(4), unsafe.Pointer(&one), 16), "cuMemcpyHtoD", "INVALID_VALUE", "16 bytes at weights+4 exceed the allocation of 16 bytes")
	wants(t, g.scale(g.function("scale"), s, x.Add(16), y, 4, 1), "scale: argument 1", "weights+16 (after its end at 16 bytes)")
	host := make([]byte, 16)
	wants(t, g.Driver.MemcpyHtoDAsync(x, unsafe.Pointer(&host[0]), 16, s), "is not allocated")
	check(t, g.Driver.MemFree(x))
	wants(t, g.scale(g.function("scale"), s, x, y, 3, 1), "weights+0 (freed)")
	if got := g.machine.LiveAllocations(); !slices.Equal(got, []string{"out"}) {
		t.Errorf("live: %v", got)
	}
}

func TestKernelThatLeavesItsMemory(t *testing.T) {
	g := withKernels(t, clibtest.Options{})
	y, s := g.alloc("out", 12), g.stream()
	var args cuda.Args
	check(t, g.Driver.LaunchKernel(g.function("fill_f32"), cuda.Dim3{1, 1, 1}, cuda.Dim3{32, 1, 1}, 0, s, args.Ptr(y).Int32(4).Float32(1).Bytes()))
	err := g.Driver.StreamSynchronize(s)
	wants(t, err, "after cuLaunchKernel fill_f32", "CUDA_ERROR_ILLEGAL_ADDRESS (700)", "memory after out (12 bytes) was overwritten at byte 12")
	var e *cuda.Error
	if !errors.As(err, &e) || !e.Result.IsContextLost() {
		t.Error("the device is not lost")
	}
	if _, err := g.Driver.MemAlloc(4); !errors.Is(err, cuda.ErrorIllegalAddress) {
		t.Errorf("a later call says %v", err)
	}
}

func TestLaunchesAreChecked(t *testing.T) {
	g := withKernels(t, clibtest.Options{})
	f, s, x := g.function("scale"), g.stream(), g.alloc("x", 64)
	var a cuda.Args
	good := slices.Clone(a.Ptr(x).Ptr(x).Int64(1).Float32(1).Bytes())
	launch := func(grid, block cuda.Dim3, shared uint32, args []byte) error {
		return g.Driver.LaunchKernel(f, grid, block, shared, s, args)
	}
	one := cuda.Dim3{1, 1, 1}
	check(t, launch(one, one, 0, good))
	wants(t, launch(cuda.Dim3{0, 1, 1}, one, 0, good), "invalid grid [0 1 1]")
	wants(t, launch(one, cuda.Dim3{2048, 1, 1}, 0, good), "block of 2048 threads")
	wants(t, launch(one, one, 64<<10, good), "65536 bytes of shared memory are too many: use at most 49152")
	check(t, g.Driver.FuncSetAttribute(f, cuda.FuncMaxDynamicShared, 64<<10))
	check(t, launch(one, one, 64<<10, good))
	wants(t, launch(one, one, 0, good[:24]), "scale has parameters (ppwi), got only 24 bytes of arguments")
	wants(t, launch(one, one, 0, append(slices.Clone(good), 0, 0, 0, 0)), "takes 28 bytes of parameters")
	_, err := g.Driver.ModuleGetFunction(0, "scale")
	wants(t, err, "INVALID_HANDLE")
	_, err = g.NVRTC.Compile("__global__ void f() {", "broken.cu", nil)
	wants(t, err, "compile broken.cu", "NVRTC_ERROR_COMPILATION (6)", "1 opening and 0 closing")
}

func TestCaptureAndReplay(t *testing.T) {
	g := withKernels(t, clibtest.Options{})
	x, y, z := g.alloc("x", 8), g.alloc("y", 8), g.alloc("z", 8)
	f, s1, s2, fork, join := g.function("scale"), g.stream(), g.stream(), g.event(), g.event()
	g.machine.ResetCalls()
	check(t, g.Driver.StreamBeginCapture(s1, cuda.CaptureThreadLocal))
	check(t, g.scale(f, s1, x, y, 2, 2))
	check(t, g.Driver.EventRecord(fork, s1))
	check(t, g.Driver.StreamWaitEvent(s2, fork))
	check(t, g.scale(f, s2, y, z, 2, 3))
	check(t, g.Driver.EventRecord(join, s2))
	check(t, g.Driver.StreamWaitEvent(s1, join))
	graph, err := g.Driver.StreamEndCapture(s1)
	check(t, err)
	if n, err := g.Driver.GraphNodeCount(graph); n != 2 || err != nil {
		t.Errorf("%d nodes, %v", n, err)
	}
	exec, err := g.Driver.GraphInstantiate(graph)
	check(t, err)
	check(t, g.Driver.GraphDestroy(graph))
	for _, v := range []float32{1, 5} { // the graph reads what is there when it runs
		g.put(x, v, v+1)
		check(t, g.Driver.GraphLaunch(exec, s1))
		check(t, g.Driver.StreamSynchronize(s1))
		if got := g.floats(z, 2); !slices.Equal(got, []float32{6 * v, 6 * (v + 1)}) {
			t.Errorf("z = %v for x = %v", got, v)
		}
	}
	want := `cuStreamBeginCapture stream#1, 1
cuLaunchKernel scale [1 1 1] [32 1 1] 0 stream#1: x y 2 1073741824
cuEventRecord event#1, stream#1
cuStreamWaitEvent stream#2, event#1
cuLaunchKernel scale [1 1 1] [32 1 1] 0 stream#2: y z 2 1077936128
cuEventRecord event#2, stream#2
cuStreamWaitEvent stream#1, event#2
cuStreamEndCapture stream#1 = graph#1
cuGraphInstantiate graph#1 = exec#1
cuGraphDestroy graph#1
cuMemcpyHtoD x, 8 bytes
cuStreamSynchronize stream#0
cuGraphLaunch exec#1, stream#1
cuStreamSynchronize stream#1
cuMemcpyHtoD x, 8 bytes
cuStreamSynchronize stream#0
cuGraphLaunch exec#1, stream#1
cuStreamSynchronize stream#1`
	if got := strings.Join(g.machine.Calls(), "\n"); got != want {
		t.Errorf("calls:\n%s", got)
	}
}

// TestPageableCopiesAreLate checks that a copy from pageable memory has read the source when the
// call returns, but writes the destination later, in the legacy default stream. Blocking
// streams wait for it, others do not.
func TestPageableCopiesAreLate(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags uint32
		wait  bool
		late  bool
	}{
		{"non-blocking", cuda.StreamNonBlocking, false, true},
		{"non-blocking after the legacy stream", cuda.StreamNonBlocking, true, false},
		{"blocking", 0, false, false},
	} {
		g := withKernels(t, clibtest.Options{})
		x, y, f := g.alloc("x", 4), g.alloc("y", 4), g.function("scale")
		s, err := g.Driver.StreamCreate(c.flags, 0)
		check(t, err)
		v := []float32{3}
		check(t, g.Driver.MemcpyHtoD(x, unsafe.Pointer(&v[0]), 4))
		v[0] = 4 // the caller's again
		if c.wait {
			check(t, g.Driver.StreamSynchronize(0))
		}
		check(t, g.scale(f, s, x, y, 1, 2))
		check(t, g.Driver.StreamSynchronize(s))
		if got := g.floats(y, 1)[0]; (got != got) != c.late || !c.late && got != 6 {
			t.Errorf("%s: y = %v", c.name, got)
		}
	}
}

// TestCaptureRefuses checks that a capture cannot end before its streams are joined, that a
// stream must be forked before its work is captured, and that calls which wait are refused.
func TestCaptureRefuses(t *testing.T) {
	begin := func(t *testing.T) (*gpu, cuda.Function, cuda.Stream, cuda.Stream, cuda.Ptr) {
		g := withKernels(t, clibtest.Options{})
		f, s1, s2, x := g.function("scale"), g.stream(), g.stream(), g.alloc("x", 8)
		check(t, g.Driver.StreamBeginCapture(s1, cuda.CaptureThreadLocal))
		return g, f, s1, s2, x
	}
	t.Run("unjoined", func(t *testing.T) {
		g, f, s1, s2, x := begin(t)
		e := g.event()
		check(t, g.Driver.EventRecord(e, s1))
		check(t, g.Driver.StreamWaitEvent(s2, e))
		check(t, g.scale(f, s2, x, x, 2, 1))
		_, err := g.Driver.StreamEndCapture(s1)
		wants(t, err, "STREAM_CAPTURE_UNJOINED (904)", "stream#2 has work that stream#1 does not wait for")
	})
	t.Run("isolation", func(t *testing.T) {
		g, _, s1, s2, _ := begin(t)
		e := g.event()
		check(t, g.Driver.EventRecord(e, s2))
		wants(t, g.Driver.StreamWaitEvent(s1, e), "STREAM_CAPTURE_ISOLATION (905)")
		_, err := g.Driver.StreamEndCapture(s1)
		wants(t, err, "STREAM_CAPTURE_INVALIDATED (901)")
	})
	t.Run("synchronise", func(t *testing.T) {
		g, _, s1, _, _ := begin(t)
		wants(t, g.Driver.StreamSynchronize(s1), "STREAM_CAPTURE_UNSUPPORTED (900)")
	})
	t.Run("allocate", func(t *testing.T) {
		g, _, _, _, _ := begin(t)
		_, err := g.Driver.MemAlloc(8)
		wants(t, err, "cuMemAlloc", "STREAM_CAPTURE_UNSUPPORTED (900)")
	})
	t.Run("default stream", func(t *testing.T) {
		g, f, _, _, x := begin(t)
		check(t, g.scale(f, 0, x, x, 2, 1)) // which a non-blocking stream does not meet
		blocking, err := g.Driver.StreamCreate(0, 0)
		check(t, err)
		check(t, g.Driver.StreamBeginCapture(blocking, cuda.CaptureThreadLocal))
		wants(t, g.scale(f, 0, x, x, 2, 1), "STREAM_CAPTURE_IMPLICIT (906)")
	})
	t.Run("synchronous copy", func(t *testing.T) {
		g, _, _, _, x := begin(t)
		var v [8]byte
		elsewhere := make(chan error)
		go func() { // another thread of the process
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			elsewhere <- errors.Join(g.Driver.CtxSetCurrent(1), g.Driver.MemcpyDtoH(unsafe.Pointer(&v[0]), x, 8))
		}()
		check(t, <-elsewhere)
		wants(t, g.Driver.MemcpyDtoH(unsafe.Pointer(&v[0]), x, 8), "STREAM_CAPTURE_UNSUPPORTED (900)")
	})
	t.Run("query", func(t *testing.T) {
		g, _, s1, _, _ := begin(t)
		e := g.event()
		check(t, g.Driver.EventRecord(e, s1))
		_, err := g.Driver.EventQuery(e)
		wants(t, err, "(907)")
	})
}

func TestEventsMeasureAndAreLate(t *testing.T) {
	g := withKernels(t, clibtest.Options{})
	f, s, x, start, end := g.function("scale"), g.stream(), g.alloc("x", 8), g.event(), g.event()
	check(t, g.Driver.EventRecord(start, s))
	check(t, g.scale(f, s, x, x, 2, 1))
	check(t, g.Driver.EventRecord(end, s))
	_, err := g.Driver.EventElapsed(start, end)
	wants(t, err, "NOT_READY")
	done, err := g.Driver.EventQuery(end)
	if done || err != nil {
		t.Errorf("first query: %v %v", done, err)
	}
	if done, err = g.Driver.EventQuery(end); !done || err != nil {
		t.Errorf("second query: %v %v", done, err)
	}
	ms, err := g.Driver.EventElapsed(start, end)
	check(t, err)
	if ms != 0.003 { // a launch counts 3 µs
		t.Errorf("%v ms", ms)
	}
}

func TestThreadWithoutContext(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("threads cannot be told apart here")
	}
	g := ready(t, clibtest.Options{})
	errs := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, err := g.Driver.MemAlloc(4)
		errs <- err
	}()
	wants(t, <-errs, "CUDA_ERROR_INVALID_CONTEXT (201)", "call CtxSetCurrent")
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		options clibtest.Options
		want    []string
	}{
		{"no device", clibtest.Options{Devices: -1}, []string{"use the GPU: cuInit", "CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"}},
		{"no driver", clibtest.Options{Absent: []clib.LibraryName{clib.CUDA}}, []string{"use the GPU: open CUDA driver", "not found", "searched:"}},
		{"old driver", clibtest.Options{DriverVersion: 11040}, []string{"its version is CUDA 11.4, CUDA 12.0 or newer is needed", "install a newer NVIDIA driver"}},
		{"old cuDNN", clibtest.Options{CUDNNVersion: 8907}, []string{"check cuDNN", "its version is 8.9.7, version 9 is needed", "pip install nvidia-cudnn-cu13"}},
		{"new cuDNN", clibtest.Options{CUDNNVersion: 100100}, []string{"its version is 10.1.0, version 9 is needed"}},
		{"old NVRTC", clibtest.Options{NVRTCVersion: [2]int{10, 2}}, []string{"check NVRTC", "its version is 10.2, 11.2 or newer is needed"}},
		{"NVRTC newer than driver", clibtest.Options{DriverVersion: 12040}, []string{"NVRTC", "its version is 13.0, 12.x, as the driver's CUDA 12.4, is needed", "install a newer driver"}},
		{"missing symbol", clibtest.Options{MissingCalls: []string{"cuGraphLaunch", "cuGraphUpload"}}, []string{"bind CUDA driver", "no functions", "cuGraphLaunch", "cuGraphUpload", "too old"}},
		{"missing symbol of cuDNN", clibtest.Options{MissingCalls: []string{"cudnnBackendExecute"}}, []string{"bind cuDNN", "no function cudnnBackendExecute"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := clibtest.New(c.options).OpenStack()
			wants(t, err, c.want...)
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %q", err)
			}
		})
	}
}

func TestOptionalLibrariesMayBeMissing(t *testing.T) {
	s, err := clibtest.New(clibtest.Options{NCCLVersion: 21800, Absent: []clib.LibraryName{clib.NVML}}).OpenStack()
	check(t, err)
	if s.NCCL != nil || s.NVML != nil {
		t.Fatal("libraries that cannot be used are there")
	}
	wants(t, s.Missing[clib.NCCL], "its version is 2.18.0, 2.23 or newer of version 2 is needed")
	wants(t, s.Missing[clib.NVML], "open NVML", "not found")
}

func TestOutOfMemory(t *testing.T) {
	g := ready(t, clibtest.Options{Memory: 1000})
	p := g.alloc("most", 900)
	_, err := g.Driver.MemAlloc(200)
	wants(t, err, "cuMemAlloc of 200 bytes", "CUDA_ERROR_OUT_OF_MEMORY (2)", "use a smaller batch")
	if !errors.Is(err, cuda.ErrorOutOfMemory) {
		t.Error("errors.Is does not find it")
	}
	check(t, g.Driver.MemFree(p))
	if _, err := g.Driver.MemAlloc(200); err != nil {
		t.Errorf("after freeing: %v", err)
	}
}

func TestLostDevice(t *testing.T) {
	for _, with := range []cuda.Result{cuda.ErrorLaunchFailed, cuda.ErrorUnknown, cuda.ErrorECCUncorrectable} {
		g := ready(t, clibtest.Options{LoseWith: with})
		h, err := g.CUDNN.Create()
		check(t, err)
		s := g.stream()
		g.machine.LoseDevice(with)
		for name, err := range map[string]error{
			"synchronise": g.Driver.StreamSynchronize(s),
			"free":        g.Driver.MemFree(0),
			"context":     g.Driver.CtxSynchronize(),
		} {
			if !errors.Is(err, with) || !with.IsContextLost() {
				t.Errorf("%s: %v", name, err)
			}
			wants(t, err, "start again from a checkpoint")
		}
		wants(t, g.CUDNN.SetStream(h, s), "CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER (5001)", with.Name())
	}
	// A loss at a given call, counted.
	g := ready(t, clibtest.Options{LoseAt: 6})
	var err error
	n := 0
	for ; err == nil; n++ {
		_, err = g.Driver.MemAlloc(4)
	}
	wants(t, err, "CUDA_ERROR_LAUNCH_FAILED (719)")
	if g.machine.DriverCallCount() != 6 {
		t.Errorf("lost at call %d", g.machine.DriverCallCount())
	}
}

func TestNVML(t *testing.T) {
	g := ready(t, clibtest.Options{Memory: 1000})
	g.alloc("x", 100)
	bus, err := g.Driver.DevicePCIBusID(0)
	check(t, err)
	d, err := g.NVML.DeviceByBus(bus)
	check(t, err)
	if mem, err := g.NVML.MemoryInfo(d); err != nil || mem.Used != 100 || mem.Total != 1000 {
		t.Errorf("%+v, %v", mem, err)
	}
	_, err = g.NVML.DeviceHandle(1)
	wants(t, err, "nvmlDeviceGetHandleByIndex", "INVALID_ARGUMENT")
}

func pointer(v []float32) unsafe.Pointer { return unsafe.Pointer(&v[0]) }
