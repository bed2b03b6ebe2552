// Package cuda calls the CUDA driver (libcuda.so.1) through a table of Go functions.
//
// Open fills a Driver from the machine's driver, package clibtest from a simulated one.
// Every call must come from a goroutine that is locked to its thread (runtime.LockOSThread)
// and has made the device's primary context current there. cuDNN and NCCL use the same
// context.
//
// Functions return nil or an *Error, whose Result errors.Is finds:
//
//	errors.Is(err, cuda.ErrorOutOfMemory)
//
// Enqueued work may fail later: the next call that waits returns such an asynchronous
// error. After ErrorIllegalAddress and similar errors (Result.Lost) every further call
// fails until the process ends.
//
// Source: CUDA Driver API reference, version 13.0; every function named here is
// in drivers since CUDA 12.0. Every number was compared with cuda.h of CUDA 12.6.3
// and with bindings made from that of CUDA 13.2.
package cuda

import "unsafe"

// Device is the driver's index of a GPU.
type Device int32

// Handles of the driver; 0 means none. Stream 0 is the legacy default stream, which must not be
// used while a stream is being captured.
type (
	// Context contains the state of a process on a device.
	Context uintptr
	// Module is loaded machine code.
	Module uintptr
	// Function is a kernel of a Module.
	Function uintptr
	// Stream is a queue of work.
	Stream uintptr
	// Event marks a point in a Stream.
	Event uintptr
	// Graph is work captured from streams. It must be instantiated as a GraphExec to be launched.
	Graph uintptr
	// GraphExec is a Graph that can be launched.
	GraphExec uintptr
)

// Ptr is an address in a device's memory.
type Ptr uint64

// Add returns the address n bytes after p.
func (p Ptr) Add(n int64) Ptr { return p + Ptr(n) }

// Dim3 is the size of a grid (in blocks) or of a block (in threads).
type Dim3 [3]uint32

// Count returns the number of blocks or threads.
func (d Dim3) Count() int64 { return int64(d[0]) * int64(d[1]) * int64(d[2]) }

// CaptureMode selects which driver calls are forbidden while a stream is captured.
type CaptureMode int32

// Capture modes. Unsafe calls, such as allocations, are forbidden in all threads (CaptureGlobal),
// in the capturing thread only (CaptureThreadLocal), or in none (CaptureRelaxed).
const (
	CaptureGlobal      CaptureMode = 0
	CaptureThreadLocal CaptureMode = 1
	CaptureRelaxed     CaptureMode = 2
)

// CaptureStatus is the capture state of a stream.
type CaptureStatus int32

// Capture states of a stream.
const (
	CaptureNone        CaptureStatus = 0
	CaptureActive      CaptureStatus = 1
	CaptureInvalidated CaptureStatus = 2
)

// Flags of streams and events.
const (
	StreamNonBlocking uint32 = 1 // does not wait for the legacy default stream

	EventDefault       uint32 = 0
	EventBlockingSync  uint32 = 1 // a waiting thread sleeps
	EventDisableTiming uint32 = 2 // cheaper; EventElapsed fails for such events
)

// Attribute is a numeric property of a device, read by DeviceAttribute.
type Attribute int32

// Attributes of a device.
const (
	MaxThreadsPerBlock          Attribute = 1
	MaxSharedMemoryPerBlock     Attribute = 8 // bytes, without FuncMaxDynamicShared
	WarpSize                    Attribute = 10
	ClockRate                   Attribute = 13 // kHz
	MultiprocessorCount         Attribute = 16
	Integrated                  Attribute = 18
	MemoryClockRate             Attribute = 36 // kHz
	MemoryBusWidth              Attribute = 37 // bits
	L2CacheSize                 Attribute = 38 // bytes
	MaxThreadsPerMultiprocessor Attribute = 39
	AsyncEngineCount            Attribute = 40
	ComputeCapabilityMajor      Attribute = 75
	ComputeCapabilityMinor      Attribute = 76
	MaxSharedMemoryPerSM        Attribute = 81
	MaxSharedMemoryOptin        Attribute = 97 // bytes per block, after FuncMaxDynamicShared is set
)

// FunctionAttribute is a numeric property of a kernel.
type FunctionAttribute int32

// Attributes of a kernel.
const (
	FuncMaxThreads       FunctionAttribute = 0
	FuncSharedBytes      FunctionAttribute = 1
	FuncLocalBytes       FunctionAttribute = 3 // per thread; more than 0 means spilled registers
	FuncRegisters        FunctionAttribute = 4
	FuncMaxDynamicShared FunctionAttribute = 8 // may be set, up to MaxSharedMemoryOptin
)

