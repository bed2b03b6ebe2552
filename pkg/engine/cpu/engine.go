package cpu

import (
	"fmt"
	"os"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/plan"
)

// Engine loads programs for this machine's processor. It owns the goroutines that compute,
// which Close stops.
type Engine struct {
	options engine.Options
	kernels *kernel.Set
	threads *threads.Group
	profile profiler
}

var (
	_ engine.Engine       = (*Engine)(nil)
	_ engine.PeakMeasurer = (*Engine)(nil)
)

// New starts an engine that computes with o.Threads goroutines, including the caller's. It
// chooses the best instruction set unless the environment variable LOCKSTEP_CPU ("avx512",
// "avx2", "neon" or "go") selects one.
func New(o engine.Options) (engine.Engine, error) {
	return NewWithInstructionSet(o, os.Getenv(kernel.EnvVar))
}

// Name returns "cpu" and the instruction set, for example "cpu (avx2)".
func (e *Engine) Name() string { return "cpu (" + e.kernels.Name + ")" }

// Options returns the options passed to New.
func (e *Engine) Options() engine.Options { return e.options }

// Load prepares p: it checks the shapes of all kernels, lays out the memory and builds the
// tables. If share is not nil, it must be an executable of this engine; the new executable
// then uses its parameters, states and optimizer slots.
func (e *Engine) Load(p *plan.Program, share engine.Executable) (engine.Executable, error) {
	l, err := e.load(p, share)
	if err != nil {
		return nil, fmt.Errorf("load program on %s: %w", e.Name(), err)
	}
	return l.x, nil
}

// Close stops the engine's goroutines. Afterwards Step of its executables returns an error.
func (e *Engine) Close() error {
	e.threads.Close()
	return nil
}
