package cuda

import (
	"runtime"
	"sync"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// launchBuffers contains the memory that a call of cuLaunchKernel reads. It is reused, so that
// a launch does not allocate memory.
type launchBuffers struct {
	args  [11]uintptr // the arguments of cuLaunchKernel
	extra [5]uintptr  // its last argument: the address and the size of the kernel's arguments
	size  uint64      // of the kernel's packed arguments, in bytes
}

func bindKernelFunctions(d *Driver, need func(string) uintptr) {
	load, unload, get := need("cuModuleLoadData"), need("cuModuleUnload"), need("cuModuleGetFunction")
	getAttribute, setAttribute := need("cuFuncGetAttribute"), need("cuFuncSetAttribute")
	occupancy, start := need("cuOccupancyMaxActiveBlocksPerMultiprocessor"), need("cuLaunchKernel")

	d.ModuleLoadData = func(image []byte) (Module, error) {
		if len(image) == 0 {
			return 0, &Error{Call: "cuModuleLoadData", Result: ErrorInvalidImage, Detail: "of 0 bytes"}
		}
		var m Module
		r := call(load, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&image[0])))
		return m, clib.CheckResult("cuModuleLoadData", r)
	}
	d.ModuleUnload = func(m Module) error { return clib.CheckResult("cuModuleUnload", call(unload, uintptr(m))) }
	d.ModuleGetFunction = func(m Module, name string) (Function, error) {
		var f Function
		c := clib.CString(name)
		if r := call(get, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&c[0]))); r != Success {
			return 0, &Error{Call: "cuModuleGetFunction", Result: r, Detail: name}
		}
		return f, nil
	}
	d.FuncGetAttribute = func(f Function, a FunctionAttribute) (int, error) {
		var v int32
		r := call(getAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(f))
		return int(v), clib.CheckResult("cuFuncGetAttribute", r)
	}
	d.FuncSetAttribute = func(f Function, a FunctionAttribute, v int) error {
		return clib.CheckResult("cuFuncSetAttribute", call(setAttribute, uintptr(f), uintptr(a), uintptr(v)))
	}
	d.Occupancy = func(f Function, threads int, shared int64) (int, error) {
		var n int32
		r := call(occupancy, uintptr(unsafe.Pointer(&n)), uintptr(f), uintptr(threads), uintptr(shared))
		return int(n), clib.CheckResult("cuOccupancyMaxActiveBlocksPerMultiprocessor", r)
	}
	pool := sync.Pool{New: func() any { return new(launchBuffers) }}
	d.LaunchKernel = func(f Function, grid, block Dim3, shared uint32, s Stream, args []byte) error {
		const pointer, size = 1, 2 // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE
		l := pool.Get().(*launchBuffers)
		l.size = uint64(len(args))
		// The garbage collector does not see these addresses. l and args are kept alive
		// below, and are on the heap, which does not move (l comes from the pool, args was
		// passed through a function value).
		l.extra = [5]uintptr{pointer, uintptr(unsafe.Pointer(unsafe.SliceData(args))), size, uintptr(unsafe.Pointer(&l.size)), 0}
		l.args = [11]uintptr{
			uintptr(f), uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
			uintptr(block[0]), uintptr(block[1]), uintptr(block[2]), uintptr(shared), uintptr(s), 0, uintptr(unsafe.Pointer(&l.extra)),
		}
		r := call(start, l.args[:]...)
		runtime.KeepAlive(args)
		pool.Put(l)
		return clib.CheckResult("cuLaunchKernel", r)
	}
}

func bindGraphFunctions(d *Driver, need func(string) uintptr) {
	begin, end, status := need("cuStreamBeginCapture_v2"), need("cuStreamEndCapture"), need("cuStreamIsCapturing")
	nodes, destroy, instantiate := need("cuGraphGetNodes"), need("cuGraphDestroy"), need("cuGraphInstantiateWithFlags")
	upload, start, execDestroy := need("cuGraphUpload"), need("cuGraphLaunch"), need("cuGraphExecDestroy")

	d.StreamBeginCapture = func(s Stream, m CaptureMode) error {
		return clib.CheckResult("cuStreamBeginCapture", call(begin, uintptr(s), uintptr(m)))
	}
	d.StreamEndCapture = func(s Stream) (Graph, error) {
		var g Graph
		r := call(end, uintptr(s), uintptr(unsafe.Pointer(&g)))
		return g, clib.CheckResult("cuStreamEndCapture", r)
	}
	d.StreamCapture = func(s Stream) (CaptureStatus, error) {
		var v CaptureStatus
		r := call(status, uintptr(s), uintptr(unsafe.Pointer(&v)))
		return v, clib.CheckResult("cuStreamIsCapturing", r)
	}
	d.GraphNodeCount = func(g Graph) (int, error) {
		var n uint64
		r := call(nodes, uintptr(g), 0, uintptr(unsafe.Pointer(&n)))
		return int(n), clib.CheckResult("cuGraphGetNodes", r)
	}
	d.GraphDestroy = func(g Graph) error { return clib.CheckResult("cuGraphDestroy", call(destroy, uintptr(g))) }
	d.GraphInstantiate = func(g Graph) (GraphExec, error) {
		var e GraphExec
		r := call(instantiate, uintptr(unsafe.Pointer(&e)), uintptr(g), 0)
		return e, clib.CheckResult("cuGraphInstantiate", r)
	}
	d.GraphUpload = func(e GraphExec, s Stream) error {
		return clib.CheckResult("cuGraphUpload", call(upload, uintptr(e), uintptr(s)))
	}
	d.GraphLaunch = func(e GraphExec, s Stream) error {
		return clib.CheckResult("cuGraphLaunch", call(start, uintptr(e), uintptr(s)))
	}
	d.GraphExecDestroy = func(e GraphExec) error { return clib.CheckResult("cuGraphExecDestroy", call(execDestroy, uintptr(e))) }
}
