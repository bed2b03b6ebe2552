package nccl

import (
	"fmt"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cuda"
)

// MinVersion is the oldest supported version, 2.23. It is the first version with
// ncclCommInitRankScalable, which takes the ID by address and can therefore be called without
// cgo.
const MinVersion = 22300

// FormatVersion formats a version: 22809 as "2.28.9".
func FormatVersion(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100) }

// Open finds NCCL, checks its version and looks up its functions.
func Open(s *clib.Search) (*Library, error) {
	return clib.LoadFunctionTable(s, clib.NCCL, bindFunctions, clib.VersionCheck[Library]{Symbol: "ncclGetVersion", Check: (*Library).CheckVersion})
}

// CheckVersion returns a *clib.VersionError if the library is too old.
func (l *Library) CheckVersion() error {
	v, err := l.Version()
	if err != nil {
		return fmt.Errorf("check %s (%s): %w", clib.NCCL, l.Path, err)
	}
	if v < MinVersion || v >= 30000 {
		return &clib.VersionError{
			Library: clib.NCCL, Path: l.Path, Have: FormatVersion(v), Want: "2.23 or newer of version 2",
			Advice: "install a newer one (pip install nvidia-nccl-cu13) or name its folder in " + clib.LibraryPathVariable,
		}
	}
	return nil
}

// RequiredSymbols lists the functions that the library must have.
func RequiredSymbols() []string { return clib.RequiredSymbols(bindFunctions) }

//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Result { return Result(int32(clib.Call(fn, args...))) }

func bindFunctions(path string, need func(string) uintptr) *Library {
	version := need("ncclGetVersion")
	l := &Library{Path: path}
	l.Version = func() (int, error) {
		var v int32
		r := call(version, uintptr(unsafe.Pointer(&v)))
		return int(v), clib.CheckResult("ncclGetVersion", r)
	}
	bindCommunicatorFunctions(l, need)
	bindCollectiveFunctions(l, need)
	return l
}

func bindCommunicatorFunctions(l *Library, need func(string) uintptr) {
	unique, initialize := need("ncclGetUniqueId"), need("ncclCommInitRankScalable")
	destroy, abort, async := need("ncclCommDestroy"), need("ncclCommAbort"), need("ncclCommGetAsyncError")
	last, text := need("ncclGetLastError"), need("ncclGetErrorString")

	l.LastError = func(c Comm) string { return clib.ReadCString(clib.Call(last, uintptr(c))) }
	l.ErrorString = func(r Result) string { return clib.ReadCString(clib.Call(text, uintptr(r))) }
	l.GetUniqueID = func() (UniqueID, error) {
		var id UniqueID
		r := call(unique, uintptr(unsafe.Pointer(&id)))
		return id, l.addLastError(clib.CheckResult("ncclGetUniqueId", r), 0)
	}
	l.CommInit = func(ranks, rank int, id UniqueID) (Comm, error) {
		var c Comm
		const ids = 1 // one id for all ranks
		r := call(initialize, uintptr(unsafe.Pointer(&c)), uintptr(ranks), uintptr(rank), ids, uintptr(unsafe.Pointer(&id)), 0)
		return c, l.addLastError(clib.CheckResult("ncclCommInitRankScalable", r), c)
	}
	l.CommDestroy = func(c Comm) error {
		return l.addLastError(clib.CheckResult("ncclCommDestroy", call(destroy, uintptr(c))), 0)
	}
	l.CommAbort = func(c Comm) error { return clib.CheckResult("ncclCommAbort", call(abort, uintptr(c))) }
	l.AsyncError = func(c Comm) error {
		var state int32
		if r := call(async, uintptr(c), uintptr(unsafe.Pointer(&state))); r != Success {
			return clib.CheckResult("ncclCommGetAsyncError", r)
		}
		if Result(state) == InProgress {
			return nil
		}
		return l.addLastError(clib.CheckResult("NCCL communicator", Result(state)), c)
	}
}

func bindCollectiveFunctions(l *Library, need func(string) uintptr) {
	start, end := need("ncclGroupStart"), need("ncclGroupEnd")
	reduce, broadcast := need("ncclAllReduce"), need("ncclBroadcast")

	l.GroupStart = func() error { return clib.CheckResult("ncclGroupStart", call(start)) }
	l.GroupEnd = func() error { return clib.CheckResult("ncclGroupEnd", call(end)) }
	l.AllReduce = func(send, recv cuda.Ptr, n int64, t DataType, op ReduceOp, c Comm, s cuda.Stream) error {
		r := call(reduce, uintptr(send), uintptr(recv), uintptr(n), uintptr(t), uintptr(op), uintptr(c), uintptr(s))
		if r == Success {
			return nil
		}
		return l.addLastError(clib.CheckResult("ncclAllReduce", r), c)
	}
	l.Broadcast = func(send, recv cuda.Ptr, n int64, t DataType, root int, c Comm, s cuda.Stream) error {
		r := call(broadcast, uintptr(send), uintptr(recv), uintptr(n), uintptr(t), uintptr(root), uintptr(c), uintptr(s))
		if r == Success {
			return nil
		}
		return l.addLastError(clib.CheckResult("ncclBroadcast", r), c)
	}
}

// addLastError adds NCCL's own description of the error to err and returns err. If err is nil, it
// returns nil.
func (l *Library) addLastError(err error, c Comm) error {
	if e, ok := err.(*Error); ok && e != nil { //nolint:errorlint // created here, never wrapped
		e.Message = l.LastError(c)
	}
	return err
}
