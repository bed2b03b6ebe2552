package cuda

import (
	"strconv"

	"lockstep/pkg/internal/clib"
)

// Result is the result of a driver call (CUresult).
type Result int32

// Results that callers and tests test for.
const (
	Success                   Result = 0
	ErrorInvalidValue         Result = 1
	ErrorOutOfMemory          Result = 2
	ErrorNotInitialized       Result = 3
	ErrorDeinitialized        Result = 4
	ErrorStubLibrary          Result = 34
	ErrorNoDevice             Result = 100
	ErrorInvalidDevice        Result = 101
	ErrorInvalidImage         Result = 200
	ErrorInvalidContext       Result = 201
	ErrorNoBinaryForGPU       Result = 209
	ErrorECCUncorrectable     Result = 214
	ErrorInvalidPTX           Result = 218
	ErrorUnsupportedPTX       Result = 222
	ErrorInvalidHandle        Result = 400
	ErrorIllegalState         Result = 401
	ErrorNotFound             Result = 500
	ErrorNotReady             Result = 600
	ErrorIllegalAddress       Result = 700
	ErrorLaunchOutOfResources Result = 701
	ErrorLaunchTimeout        Result = 702
	ErrorMisalignedAddress    Result = 716
	ErrorLaunchFailed         Result = 719
	ErrorNotPermitted         Result = 800
	ErrorNotSupported         Result = 801
	ErrorSystemNotReady       Result = 802
	ErrorDriverMismatch       Result = 803
	ErrorCaptureUnsupported   Result = 900
	ErrorCaptureInvalidated   Result = 901
	ErrorCaptureUnmatched     Result = 903
	ErrorCaptureUnjoined      Result = 904
	ErrorCaptureIsolation     Result = 905
	ErrorCaptureImplicit      Result = 906
	ErrorCaptureWrongThread   Result = 908
	ErrorUnknown              Result = 999
)

// resultText is a result's name without CUDA_ERROR_, and an explanation for users.
type resultText struct{ name, text string }

// restartAdvice ends the explanation of results after which the context cannot be used.
const restartAdvice = "the device's context is lost: end this process and start again from a checkpoint"

func (r Result) describe() resultText {
	if d, ok := resultTexts()[r]; ok {
		return d
	}
	return resultText{"RESULT_" + strconv.Itoa(int(r)), "see the CUDA Driver API reference, CUresult"}
}

