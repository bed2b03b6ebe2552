//go:build amd64 || arm64

package clib_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cublaslt"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/cupti"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/clib/nvml"
	"lockstep/pkg/internal/clib/nvrtc"
	"lockstep/pkg/internal/clib/nvtx"
	"lockstep/pkg/internal/clib/stack"
)

// olderNVRTC as an argument of stubs adds NVRTC 12 to the folder with NVRTC 13.
const olderNVRTC = "NVRTC 12 too"

// stubs compiles testdata/stub.c under the names of NVIDIA's libraries and
// returns a search that finds them. versions are compiler definitions, or olderNVRTC.
func stubs(t *testing.T, versions ...string) *clib.Search {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc on this machine to build the stub library with")
	}
	dir := t.TempDir()
	build := func(name string, versions ...string) (path string) {
		args := []string{"-shared", "-fPIC", "-DSTUB_DRIVER=13000", "-DSTUB_NVRTC=13", "-DSTUB_CUDNN=91900", "-DSTUB_NCCL=22809"}
		for _, v := range versions { // a later definition replaces
			name, _, _ := strings.Cut(v, "=")
			args = append(args, "-U"+name, "-D"+v)
		}
		path = filepath.Join(dir, name)
		if out, err := exec.Command(cc, append(args, "-o", path, "testdata/stub.c", "-lpthread")...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return path
	}
	if i := slices.Index(versions, olderNVRTC); i >= 0 {
		versions = slices.Delete(slices.Clone(versions), i, i+1)
		build("libnvrtc.so.12", "STUB_NVRTC=12")
	}
	raw, err := os.ReadFile(build("libcuda.so.1", versions...))
	check(t, err)
	for _, name := range []string{
		"libcudnn.so.9", "libnccl.so.2", "libnvrtc.so.13", "libcublasLt.so.13", "libnvidia-ml.so.1", "libnvtx3interop.so.1", "libcupti.so.13",
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), raw, 0o755))
	}
	return clib.NewSearch(clib.Environment{
		Getenv: func(name string) string { return map[string]string{clib.LibraryPathVariable: dir}[name] },
		Python: func(context.Context) ([]string, error) { return nil, nil },
		System: []string{},
	})
}

// saw compares the calls that the stub library has received since the last call of saw,
// formatted in C, with want.
func saw(t *testing.T, s *clib.Search, n clib.LibraryName, want string) {
	t.Helper()
	lib, err := s.Open(n)
	check(t, err)
	text, err := lib.Symbol("stub_text")
	check(t, err)
	if got := strings.TrimSpace(clib.ReadCString(clib.Call(text))); got != strings.TrimSpace(want) {
		t.Errorf("C saw:\n%s\nwant:\n%s", got, want)
	}
	clear, err := lib.Symbol("stub_clear")
	check(t, err)
	clib.Call(clear)
}

func eq[T comparable](t *testing.T, what string, got, want T, err error) {
	t.Helper()
	if err != nil || got != want {
		t.Errorf("%s = %v, %v; want %v", what, got, err, want)
	}
}

const big = cuda.Ptr(0x7f0011223344)

func TestDriverABI(t *testing.T) {
	s := stubs(t)
	d, err := cuda.Open(s)
	check(t, err)
	check(t, d.Init())
	version, err := d.Version()
	eq(t, "version", version, 13000, err)
	n, err := d.DeviceCount()
	eq(t, "devices", n, 3, err)
	dev, err := d.DeviceGet(2)
	eq(t, "device", dev, 72, err)
	if _, err := d.DeviceGet(3); !errors.Is(err, cuda.ErrorInvalidDevice) {
		t.Errorf("device 3: %v", err)
	}
	name, err := d.DeviceName(dev)
	eq(t, "name", name, "Stub 72", err)
	total, err := d.DeviceTotalMem(dev)
	eq(t, "memory", total, int64(141<<30), err)
	v, err := d.DeviceAttribute(dev, cuda.ComputeCapabilityMajor)
	eq(t, "attribute", v, -75, err)
	bus, err := d.DevicePCIBusID(dev)
	eq(t, "bus", bus, "0000:0F:00.0", err)
	uuid, err := d.DeviceUUID(dev)
	eq(t, "uuid", uuid[15], 7, err)
	ctx, err := d.PrimaryCtxRetain(dev)
	eq(t, "context", ctx, 0x100, err)
	check(t, d.CtxSetCurrent(ctx))
	check(t, d.PrimaryCtxRelease(dev))
	if err := d.CtxSynchronize(); !errors.Is(err, cuda.ErrorLaunchFailed) {
		t.Errorf("synchronise: %v", err)
	}
	check(t, d.ProfilerStart())
	check(t, d.ProfilerStop())
	saw(t, s, clib.CUDA, `cuInit 0
cuDeviceGet 2
cuDeviceGet 3
cuDeviceGetName 256 72
cuDeviceTotalMem 72
cuDeviceGetAttribute 75 72
cuDeviceGetPCIBusId 32 72
cuDeviceGetUuid 72
cuDevicePrimaryCtxRetain 72
cuCtxSetCurrent 0x100
cuDevicePrimaryCtxRelease 72
cuCtxSynchronize
cuProfilerStart
cuProfilerStop`)
}

