//go:build linux && (amd64 || arm64)

package clib

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// Supported reports whether C libraries can be opened on this system.
const Supported = true

// Call calls a C function whose arguments and result are integers or addresses. A variable x
// whose address is passed as uintptr(unsafe.Pointer(&x)) is on the heap and stays alive during
// the call. The upper half of a 32-bit result is undefined: convert it to int32 first.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// NewCallback returns a C function pointer to fn, whose arguments and result must be integers
// or addresses. The pointer is never freed. A process can create about two thousand.
func NewCallback(fn any) uintptr { return purego.NewCallback(fn) }

// dlopen opens a library by its path or its plain soname. The error wraps fs.ErrNotExist if the
// loader finds no such file. Otherwise it is the loader's message. If the library needs another
// one that is missing, the message of the GNU C library names the missing library, not path.
func dlopen(path string) (uintptr, error) {
	runtime.LockOSThread() // the loader keeps the text of the last error for each thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil && err.Error() == path+": cannot open shared object file: No such file or directory" {
		return 0, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return handle, err
}

func dlsym(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }

// mappedLibraryPath returns the path of the file that the loader has mapped for a soname, or the
// soname itself if the path is unknown.
func mappedLibraryPath(soname string) string {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return soname
	}
	defer f.Close()
	stem, _, _ := strings.Cut(soname, ".so")
	best := soname
	for s := bufio.NewScanner(f); s.Scan(); {
		i := strings.IndexByte(s.Text(), '/')
		if i < 0 {
			continue
		}
		path := s.Text()[i:]
		base := path[strings.LastIndexByte(path, '/')+1:]
		// A soname such as libcuda.so.1 may be a link; the loader maps the file to which it
		// points.
		if base == soname {
			return path
		}
		if strings.HasPrefix(base, stem+".so") {
			best = path
		}
	}
	return best
}
