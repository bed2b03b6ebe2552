package clibtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nvrtc"
)

const (
	defaultSharedBytes = 48 << 10  // bytes per block without a request
	maxSharedBytes     = 227 << 10 // maximum bytes per block on request, for compute capability 9.0
)

type kernelFunction struct {
	name    string
	params  string // one letter per parameter: p for a pointer, w for 8 bytes, i for 4 bytes
	unknown bool   // the types of some parameters are unknown, so arguments are not checked
	shared  int    // bytes of dynamic shared memory that a block may have
}

type kernelModule struct {
	name      string
	functions map[string]*kernelFunction
}

// kernelImageHeader is the first line of the images that the simulated compiler produces.
const kernelImageHeader = "simulated image\n"

// NVRTC returns a simulated compiler. It generates no code: it only reads the names and the
// parameters of the source's kernels. It returns an error if the numbers of opening and closing
// braces differ.
func (m *Machine) NVRTC() *nvrtc.Library {
	return &nvrtc.Library{
		Path:          simulatedLibraryPath,
		Version:       func() (int, int, error) { return m.opt.NVRTCVersion[0], m.opt.NVRTCVersion[1], nil },
		Architectures: func() ([]int, error) { return []int{75, 80, 86, 89, 90, 100, 120}, nil },
		Compile: func(source, name string, options []string) (nvrtc.CompiledProgram, error) {
			m.logCall("nvrtcCompileProgram %s %s", name, strings.Join(options, " "))
			if o, c := strings.Count(source, "{"), strings.Count(source, "}"); o != c {
				log := fmt.Sprintf("%s: error: %d opening and %d closing braces", name, o, c)
				return nvrtc.CompiledProgram{Log: log}, &nvrtc.CompileError{Name: name, Result: nvrtc.ErrorCompilation, Log: log}
			}
			out := nvrtc.CompiledProgram{PTX: compileKernelImage(source)}
			if slices.ContainsFunc(options, func(o string) bool { return strings.Contains(o, "sm_") }) {
				out.CUBIN = out.PTX
			}
			return out, nil
		},
	}
}

// kernelImageCache caches compiled sources. Most tests of a package compile the same sources, and parsing
// them takes longer than the training steps in the tests.
var kernelImageCache sync.Map // of []byte, by source

func compileKernelImage(source string) []byte {
	if image, ok := kernelImageCache.Load(source); ok {
		return bytes.Clone(image.([]byte))
	}
	image := []byte(kernelImageHeader)
	for _, f := range parseSourceKernels(source) {
		image = fmt.Appendf(image, "%s %s\n", f.name, f.signature())
	}
	image = append(image, 0)
	kernelImageCache.Store(source, image)
	return bytes.Clone(image)
}

// signature returns f.params in parentheses, or "?" if the types of some parameters are unknown.
func (f *kernelFunction) signature() string {
	if f.unknown {
		return "?"
	}
	return "(" + f.params + ")"
}

var (
	comment  = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)
	define   = regexp.MustCompile(`^#define\s+(\w+)\((\w+)\)\s+(.*)$`)
	global   = regexp.MustCompile(`__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\([^()]*\)\s*)?(?:void\s+)?(\w+)\s*\(`)
	entry    = regexp.MustCompile(`(?s)\.entry\s+(\w+)\s*\(([^)]*)\)`)
	ptxParam = regexp.MustCompile(`\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)`)
)

