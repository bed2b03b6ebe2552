//go:build !linux || (!amd64 && !arm64)

package clib

// Supported reports whether C libraries can be opened on this system.
const Supported = false

// Call is never called on this system, because no library can be opened.
func Call(fn uintptr, args ...uintptr) uintptr { panic(ErrUnsupported) }

// NewCallback is never called on this system, because no library can be opened.
func NewCallback(fn any) uintptr { panic(ErrUnsupported) }

func dlopen(string) (uintptr, error) { return 0, ErrUnsupported }

func dlsym(uintptr, string) (uintptr, error) { return 0, ErrUnsupported }

func mappedLibraryPath(soname string) string { return soname }
