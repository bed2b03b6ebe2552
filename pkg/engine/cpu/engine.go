package cpu

import (
	"cmp"
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

func init() { //nolint:gochecknoinits // see engine.Register
	engine.Register(engine.Kind{
		Device: "cpu", Open: func(o engine.Options, _ int) (engine.Engine, error) { return New(o) },
		AllInstructionSets: kernel.InstructionSets, InstructionSets: listInstructionSets, CheckEnvironment: checkInstructionSetVariable,
	})
}

// New starts an engine that computes with o.Threads goroutines, including the caller's. It
// uses the instruction set o.InstructionSet; if that is empty, the one in the environment
// variable LOCKSTEP_CPU, or else the best one.
func New(o engine.Options) (engine.Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Device != "cpu" {
		return nil, fmt.Errorf("start cpu engine: got device %q, want cpu", o.Device)
	}
	k, err := chooseKernelSet(cmp.Or(o.InstructionSet, os.Getenv(kernel.InstructionSetEnvVar)), o.Precision)
	if err != nil {
		return nil, fmt.Errorf("start cpu engine: %w", err)
	}
	return &Engine{options: o, kernels: k, threads: threads.New(o.Threads)}, nil
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