// Driver is the table of the CUDA driver's functions. Sizes are in bytes.
type Driver struct {
	Path string // the driver's file

	Init        func() error
	Version     func() (int, error) // the newest CUDA version that the driver supports: 13000 for 13.0
	DeviceCount func() (int, error)

	DeviceGet       func(ordinal int) (Device, error)
	DeviceName      func(Device) (string, error)
	DeviceTotalMem  func(Device) (int64, error)
	DeviceAttribute func(Device, Attribute) (int, error)
	DevicePCIBusID  func(Device) (string, error) // "0000:0f:00.0": how NVML finds the same device
	DeviceUUID      func(Device) ([16]byte, error)

	PrimaryCtxRetain  func(Device) (Context, error)
	PrimaryCtxRelease func(Device) error
	CtxSetCurrent     func(Context) error // for the calling thread
	CtxSynchronize    func() error

	MemAlloc     func(bytes int64) (Ptr, error) // aligned to 256 bytes, not cleared
	MemFree      func(Ptr) error
	MemGetInfo   func() (free, total int64, err error)
	MemHostAlloc func(bytes int64) (unsafe.Pointer, error) // page-locked host memory
	MemFreeHost  func(unsafe.Pointer) error

	// Synchronous copies between device memory and any host memory. They wait for earlier
	// work only in the legacy default stream, so synchronize the streams in use first.
	MemcpyHtoD func(dst Ptr, src unsafe.Pointer, bytes int64) error
	MemcpyDtoH func(dst unsafe.Pointer, src Ptr, bytes int64) error

	// Copies in stream order. Host memory must come from MemHostAlloc, and must not change
	// until the copy is done.
	MemcpyHtoDAsync func(dst Ptr, src unsafe.Pointer, bytes int64, s Stream) error
	MemcpyDtoHAsync func(dst unsafe.Pointer, src Ptr, bytes int64, s Stream) error
	MemcpyDtoDAsync func(dst, src Ptr, bytes int64, s Stream) error
	MemsetD8Async   func(dst Ptr, value byte, count int64, s Stream) error
	MemsetD32Async  func(dst Ptr, value uint32, count int64, s Stream) error // count is a number of 4-byte values

	StreamCreate      func(flags uint32, priority int) (Stream, error) // lower priority numbers are more urgent
	StreamPriorities  func() (least, greatest int, err error)
	StreamDestroy     func(Stream) error
	StreamSynchronize func(Stream) error
	StreamQuery       func(Stream) (done bool, err error)
	StreamWaitEvent   func(Stream, Event) error

	EventCreate      func(flags uint32) (Event, error)
	EventDestroy     func(Event) error
	EventRecord      func(Event, Stream) error
	EventSynchronize func(Event) error
	EventQuery       func(Event) (done bool, err error)
	EventElapsed     func(start, end Event) (milliseconds float32, err error)

	ModuleLoadData    func(image []byte) (Module, error) // a cubin, or PTX that ends with a zero byte
	ModuleUnload      func(Module) error
	ModuleGetFunction func(Module, string) (Function, error)
	FuncGetAttribute  func(Function, FunctionAttribute) (int, error)
	FuncSetAttribute  func(Function, FunctionAttribute, int) error
	// Occupancy returns the number of blocks of a kernel that fit on one multiprocessor.
	Occupancy func(f Function, blockThreads int, sharedBytes int64) (int, error)
	// LaunchKernel enqueues a kernel. args contains the arguments as Args packs them: one
	// after another, each at a multiple of its size. args may be reused after the call.
	LaunchKernel func(f Function, grid, block Dim3, sharedBytes uint32, s Stream, args []byte) error

	StreamBeginCapture func(Stream, CaptureMode) error
	StreamEndCapture   func(Stream) (Graph, error)
	StreamCapture      func(Stream) (CaptureStatus, error)
	GraphNodeCount     func(Graph) (int, error)
	GraphDestroy       func(Graph) error
	GraphInstantiate   func(Graph) (GraphExec, error)
	GraphUpload        func(GraphExec, Stream) error
	GraphLaunch        func(GraphExec, Stream) error
	GraphExecDestroy   func(GraphExec) error

	ProfilerStart func() error
	ProfilerStop  func() error
}
