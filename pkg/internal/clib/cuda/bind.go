package cuda

import (
	"fmt"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// call is clib.Call for functions of the driver. As for clib.Call, the address of a Go variable
// must be converted to uintptr in the argument list itself, so that the variable stays alive
// and in place during the call.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Result { return Result(int32(clib.Call(fn, args...))) }

func checkResultWithSize(name string, r Result, bytes int64) error {
	if r == Success {
		return nil
	}
	return &Error{Call: name, Result: r, Detail: fmt.Sprintf("of %d bytes", bytes)}
}

func bindFunctions(path string, need func(string) uintptr) *Driver {
	d := &Driver{Path: path}
	bindDeviceFunctions(d, need)
	bindMemoryFunctions(d, need)
	bindCopyFunctions(d, need)
	bindStreamFunctions(d, need)
	bindEventFunctions(d, need)
	bindKernelFunctions(d, need)
	bindGraphFunctions(d, need)
	return d
}

func bindDeviceFunctions(d *Driver, need func(string) uintptr) {
	initialize, count := need("cuInit"), need("cuDeviceGetCount")
	get, name := need("cuDeviceGet"), need("cuDeviceGetName")
	total, attribute := need("cuDeviceTotalMem_v2"), need("cuDeviceGetAttribute")
	bus, uuid := need("cuDeviceGetPCIBusId"), need("cuDeviceGetUuid_v2")
	retain, release := need("cuDevicePrimaryCtxRetain"), need("cuDevicePrimaryCtxRelease_v2")
	current, synchronize := need("cuCtxSetCurrent"), need("cuCtxSynchronize")
	start, stop := need("cuProfilerStart"), need("cuProfilerStop")
	version := need("cuDriverGetVersion")

	d.Init = func() error { return clib.CheckResult("cuInit", call(initialize, 0)) }
	d.Version = func() (int, error) {
		var v int32
		r := call(version, uintptr(unsafe.Pointer(&v)))
		return int(v), clib.CheckResult("cuDriverGetVersion", r)
	}
	d.DeviceCount = func() (int, error) {
		var n int32
		r := call(count, uintptr(unsafe.Pointer(&n)))
		return int(n), clib.CheckResult("cuDeviceGetCount", r)
	}
	d.DeviceGet = func(ordinal int) (Device, error) {
		var v Device
		r := call(get, uintptr(unsafe.Pointer(&v)), uintptr(ordinal))
		return v, clib.CheckResult("cuDeviceGet", r)
	}
	d.DeviceName = func(dev Device) (string, error) {
		buf := make([]byte, 256)
		r := call(name, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(dev))
		return clib.GoString(buf), clib.CheckResult("cuDeviceGetName", r)
	}
	d.DeviceTotalMem = func(dev Device) (int64, error) {
		var n int64
		r := call(total, uintptr(unsafe.Pointer(&n)), uintptr(dev))
		return n, clib.CheckResult("cuDeviceTotalMem", r)
	}
	d.DeviceAttribute = func(dev Device, a Attribute) (int, error) {
		var v int32
		r := call(attribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(dev))
		return int(v), clib.CheckResult("cuDeviceGetAttribute", r)
	}
	d.DevicePCIBusID = func(dev Device) (string, error) {
		buf := make([]byte, 32)
		r := call(bus, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(dev))
		return clib.GoString(buf), clib.CheckResult("cuDeviceGetPCIBusId", r)
	}
	d.DeviceUUID = func(dev Device) ([16]byte, error) {
		var v [16]byte
		r := call(uuid, uintptr(unsafe.Pointer(&v)), uintptr(dev))
		return v, clib.CheckResult("cuDeviceGetUuid", r)
	}
	d.PrimaryCtxRetain = func(dev Device) (Context, error) {
		var c Context
		r := call(retain, uintptr(unsafe.Pointer(&c)), uintptr(dev))
		return c, clib.CheckResult("cuDevicePrimaryCtxRetain", r)
	}
	d.PrimaryCtxRelease = func(dev Device) error {
		return clib.CheckResult("cuDevicePrimaryCtxRelease", call(release, uintptr(dev)))
	}
	d.CtxSetCurrent = func(c Context) error { return clib.CheckResult("cuCtxSetCurrent", call(current, uintptr(c))) }
	d.CtxSynchronize = func() error { return clib.CheckResult("cuCtxSynchronize", call(synchronize)) }
	d.ProfilerStart = func() error { return clib.CheckResult("cuProfilerStart", call(start)) }
	d.ProfilerStop = func() error { return clib.CheckResult("cuProfilerStop", call(stop)) }
}

func bindMemoryFunctions(d *Driver, need func(string) uintptr) {
	alloc, free, info := need("cuMemAlloc_v2"), need("cuMemFree_v2"), need("cuMemGetInfo_v2")
	hostAlloc, hostFree := need("cuMemHostAlloc"), need("cuMemFreeHost")

	d.MemAlloc = func(bytes int64) (Ptr, error) {
		var p Ptr
		r := call(alloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes))
		return p, checkResultWithSize("cuMemAlloc", r, bytes)
	}
	d.MemFree = func(p Ptr) error { return clib.CheckResult("cuMemFree", call(free, uintptr(p))) }
	d.MemGetInfo = func() (int64, int64, error) {
		var v [2]int64
		r := call(info, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])))
		return v[0], v[1], clib.CheckResult("cuMemGetInfo", r)
	}
	d.MemHostAlloc = func(bytes int64) (unsafe.Pointer, error) {
		var p unsafe.Pointer
		const portable = 1 // CU_MEMHOSTALLOC_PORTABLE: page-locked for every context
		r := call(hostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), portable)
		return p, checkResultWithSize("cuMemHostAlloc", r, bytes)
	}
	d.MemFreeHost = func(p unsafe.Pointer) error { return clib.CheckResult("cuMemFreeHost", call(hostFree, uintptr(p))) }
}

