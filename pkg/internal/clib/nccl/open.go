package nccl

import (
	"fmt"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cuda"
)

// MinVersion is the oldest NCCL that can be used: 2.23 brought
// ncclCommInitRankScalable, which takes the id by address.
const MinVersion = 22300

// VersionText writes 22809 as 2.28.9.
func VersionText(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100) }

// Open finds NCCL, checks its version and looks its functions up.
func Open(s *clib.Search) (*Library, error) {
	lib, err := s.Open(clib.NCCL)
	if err != nil {
		return nil, err
	}
	b := clib.Bind(lib)
	// The version decides before the missing functions do: an old library lacks some.
	if version := b.Need("ncclGetVersion"); version != 0 {
		if err := (&Library{Path: lib.Path, Version: versionOf(version)}).Check(); err != nil {
			return nil, err
		}
	}
	l := bind(lib.Path, b.Need)
	return l, b.Err()
}

// Check reports a library that is too old as a *clib.VersionError.
func (l *Library) Check() error {
	v, err := l.Version()
	if err != nil {
		return fmt.Errorf("check %s (%s): %w", clib.NCCL, l.Path, err)
	}
	if v < MinVersion || v >= 30000 {
		return &clib.VersionError{
			Library: clib.NCCL, Path: l.Path, Have: VersionText(v), Want: "2.23 or newer of version 2",
			Advice: "install a newer one (pip install nvidia-nccl-cu13) or name its folder in " + clib.PathVariable,
		}
	}
	return nil
}

// Symbols lists the functions that the library must have.
func Symbols() []string {
	var names []string
	bind("", func(name string) uintptr {
		names = append(names, name)
		return 0
	})
	return names
}

//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Result { return Result(int32(clib.Call(fn, args...))) }

func failed(name string, r Result) error {
	if r == Success {
		return nil
	}
	return &Error{Call: name, Result: r}
}

func versionOf(fn uintptr) func() (int, error) {
	return func() (int, error) {
		var v int32
		r := call(fn, uintptr(unsafe.Pointer(&v)))
		return int(v), failed("ncclGetVersion", r)
	}
}

func bind(path string, need func(string) uintptr) *Library {
	l := &Library{Path: path, Version: versionOf(need("ncclGetVersion"))}
	bindGroup(l, need)
	bindCollectives(l, need)
	return l
}

func bindGroup(l *Library, need func(string) uintptr) {
	unique, initialise := need("ncclGetUniqueId"), need("ncclCommInitRankScalable")
	destroy, abort, async := need("ncclCommDestroy"), need("ncclCommAbort"), need("ncclCommGetAsyncError")
	last, text := need("ncclGetLastError"), need("ncclGetErrorString")

	l.LastError = func(c Comm) string { return clib.Text(clib.Call(last, uintptr(c))) }
	l.ErrorString = func(r Result) string { return clib.Text(clib.Call(text, uintptr(r))) }
	l.GetUniqueID = func() (UniqueID, error) {
		var id UniqueID
		r := call(unique, uintptr(unsafe.Pointer(&id)))
		return id, l.explain(failed("ncclGetUniqueId", r), 0)
	}
	l.CommInit = func(ranks, rank int, id UniqueID) (Comm, error) {
		var c Comm
		const ids = 1 // one id for all ranks
		r := call(initialise, uintptr(unsafe.Pointer(&c)), uintptr(ranks), uintptr(rank), ids, uintptr(unsafe.Pointer(&id)), 0)
		return c, l.explain(failed("ncclCommInitRankScalable", r), c)
	}
	l.CommDestroy = func(c Comm) error { return l.explain(failed("ncclCommDestroy", call(destroy, uintptr(c))), 0) }
	l.CommAbort = func(c Comm) error { return failed("ncclCommAbort", call(abort, uintptr(c))) }
	l.AsyncError = func(c Comm) error {
		var state int32
		if r := call(async, uintptr(c), uintptr(unsafe.Pointer(&state))); r != Success {
			return failed("ncclCommGetAsyncError", r)
		}
		if Result(state) == InProgress {
			return nil
		}
		return l.explain(failed("NCCL communicator", Result(state)), c)
	}
}

func bindCollectives(l *Library, need func(string) uintptr) {
	start, end := need("ncclGroupStart"), need("ncclGroupEnd")
	reduce, broadcast := need("ncclAllReduce"), need("ncclBroadcast")

	l.GroupStart = func() error { return failed("ncclGroupStart", call(start)) }
	l.GroupEnd = func() error { return failed("ncclGroupEnd", call(end)) }
	l.AllReduce = func(send, recv cuda.Ptr, n int64, t DataType, op ReduceOp, c Comm, s cuda.Stream) error {
		r := call(reduce, uintptr(send), uintptr(recv), uintptr(n), uintptr(t), uintptr(op), uintptr(c), uintptr(s))
		if r == Success {
			return nil
		}
		return l.explain(failed("ncclAllReduce", r), c)
	}
	l.Broadcast = func(send, recv cuda.Ptr, n int64, t DataType, root int, c Comm, s cuda.Stream) error {
		r := call(broadcast, uintptr(send), uintptr(recv), uintptr(n), uintptr(t), uintptr(root), uintptr(c), uintptr(s))
		if r == Success {
			return nil
		}
		return l.explain(failed("ncclBroadcast", r), c)
	}
}

// explain adds what NCCL itself says.
func (l *Library) explain(err error, c Comm) error {
	if e, ok := err.(*Error); ok && e != nil { //nolint:errorlint // made here, never wrapped
		e.Detail = l.LastError(c)
	}
	return err
}