// parseSourceKernels returns the kernels of CUDA C++ source. A kernel is a function with
// __global__ in its declaration, or in the text of the macro that begins its declaration.
func parseSourceKernels(source string) []*kernelFunction {
	var all []*kernelFunction
	starts := map[string]bool{} // macros with which a kernel begins
	macros := map[string][2]string{}
	lines := strings.Split(comment.ReplaceAllString(strings.ReplaceAll(source, "\\\n", " "), " "), "\n")
	for i, line := range lines {
		if d := define.FindStringSubmatch(line); d != nil {
			starts[d[1]] = strings.Contains(d[3], "__global__")
			macros[d[1]] = [2]string{d[2], d[3]}
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		rest := strings.Join(lines[i:min(i+40, len(lines))], " ")
		if g := global.FindStringSubmatchIndex(line); g != nil {
			all = append(all, parseKernelFunction(line[g[2]:g[3]], rest[g[1]-1:]))
		}
		for name, begins := range starts {
			if at := strings.Index(line, name+"("); begins && at == 0 {
				inner, after := splitBrackets(rest[len(name):])
				all = append(all, parseKernelFunction(expandMacro(inner, macros), after))
			}
		}
	}
	return all
}

// splitBrackets splits "(a(b)) c" into "a(b)" and " c", and returns "" if the brackets are
// not balanced.
func splitBrackets(s string) (inner, after string) {
	open := strings.IndexByte(s, '(')
	depth := 0
	for i := max(open, 0); i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
			if depth == 0 {
				return s[open+1 : i], s[i+1:]
			}
		}
	}
	return "", ""
}

// expandMacro expands a call of a macro that pastes its argument into a name with ##, such as
// TYPED(relu) to relu_f32. It returns other text unchanged.
func expandMacro(s string, macros map[string][2]string) string {
	name, _, ok := strings.Cut(s, "(")
	m, known := macros[strings.TrimSpace(name)]
	if !ok || !known {
		return strings.TrimSpace(s)
	}
	argument, _ := splitBrackets(s)
	pasted := strings.ReplaceAll(m[1], " ", "")
	var b strings.Builder
	for i, part := range strings.Split(pasted, "##") {
		if i >= 0 && part == m[0] {
			part = strings.TrimSpace(argument)
		}
		b.WriteString(part)
	}
	return b.String()
}

// parseKernelFunction returns the kernel with the given name. source begins with its parameters in
// parentheses.
func parseKernelFunction(name, source string) *kernelFunction {
	f := &kernelFunction{name: name, shared: defaultSharedBytes}
	inner, _ := splitBrackets(source)
	for _, p := range strings.Split(inner, ",") {
		p = strings.TrimSpace(p)
		words := strings.Fields(p)
		switch {
		case p == "" || p == "void":
		case strings.Contains(p, "*"):
			f.params += "p"
		default:
			size, ok := scalarTypeLetter(words)
			f.params += size
			f.unknown = f.unknown || !ok
		}
	}
	return f
}

// scalarTypeLetter returns the letter in function.params for a parameter that is not a pointer.
// It returns false if the type is unknown. The last of words is the parameter's name; the others
// are its type.
func scalarTypeLetter(words []string) (string, bool) {
	kind := strings.Join(slices.DeleteFunc(slices.Clone(words[:len(words)-1]), func(w string) bool { return w == "const" }), " ")
	switch kind {
	case "int", "unsigned", "unsigned int", "float", "u32", "i32", "uint32_t", "int32_t":
		return "i", true
	case "long long", "unsigned long long", "size_t", "i64", "u64", "int64_t", "uint64_t", "double", "long":
		return "w", true
	}
	return "?", false
}

// parsePTXKernels returns the kernels that PTX text declares. PTX does not distinguish pointers
// from other 8-byte parameters.
func parsePTXKernels(text string) []*kernelFunction {
	var all []*kernelFunction
	for _, e := range entry.FindAllStringSubmatch(text, -1) {
		f := &kernelFunction{name: e[1], shared: defaultSharedBytes}
		for _, p := range ptxParam.FindAllStringSubmatch(e[2], -1) {
			switch p[1] {
			case "u64", "s64", "b64", "f64":
				f.params += "w"
			case "u32", "s32", "b32", "f32":
				f.params += "i"
			default:
				f.unknown = true
			}
		}
		all = append(all, f)
	}
	return all
}

func parseImageKernels(image []byte) []*kernelFunction {
	text := string(bytes.TrimRight(image, "\x00"))
	rest, ours := strings.CutPrefix(text, kernelImageHeader)
	if !ours {
		return parsePTXKernels(text)
	}
	var all []*kernelFunction
	for line := range strings.Lines(rest) {
		name, params, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, &kernelFunction{name: name, params: strings.Trim(params, "()"), unknown: params == "?", shared: defaultSharedBytes})
	}
	return all
}

