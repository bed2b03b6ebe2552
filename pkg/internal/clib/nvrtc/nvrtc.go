// Package nvrtc calls NVIDIA's run-time compiler (libnvrtc) through a table of Go
// functions. It compiles CUDA C++ to PTX or to a device's machine code, and needs no GPU
// and no driver.
//
// Source: NVRTC documentation, version 13.0; the functions exist since 11.2. The results
// were compared with nvrtc.h of CUDA 12.6.3.
package nvrtc

import (
	"fmt"
	"strings"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// Library is the table of NVRTC's functions.
type Library struct {
	Path string

	Version func() (major, minor int, err error)
	// Architectures returns the supported compute capabilities times ten (90 for 9.0).
	Architectures func() ([]int, error)
	// Compile compiles CUDA C++ source; name is the file name in messages. The option
	// "--gpu-architecture=compute_90" produces PTX, and "=sm_90" also machine code for this
	// architecture. If the source has errors, the error is a *CompileError. The output's log
	// may contain warnings.
	Compile func(source, name string, options []string) (out CompiledProgram, err error)
}

// CompiledProgram is a compiled program.
type CompiledProgram struct {
	PTX   []byte // text that ends with a zero byte, as the driver expects it
	CUBIN []byte // machine code; empty if the architecture is a compute_ one
	Log   string // messages of the compiler
}

// LoadableImage returns the image for the driver to load: the machine code, or PTX if there is none.
func (o CompiledProgram) LoadableImage() []byte {
	if len(o.CUBIN) > 0 {
		return o.CUBIN
	}
	return o.PTX
}

// Result is the result of an NVRTC call (nvrtcResult).
type Result int32

// Results that callers test for.
const (
	Success            Result = 0
	ErrorOutOfMemory   Result = 1
	ErrorInvalidInput  Result = 3
	ErrorInvalidOption Result = 5
	ErrorCompilation   Result = 6
	ErrorBuiltins      Result = 7
	ErrorInternal      Result = 11
)

// Name returns the result's name in nvrtc.h.
func (r Result) Name() string {
	names := []string{
		"NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY", "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
		"NVRTC_ERROR_INVALID_INPUT", "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION",
		"NVRTC_ERROR_COMPILATION", "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
		"NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION", "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
		"NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID", "NVRTC_ERROR_INTERNAL_ERROR",
	}
	if r >= 0 && int(r) < len(names) {
		return names[r]
	}
	return "NVRTC_RESULT"
}

func (r Result) Error() string {
	advice := ""
	switch r {
	case ErrorInvalidOption:
		advice = "this version of NVRTC does not support an option; a newer GPU needs a newer NVRTC"
	case ErrorBuiltins:
		advice = "libnvrtc-builtins of the same version was not found in the folder of libnvrtc"
	}
	return clib.FormatCode(r.Name(), int32(r), advice)
}

// Library returns clib.NVRTC.
func (r Result) Library() clib.LibraryName { return clib.NVRTC }

// Error reports a failed call. It wraps the Result, so errors.Is(err, ErrorInvalidOption) works.
type Error = clib.CallError[Result]

// CompileError reports that a program cannot be compiled.
type CompileError struct {
	Name   string
	Result Result
	Log    string // the compiler's messages, with line numbers
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("compile %s: %v\n%s", e.Name, e.Result, strings.TrimSpace(e.Log))
}

// Unwrap makes errors.Is(err, ErrorCompilation) work.
func (e *CompileError) Unwrap() error { return e.Result }

// Open finds the compiler and looks up its functions.
func Open(s *clib.Search) (*Library, error) {
	return clib.LoadFunctionTable(s, clib.NVRTC, bindFunctions, clib.VersionCheck[Library]{Symbol: "nvrtcVersion", Check: (*Library).CheckVersion})
}

// CheckVersion returns a *clib.VersionError if the compiler is too old.
func (l *Library) CheckVersion() error {
	major, minor, err := l.Version()
	if err != nil {
		return fmt.Errorf("check %s (%s): %w", clib.NVRTC, l.Path, err)
	}
	if major < 11 || (major == 11 && minor < 2) {
		return &clib.VersionError{
			Library: clib.NVRTC, Path: l.Path, Have: fmt.Sprintf("%d.%d", major, minor), Want: "11.2 or newer",
			Advice: "install a newer one (pip install nvidia-cuda-nvrtc) or name its folder in " + clib.LibraryPathVariable,
		}
	}
	return nil
}

// RequiredSymbols lists the functions that the library must have.
func RequiredSymbols() []string { return clib.RequiredSymbols(bindFunctions) }

//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Result { return Result(int32(clib.Call(fn, args...))) }

func bindFunctions(path string, need func(string) uintptr) *Library {
	version, count, archs := need("nvrtcVersion"), need("nvrtcGetNumSupportedArchs"), need("nvrtcGetSupportedArchs")
	p := programFunctions{
		create: need("nvrtcCreateProgram"), compile: need("nvrtcCompileProgram"), destroy: need("nvrtcDestroyProgram"),
		ptx:   resultGetter{"nvrtcGetPTX", need("nvrtcGetPTXSize"), need("nvrtcGetPTX")},
		cubin: resultGetter{"nvrtcGetCUBIN", need("nvrtcGetCUBINSize"), need("nvrtcGetCUBIN")},
		log:   resultGetter{"nvrtcGetProgramLog", need("nvrtcGetProgramLogSize"), need("nvrtcGetProgramLog")},
	}
	l := &Library{Path: path, Compile: p.compileProgram}
	l.Version = func() (int, int, error) {
		var v [2]int32
		r := call(version, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])))
		return int(v[0]), int(v[1]), clib.CheckResult("nvrtcVersion", r)
	}
	l.Architectures = func() ([]int, error) {
		var n int32
		if r := call(count, uintptr(unsafe.Pointer(&n))); r != Success || n == 0 {
			return nil, clib.CheckResult("nvrtcGetNumSupportedArchs", r)
		}
		v := make([]int32, n)
		r := call(archs, uintptr(unsafe.Pointer(&v[0])))
		out := make([]int, n)
		for i, a := range v {
			out[i] = int(a)
		}
		return out, clib.CheckResult("nvrtcGetSupportedArchs", r)
	}
	return l
}
