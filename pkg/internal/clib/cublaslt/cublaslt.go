// Package cublaslt calls NVIDIA's matrix product library (libcublasLt) through a table of
// Go functions. It covers only what products of half-precision matrices with sums in fp32
// need.
//
// Matrices are column-major, as in BLAS: element (i, j) of a matrix with leading dimension
// LD is at index i + j·LD.
//
// Source: cuBLAS documentation, version 13, "Using the cuBLASLt API". Every number,
// structure and signature was compared with the headers of CUDA 12.6.3, the numbers
// also with bindings made from those of CUDA 13.2, the sizes of the attributes with what
// the library of 11.8 accepts.
package cublaslt

import (
	"cmp"
	"fmt"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cuda"
)

// Handle is the state of the library for one device.
type Handle uintptr

type descriptor uintptr

// DataType is the type of a matrix's elements (cudaDataType_t).
type DataType int32

// The element types.
const (
	Float32  DataType = 0
	Float16  DataType = 2
	BFloat16 DataType = 14
)

// ComputeType is the precision of a matrix product (cublasComputeType_t).
type ComputeType int32

// The precisions of a matrix product. TF32 is used for fp32 matrices only.
const (
	ComputeFloat32 ComputeType = 68
	ComputeTF32    ComputeType = 77
)

// MinVersion is the oldest supported version: 12.0.
const MinVersion = 120000

// Matmul describes the product D = Alpha·op(A)·op(B) + Beta·D, where op transposes a matrix or
// leaves it unchanged. op(A) has M×K elements, op(B) has K×N and D has M×N.
type Matmul struct {
	M, N, K        int64
	TransA, TransB bool
	TypeA, TypeB   DataType
	TypeD          DataType
	LDA, LDB, LDD  int64
	Compute        ComputeType
	WorkspaceLimit int64 // bytes
	Alpha, Beta    float32
	Bias           cuda.Ptr // M values of TypeD, added to each column; 0: no bias
	ReLU           bool
}

// Plan is a matrix product with the algorithm that computes it. C code reads a Plan only
// during a call.
type Plan struct {
	Workspace int64 // bytes that Run needs

	matmul      Matmul
	desc        descriptor
	a, b, d     descriptor
	algorithm   [8]uint64 // cublasLtMatmulAlgo_t
	alpha, beta float32
}

// Library is the table of cuBLASLt's functions.
type Library struct {
	Path string

	Version func() int // 130100 for 13.1.0
	Create  func() (Handle, error)
	Destroy func(Handle) error
	Plan    func(Handle, Matmul) (*Plan, error)
	Close   func(*Plan) error
	Run     func(h Handle, p *Plan, a, b, d, workspace cuda.Ptr, s cuda.Stream) error
}

// Status is the result of a cuBLASLt call (cublasStatus_t).
type Status int32

// Statuses that callers test for.
const (
	Success        Status = 0
	NotInitialized Status = 1
	AllocFailed    Status = 3
	InvalidValue   Status = 7
	ArchMismatch   Status = 8
	ExecutionError Status = 13
	InternalError  Status = 14
	NotSupported   Status = 15
)

// Name returns the status's name in cublas_api.h.
func (s Status) Name() string {
	names := map[Status]string{
		Success:        "CUBLAS_STATUS_SUCCESS",
		NotInitialized: "CUBLAS_STATUS_NOT_INITIALIZED",
		AllocFailed:    "CUBLAS_STATUS_ALLOC_FAILED",
		InvalidValue:   "CUBLAS_STATUS_INVALID_VALUE",
		ArchMismatch:   "CUBLAS_STATUS_ARCH_MISMATCH",
		ExecutionError: "CUBLAS_STATUS_EXECUTION_FAILED",
		InternalError:  "CUBLAS_STATUS_INTERNAL_ERROR",
		NotSupported:   "CUBLAS_STATUS_NOT_SUPPORTED",
	}
	return cmp.Or(names[s], "CUBLAS_STATUS")
}

func (s Status) Error() string { return clib.FormatCode(s.Name(), int32(s), "") }

// Library returns clib.CublasLt.
func (s Status) Library() clib.LibraryName { return clib.CublasLt }

// Error reports a failed call. It wraps the Status, so errors.Is(err, NotSupported) works.
type Error = clib.CallError[Status]

// Open finds the library, looks up its functions and checks its version.
func Open(s *clib.Search) (*Library, error) {
	return clib.LoadFunctionTable(s, clib.CublasLt, bindFunctions, clib.VersionCheck[Library]{Symbol: "cublasLtGetVersion", Check: (*Library).checkVersion})
}

// checkVersion returns a *clib.VersionError if the library is too old.
func (l *Library) checkVersion() error {
	if v := l.Version(); v < MinVersion {
		return &clib.VersionError{
			Library: clib.CublasLt, Path: l.Path, Have: FormatVersion(v), Want: "12.0 or newer",
			Advice: "install a newer one (pip install nvidia-cublas) or name its folder in " + clib.LibraryPathVariable,
		}
	}
	return nil
}

// FormatVersion formats a version: 130100 as "13.1.0".
func FormatVersion(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100) }

// RequiredSymbols lists the functions that the library must have.
func RequiredSymbols() []string { return clib.RequiredSymbols(bindFunctions) }

//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Status { return Status(int32(clib.Call(fn, args...))) }

func bindFunctions(path string, need func(string) uintptr) *Library {
	version, create, destroy := need("cublasLtGetVersion"), need("cublasLtCreate"), need("cublasLtDestroy")
	m := bindMatmul(need)
	return &Library{
		Path:    path,
		Version: func() int { return int(clib.Call(version)) },
		Create: func() (Handle, error) {
			var h Handle
			s := call(create, uintptr(unsafe.Pointer(&h)))
			return h, clib.CheckResult("cublasLtCreate", s)
		},
		Destroy: func(h Handle) error { return clib.CheckResult("cublasLtDestroy", call(destroy, uintptr(h))) },
		Plan:    m.newPlan,
		Close:   m.destroyPlan,
		Run:     m.runPlan,
	}
}