func TestDriverMemoryABI(t *testing.T) {
	s := stubs(t)
	d, err := cuda.Open(s)
	check(t, err)
	p, err := d.MemAlloc(3 << 32)
	eq(t, "address", p, big, err)
	_, err = d.MemAlloc(1 << 41)
	if !errors.Is(err, cuda.ErrorOutOfMemory) || !strings.Contains(err.Error(), "cuMemAlloc of 2199023255552 bytes") {
		t.Errorf("too much: %v", err)
	}
	free, total, err := d.MemGetInfo()
	eq(t, "free", free, int64(5<<32), err)
	eq(t, "total", total, int64(6<<32), err)
	host, err := d.MemHostAlloc(8)
	check(t, err)
	pinned := unsafe.Slice((*byte)(host), 8)
	copy(pinned, "pin")
	buf := []byte("abcd")
	check(t, d.MemcpyHtoD(p, unsafe.Pointer(&buf[0]), 4))
	check(t, d.MemcpyDtoH(unsafe.Pointer(&buf[1]), p.Add(1), 2))
	eq(t, "copied", string(buf), "azzd", nil)
	check(t, d.MemcpyHtoDAsync(p, host, 3, 0x22))
	check(t, d.MemcpyDtoHAsync(unsafe.Add(host, 1), p, 2, 0x22))
	check(t, d.MemcpyDtoDAsync(p, p.Add(16), 1<<33, 0x22))
	check(t, d.MemsetD8Async(p, 255, 1<<33, 0x22))
	check(t, d.MemsetD32Async(p, 0xFFFFFFFF, 7, 0x22))
	check(t, d.MemFreeHost(host))
	check(t, d.MemFree(p))
	saw(t, s, clib.CUDA, `cuMemAlloc 12884901888
cuMemAlloc 2199023255552
cuMemHostAlloc 8 1
cuMemcpyHtoD 7f0011223344 abcd 4
cuMemcpyDtoH 7f0011223345 2
cuMemcpyHtoDAsync 7f0011223344 pin 3 0x22
cuMemcpyDtoHAsync 7f0011223344 2 0x22
cuMemcpyDtoDAsync 7f0011223344 7f0011223354 8589934592 0x22
cuMemsetD8Async 7f0011223344 255 8589934592 0x22
cuMemsetD32Async 7f0011223344 4294967295 7 0x22
cuMemFreeHost pyy
cuMemFree 7f0011223344`)
}

