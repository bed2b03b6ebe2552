package clibtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cublaslt"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/clib/nvml"
	"lockstep/pkg/internal/clib/nvrtc"
	"lockstep/pkg/internal/clib/nvtx"
	"lockstep/pkg/internal/clib/stack"
)

// Executor runs a kernel. grid and block are the launch dimensions, and shared is the number
// of bytes of dynamic shared memory. args contains the packed arguments; pointers among them
// are addresses in this process. An error is reported as a failure of the device.
type Executor func(name string, grid, block [3]uint32, shared uint32, args []byte) error

// Options describe a simulated machine. The zero value has one device like an H200, all
// libraries, and kernels that do nothing.
type Options struct {
	Name               string // of each device
	Devices            int    // number of devices; −1: none
	Memory             int64  // bytes per device
	Capability         [2]int // compute capability
	DriverVersion      int    // default: 13000 (13.0)
	NVRTCVersion       [2]int // default: 13, 0
	CUDNNVersion       int    // default: 91900 (9.19.0)
	NCCLVersion        int    // default: 22809 (2.28.9)
	Execute            Executor
	Shallow            bool               // cuDNN's plans are checked, but compute nothing
	WrongVolumeEngines Wrong3DConvEngines // which of cuDNN's engines compute wrong 3-D convolutions
	Gaps               TensorGapSupport   // how cuDNN treats tensors that have gaps between their pixels
	Network            *NCCLNetwork       // shared by all ranks of a group; nil for a separate network

	Absent       []clib.LibraryName // libraries that are missing
	MissingCalls []string           // C functions that the libraries do not have
	// LoseAt is the number of the driver call (counted from 1, see Machine.DriverCallCount) that
	// fails because the device is lost; 0 means none. LoseWith is the result of that call; 0
	// means cuda.ErrorLaunchFailed.
	LoseAt   int
	LoseWith cuda.Result
}

// Wrong3DConvEngines selects which engines of the simulated cuDNN compute 3-D convolutions
// wrongly.
type Wrong3DConvEngines int

// The engines that compute 3-D convolutions wrongly.
const (
	WrongNone    Wrong3DConvEngines = iota
	WrongFastest                    // the fastest engine
	WrongAll                        // all engines, each with a different result
)

// TensorGapSupport selects how the simulated cuDNN handles tensors with gaps between their pixels, such
// as slices along the channels. cuDNN does not document whether its engines support them.
type TensorGapSupport int

// How the simulated cuDNN handles tensors with gaps.
const (
	GapsFast    TensorGapSupport = iota // like tensors without gaps
	GapsSlow                            // a hundred times slower
	GapsRefused                         // no engine supports them
)

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "Simulated H200"
	}
	switch {
	case o.Devices == 0:
		o.Devices = 1
	case o.Devices < 0:
		o.Devices = 0
	}
	if o.Memory == 0 {
		o.Memory = 8 << 30
	}
	if o.Capability == [2]int{} {
		o.Capability = [2]int{9, 0}
	}
	if o.DriverVersion == 0 {
		o.DriverVersion = 13000
	}
	if o.NVRTCVersion == [2]int{} {
		o.NVRTCVersion = [2]int{13, 0}
	}
	if o.CUDNNVersion == 0 {
		o.CUDNNVersion = 91900
	}
	if o.NCCLVersion == 0 {
		o.NCCLVersion = 22809
	}
	if o.LoseWith == 0 {
		o.LoseWith = cuda.ErrorLaunchFailed
	}
	if o.Network == nil {
		o.Network = NewNCCLNetwork()
	}
	return o
}

// Machine is a simulated machine. Several goroutines may use its libraries, under the same
// rules as for the real ones.
type Machine struct {
	opt Options

	logMu sync.Mutex
	log   []string

	mu          sync.Mutex
	initialized bool
	count       int
	lost        *cuda.Error
	retained    map[cuda.Context]int
	current     map[int]cuda.Context // by thread
	memory      simulatedMemory
	next        uintptr // the last handle
	names       map[uintptr]string
	numbers     map[string]int // how many handles or allocations of each kind were created
	streams     []*stream
	byStream    map[cuda.Stream]*stream
	events      map[cuda.Event]*event
	modules     map[cuda.Module]*kernelModule
	functions   map[cuda.Function]*kernelFunction
	graphs      map[cuda.Graph]*capturedGraph
	execs       map[cuda.GraphExec]*capturedGraph
	clock       float64          // microseconds
	recording   *kernelRecording // what CUPTI records; nil if it is not started
	dnn         *cudnnSimulator
}

// New returns a simulated machine.
func New(o Options) *Machine {
	m := &Machine{
		opt: o.withDefaults(), retained: map[cuda.Context]int{}, current: map[int]cuda.Context{},
		names: map[uintptr]string{}, numbers: map[string]int{},
		byStream: map[cuda.Stream]*stream{}, events: map[cuda.Event]*event{},
		modules: map[cuda.Module]*kernelModule{}, functions: map[cuda.Function]*kernelFunction{},
		graphs: map[cuda.Graph]*capturedGraph{}, execs: map[cuda.GraphExec]*capturedGraph{},
	}
	m.dnn = newCUDNNSimulator(m)
	// The legacy default stream always exists.
	zero := &stream{name: "stream#0"}
	m.streams, m.byStream[0] = []*stream{zero}, zero
	return m
}

