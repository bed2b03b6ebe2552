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

// Executor runs a kernel. args contains the packed arguments; pointers among them are
// addresses in this process. An error is reported as a failure of the device.
type Executor func(name string, grid, block [3]uint32, shared uint32, args []byte) error

// Options describe a machine. The zero value is a machine with one device like an H200, all
// libraries, and kernels that do nothing.
type Options struct {
	Name          string // of each device
	Devices       int    // number of devices; −1: none
	Memory        int64  // bytes per device; a larger allocation is out of memory
	Capability    [2]int // compute capability
	DriverVersion int    // 13000
	NVRTCVersion  [2]int // 13, 0
	CUDNNVersion  int    // 91900
	NCCLVersion   int    // 22809
	Execute       Executor
	Eager         bool         // run work when it is enqueued, not when a call waits
	Shallow       bool         // cuDNN's plans are checked, but compute nothing
	WrongVolumes  WrongVolumes // which of cuDNN's engines compute wrong 3-D convolutions
	Gaps          Gaps         // how cuDNN treats tensors that have gaps between their pixels
	Network       *Network     // shared by the ranks of a group

	Absent       []clib.Name // libraries that are missing
	MissingCalls []string    // functions that their libraries lack
	// LoseAt is the number of the driver call (counted from 1, see Machine.Count) at which
	// the device is lost; 0: never. LoseWith is the result of that call; 0 means
	// cuda.ErrorLaunchFailed.
	LoseAt   int
	LoseWith cuda.Result
}

// WrongVolumes selects the engines of the simulated cuDNN that compute wrong 3-D
// convolutions.
type WrongVolumes int

// Engines with wrong results.
const (
	WrongNone    WrongVolumes = iota
	WrongFastest              // the fastest engine
	WrongAll                  // all engines, each with a different result
)

// Gaps selects how the simulated cuDNN treats tensors that have gaps between their pixels.
// The documentation of the real cuDNN promises no engine for them.
type Gaps int

// Treatments of tensors with gaps.
const (
	GapsFast    Gaps = iota // like tensors without gaps
	GapsSlow                // a hundred times slower
	GapsRefused             // no engine supports them
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
		o.Network = NewNetwork()
	}
	return o
}

// Machine is a simulated machine. Its tables may be used by several goroutines, with the
// same rules as for the real libraries.
type Machine struct {
	opt Options

	logMu sync.Mutex
	log   []string

	mu          sync.Mutex
	initialised bool
	count       int
	lost        *cuda.Error
	retained    map[cuda.Context]int
	current     map[int]cuda.Context // by thread
	memory      memory
	next        uintptr // handles count from 1, separately for each kind
	names       map[uintptr]string
	numbers     map[string]int
	streams     []*stream
	byStream    map[cuda.Stream]*stream
	events      map[cuda.Event]*event
	modules     map[cuda.Module]*module
	functions   map[cuda.Function]*function
	graphs      map[cuda.Graph]*graph
	execs       map[cuda.GraphExec]*graph
	clock       float64  // microseconds
	watched     *watched // what CUPTI records; nil if it is not started
	dnn         *dnn
}

// New returns a machine.
func New(o Options) *Machine {
	m := &Machine{
		opt: o.withDefaults(), retained: map[cuda.Context]int{}, current: map[int]cuda.Context{},
		names: map[uintptr]string{}, numbers: map[string]int{},
		byStream: map[cuda.Stream]*stream{}, events: map[cuda.Event]*event{},
		modules: map[cuda.Module]*module{}, functions: map[cuda.Function]*function{},
		graphs: map[cuda.Graph]*graph{}, execs: map[cuda.GraphExec]*graph{},
	}
	m.dnn = newDNN(m)
	// The legacy default stream always exists.
	zero := &stream{name: "stream#0"}
	m.streams, m.byStream[0] = []*stream{zero}, zero
	return m
}