func TestDriverWorkABI(t *testing.T) {
	s := stubs(t)
	d, err := cuda.Open(s)
	check(t, err)
	st, err := d.StreamCreate(cuda.StreamNonBlocking, -5)
	eq(t, "stream", st, 0x200, err)
	least, greatest, err := d.StreamPriorities()
	eq(t, "least", least, 0, err)
	eq(t, "greatest", greatest, -5, err)
	done, err := d.StreamQuery(1)
	eq(t, "busy", done, false, err)
	done, err = d.StreamQuery(3)
	eq(t, "idle", done, true, err)
	if done, err = d.StreamQuery(2); done || !errors.Is(err, cuda.ErrorIllegalAddress) {
		t.Errorf("failed stream: %v %v", done, err)
	}
	e, err := d.EventCreate(cuda.EventDisableTiming)
	eq(t, "event", e, 0x300, err)
	check(t, d.EventRecord(e, st))
	check(t, d.StreamWaitEvent(st, e))
	check(t, d.EventSynchronize(e))
	done, err = d.EventQuery(1)
	eq(t, "event busy", done, false, err)
	ms, err := d.EventElapsed(e, 0x301)
	eq(t, "elapsed", ms, 1.25, err)
	m, err := d.ModuleLoadData([]byte("image\x00"))
	eq(t, "module", m, 0x400, err)
	f, err := d.ModuleGetFunction(m, "relu")
	eq(t, "function", f, 0x500, err)
	if _, err := d.ModuleGetFunction(m, "none"); !errors.Is(err, cuda.ErrorNotFound) || !strings.Contains(err.Error(), "none") {
		t.Errorf("missing function: %v", err)
	}
	regs, err := d.FuncGetAttribute(f, cuda.FuncRegisters)
	eq(t, "registers", regs, 48, err)
	check(t, d.FuncSetAttribute(f, cuda.FuncMaxDynamicShared, 200<<10))
	blocks, err := d.Occupancy(f, 256, 1<<33)
	eq(t, "occupancy", blocks, 8, err)
	var a cuda.Args
	a.Int32(-1).Ptr(big).Float32(1.5).Int64(-2).Uint32(7)
	check(t, d.LaunchKernel(f, cuda.Dim3{4294967295, 2, 3}, cuda.Dim3{256, 1, 4}, 99, st, a.Bytes()))
	check(t, d.LaunchKernel(f, cuda.Dim3{1, 1, 1}, cuda.Dim3{1, 1, 1}, 0, st, nil))
	check(t, d.StreamBeginCapture(st, cuda.CaptureThreadLocal))
	status, err := d.StreamCapture(st)
	eq(t, "capture", status, cuda.CaptureActive, err)
	g, err := d.StreamEndCapture(st)
	eq(t, "graph", g, 0x600, err)
	nodes, err := d.GraphNodeCount(g)
	eq(t, "nodes", nodes, 42, err)
	x, err := d.GraphInstantiate(g)
	eq(t, "exec", x, 0x700, err)
	for _, err := range []error{
		d.GraphUpload(x, st), d.GraphLaunch(x, st), d.GraphDestroy(g), d.GraphExecDestroy(x), d.ModuleUnload(m),
		d.EventDestroy(e), d.StreamSynchronize(st), d.StreamDestroy(st),
	} {
		check(t, err)
	}
	saw(t, s, clib.CUDA, `cuStreamCreateWithPriority 1 -5
cuEventCreate 2
cuEventRecord 0x300 0x200
cuStreamWaitEvent 0x200 0x300 0
cuEventSynchronize 0x300
cuEventElapsedTime 0x300 0x301
cuModuleLoadData image
cuModuleGetFunction 0x400 relu
cuModuleGetFunction 0x400 none
cuFuncGetAttribute 4 0x500
cuFuncSetAttribute 0x500 8 204800
cuOccupancy 0x500 256 8589934592
cuLaunchKernel 0x500 4294967295,2,3 256,1,4 99 0x200 (nil) 1 2 (nil)
  36 ffffffff0000000044332211007f00000000c03f00000000feffffffffffffff07000000
cuLaunchKernel 0x500 1,1,1 1,1,1 0 0x200 (nil) 1 2 (nil)
  0 
cuStreamBeginCapture 0x200 1
cuStreamIsCapturing 0x200
cuStreamEndCapture 0x200
cuGraphGetNodes 0x600 (nil)
cuGraphInstantiate 0x600 0
cuGraphUpload 0x700 0x200
cuGraphLaunch 0x700 0x200
cuGraphDestroy 0x600
cuGraphExecDestroy 0x700
cuModuleUnload 0x400
cuEventDestroy 0x300
cuStreamSynchronize 0x200
cuStreamDestroy 0x200`)
}

// Launches are frequent, so a launch must not allocate memory.
func TestLaunchDoesNotAllocate(t *testing.T) {
	s := stubs(t)
	d, err := cuda.Open(s)
	check(t, err)
	args := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		if err := d.LaunchKernel(1, cuda.Dim3{1, 1, 1}, cuda.Dim3{1, 1, 1}, 0, 0, args); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a launch", n)
	}
}

// Memory that is passed to C must stay in place during the call while the garbage collector
// runs and stacks grow.
func TestCallsWhileTheCollectorRuns(t *testing.T) {
	s := stubs(t)
	d, err := cuda.Open(s)
	check(t, err)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	var grow func(depth int)
	grow = func(depth int) {
		var pad [512]byte
		ms, err := d.EventElapsed(1, 2)
		name, err2 := d.DeviceName(cuda.Device(depth))
		if ms != 1.25 || !strings.HasPrefix(name, "Stub ") || err != nil || err2 != nil {
			t.Fatalf("at depth %d: %v %q %v %v", depth, ms, name, err, err2)
		}
		if depth > 0 {
			grow(depth - 1)
		}
		pad[depth%512] = 1
	}
	for range 4 {
		done := make(chan struct{})
		go func() { defer close(done); grow(60) }()
		<-done
	}
}

