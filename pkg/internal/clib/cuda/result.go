package cuda

import (
	"strconv"

	"lockstep/pkg/internal/clib"
)

// Result is CUresult.
type Result int32

// Results that callers and tests compare with. Errors name all other results too.
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

// described is a result's name without CUDA_ERROR_, and an explanation for users.
type described struct{ name, text string }

const restart = "the device's context is lost: end this process and start again from a checkpoint"

func (r Result) described() described {
	switch r {
	case Success:
		return described{"SUCCESS", "no error"}
	case ErrorInvalidValue:
		return described{"INVALID_VALUE", "an argument cannot be"}
	case ErrorOutOfMemory:
		return described{"OUT_OF_MEMORY", "the device has not enough free memory: use a smaller batch, or end what else runs on the device (nvidia-smi lists it)"}
	case ErrorNotInitialized:
		return described{"NOT_INITIALIZED", "cuInit was not called"}
	case ErrorDeinitialized:
		return described{"DEINITIALIZED", "the driver is shutting down"}
	case ErrorStubLibrary:
		return described{"STUB_LIBRARY", "libcuda is the toolkit's stub: take the folder \"stubs\" out of LD_LIBRARY_PATH"}
	case 46:
		return described{"DEVICE_UNAVAILABLE", "another process has the device for itself (compute mode exclusive)"}
	case ErrorNoDevice:
		return described{"NO_DEVICE", "no CUDA device is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES"}
	case ErrorInvalidDevice:
		return described{"INVALID_DEVICE", "there is no device of that number"}
	case ErrorInvalidImage:
		return described{"INVALID_IMAGE", "the kernel image is damaged"}
	case ErrorInvalidContext:
		return described{"INVALID_CONTEXT", "no context is current in this thread"}
	case ErrorNoBinaryForGPU:
		return described{"NO_BINARY_FOR_GPU", "the kernel was compiled for another device"}
	case ErrorECCUncorrectable:
		return described{"ECC_UNCORRECTABLE", "the device's memory is damaged: tell the administrator; " + restart}
	case ErrorInvalidPTX:
		return described{"INVALID_PTX", "the kernel did not assemble"}
	case ErrorUnsupportedPTX:
		return described{"UNSUPPORTED_PTX_VERSION", "NVRTC is newer than the driver: install a newer driver or an older NVRTC"}
	case ErrorInvalidHandle:
		return described{"INVALID_HANDLE", "a handle is not of the current context"}
	case ErrorIllegalState:
		return described{"ILLEGAL_STATE", "not allowed in this state"}
	case ErrorNotFound:
		return described{"NOT_FOUND", "no such name"}
	case ErrorNotReady:
		return described{"NOT_READY", "work is still going on"}
	}
	return r.describedLate()
}

// describedLate describes results of asynchronous errors, which appear after work was
// enqueued.
func (r Result) describedLate() described {
	switch r {
	case ErrorIllegalAddress:
		return described{"ILLEGAL_ADDRESS", "a kernel left its memory; " + restart}
	case ErrorLaunchOutOfResources:
		return described{"LAUNCH_OUT_OF_RESOURCES", "a kernel needs more registers or shared memory than a block can have"}
	case ErrorLaunchTimeout:
		return described{"LAUNCH_TIMEOUT", "a kernel ran longer than the display allows; " + restart}
	case 710:
		return described{"ASSERT", "a kernel's assertion failed; " + restart}
	case 715:
		return described{"ILLEGAL_INSTRUCTION", restart}
	case ErrorMisalignedAddress:
		return described{"MISALIGNED_ADDRESS", "a kernel read or wrote an address that is no multiple of the size; " + restart}
	case ErrorLaunchFailed:
		return described{"LAUNCH_FAILED", "a kernel failed on the device; " + restart}
	case ErrorNotPermitted:
		return described{"NOT_PERMITTED", "not permitted"}
	case ErrorNotSupported:
		return described{"NOT_SUPPORTED", "this device or driver does not offer it"}
	case ErrorSystemNotReady:
		return described{"SYSTEM_NOT_READY", "the driver's services are not running (nvidia-fabricmanager on machines with NVSwitch)"}
	case ErrorDriverMismatch:
		return described{"SYSTEM_DRIVER_MISMATCH", "libcuda and the loaded kernel module have different versions: restart the machine, or the container with the host's libcuda"}
	case ErrorCaptureUnsupported:
		return described{"STREAM_CAPTURE_UNSUPPORTED", "this call cannot be captured"}
	case ErrorCaptureInvalidated:
		return described{"STREAM_CAPTURE_INVALIDATED", "an earlier error ended the capture"}
	case ErrorCaptureUnmatched:
		return described{"STREAM_CAPTURE_UNMATCHED", "this stream did not begin the capture"}
	case ErrorCaptureUnjoined:
		return described{"STREAM_CAPTURE_UNJOINED", "a second stream was not joined before the end of the capture"}
	case ErrorCaptureIsolation:
		return described{"STREAM_CAPTURE_ISOLATION", "a captured stream would wait for work that is not captured"}
	case ErrorCaptureImplicit:
		return described{"STREAM_CAPTURE_IMPLICIT", "a captured stream would wait for the default stream"}
	case ErrorCaptureWrongThread:
		return described{"STREAM_CAPTURE_WRONG_THREAD", "another thread began the capture"}
	case 910:
		return described{"GRAPH_EXEC_UPDATE_FAILURE", "the graph has changed too much"}
	case ErrorUnknown:
		return described{"UNKNOWN", "the driver does not say why; " + restart}
	}
	return described{"RESULT_" + strconv.Itoa(int(r)), "see the CUDA Driver API reference, CUresult"}
}

// Name returns the result's name in cuda.h.
func (r Result) Name() string {
	if r == Success {
		return "CUDA_SUCCESS"
	}
	return "CUDA_ERROR_" + r.described().name
}

func (r Result) Error() string {
	return clib.CodeText(r.Name(), int32(r), r.described().text)
}

// Lost reports whether the context cannot be used any more.
func (r Result) Lost() bool {
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
func (r Result) Library() clib.Name { return clib.CUDA }

// Error reports a failed call. errors.Is(err, ErrorOutOfMemory) works.
type Error = clib.CallError[Result]
