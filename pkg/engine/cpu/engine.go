package cpu

import (
	"fmt"
	"os"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/plan"
)

// Engine loads programs on this machine's processor. It owns the goroutines
// that compute; Close ends them.
type Engine struct {
	options engine.Options
	kernels *kernel.Set
	threads *threads.Group
	profile profiler
}

var (
	_ engine.Engine = (*Engine)(nil)
	_ engine.Peaked = (*Engine)(nil)
)

// New starts an engine with o.Threads goroutines (the caller's is one of
// them). The environment variable LOCKSTEP_CPU ("avx512", "avx2" or "go") overrides
// the choice of instruction set.
func New(o engine.Options) (engine.Engine, error) { return NewWith(o, os.Getenv(kernel.EnvVar)) }

// Name is "cpu" with the instruction set, such as "cpu (avx2)".
func (e *Engine) Name() string { return "cpu (" + e.kernels.Name + ")" }

// Options are those that the engine was started with.
func (e *Engine) Options() engine.Options { return e.options }

// Load prepares p: it checks every kernel's shapes, lays out the memory and
// builds the tables. With share, an executable of this engine, parameters,
// states and optimiser slots are those of share.
func (e *Engine) Load(p *plan.Program, share engine.Executable) (engine.Executable, error) {
	l, err := e.load(p, share)
	if err != nil {
		return nil, fmt.Errorf("load program on %s: %w", e.Name(), err)
	}
	return l.x, nil
}

// Close ends the engine's goroutines; its executables must not step any more.
func (e *Engine) Close() error {
	e.threads.Close()
	return nil
}