func TestNVRTCABI(t *testing.T) {
	s := stubs(t)
	l, err := nvrtc.Open(s)
	check(t, err)
	archs, err := l.Architectures()
	if err != nil || len(archs) != 2 || archs[1] != 90 {
		t.Errorf("architectures %v, %v", archs, err)
	}
	out, err := l.Compile("source", "a.cu", []string{"--gpu-architecture=sm_90", "-DT=float"})
	check(t, err)
	if string(out.LoadableImage()) != "bin" || string(out.PTX) != "ptx!\x00" || out.Log != "log one" {
		t.Errorf("%+v", out)
	}
	out, err = l.Compile("source", "a.cu", nil)
	check(t, err)
	if string(out.LoadableImage()) != "ptx!\x00" {
		t.Errorf("%+v", out)
	}
	_, err = l.Compile("source", "a.cu", []string{"--bad"})
	var bad *nvrtc.CompileError
	if !errors.As(err, &bad) || !errors.Is(err, nvrtc.ErrorInvalidOption) || bad.Log != "log one" {
		t.Errorf("bad option: %v", err)
	}
	const program = "nvrtcCreateProgram source a.cu 0 (nil) (nil)\nnvrtcCompileProgram 0x800 "
	saw(t, s, clib.NVRTC, program+"2\n  --gpu-architecture=sm_90\n  -DT=float\nnvrtcDestroyProgram 0x800\n"+
		program+"0\nnvrtcDestroyProgram 0x800\n"+program+"1\n  --bad\nnvrtcDestroyProgram 0x800")
}

func TestCUDNNABI(t *testing.T) {
	s := stubs(t)
	l, err := cudnn.Open(s)
	check(t, err)
	h, err := l.Create()
	eq(t, "handle", h, 0x900, err)
	check(t, l.SetStream(h, 0x22))
	dims := []int64{1, 8, 4, 4}
	g, err := l.NewGraph(h, cudnn.ConvForward{
		Conv: cudnn.Conv{Pad: []int64{1, 1}}, X: cudnn.Tensor{ID: 1, Type: cudnn.BFloat16, Dims: dims},
		W: cudnn.Tensor{ID: 2, Type: cudnn.BFloat16, Dims: []int64{8, 8, 3, 3}}, Y: cudnn.Tensor{ID: 3, Type: cudnn.Float16, Dims: dims, Virtual: true}, Beta: 0.5,
	})
	check(t, err)
	saw(t, s, clib.CUDNN, `cudnnSetStream 0x900 0x22
create 1
set 106 3 1: 2
set 100 1 1: 0
set 101 7 1: 1
set 105 3 2: 1 1
set 104 3 2: 1 1
set 102 3 2: 1 1
set 103 3 2: 1 1
finalize
create 17
set 906 3 1: 1
set 901 1 1: 9
set 900 3 1: 16
set 902 3 4: 1 8 4 4
set 903 3 4: 128 1 32 8
set 907 2 1: 0
finalize
create 17
set 906 3 1: 2
set 901 1 1: 9
set 900 3 1: 16
set 902 3 4: 8 8 3 3
set 903 3 4: 72 1 24 8
set 907 2 1: 0
finalize
create 17
set 906 3 1: 3
set 901 1 1: 2
set 900 3 1: 16
set 902 3 4: 1 8 4 4
set 903 3 4: 128 1 32 8
set 907 2 1: 1
finalize
create 10
set 702 15 1: h
set 704 15 1: h
set 703 15 1: h
set 705 15 1: h
set 700 4 1: 1
set 701 4 1: 0.5
finalize
create 15
set 800 0 1: h
set 801 15 1: h
finalize`)
	plans, rejected, err := g.CreatePlans(cudnn.HeurB)
	check(t, err)
	if len(plans) != 1 || len(rejected) != 0 || plans[0].Workspace != 1<<33 || plans[0].IsDeterministic() {
		t.Fatalf("plans %v, rejected %v", plans, rejected)
	}
	text, err := plans[0].JSON()
	eq(t, "JSON", text, "{json}", err)
	pack, err := l.NewVariantPack(map[int64]cuda.Ptr{2: big, 1: big + 1}, big+2)
	check(t, err)
	err = l.Run(h, plans[0], pack)
	if !errors.Is(err, cudnn.MisalignedPointer) || !strings.Contains(err.Error(), "(cuDNN: room for 2048)") {
		t.Errorf("run: %v", err)
	}
	lib, err := s.Open(clib.CUDNN)
	check(t, err)
	stub, err := lib.Symbol("stub_text")
	check(t, err)
	for _, want := range []string{
		"create 4\nset 201 15 1: h\nset 200 8 1: 1\nfinalize\n", "get 202 15 128\n",
		"create 5\nset 400 0 1: h\nset 401 15 1: h\nfinalize\nget 402 3 1\n", "get 405 24 0\nget 405 24 6\n",
		"create 16\nset 1000 3 2: 1 2\nset 1001 6 2: 0x7f0011223345 0x7f0011223344\nset 1003 6 1: 0x7f0011223346\nfinalize\ncudnnBackendExecute 0x900",
	} {
		if got := clib.ReadCString(clib.Call(stub)); !strings.Contains(got, want) {
			t.Errorf("C did not see\n%s\nin\n%s", want, got)
		}
	}
}

