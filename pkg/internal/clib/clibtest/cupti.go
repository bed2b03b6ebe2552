package clibtest

import (
	"errors"
	"strings"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cupti"
)

// watched records the kernels that ran since CUPTI was started.
type watched struct {
	kernels []cupti.Kernel
	in      *graph // the graph that is running, or nil
	// known contains the graphs that were instantiated after Start. CUPTI does not report
	// kernels of earlier graphs: see cupti.Library.Start.
	known map[*graph]bool
}

// CUPTI returns a table that records when each kernel ran, by the machine's clock. Kernels
// in graphs are recorded only if the graph was instantiated during the recording.
func (m *Machine) CUPTI() (*cupti.Library, error) {
	if err := m.require(clib.CUPTI, cupti.Symbols()); err != nil {
		return nil, err
	}
	return &cupti.Library{
		Path:    simulated,
		Version: func() (int, error) { return 130000, nil },
		Start: func() error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.watched != nil {
				return errors.New("CUPTI is already running")
			}
			m.note("cuptiActivityEnable")
			m.watched = &watched{known: map[*graph]bool{}}
			return nil
		},
		Stop: func() ([]cupti.Kernel, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.watched == nil {
				return nil, errors.New("CUPTI is stopped, but was not started")
			}
			m.note("cuptiActivityDisable")
			list := m.watched.kernels
			m.watched = nil
			return list, nil
		},
	}, nil
}

// watch records a kernel, or a plan of cuDNN's, that has run since begin.
func (m *Machine) watch(label string, begin float64) {
	name, ok := strings.CutPrefix(label, "cuLaunchKernel ")
	if !ok {
		name, ok = strings.CutPrefix(label, "cudnnBackendExecute ")
	}
	w := m.watched
	if !ok || w == nil || w.in != nil && !w.known[w.in] {
		return
	}
	k := cupti.Kernel{Name: name, Start: uint64(1e3 * begin), End: uint64(1e3 * m.clock)}
	if w.in != nil {
		k.GraphNode = uint64(len(w.kernels) + 1)
	}
	w.kernels = append(w.kernels, k)
}

// enter records that graph g is running until leave is called.
func (m *Machine) enter(g *graph) (leave func()) {
	w := m.watched
	if w == nil {
		return func() {}
	}
	w.in = g
	return func() { w.in = nil }
}