// Stack opens the machine's libraries as stack.Open does, with the same checks.
func (m *Machine) Stack() (*stack.Stack, error) {
	if err := m.require(clib.CUDA, cuda.Symbols()); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	driver := m.Driver()
	if err := driver.Check(); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if err := driver.Init(); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if err := m.require(clib.NVRTC, nvrtc.Symbols()); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	if err := m.require(clib.CUDNN, cudnn.Symbols()); err != nil {
		return nil, fmt.Errorf("use the GPU: %w", err)
	}
	st := &stack.Stack{Driver: driver, NVRTC: m.NVRTC(), CUDNN: m.CUDNN(), NVTX: m.NVTX(), CUPTI: m.CUPTI, Missing: map[clib.Name]error{}}
	if err := m.require(clib.NCCL, nccl.Symbols()); err != nil {
		st.Missing[clib.NCCL] = err
	} else {
		st.NCCL = m.NCCL()
	}
	if err := m.require(clib.NVML, nvml.Symbols()); err != nil {
		st.Missing[clib.NVML] = err
	} else {
		st.NVML = m.NVML()
	}
	if err := m.require(clib.CublasLt, cublaslt.Symbols()); err != nil {
		st.Missing[clib.CublasLt] = err
	} else {
		st.CublasLt = m.CublasLt()
	}
	return st, st.Check()
}

// require returns the error of opening a library of this machine, or nil.
func (m *Machine) require(n clib.Name, symbols []string) error {
	if slices.Contains(m.opt.Absent, n) {
		return &clib.NotFoundError{
			Library: n, Sonames: []string{"lib" + strings.ToLower(string(n)) + ".so"},
			Looked: []clib.Place{{Source: "the simulated machine", Note: "Options.Absent"}}, Advice: "take it out of Absent",
		}
	}
	var missing []string
	for _, s := range symbols {
		if slices.Contains(m.opt.MissingCalls, s) {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		return &clib.SymbolError{Library: n, Path: simulated, Symbols: missing}
	}
	return nil
}

// simulated replaces the path of a library.
const simulated = "simulated"

// NVTX returns a table that adds the ranges to Calls.
func (m *Machine) NVTX() *nvtx.Library {
	return &nvtx.Library{
		Path: simulated,
		Push: func(name string) { m.note("nvtxRangePush %q", name) },
		Pop:  func() { m.note("nvtxRangePop") },
	}
}

// Calls returns the calls since the last Reset, one line per call. Handles are numbered in
// the order in which they were created, and addresses are named by their allocations.
// Queries without side effects are left out.
func (m *Machine) Calls() []string {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	return slices.Clone(m.log)
}

// Reset clears the list of calls.
func (m *Machine) Reset() {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.log = nil
}

// Advance advances the machine's clock by a number of microseconds.
func (m *Machine) Advance(microseconds float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock += microseconds
}

// Count returns the number of driver calls.
func (m *Machine) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// Lose makes every further call fail with r, as after a failure of the device.
func (m *Machine) Lose(r cuda.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = &cuda.Error{Result: r}
}

func (m *Machine) note(format string, args ...any) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// handle returns a new handle and its name, which consists of its kind and number.
func (m *Machine) handle(kind string) (uintptr, string) {
	m.next += 16
	m.numbers[kind]++
	name := fmt.Sprintf("%s#%d", kind, m.numbers[kind])
	m.names[m.next] = name
	return m.next, name
}

func (m *Machine) nameOf(h uintptr) string {
	if n, ok := m.names[h]; ok {
		return n
	}
	return fmt.Sprintf("unknown handle %#x", h)
}

func fail(call string, r cuda.Result, format string, args ...any) error {
	return &cuda.Error{Call: call, Result: r, Detail: fmt.Sprintf(format, args...)}
}

// do runs f as a driver call under the machine's lock. It counts the call, and returns an
// error without running f if the driver is not initialized, the device is lost, or context
// is set and the thread has no current context.
func (m *Machine) do(call string, context bool, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.gate(call, context); err != nil {
		return err
	}
	return f()
}

func (m *Machine) gate(call string, context bool) error {
	m.count++
	if m.opt.LoseAt > 0 && m.count >= m.opt.LoseAt && m.lost == nil {
		m.lost = &cuda.Error{Result: m.opt.LoseWith}
	}
	switch {
	case !m.initialised:
		return fail(call, cuda.ErrorNotInitialized, "")
	case m.lost != nil:
		return m.again(call)
	case context && m.current[thread()] == 0:
		return fail(call, cuda.ErrorInvalidContext, "in thread %d: hold the thread (runtime.LockOSThread) and call CtxSetCurrent in it", thread())
	}
	return nil
}

// again returns the error of every call after the device was lost.
func (m *Machine) again(call string) error {
	detail := m.lost.Detail
	if m.lost.Call != "" && m.lost.Call != call {
		detail = strings.TrimSpace("after " + m.lost.Call + " " + detail)
	}
	return &cuda.Error{Call: call, Result: m.lost.Result, Detail: detail}
}
