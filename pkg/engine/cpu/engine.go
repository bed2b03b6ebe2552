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

// New starts an engine that computes with o.Threads goroutines, one of which is the
// caller's. The environment variable LOCKSTEP_CPU ("avx512", "avx2" or "go") overrides
// the choice of instruction set.
func New(o engine.Options) (engine.Engine, error) { return NewWith(o, os.Getenv(kernel.EnvVar)) }

// Name returns "cpu" with the instruction set, such as "cpu (avx2)".
func (e *Engine) Name() string { return "cpu (" + e.kernels.Name + ")" }

// Options returns the options that the engine was started with.
func (e *Engine) Options() engine.Options { return e.options }

// Load prepares p: it checks the shapes of every kernel, lays out the memory and
// builds the tables. If share, an executable of this engine, is not nil, the new
// executable uses its parameters, states and optimizer slots.
func (e *Engine) Load(p *plan.Program, share engine.Executable) (engine.Executable, error) {
	l, err := e.load(p, share)
	if err != nil {
		return nil, fmt.Errorf("load program on %s: %w", e.Name(), err)
	}
	return l.x, nil
}

// Close ends the engine's goroutines. Its executables cannot step any more.
func (e *Engine) Close() error {
	e.threads.Close()
	return nil
}
