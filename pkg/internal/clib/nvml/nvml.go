// Package nvml calls NVIDIA's management library (libnvidia-ml.so.1, part of the driver)
// through a table of Go functions. It reports the utilization, power and memory of GPUs. It
// needs no CUDA context and may be called from any goroutine.
//
// Source: NVML API reference, driver 580. The results and clocks were compared with nvml.h
// of CUDA 12.6 and 13.3.
package nvml

import (
	"cmp"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// Device is the handle of a GPU.
type Device uintptr

// Memory contains the total, free and used memory of a device in bytes.
type Memory struct{ Total, Free, Used uint64 }

// Utilization contains percentages of the last sample period: of the time in which a kernel ran
// (GPU), and of the time in which memory was read or written (Memory).
type Utilization struct{ GPU, Memory uint32 }

// Clock is one of a device's clocks.
type Clock int32

// Clocks of a GPU whose frequency NVML measures.
const (
	GraphicsClock Clock = 0
	SMClock       Clock = 1
	MemoryClock   Clock = 2
)

// Library is the table of NVML's functions. Init must be called first.
type Library struct {
	Path string

	Init          func() error
	Shutdown      func() error
	DriverVersion func() (string, error) // "580.82.07"

	DeviceCount  func() (int, error) // all devices of the machine, even if CUDA_VISIBLE_DEVICES excludes them
	DeviceHandle func(index int) (Device, error)
	DeviceByBus  func(pciBusID string) (Device, error) // bus id as returned by cuda.Driver.DevicePCIBusID
	Name         func(Device) (string, error)
	MemoryInfo   func(Device) (Memory, error)
	Utilization  func(Device) (Utilization, error)
	Power        func(Device) (watts float64, err error)
	Energy       func(Device) (joules float64, err error) // since the driver was loaded
	Clock        func(Device, Clock) (megahertz int, err error)
}

// Result is the result of an NVML call (nvmlReturn_t).
type Result int32

// Results that callers test for.
const (
	Success         Result = 0
	Uninitialized   Result = 1
	InvalidArgument Result = 2
	NotSupported    Result = 3
	NoPermission    Result = 4
	NotFound        Result = 6
	DriverNotLoaded Result = 9
	FunctionMissing Result = 13
	GPULost         Result = 15
	VersionMismatch Result = 18
	Unknown         Result = 999
)

// Name returns the result's name in nvml.h.
func (r Result) Name() string {
	names := map[Result]string{
		Success:         "NVML_SUCCESS",
		Uninitialized:   "NVML_ERROR_UNINITIALIZED",
		InvalidArgument: "NVML_ERROR_INVALID_ARGUMENT",
		NotSupported:    "NVML_ERROR_NOT_SUPPORTED",
		NoPermission:    "NVML_ERROR_NO_PERMISSION",
		NotFound:        "NVML_ERROR_NOT_FOUND",
		DriverNotLoaded: "NVML_ERROR_DRIVER_NOT_LOADED",
		FunctionMissing: "NVML_ERROR_FUNCTION_NOT_FOUND",
		GPULost:         "NVML_ERROR_GPU_IS_LOST",
		VersionMismatch: "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
	}
	return cmp.Or(names[r], "NVML_ERROR")
}

func (r Result) Error() string {
	advice := ""
	switch r {
	case NotSupported:
		advice = "this device does not measure it"
	case DriverNotLoaded:
		advice = "the kernel module nvidia is not loaded"
	case GPULost:
		advice = "the GPU has fallen off the bus: the machine must be restarted"
	case VersionMismatch:
		advice = "the library and the loaded kernel module have different versions: restart the machine"
	}
	return clib.FormatCode(r.Name(), int32(r), advice)
}

// Library returns clib.NVML.
func (r Result) Library() clib.LibraryName { return clib.NVML }

// Error reports a failed call. It wraps the Result, so errors.Is(err, NotSupported) works.
type Error = clib.CallError[Result]

// Open finds NVML and looks up its functions.
func Open(s *clib.Search) (*Library, error) {
	return clib.LoadFunctionTable(s, clib.NVML, bindFunctions, clib.VersionCheck[Library]{})
}

// RequiredSymbols lists the functions that the library must have.
func RequiredSymbols() []string { return clib.RequiredSymbols(bindFunctions) }

//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Result { return Result(int32(clib.Call(fn, args...))) }

func bindFunctions(path string, need func(string) uintptr) *Library {
	l := &Library{Path: path}
	bindDeviceFunctions(l, need)
	bindSensorFunctions(l, need)
	return l
}

func bindDeviceFunctions(l *Library, need func(string) uintptr) {
	initialize, shutdown, driver := need("nvmlInit_v2"), need("nvmlShutdown"), need("nvmlSystemGetDriverVersion")
	count, byIndex := need("nvmlDeviceGetCount_v2"), need("nvmlDeviceGetHandleByIndex_v2")
	byBus, name := need("nvmlDeviceGetHandleByPciBusId_v2"), need("nvmlDeviceGetName")

	l.Init = func() error { return clib.CheckResult("nvmlInit", call(initialize)) }
	l.Shutdown = func() error { return clib.CheckResult("nvmlShutdown", call(shutdown)) }
	l.DriverVersion = func() (string, error) {
		buf := make([]byte, 96)
		r := call(driver, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		return clib.GoString(buf), clib.CheckResult("nvmlSystemGetDriverVersion", r)
	}
	l.DeviceCount = func() (int, error) {
		var n uint32
		r := call(count, uintptr(unsafe.Pointer(&n)))
		return int(n), clib.CheckResult("nvmlDeviceGetCount", r)
	}
	l.DeviceHandle = func(index int) (Device, error) {
		var d Device
		r := call(byIndex, uintptr(index), uintptr(unsafe.Pointer(&d)))
		return d, clib.CheckResult("nvmlDeviceGetHandleByIndex", r)
	}
	l.DeviceByBus = func(id string) (Device, error) {
		var d Device
		c := clib.CString(id)
		r := call(byBus, uintptr(unsafe.Pointer(&c[0])), uintptr(unsafe.Pointer(&d)))
		return d, clib.CheckResult("nvmlDeviceGetHandleByPciBusId", r)
	}
	l.Name = func(d Device) (string, error) {
		buf := make([]byte, 96)
		r := call(name, uintptr(d), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		return clib.GoString(buf), clib.CheckResult("nvmlDeviceGetName", r)
	}
}

func bindSensorFunctions(l *Library, need func(string) uintptr) {
	memory, utilization := need("nvmlDeviceGetMemoryInfo"), need("nvmlDeviceGetUtilizationRates")
	power, energy := need("nvmlDeviceGetPowerUsage"), need("nvmlDeviceGetTotalEnergyConsumption")
	clock := need("nvmlDeviceGetClockInfo")

	l.MemoryInfo = func(d Device) (Memory, error) {
		var m Memory
		r := call(memory, uintptr(d), uintptr(unsafe.Pointer(&m)))
		return m, clib.CheckResult("nvmlDeviceGetMemoryInfo", r)
	}
	l.Utilization = func(d Device) (Utilization, error) {
		var u Utilization
		r := call(utilization, uintptr(d), uintptr(unsafe.Pointer(&u)))
		return u, clib.CheckResult("nvmlDeviceGetUtilizationRates", r)
	}
	l.Power = func(d Device) (float64, error) {
		var milliwatts uint32
		r := call(power, uintptr(d), uintptr(unsafe.Pointer(&milliwatts)))
		return float64(milliwatts) / 1e3, clib.CheckResult("nvmlDeviceGetPowerUsage", r)
	}
	l.Energy = func(d Device) (float64, error) {
		var millijoules uint64
		r := call(energy, uintptr(d), uintptr(unsafe.Pointer(&millijoules)))
		return float64(millijoules) / 1e3, clib.CheckResult("nvmlDeviceGetTotalEnergyConsumption", r)
	}
	l.Clock = func(d Device, c Clock) (int, error) {
		var mhz uint32
		r := call(clock, uintptr(d), uintptr(c), uintptr(unsafe.Pointer(&mhz)))
		return int(mhz), clib.CheckResult("nvmlDeviceGetClockInfo", r)
	}
}
