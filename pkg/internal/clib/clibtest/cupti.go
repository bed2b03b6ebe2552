package clibtest

import (
	"errors"
	"strings"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cupti"
)

// kernelRecording contains the kernels that have run since CUPTI was started.
type kernelRecording struct {
	kernels []cupti.Kernel
	running *capturedGraph // nil if no graph is running
	// instantiated contains the graphs that were instantiated after Start. CUPTI does not report
	// kernels of earlier graphs: see cupti.Library.Start.
	instantiated map[*capturedGraph]bool
}

// CUPTI returns a simulated CUPTI. It records the start and end of each kernel on the machine's
// clock. Kernels in a graph are recorded only if the graph was instantiated during the recording.
func (m *Machine) CUPTI() (*cupti.Library, error) {
	if err := m.requireLibrary(clib.CUPTI, cupti.RequiredSymbols()); err != nil {
		return nil, err
	}
	return &cupti.Library{
		Path:    simulatedLibraryPath,
		Version: func() (int, error) { return 130000, nil },
		Start: func() error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.recording != nil {
				return errors.New("CUPTI is already running")
			}
			m.logCall("cuptiActivityEnable")
			m.recording = &kernelRecording{instantiated: map[*capturedGraph]bool{}}
			return nil
		},
		Stop: func() ([]cupti.Kernel, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.recording == nil {
				return nil, errors.New("CUPTI is not running")
			}
			m.logCall("cuptiActivityDisable")
			list := m.recording.kernels
			m.recording = nil
			return list, nil
		},
	}, nil
}

// recordKernel records a kernel or cuDNN plan that began at start and ends now.
func (m *Machine) recordKernel(label string, start float64) {
	name, ok := strings.CutPrefix(label, "cuLaunchKernel ")
	if !ok {
		name, ok = strings.CutPrefix(label, "cudnnBackendExecute ")
	}
	r := m.recording
	if !ok || r == nil || r.running != nil && !r.instantiated[r.running] {
		return
	}
	k := cupti.Kernel{Name: name, Start: uint64(1e3 * start), End: uint64(1e3 * m.clock)}
	if r.running != nil {
		k.GraphNode = uint64(len(r.kernels) + 1)
	}
	r.kernels = append(r.kernels, k)
}

func (m *Machine) setRunningGraph(g *capturedGraph) (leave func()) {
	r := m.recording
	if r == nil {
		return func() {}
	}
	r.running = g
	return func() { r.running = nil }
}
