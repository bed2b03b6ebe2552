package cudnn

import (
	"fmt"
	"strings"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cuda"
)

// FormatVersion formats a version: 91900 as "9.19.0", and 8907 as "8.9.7".
func FormatVersion(v int) string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/100, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
}

// Open finds cuDNN, checks its version and looks up its functions.
func Open(s *clib.Search) (*Library, error) {
	return clib.LoadFunctionTable(s, clib.CUDNN, bindFunctions, clib.VersionCheck[Library]{Symbol: "cudnnGetVersion", Check: (*Library).CheckVersion})
}

// CheckVersion returns a *clib.VersionError unless the major version is 9.
func (l *Library) CheckVersion() error {
	if v := l.Version(); v < 90000 || v >= 100000 {
		return &clib.VersionError{
			Library: clib.CUDNN, Path: l.Path, Have: FormatVersion(v), Want: "version 9",
			Advice: "install it (pip install nvidia-cudnn-cu13) or name its folder in " + clib.LibraryPathVariable,
		}
	}
	return nil
}

// RequiredSymbols lists the functions that the library must have.
func RequiredSymbols() []string { return clib.RequiredSymbols(bindFunctions) }

//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Status { return Status(int32(clib.Call(fn, args...))) }

func bindFunctions(path string, need func(string) uintptr) *Library {
	last, create, destroy := need("cudnnGetLastErrorString"), need("cudnnCreate"), need("cudnnDestroy")
	stream, version := need("cudnnSetStream"), need("cudnnGetVersion")
	createDescriptor, remove := need("cudnnBackendCreateDescriptor"), need("cudnnBackendDestroyDescriptor")
	set, get := need("cudnnBackendSetAttribute"), need("cudnnBackendGetAttribute")
	finalize, execute := need("cudnnBackendFinalize"), need("cudnnBackendExecute")

	l := &Library{Path: path, Version: func() int { return int(clib.Call(version)) }}
	l.LastError = func() string {
		buf := make([]byte, 2048)
		clib.Call(last, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		return strings.TrimSpace(clib.GoString(buf))
	}
	l.Create = func() (Handle, error) {
		var h Handle
		s := call(create, uintptr(unsafe.Pointer(&h)))
		return h, l.checkStatus("cudnnCreate", s)
	}
	l.Destroy = func(h Handle) error { return l.checkStatus("cudnnDestroy", call(destroy, uintptr(h))) }
	l.SetStream = func(h Handle, s cuda.Stream) error {
		return l.checkStatus("cudnnSetStream", call(stream, uintptr(h), uintptr(s)))
	}
	l.CreateDescriptor = func(t DescriptorType) (Descriptor, Status) {
		var d Descriptor
		s := call(createDescriptor, uintptr(t), uintptr(unsafe.Pointer(&d)))
		return d, s
	}
	l.SetAttribute = func(d Descriptor, name Attribute, t AttributeType, n int64, values unsafe.Pointer) Status {
		return call(set, uintptr(d), uintptr(name), uintptr(t), uintptr(n), uintptr(values))
	}
	l.GetAttribute = func(d Descriptor, name Attribute, t AttributeType, want int64, got *int64, values unsafe.Pointer) Status {
		return call(get, uintptr(d), uintptr(name), uintptr(t), uintptr(want), uintptr(unsafe.Pointer(got)), uintptr(values))
	}
	l.Finalize = func(d Descriptor) Status { return call(finalize, uintptr(d)) }
	l.Execute = func(h Handle, plan, pack Descriptor) Status {
		return call(execute, uintptr(h), uintptr(plan), uintptr(pack))
	}
	l.DestroyDescriptor = func(d Descriptor) Status { return call(remove, uintptr(d)) }
	return l
}