func resultTexts() map[Result]resultText {
	return map[Result]resultText{
		Success:                   {"SUCCESS", "no error"},
		ErrorInvalidValue:         {"INVALID_VALUE", "an argument is invalid"},
		ErrorOutOfMemory:          {"OUT_OF_MEMORY", "the device has too little free memory: use a smaller batch, or end other programs that run on the device (nvidia-smi lists them)"},
		ErrorNotInitialized:       {"NOT_INITIALIZED", "cuInit was not called"},
		ErrorDeinitialized:        {"DEINITIALIZED", "the driver is shutting down"},
		ErrorStubLibrary:          {"STUB_LIBRARY", "libcuda is the toolkit's stub: remove the folder \"stubs\" from LD_LIBRARY_PATH"},
		46:                        {"DEVICE_UNAVAILABLE", "another process has exclusive use of the device (exclusive compute mode)"},
		ErrorNoDevice:             {"NO_DEVICE", "no CUDA device is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES"},
		ErrorInvalidDevice:        {"INVALID_DEVICE", "no device has this number"},
		ErrorInvalidImage:         {"INVALID_IMAGE", "the kernel image is damaged"},
		ErrorInvalidContext:       {"INVALID_CONTEXT", "no context is current in this thread"},
		ErrorNoBinaryForGPU:       {"NO_BINARY_FOR_GPU", "the kernel was compiled for another device"},
		ErrorECCUncorrectable:     {"ECC_UNCORRECTABLE", "the device's memory is damaged: inform the administrator; " + restartAdvice},
		ErrorInvalidPTX:           {"INVALID_PTX", "the PTX of the kernel cannot be assembled"},
		ErrorUnsupportedPTX:       {"UNSUPPORTED_PTX_VERSION", "NVRTC is newer than the driver: install a newer driver or an older NVRTC"},
		ErrorInvalidHandle:        {"INVALID_HANDLE", "a handle is invalid or belongs to another context"},
		ErrorIllegalState:         {"ILLEGAL_STATE", "not allowed in this state"},
		ErrorNotFound:             {"NOT_FOUND", "unknown name"},
		ErrorNotReady:             {"NOT_READY", "the work is not finished"},
		ErrorIllegalAddress:       {"ILLEGAL_ADDRESS", "a kernel accessed memory outside its allocations; " + restartAdvice},
		ErrorLaunchOutOfResources: {"LAUNCH_OUT_OF_RESOURCES", "a kernel needs more registers or shared memory than a block can have"},
		ErrorLaunchTimeout:        {"LAUNCH_TIMEOUT", "a kernel ran longer than the display allows; " + restartAdvice},
		710:                       {"ASSERT", "a kernel's assertion failed; " + restartAdvice},
		715:                       {"ILLEGAL_INSTRUCTION", restartAdvice},
		ErrorMisalignedAddress:    {"MISALIGNED_ADDRESS", "a kernel read or wrote an address that is not a multiple of the size; " + restartAdvice},
		ErrorLaunchFailed:         {"LAUNCH_FAILED", "a kernel failed on the device; " + restartAdvice},
		ErrorNotPermitted:         {"NOT_PERMITTED", "not permitted"},
		ErrorNotSupported:         {"NOT_SUPPORTED", "this device or driver does not offer it"},
		ErrorSystemNotReady:       {"SYSTEM_NOT_READY", "the driver's services are not running (nvidia-fabricmanager on machines with NVSwitch)"},
		ErrorDriverMismatch:       {"SYSTEM_DRIVER_MISMATCH", "libcuda and the loaded kernel module have different versions: restart the machine, or the container with the host's libcuda"},
		ErrorCaptureUnsupported:   {"STREAM_CAPTURE_UNSUPPORTED", "this call cannot be captured"},
		ErrorCaptureInvalidated:   {"STREAM_CAPTURE_INVALIDATED", "an earlier error ended the capture"},
		ErrorCaptureUnmatched:     {"STREAM_CAPTURE_UNMATCHED", "this stream did not begin the capture"},
		ErrorCaptureUnjoined:      {"STREAM_CAPTURE_UNJOINED", "a second stream was not joined before the end of the capture"},
		ErrorCaptureIsolation:     {"STREAM_CAPTURE_ISOLATION", "a captured stream would wait for work that is not captured"},
		ErrorCaptureImplicit:      {"STREAM_CAPTURE_IMPLICIT", "a captured stream would wait for the default stream"},
		ErrorCaptureWrongThread:   {"STREAM_CAPTURE_WRONG_THREAD", "another thread began the capture"},
		910:                       {"GRAPH_EXEC_UPDATE_FAILURE", "the graph has changed too much"},
		ErrorUnknown:              {"UNKNOWN", "the driver does not say why; " + restartAdvice},
	}
}

// Name returns the result's name in cuda.h.
func (r Result) Name() string {
	if r == Success {
		return "CUDA_SUCCESS"
	}
	return "CUDA_ERROR_" + r.describe().name
}

func (r Result) Error() string {
	return clib.FormatCode(r.Name(), int32(r), r.describe().text)
}

// IsContextLost reports whether the context cannot be used after this result.
func (r Result) IsContextLost() bool {
	switch {
	case r >= ErrorIllegalAddress && r <= ErrorLaunchFailed && r != ErrorLaunchOutOfResources:
		// 704 to 709, 712 and 713 are errors of the call, not of the device.
		return r < 703 || r == 710 || r > 713
	case r == ErrorECCUncorrectable, r == ErrorUnknown:
		return true
	}
	return false
}

// Library returns clib.CUDA.
func (r Result) Library() clib.LibraryName { return clib.CUDA }

// Error reports a failed call. It wraps the Result, so errors.Is(err, ErrorOutOfMemory) works.
type Error = clib.CallError[Result]
