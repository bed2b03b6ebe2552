package cudnn

import "lockstep/pkg/internal/clib"

// Status is the result of a cuDNN call (cudnnStatus_t).
type Status int32

// Statuses that callers test for.
const (
	Success               Status = 0
	NotInitialized        Status = 1001
	BadParam              Status = 2000
	NullPointer           Status = 2002
	MisalignedPointer     Status = 2003
	NotFinalized          Status = 2004
	OutOfBound            Status = 2005
	SizeInsufficient      Status = 2006
	StreamMismatch        Status = 2007
	ShapeMismatch         Status = 2008
	DuplicatedEntries     Status = 2009
	WrongAttributeType    Status = 2010
	WrongDescriptorType   Status = 2012
	NotSupported          Status = 3000
	GraphNotSupported     Status = 3001
	ShapeNotSupported     Status = 3002
	TypeNotSupported      Status = 3003
	LayoutNotSupported    Status = 3004
	PrerequisiteMissing   Status = 3008
	InternalError         Status = 4000
	CompilationFailed     Status = 4001
	DeviceAllocFailed     Status = 4004
	ExecutionFailed       Status = 5000
	ExecutionFailedDriver Status = 5001
)

// Name returns the status's name in cuDNN's headers.
func (s Status) Name() string {
	if name, ok := statusNames()[s]; ok {
		return "CUDNN_STATUS_" + name
	}
	return "CUDNN_STATUS"
}

func statusNames() map[Status]string {
	return map[Status]string{
		Success: "SUCCESS", NotInitialized: "NOT_INITIALIZED", 1002: "SUBLIBRARY_VERSION_MISMATCH",
		1003: "SERIALIZATION_VERSION_MISMATCH", 1004: "DEPRECATED", 1005: "LICENSE_ERROR",
		1006: "RUNTIME_IN_PROGRESS", 1007: "RUNTIME_FP_OVERFLOW", 1008: "SUBLIBRARY_LOADING_FAILED",
		BadParam: "BAD_PARAM", NullPointer: "BAD_PARAM_NULL_POINTER", MisalignedPointer: "BAD_PARAM_MISALIGNED_POINTER",
		NotFinalized: "BAD_PARAM_NOT_FINALIZED", OutOfBound: "BAD_PARAM_OUT_OF_BOUND",
		SizeInsufficient: "BAD_PARAM_SIZE_INSUFFICIENT", StreamMismatch: "BAD_PARAM_STREAM_MISMATCH",
		ShapeMismatch: "BAD_PARAM_SHAPE_MISMATCH", DuplicatedEntries: "BAD_PARAM_DUPLICATED_ENTRIES",
		WrongAttributeType: "BAD_PARAM_ATTRIBUTE_TYPE", 2011: "BAD_PARAM_CUDA_GRAPH_MISMATCH",
		WrongDescriptorType: "BAD_PARAM_DESCRIPTOR_TYPE",
		NotSupported:        "NOT_SUPPORTED", GraphNotSupported: "NOT_SUPPORTED_GRAPH_PATTERN",
		ShapeNotSupported: "NOT_SUPPORTED_SHAPE", TypeNotSupported: "NOT_SUPPORTED_DATA_TYPE",
		LayoutNotSupported: "NOT_SUPPORTED_LAYOUT", 3005: "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER",
		3006: "NOT_SUPPORTED_INCOMPATIBLE_CUDART", 3007: "NOT_SUPPORTED_ARCH_MISMATCH",
		PrerequisiteMissing: "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING", 3009: "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE",
		3010: "NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT", 3011: "NOT_SUPPORTED_PADDING",
		3012: "NOT_SUPPORTED_BAD_LAUNCH_PARAM", 3013: "NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API",
		InternalError: "INTERNAL_ERROR", CompilationFailed: "INTERNAL_ERROR_COMPILATION_FAILED",
		4002: "INTERNAL_ERROR_UNEXPECTED_VALUE", 4003: "INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
		DeviceAllocFailed: "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", 4005: "INTERNAL_ERROR_BAD_LAUNCH_PARAM",
		4006:            "INTERNAL_ERROR_TEXTURE_CREATION_FAILED",
		ExecutionFailed: "EXECUTION_FAILED", ExecutionFailedDriver: "EXECUTION_FAILED_CUDA_DRIVER",
		5002: "EXECUTION_FAILED_CUBLAS", 5003: "EXECUTION_FAILED_CUDART", 5004: "EXECUTION_FAILED_CURAND",
	}
}

func (s Status) Error() string {
	text := ""
	switch s {
	case NotInitialized:
		text = "the device or its driver cannot be used"
	case 1002, 1008, 3009:
		text = "parts of cuDNN are missing or have another version: install nvidia-cudnn-cu13 again, and keep only one version on LD_LIBRARY_PATH"
	case 3005, 3006:
		text = "cuDNN is newer than the driver: install a newer driver"
	case CompilationFailed, PrerequisiteMissing:
		text = "an engine is compiled at run time and NVRTC was not found: see lockstep doctor"
	}
	return clib.FormatCode(s.Name(), int32(s), text)
}

// isUnsupported reports whether the engine does not support the request. Another engine may
// support it.
func (s Status) isUnsupported() bool {
	return (s >= 3000 && s < 4000) || s == CompilationFailed
}

// Library returns clib.CUDNN.
func (s Status) Library() clib.LibraryName { return clib.CUDNN }

// Error reports a failed call. It wraps the Status, so errors.Is(err, MisalignedPointer) works.
type Error = clib.CallError[Status]

// checkStatus returns nil if s is Success, and an *Error with cuDNN's own explanation otherwise.
func (l *Library) checkStatus(call string, s Status) error {
	if s == Success {
		return nil
	}
	return &Error{Call: call, Result: s, Message: l.LastError()}
}