func bindCopyFunctions(d *Driver, need func(string) uintptr) {
	htod, dtoh := need("cuMemcpyHtoD_v2"), need("cuMemcpyDtoH_v2")
	htodAsync, dtohAsync, dtodAsync := need("cuMemcpyHtoDAsync_v2"), need("cuMemcpyDtoHAsync_v2"), need("cuMemcpyDtoDAsync_v2")
	set8, set32 := need("cuMemsetD8Async"), need("cuMemsetD32Async")

	d.MemcpyHtoD = func(dst Ptr, src unsafe.Pointer, n int64) error {
		return checkResultWithSize("cuMemcpyHtoD", call(htod, uintptr(dst), uintptr(src), uintptr(n)), n)
	}
	d.MemcpyDtoH = func(dst unsafe.Pointer, src Ptr, n int64) error {
		return checkResultWithSize("cuMemcpyDtoH", call(dtoh, uintptr(dst), uintptr(src), uintptr(n)), n)
	}
	d.MemcpyHtoDAsync = func(dst Ptr, src unsafe.Pointer, n int64, s Stream) error {
		return checkResultWithSize("cuMemcpyHtoDAsync", call(htodAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s)), n)
	}
	d.MemcpyDtoHAsync = func(dst unsafe.Pointer, src Ptr, n int64, s Stream) error {
		return checkResultWithSize("cuMemcpyDtoHAsync", call(dtohAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s)), n)
	}
	d.MemcpyDtoDAsync = func(dst, src Ptr, n int64, s Stream) error {
		return checkResultWithSize("cuMemcpyDtoDAsync", call(dtodAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s)), n)
	}
	d.MemsetD8Async = func(dst Ptr, v byte, n int64, s Stream) error {
		return checkResultWithSize("cuMemsetD8Async", call(set8, uintptr(dst), uintptr(v), uintptr(n), uintptr(s)), n)
	}
	d.MemsetD32Async = func(dst Ptr, v uint32, n int64, s Stream) error {
		return checkResultWithSize("cuMemsetD32Async", call(set32, uintptr(dst), uintptr(v), uintptr(n), uintptr(s)), 4*n)
	}
}
