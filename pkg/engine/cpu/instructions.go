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

// InstructionSets returns the names of the instruction sets that an engine can use on
// this processor, the best first. The last one is "go", plain Go. If LOCKSTEP_CPU is set,
// it returns that name alone, and an error if the processor or the build lacks it.
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

// CommonSet returns the instruction set that all workers should use. have is the number
// of workers that support each set. The result is prefer if all workers support it, else
// the best set that all support, or "" if there is none.
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

// SetNames returns the names of all instruction sets, the best first, whether or not
// this processor supports them.
func SetNames() []string { return slices.Clone(kernel.InstructionSets) }

// SetOf returns the instruction set in the name of an engine, as run.json records it:
// "avx2" for "cpu (avx2)". It returns "" for an engine of another package.
func SetOf(name string) string {
	set, ok := strings.CutPrefix(name, "cpu (")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(set, ")")
}

// NewWith starts an engine as New does, with the given instruction set instead of the
// one that LOCKSTEP_CPU names.
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
