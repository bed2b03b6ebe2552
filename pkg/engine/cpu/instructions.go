package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/threads"
)

// InstructionSets returns the instruction sets that an engine may use here, the
// best first: those of this processor and this build, or the one that LOCKSTEP_CPU
// names. The last of all is "go", plain Go.
func InstructionSets() ([]string, error) {
	if set := os.Getenv(kernel.EnvVar); set != "" {
		_, err := kernel.Choose(set)
		return []string{set}, err
	}
	var names []string
	for _, k := range kernel.Available() {
		names = append(names, k.Name)
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
	for _, set := range kernel.InstructionSets {
		if have[set] == workers {
			return set
		}
	}
	return ""
}

// SetNames returns all instruction sets that InstructionSets may name, on any
// processor, the best first.
func SetNames() []string { return slices.Clone(kernel.InstructionSets) }

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
	k, err := kernel.Choose(set)
	if err != nil {
		return nil, fmt.Errorf("start cpu engine: %w", err)
	}
	return &Engine{options: o, kernels: k, threads: threads.New(o.Threads)}, nil
}