// OpenStack opens the machine's libraries as stack.Open does, with the same checks.
func (m *Machine) OpenStack() (*stack.Stack, error) {
	if err := m.requireLibrary(clib.CUDA, cuda.RequiredSymbols()); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	driver := m.Driver()
	if err := driver.CheckVersion(); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if err := driver.Init(); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if err := m.requireLibrary(clib.NVRTC, nvrtc.RequiredSymbols()); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if err := m.requireLibrary(clib.CUDNN, cudnn.RequiredSymbols()); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	st := &stack.Stack{Driver: driver, NVRTC: m.NVRTC(), CUDNN: m.CUDNN(), NVTX: m.NVTX(), CUPTI: m.CUPTI, Missing: map[clib.LibraryName]error{}}
	if err := m.requireLibrary(clib.NCCL, nccl.RequiredSymbols()); err != nil {
		st.Missing[clib.NCCL] = err
	} else {
		st.NCCL = m.NCCL()
	}
	if err := m.requireLibrary(clib.NVML, nvml.RequiredSymbols()); err != nil {
		st.Missing[clib.NVML] = err
	} else {
		st.NVML = m.NVML()
	}
	if err := m.requireLibrary(clib.CublasLt, cublaslt.RequiredSymbols()); err != nil {
		st.Missing[clib.CublasLt] = err
	} else {
		st.CublasLt = m.CublasLt()
	}
	return st, st.Check()
}

// requireLibrary returns an error if library n or one of symbols is missing on the machine; see
// Options.
func (m *Machine) requireLibrary(n clib.LibraryName, symbols []string) error {
	if slices.Contains(m.opt.Absent, n) {
		return &clib.NotFoundError{
			Library: n, Sonames: []string{"lib" + strings.ToLower(string(n)) + ".so"},
			Searched: []clib.SearchPlace{{Source: "the simulated machine", Note: "Options.Absent"}}, Advice: "remove it from Options.Absent",
		}
	}
	var missing []string
	for _, s := range symbols {
		if slices.Contains(m.opt.MissingCalls, s) {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		return &clib.SymbolError{Library: n, Path: simulatedLibraryPath, Symbols: missing}
	}
	return nil
}

const simulatedLibraryPath = "simulated"

// NVTX returns a simulated NVTX, which adds the ranges to Calls.
func (m *Machine) NVTX() *nvtx.Library {
	return &nvtx.Library{
		Path: simulatedLibraryPath,
		Push: func(name string) { m.logCall("nvtxRangePush %q", name) },
		Pop:  func() { m.logCall("nvtxRangePop") },
	}
}

// Calls returns the library calls since the last ResetCalls, one line per call. Handles are
// numbered in the order in which they were created, and addresses are named after their
// allocations. Calls without side effects are omitted.
func (m *Machine) Calls() []string {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	return slices.Clone(m.log)
}

// ResetCalls clears the list of calls.
func (m *Machine) ResetCalls() {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.log = nil
}

// AdvanceClock advances the machine's clock by a number of microseconds.
func (m *Machine) AdvanceClock(microseconds float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock += microseconds
}

// DriverCallCount returns the number of library calls that Options.LoseAt counts.
func (m *Machine) DriverCallCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// LoseDevice simulates the loss of the device: every further call fails with r.
func (m *Machine) LoseDevice(r cuda.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = &cuda.Error{Result: r}
}

func (m *Machine) logCall(format string, args ...any) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// newHandle returns a new handle and its name, such as "stream#1" for kind "stream".
func (m *Machine) newHandle(kind string) (uintptr, string) {
	m.next += 16
	m.numbers[kind]++
	name := fmt.Sprintf("%s#%d", kind, m.numbers[kind])
	m.names[m.next] = name
	return m.next, name
}

func (m *Machine) handleName(h uintptr) string {
	if n, ok := m.names[h]; ok {
		return n
	}
	return fmt.Sprintf("unknown handle %#x", h)
}

// newDriverError returns the error of a driver call that failed with r. format and args describe
// the cause; format may be empty.
func newDriverError(call string, r cuda.Result, format string, args ...any) error {
	e := &cuda.Error{Call: call, Result: r}
	if format != "" {
		e.Detail = fmt.Sprintf("("+format+")", args...)
	}
	return e
}

// simulateCall locks the machine and calls f, unless checkCall returns an error.
func (m *Machine) simulateCall(call string, needsContext bool, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkCall(call, needsContext); err != nil {
		return err
	}
	return f()
}

// checkCall counts a call. It returns an error if the driver is not initialized, the device is
// lost, or needsContext is true and the thread has no current context.
func (m *Machine) checkCall(call string, needsContext bool) error {
	m.count++
	if m.opt.LoseAt > 0 && m.count >= m.opt.LoseAt && m.lost == nil {
		m.lost = &cuda.Error{Result: m.opt.LoseWith}
	}
	switch {
	case !m.initialized:
		return newDriverError(call, cuda.ErrorNotInitialized, "")
	case m.lost != nil:
		return m.newDeviceLostError(call)
	case needsContext && m.current[threadID()] == 0:
		return newDriverError(call, cuda.ErrorInvalidContext, "thread %d has no current context: lock the thread (runtime.LockOSThread) and call CtxSetCurrent", threadID())
	}
	return nil
}

func (m *Machine) newDeviceLostError(call string) error {
	detail := m.lost.Detail
	if m.lost.Call != "" && m.lost.Call != call {
		detail = strings.TrimSpace("after " + m.lost.Call + " " + detail)
	}
	return &cuda.Error{Call: call, Result: m.lost.Result, Detail: detail}
}
