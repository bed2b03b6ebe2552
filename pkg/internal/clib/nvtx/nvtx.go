// Package nvtx marks ranges of time for NVIDIA's profilers. If the library is missing, the
// table's functions do nothing, so that callers need not check.
//
// Source: NVTX 3 documentation.
package nvtx

import (
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// Library is the table of NVTX's functions. Push begins a range with a name, and Pop ends the
// last range of the calling thread. The goroutine must be locked to its thread
// (runtime.LockOSThread) from Push to Pop.
type Library struct {
	Path string // "" if the functions do nothing

	Push func(name string)
	Pop  func()
}

// NewNoOp returns a table whose functions do nothing.
func NewNoOp() *Library {
	return &Library{Push: func(string) {}, Pop: func() {}}
}

// Open finds NVTX and looks up its functions. If Open returns an error, the Library is the result
// of NewNoOp.
func Open(s *clib.Search) (*Library, error) {
	l, err := clib.LoadFunctionTable(s, clib.NVTX, bindFunctions, clib.VersionCheck[Library]{})
	if err != nil {
		return NewNoOp(), err
	}
	return l, nil
}

func bindFunctions(path string, need func(string) uintptr) *Library {
	push, pop := need("nvtxRangePushA"), need("nvtxRangePop")
	return &Library{
		Path: path,
		Push: func(name string) {
			c := clib.CString(name)
			clib.Call(push, uintptr(unsafe.Pointer(&c[0])))
		},
		Pop: func() { clib.Call(pop) },
	}
}
