package nccl

import "lockstep/pkg/internal/clib"

// Result is the result of an NCCL call (ncclResult_t).
type Result int32

// Results of NCCL's functions.
const (
	Success            Result = 0
	UnhandledCudaError Result = 1
	SystemError        Result = 2
	InternalError      Result = 3
	InvalidArgument    Result = 4
	InvalidUsage       Result = 5
	RemoteError        Result = 6
	InProgress         Result = 7
)

// Name returns the result's name in nccl.h.
func (r Result) Name() string {
	names := []string{
		"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
		"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress",
	}
	if r >= 0 && int(r) < len(names) {
		return names[r]
	}
	return "ncclResult"
}

func (r Result) Error() string {
	text := "see the NCCL documentation, ncclResult_t"
	switch r {
	case Success:
		text = "no error"
	case UnhandledCudaError:
		text = "a CUDA call inside NCCL failed: set NCCL_DEBUG=INFO to see which"
	case SystemError:
		text = "a system call inside NCCL failed (sockets, shared memory): set NCCL_DEBUG=INFO; NCCL_SOCKET_IFNAME chooses the network"
	case InternalError:
		text = "internal error of NCCL: set NCCL_DEBUG=INFO"
	case InvalidArgument:
		text = "an argument is invalid"
	case InvalidUsage:
		text = "the ranks make different calls, or two ranks share a GPU, which NCCL does not support: give each rank a separate GPU, or use the host ring"
	case RemoteError:
		text = "another rank left or its network failed: see that rank's log"
	case InProgress:
		text = "the call is not finished"
	}
	return clib.FormatCode(r.Name(), int32(r), text)
}

// Library returns clib.NCCL.
func (r Result) Library() clib.LibraryName { return clib.NCCL }

// Error reports a failed call. It wraps the Result, so errors.Is(err, RemoteError) works.
type Error = clib.CallError[Result]