// formatLaunchArguments formats args, the packed arguments of a launch of f. It returns an error
// if they do not match the parameters of f, or if a pointer points outside all allocations.
func (m *Machine) formatLaunchArguments(f *kernelFunction, args []byte) (string, error) {
	if f.unknown {
		return fmt.Sprintf("%d bytes", len(args)), nil
	}
	at := 0
	var words []string
	for i, k := range f.params {
		size := 8
		if k == 'i' {
			size = 4
		}
		at = (at + size - 1) / size * size
		if at+size > len(args) {
			return "", fmt.Errorf("%s has parameters %s, got only %d bytes of arguments", f.name, f.signature(), len(args))
		}
		switch k {
		case 'p':
			p := binary.LittleEndian.Uint64(args[at:])
			if p != 0 {
				if _, err := m.memory.bytesAt(p, 1, false); err != nil {
					return "", fmt.Errorf("%s: argument %d: %w", f.name, i+1, err)
				}
			}
			words = append(words, m.memory.describeAddress(p))
		case 'w':
			words = append(words, m.formatArgument(binary.LittleEndian.Uint64(args[at:])))
		default:
			words = append(words, fmt.Sprint(int32(binary.LittleEndian.Uint32(args[at:]))))
		}
		at += size
	}
	if at != len(args) {
		return "", fmt.Errorf("%s takes %d bytes of parameters (%s), got %d bytes of arguments", f.name, at, f.signature(), len(args))
	}
	return strings.Join(words, " "), nil
}

// formatArgument formats an 8-byte argument: as an allocation if v is an address in one,
// otherwise as a number.
func (m *Machine) formatArgument(v uint64) string {
	if a := m.memory.findAllocationNear(v); a != nil {
		return m.memory.describeAddress(v)
	}
	return fmt.Sprint(int64(v))
}