func TestNCCLABI(t *testing.T) {
	s := stubs(t)
	l, err := nccl.Open(s)
	check(t, err)
	id, err := l.GetUniqueID()
	eq(t, "id", id[127], 127, err)
	c, err := l.CommInit(8, 5, id)
	eq(t, "communicator", c, 0xb00, err)
	check(t, l.GroupStart())
	check(t, l.AllReduce(big, big, 1<<33, nccl.BFloat16, nccl.Avg, c, 0x22))
	check(t, l.Broadcast(big, big+8, 3, nccl.Float32, 7, c, 0x22))
	check(t, l.GroupEnd())
	if err := l.AsyncError(1); err != nil {
		t.Errorf("in progress: %v", err)
	}
	if err := l.AsyncError(c); !errors.Is(err, nccl.RemoteError) || !strings.Contains(err.Error(), "peer 3 left") {
		t.Errorf("asynchronous: %v", err)
	}
	eq(t, "text", l.ErrorString(nccl.InvalidUsage), "invalid usage", nil)
	check(t, l.CommAbort(c))
	check(t, l.CommDestroy(c))
	saw(t, s, clib.NCCL, `ncclCommInitRankScalable 8 5 1 127 (nil)
ncclGroupStart
ncclAllReduce 0x7f0011223344 0x7f0011223344 8589934592 9 4 0xb00 0x22
ncclBroadcast 0x7f0011223344 0x7f001122334c 3 7 7 0xb00 0x22
ncclGroupEnd
ncclCommAbort 0xb00
ncclCommDestroy 0xb00`)
}

func TestCublasLtABI(t *testing.T) {
	s := stubs(t)
	l, err := cublaslt.Open(s)
	check(t, err)
	h, err := l.Create()
	eq(t, "handle", h, 0xc00, err)
	p, err := l.Plan(h, cublaslt.Matmul{
		M: 64, N: 32, K: 16, TransA: true, TypeA: cublaslt.BFloat16, TypeB: cublaslt.BFloat16, TypeD: cublaslt.Float32,
		LDA: 16, LDB: 16, LDD: 64, Compute: cublaslt.ComputeFloat32, WorkspaceLimit: 1 << 33, Bias: big, ReLU: true, Beta: 1,
	})
	check(t, err)
	eq(t, "workspace", p.Workspace, 1<<20, nil)
	check(t, l.Run(h, p, 0x10, 0x20, 0x30, 0x40, 0x22))
	check(t, l.Close(p))
	check(t, l.Destroy(h))
	saw(t, s, clib.CublasLt, `cublasLtMatmulDescCreate 68 0
cublasLtMatmulDescSetAttribute 3 1 4
cublasLtMatmulDescSetAttribute 4 0 4
cublasLtMatmulDescSetAttribute 7 6 4
cublasLtMatmulDescSetAttribute 8 7f0011223344 8
cublasLtMatrixLayoutCreate 14 16 64 16
cublasLtMatrixLayoutCreate 14 16 32 16
cublasLtMatrixLayoutCreate 0 64 32 64
cublasLtMatmulPreferenceSetAttribute 1 8589934592 8
cublasLtMatmulAlgoGetHeuristic 0xc00 1 1
cublasLtMatmul 0xc00 1 0x10 0x20 1 0x30 0x30 1 8 0x40 1048576 0x22
cublasLtDestroy 0xc00`)
}

