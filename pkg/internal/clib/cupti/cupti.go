// Package cupti calls NVIDIA's profiling interface (libcupti). It covers only what is
// needed to record when each kernel ran, including kernels inside CUDA graphs.
//
// CUPTI calls back into Go from its own threads, to request buffers and to return them with
// records. The buffers are C memory (malloc). The callbacks only append to a list under a
// lock; Stop reads the records after a flush.
//
// Source: CUPTI documentation, version 13.0, "CUPTI Activity API". The numbers were
// compared with the headers of CUDA 12.6.3, the layout of a record also with bindings made
// from those of CUDA 13.0, 13.1 and 13.2 (CUpti_ActivityKernel9 to 11).
package cupti

import (
	"cmp"
	"sync"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// Kernel is one execution of a kernel. Times are in nanoseconds of CUPTI's clock.
type Kernel struct {
	Name        string
	Start, End  uint64
	Stream      uint32
	Correlation uint32
	GraphNode   uint64 // 0 outside of graphs
	Grid, Block [3]int32
	Registers   uint16
}

// Library is the table of CUPTI's functions. A process may have one recording at a time,
// from Start to Stop.
type Library struct {
	Path string

	Version func() (int, error)
	// Start starts to record kernels. It should be called before the context is created. Kernels
	// in graphs that were instantiated before Start are not recorded.
	Start func() error
	// Stop ends the recording and returns the kernels in the order in which CUPTI reports them.
	Stop func() ([]Kernel, error)
}

// Result is the result of a CUPTI call (CUptiResult).
type Result int32

// Results that this package tests for.
const (
	Success                Result = 0
	maxLimitReached        Result = 12 // no more records in a buffer
	NotInitialized         Result = 15
	InsufficientPrivileges Result = 35
	MultipleSubscribers    Result = 39
)

// Name returns the result's name in cupti_result.h.
func (r Result) Name() string {
	names := map[Result]string{
		Success:                "CUPTI_SUCCESS",
		1:                      "CUPTI_ERROR_INVALID_PARAMETER",
		8:                      "CUPTI_ERROR_OUT_OF_MEMORY",
		maxLimitReached:        "CUPTI_ERROR_MAX_LIMIT_REACHED",
		14:                     "CUPTI_ERROR_NOT_COMPATIBLE",
		NotInitialized:         "CUPTI_ERROR_NOT_INITIALIZED",
		27:                     "CUPTI_ERROR_NOT_SUPPORTED",
		33:                     "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED",
		InsufficientPrivileges: "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
		MultipleSubscribers:    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
		999:                    "CUPTI_ERROR_UNKNOWN",
	}
	return cmp.Or(names[r], "CUPTI_RESULT")
}

func (r Result) Error() string {
	advice := ""
	switch r {
	case NotInitialized:
		advice = "the driver has no device, or is older than this CUPTI"
	case InsufficientPrivileges:
		advice = "the driver allows profiling by root only: see NVreg_RestrictProfilingToAdminUsers"
	case MultipleSubscribers:
		advice = "another profiler, such as nsys or ncu, is active in this process"
	}
	return clib.FormatCode(r.Name(), int32(r), advice)
}

// Library returns clib.CUPTI.
func (r Result) Library() clib.LibraryName { return clib.CUPTI }

// Error reports a failed call. It wraps the Result, so errors.Is(err, InsufficientPrivileges) works.
type Error = clib.CallError[Result]

// activityConcurrentKernel is CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.
const activityConcurrentKernel = 10

// Open finds CUPTI and looks up its functions.
func Open(s *clib.Search) (*Library, error) {
	return clib.LoadFunctionTable(s, clib.CUPTI, bindFunctions, clib.VersionCheck[Library]{})
}

// RequiredSymbols lists the functions that the library must have.
func RequiredSymbols() []string { return clib.RequiredSymbols(bindFunctions) }

func bindFunctions(path string, need func(string) uintptr) *Library {
	r := newRecorder(need)
	return &Library{Path: path, Version: r.version, Start: r.start, Stop: r.stop}
}

//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Result { return Result(int32(clib.Call(fn, args...))) }

type kernelRecorder struct {
	getVersion, register, enable, disable, flush, next, malloc, free uintptr

	once   sync.Once
	failed error

	mu     sync.Mutex
	filled []activityBuffer
}

// activityBuffer is a buffer that CUPTI has returned, with usedBytes of records.
type activityBuffer struct{ address, usedBytes uintptr }

const (
	bufferBytes     = 8 << 20
	bufferAlignment = 8 // malloc aligns to 16
)

// newRecorder creates a recorder. need returns the addresses of CUPTI's functions. It also finds
// malloc and free, because CUPTI depends on the C library.
func newRecorder(need func(string) uintptr) *kernelRecorder {
	return &kernelRecorder{
		getVersion: need("cuptiGetVersion"), register: need("cuptiActivityRegisterCallbacks"),
		enable: need("cuptiActivityEnable"), disable: need("cuptiActivityDisable"),
		flush: need("cuptiActivityFlushAll"), next: need("cuptiActivityGetNextRecord"),
		malloc: need("malloc"), free: need("free"),
	}
}

func (r *kernelRecorder) version() (int, error) {
	var v uint32
	s := call(r.getVersion, uintptr(unsafe.Pointer(&v)))
	return int(v), clib.CheckResult("cuptiGetVersion", s)
}

// requestBuffer is called by CUPTI when it needs a buffer. It sets the buffer's address, its size
// and the maximum number of records; 0 means as many as fit.
func (r *kernelRecorder) requestBuffer(address, size, records *uintptr) uintptr {
	*address = clib.Call(r.malloc, bufferBytes)
	*size, *records = bufferBytes, 0
	if *address == 0 {
		*size = 0
	}
	return 0
}

// returnBuffer is called by CUPTI when it returns a buffer.
func (r *kernelRecorder) returnBuffer(_ uintptr, _ uint32, address, _, usedBytes uintptr) uintptr {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filled = append(r.filled, activityBuffer{address, usedBytes})
	return 0
}

func (r *kernelRecorder) start() error {
	r.once.Do(func() {
		// Callbacks cannot be freed, so they are created once.
		requested, completed := clib.NewCallback(r.requestBuffer), clib.NewCallback(r.returnBuffer)
		r.failed = clib.CheckResult("cuptiActivityRegisterCallbacks", call(r.register, requested, completed))
	})
	if r.failed != nil {
		return r.failed
	}
	return clib.CheckResult("cuptiActivityEnable", call(r.enable, activityConcurrentKernel))
}

func (r *kernelRecorder) stop() ([]Kernel, error) {
	const force = 1 // also buffers that are not full
	if err := clib.CheckResult("cuptiActivityFlushAll", call(r.flush, force)); err != nil {
		return nil, err
	}
	if err := clib.CheckResult("cuptiActivityDisable", call(r.disable, activityConcurrentKernel)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	filled := r.filled
	r.filled = nil
	r.mu.Unlock()
	var all []Kernel
	for _, b := range filled {
		all = append(all, r.readKernels(b)...)
		clib.Call(r.free, b.address)
	}
	return all, nil
}

func (r *kernelRecorder) readKernels(b activityBuffer) []Kernel {
	var all []Kernel
	var record unsafe.Pointer
	for {
		if call(r.next, b.address, b.usedBytes, uintptr(unsafe.Pointer(&record))) != Success {
			return all // maxLimitReached marks the end of the buffer
		}
		if *(*uint32)(record) == activityConcurrentKernel {
			all = append(all, (*kernelRecord)(record).toKernel())
		}
	}
}

// kernelRecord has the fields with which CUpti_ActivityKernel9, 10 and 11 begin, with an
// alignment of 8 bytes. Later versions only append fields.
type kernelRecord struct {
	kind                  uint32
	cacheConfig           uint8
	sharedConfig          uint8
	registers             uint16
	partitioned           [2]uint32
	start, end, completed uint64
	device, context       uint32
	stream                uint32
	grid, block           [3]int32
	staticShared          int32
	dynamicShared         int32
	localPerThread        uint32
	localTotal            uint32
	correlation           uint32
	gridID                int64
	name                  uintptr
	reserved              uintptr
	queued, submitted     uint64
	launchType            uint8
	carveout              [3]uint8
	sharedExecuted        uint32
	graphNode             uint64
}

func (k *kernelRecord) toKernel() Kernel {
	return Kernel{
		Name: clib.ReadCString(k.name), Start: k.start, End: k.end, Stream: k.stream, Correlation: k.correlation,
		GraphNode: k.graphNode, Grid: k.grid, Block: k.block, Registers: k.registers,
	}
}
