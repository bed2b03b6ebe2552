package nvrtc

import (
	"runtime"
	"strings"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

type programFunctions struct {
	create, compile, destroy uintptr
	ptx, cubin, log          resultGetter
}

// resultGetter is a pair of C functions that return the size and the content of a result.
type resultGetter struct {
	name      string
	size, get uintptr
}

func (g resultGetter) readResult(program uintptr) ([]byte, error) {
	var n uint64
	if r := call(g.size, program, uintptr(unsafe.Pointer(&n))); r != Success {
		return nil, clib.CheckResult(g.name+"Size", r)
	}
	if n == 0 {
		return nil, nil
	}
	buf := make([]byte, n)
	r := call(g.get, program, uintptr(unsafe.Pointer(&buf[0])))
	return buf, clib.CheckResult(g.name, r)
}

func (p programFunctions) compileProgram(source, name string, options []string) (out CompiledProgram, err error) {
	var program uintptr
	src, label := clib.CString(source), clib.CString(name)
	r := call(p.create, uintptr(unsafe.Pointer(&program)), uintptr(unsafe.Pointer(&src[0])), uintptr(unsafe.Pointer(&label[0])), 0, 0, 0)
	if r != Success {
		return CompiledProgram{}, clib.CheckResult("nvrtcCreateProgram", r)
	}
	defer func() {
		if r := call(p.destroy, uintptr(unsafe.Pointer(&program))); err == nil {
			err = clib.CheckResult("nvrtcDestroyProgram", r)
		}
	}()
	compiled := p.compileWithOptions(program, options)
	if text, logErr := p.log.readResult(program); logErr == nil {
		out.Log = strings.TrimSpace(clib.GoString(text))
	}
	if compiled != Success {
		return out, &CompileError{Name: name, Result: compiled, Log: out.Log}
	}
	return p.readCompiledCode(program, out, options)
}

func (p programFunctions) compileWithOptions(program uintptr, options []string) Result {
	if len(options) == 0 {
		return call(p.compile, program, 0, 0)
	}
	// C receives a list of pointers to Go memory, which must be pinned during the call.
	var pin runtime.Pinner
	defer pin.Unpin()
	list := make([]*byte, len(options))
	for i, o := range options {
		list[i] = unsafe.SliceData(clib.CString(o))
		pin.Pin(list[i])
	}
	return call(p.compile, program, uintptr(len(options)), uintptr(unsafe.Pointer(&list[0])))
}

// readCompiledCode adds the PTX of program to out. For an sm_ architecture, it also adds the
// machine code.
func (p programFunctions) readCompiledCode(program uintptr, out CompiledProgram, options []string) (CompiledProgram, error) {
	var err error
	if out.PTX, err = p.ptx.readResult(program); err != nil {
		return out, err
	}
	for _, o := range options {
		if strings.Contains(o, "arch") && strings.Contains(o, "sm_") {
			out.CUBIN, err = p.cubin.readResult(program)
			return out, err
		}
	}
	return out, nil
}
