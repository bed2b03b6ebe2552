package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
)

// variable is the environment variable that chooses the instruction set, one of
// instructionSets; unset, the engine takes the best that the processor has.
const variable = "LOCKSTEP_CPU"

// instructionSets are the sets that kernels are or will be written for. "go" is
// plain Go, which every processor has.
var instructionSets = []string{"go", "avx2", "avx512", "neon"}

// Engine loads programs on this machine's processor. It owns the goroutines
// that compute; Close ends them.
type Engine struct {
	options engine.Options
	kernels *kernels
	pool    *pool
	profile profiler
}

var (
	_ engine.Engine = (*Engine)(nil)
	_ engine.Peaked = (*Engine)(nil)
)

// New starts an engine with o.Threads goroutines (the caller's is one of
// them). The environment variable LOCKSTEP_CPU ("avx512", "avx2" or "go") overrides
// the choice of instruction set; it is read here and nowhere else.
func New(o engine.Options) (engine.Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Device != "cpu" {
		return nil, fmt.Errorf("start cpu engine: the options ask for device %q: use cpu", o.Device)
	}
	k, err := chooseKernels(os.Getenv(variable))
	if err != nil {
		return nil, fmt.Errorf("start cpu engine: %w", err)
	}
	return &Engine{options: o, kernels: k, pool: newPool(o.Threads)}, nil
}

// chooseKernels returns the kernels of the instruction set that is asked for,
// the best that there is where none is.
func chooseKernels(set string) (*kernels, error) {
	have := append(assemblySets(), goKernels())
	if set == "" {
		return have[0], nil
	}
	names := make([]string, len(have))
	for i, k := range have {
		if names[i] = k.name; k.name == set {
			return k, nil
		}
	}
	list := strings.Join(names, ", ")
	if slices.Contains(instructionSets, set) {
		return nil, fmt.Errorf("%s=%s, but this processor or this build lacks it: use one of %s, or unset it", variable, set, list)
	}
	return nil, fmt.Errorf("%s=%q is not known: use one of %s, or unset it", variable, set, list)
}

// Name is "cpu" with the instruction set, such as "cpu (avx2)".
func (e *Engine) Name() string { return "cpu (" + e.kernels.name + ")" }

// Options are those that the engine was started with.
func (e *Engine) Options() engine.Options { return e.options }

// Load prepares p: it checks every kernel's shapes, lays out the memory and
// builds the tables. With share, an executable of this engine, parameters,
// states and optimiser slots are those of share.
func (e *Engine) Load(p *plan.Program, share engine.Executable) (engine.Executable, error) {
	x, err := e.load(p, share)
	if err != nil {
		return nil, fmt.Errorf("load program on %s: %w", e.Name(), err)
	}
	return x, nil
}

// Close ends the engine's goroutines; its executables must not step any more.
func (e *Engine) Close() error {
	e.pool.close()
	return nil
}