func TestNVMLAndNVTXABI(t *testing.T) {
	s := stubs(t)
	l, err := nvml.Open(s)
	check(t, err)
	check(t, l.Init())
	v, err := l.DriverVersion()
	eq(t, "driver", v, "580.82.07", err)
	n, err := l.DeviceCount()
	eq(t, "count", n, 4, err)
	d, err := l.DeviceHandle(3)
	eq(t, "device", d, 0x1003, err)
	d, err = l.DeviceByBus("0000:0F:00.0")
	eq(t, "device by bus", d, 0x1002, err)
	name, err := l.Name(d)
	eq(t, "name", name, "Stub 0x1002", err)
	mem, err := l.MemoryInfo(d)
	eq(t, "memory", mem, nvml.Memory{Total: 3, Free: 1, Used: 2}, err)
	u, err := l.Utilization(d)
	eq(t, "utilization", u, nvml.Utilization{GPU: 97, Memory: 55}, err)
	w, err := l.Power(d)
	eq(t, "power", w, 512.345, err)
	j, err := l.Energy(d)
	eq(t, "energy", j, 1234567890.123, err)
	if _, err := l.Clock(d, nvml.MemoryClock); !errors.Is(err, nvml.NotSupported) {
		t.Errorf("clock: %v", err)
	}
	check(t, l.Shutdown())
	saw(t, s, clib.NVML, "nvmlDeviceGetHandleByPciBusId 0000:0F:00.0\nnvmlDeviceGetClockInfo 0x1002 2")

	x, err := nvtx.Open(s)
	check(t, err)
	x.Push("step 1")
	x.Pop()
	saw(t, s, clib.NVTX, "push step 1\npop")
}

// The callbacks are called from a thread that Go did not create.
func TestCUPTIABI(t *testing.T) {
	s := stubs(t)
	l, err := cupti.Open(s)
	check(t, err)
	v, err := l.Version()
	eq(t, "version", v, 130000, err)
	for range 2 {
		check(t, l.Start())
		got, err := l.Stop()
		check(t, err)
		want := cupti.Kernel{
			Name: "bn_forward", Start: 101, End: 201, Stream: 7, Correlation: 9, GraphNode: 1 << 40,
			Grid: [3]int32{1, 2, 3}, Block: [3]int32{256, 1, 1}, Registers: 40,
		}
		if len(got) != 2 || got[1] != want {
			t.Errorf("%+v\nwant twice %+v", got, want)
		}
	}
	saw(t, s, clib.CUPTI, strings.Repeat("cuptiActivityEnable 10\ncuptiActivityFlushAll 1\ncuptiActivityDisable 10\n", 2))
}

func TestStackOverStubs(t *testing.T) {
	st, err := stack.Open(stubs(t))
	check(t, err)
	if len(st.Missing) != 0 || st.NCCL == nil || st.NVML == nil || st.NVTX.Path == "" {
		t.Errorf("missing: %v", st.Missing)
	}
	for _, c := range []struct {
		define string
		want   []string
	}{
		{"STUB_DRIVER=11080", []string{"use the GPU: check CUDA driver (", "libcuda.so.1", "its version is CUDA 11.8, CUDA 12.0 or newer is needed", "install a newer NVIDIA driver"}},
		{"STUB_CUDNN=8907", []string{"check cuDNN (", "libcudnn.so.9", "its version is 8.9.7, version 9 is needed"}},
		{"STUB_DRIVER=12080", []string{"check NVRTC (", "its version is 13.0, 12.x, as the driver's CUDA 12.8, is needed"}},
	} {
		_, err := stack.Open(stubs(t, c.define))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v\nlacks %q", c.define, err, want)
			}
		}
	}
	for driver, want := range map[string]string{"13000": "libnvrtc.so.13", "12080": "libnvrtc.so.12"} {
		st, err := stack.Open(stubs(t, "STUB_DRIVER="+driver, olderNVRTC))
		if err != nil || filepath.Base(st.NVRTC.Path) != want {
			t.Errorf("driver of CUDA %s: opened NVRTC %+v, want %s: %v", driver, st, want, err)
		}
	}
	st, err = stack.Open(stubs(t, "STUB_NCCL=21805"))
	check(t, err)
	if err := st.Missing[clib.NCCL]; st.NCCL != nil || err == nil || !strings.Contains(err.Error(), "its version is 2.18.5") {
		t.Errorf("NCCL: %v", err)
	}
}
