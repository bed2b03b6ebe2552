package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"lockstep/pkg/engine"
)

// variable is the environment variable that chooses the instruction set, one of
// instructionSets; unset, the engine takes the best that the processor has.
const variable = "LOCKSTEP_CPU"

// instructionSets are the sets that kernels are or will be written for, the best
// first. "go" is plain Go, which every processor has.
var instructionSets = []string{"avx512", "avx2", "neon", "go"}

// available returns the kernels of the sets that this processor and this build
// have, the best first.
func available() []*kernels { return append(assemblySets(), goKernels()) }

// chooseKernels returns the kernels of the instruction set that is asked for,
// the best that there is where none is.
func chooseKernels(set string) (*kernels, error) {
	have := available()
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

// InstructionSets returns the instruction sets that an engine may use here, the
// best first: those of this processor and this build, or the one that LOCKSTEP_CPU
// names. The last of all is "go", plain Go.
func InstructionSets() ([]string, error) {
	if set := os.Getenv(variable); set != "" {
		_, err := chooseKernels(set)
		return []string{set}, err
	}
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names, nil
}

// CommonSet returns the instruction set that workers should share, given how many
// of so many workers have each set: prefer if all have it, else the best that all
// have, "" if there is none.
func CommonSet(have map[string]int, workers int, prefer string) string {
	if prefer != "" && have[prefer] == workers {
		return prefer
	}
	for _, set := range instructionSets {
		if have[set] == workers {
			return set
		}
	}
	return ""
}

// SetNames returns all instruction sets that InstructionSets may name, on any
// processor, the best first.
func SetNames() []string { return slices.Clone(instructionSets) }

// SetOf returns the instruction set of an engine of this package by its name, as
// run.json records it: "avx2" of "cpu (avx2)", "" of any other engine.
func SetOf(name string) string {
	set, ok := strings.CutPrefix(name, "cpu (")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(set, ")")
}

// NewWith starts an engine as New does, with an instruction set of InstructionSets.
func NewWith(o engine.Options, set string) (engine.Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Device != "cpu" {
		return nil, fmt.Errorf("start cpu engine: the options ask for device %q: use cpu", o.Device)
	}
	k, err := chooseKernels(set)
	if err != nil {
		return nil, fmt.Errorf("start cpu engine: %w", err)
	}
	return &Engine{options: o, kernels: k, pool: newPool(o.Threads)}, nil
}