func (m *Machine) simulateModuleCalls(d *cuda.Driver) {
	d.ModuleLoadData = func(image []byte) (id cuda.Module, err error) {
		err = m.simulateCall("cuModuleLoadData", true, func() error {
			functions := parseImageKernels(image)
			if len(functions) == 0 {
				return newDriverError("cuModuleLoadData", cuda.ErrorInvalidImage, "image of %d bytes has no kernel", len(image))
			}
			h, name := m.newHandle("module")
			id = cuda.Module(h)
			mod := &kernelModule{name: name, functions: map[string]*kernelFunction{}}
			for _, f := range functions {
				mod.functions[f.name] = f
			}
			m.modules[id] = mod
			m.logCall("cuModuleLoadData = %s", name)
			return nil
		})
		return id, err
	}
	d.ModuleUnload = func(id cuda.Module) error {
		return m.simulateCall("cuModuleUnload", true, func() error {
			if m.modules[id] == nil {
				return newDriverError("cuModuleUnload", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			m.drainAllStreams()
			m.logCall("cuModuleUnload %s", m.modules[id].name)
			for h, f := range m.functions {
				if m.modules[id].functions[f.name] == f {
					delete(m.functions, h)
				}
			}
			delete(m.modules, id)
			return nil
		})
	}
	d.ModuleGetFunction = func(id cuda.Module, name string) (h cuda.Function, err error) {
		err = m.simulateCall("cuModuleGetFunction", true, func() error {
			mod := m.modules[id]
			if mod == nil {
				return newDriverError("cuModuleGetFunction", cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(id)))
			}
			f := mod.functions[name]
			if f == nil {
				return newDriverError("cuModuleGetFunction", cuda.ErrorNotFound, "%s", name)
			}
			n, _ := m.newHandle("function")
			h = cuda.Function(n)
			m.names[n] = name
			m.functions[h] = f
			return nil
		})
		return h, err
	}
	m.simulateFunctionCalls(d)
}

func (m *Machine) simulateFunctionCalls(d *cuda.Driver) {
	doWithFunction := func(call string, h cuda.Function, do func(*kernelFunction) error) error {
		return m.simulateCall(call, true, func() error {
			f := m.functions[h]
			if f == nil {
				return newDriverError(call, cuda.ErrorInvalidHandle, "%s", m.handleName(uintptr(h)))
			}
			return do(f)
		})
	}
	d.FuncGetAttribute = func(h cuda.Function, a cuda.FunctionAttribute) (v int, err error) {
		err = doWithFunction("cuFuncGetAttribute", h, func(f *kernelFunction) error {
			switch a {
			case cuda.FuncMaxThreads:
				v = 1024
			case cuda.FuncRegisters:
				v = 32
			case cuda.FuncMaxDynamicShared:
				v = f.shared
			}
			return nil
		})
		return v, err
	}
	d.FuncSetAttribute = func(h cuda.Function, a cuda.FunctionAttribute, v int) error {
		return doWithFunction("cuFuncSetAttribute", h, func(f *kernelFunction) error {
			if a != cuda.FuncMaxDynamicShared || v < 0 || v > maxSharedBytes {
				return newDriverError("cuFuncSetAttribute", cuda.ErrorInvalidValue, "%s: cannot set attribute %d to %d", f.name, a, v)
			}
			f.shared = v
			m.logCall("cuFuncSetAttribute %s, %d, %d", f.name, a, v)
			return nil
		})
	}
	d.Occupancy = func(h cuda.Function, threads int, shared int64) (n int, err error) {
		err = doWithFunction("cuOccupancyMaxActiveBlocksPerMultiprocessor", h, func(f *kernelFunction) error {
			if threads < 1 || threads > 1024 {
				return newDriverError("cuOccupancyMaxActiveBlocksPerMultiprocessor", cuda.ErrorInvalidValue, "%s: invalid block of %d threads", f.name, threads)
			}
			n = min(2048/threads, 32)
			if shared > 0 {
				n = min(n, int(228<<10/shared))
			}
			return nil
		})
		return n, err
	}
	d.LaunchKernel = func(h cuda.Function, grid, block cuda.Dim3, shared uint32, s cuda.Stream, args []byte) error {
		return doWithFunction("cuLaunchKernel", h, func(f *kernelFunction) error { return m.launchKernel(f, grid, block, shared, s, args) })
	}
}

func (m *Machine) launchKernel(f *kernelFunction, grid, block cuda.Dim3, shared uint32, s cuda.Stream, args []byte) error {
	const call = "cuLaunchKernel"
	switch threads := block.Count(); {
	case grid.Count() == 0 || threads == 0 || grid[1] > 65535 || grid[2] > 65535 || block[2] > 64:
		return newDriverError(call, cuda.ErrorInvalidValue, "%s: invalid grid %v or block %v", f.name, grid, block)
	case threads > 1024:
		return newDriverError(call, cuda.ErrorInvalidValue, "%s: block of %d threads is too large: use at most 1024", f.name, threads)
	case int(shared) > f.shared:
		return newDriverError(call, cuda.ErrorInvalidValue, "%s: %d bytes of shared memory are too many: use at most %d", f.name, shared, f.shared)
	}
	text, err := m.formatLaunchArguments(f, args)
	if err != nil {
		return newDriverError(call, cuda.ErrorInvalidValue, "%v", err)
	}
	m.logCall("%s %s %v %v %d %s: %s", call, f.name, grid, block, shared, m.streamName(s), text)
	// The driver copies the arguments when the launch is enqueued.
	copied := bytes.Clone(args)
	return m.enqueueStreamOp(call, s, &streamOp{label: call + " " + f.name, cost: 3, run: func() error {
		if _, err := m.formatLaunchArguments(f, copied); err != nil {
			return newDriverError(call, cuda.ErrorIllegalAddress, "%v", err)
		}
		if m.opt.Execute == nil {
			return nil
		}
		if err := m.opt.Execute(f.name, grid, block, shared, copied); err != nil {
			return newDriverError(call, cuda.ErrorLaunchFailed, "%s: %v", f.name, err)
		}
		return nil
	}})
}
