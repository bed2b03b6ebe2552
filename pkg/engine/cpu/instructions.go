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

// InstructionSets returns the names of the instruction sets that an engine can use on this
// processor with a precision, "fp32" or "bf16", the best first. The last one is "go", plain
// Go. If LOCKSTEP_CPU is set, InstructionSets returns only that name, or an error if the
// processor or the build does not support it. With bf16, plain Go alone is an error unless
// LOCKSTEP_CPU=go is set.
func InstructionSets(precision string) ([]string, error) {
	if set := os.Getenv(kernel.EnvVar); set != "" {
		_, err := chooseSet(set, precision)
		return []string{set}, err
	}
	have := kernel.AvailableSets()
	if precision == bf16 {
		if _, err := kernel.ChooseBF16Set(""); err != nil {
			return nil, err
		}
		have = kernel.BF16Sets()
	}
	var names []string
	for _, k := range have {
		names = append(names, k.Name)
	}
	return names, nil
}

// CheckVariable returns an error if LOCKSTEP_CPU is not the name of an instruction set. Another
// machine may support one that this machine lacks. getenv is os.Getenv except in tests.
func CheckVariable(getenv func(string) string) error {
	if set := getenv(kernel.EnvVar); set != "" && !slices.Contains(kernel.InstructionSets, set) {
		return fmt.Errorf("unknown instruction set %s=%q: use one of %s, or unset it", kernel.EnvVar, set, strings.Join(kernel.InstructionSets, ", "))
	}
	return nil
}

// bf16 is the Options.Precision with which convolutions round their operands.
const bf16 = "bf16"

// chooseSet chooses the best instruction set for the precision if set is "".
func chooseSet(set, precision string) (*kernel.Set, error) {
	if precision == bf16 {
		return kernel.ChooseBF16Set(set)
	}
	return kernel.ChooseSet(set)
}

// CommonInstructionSet returns the instruction set that all workers should use. support
// contains the number of workers that support each set. The result is preferred if all
// workers support it, else the best set that all workers support, or "" if there is no such
// set.
func CommonInstructionSet(support map[string]int, workers int, preferred string) string {
	if preferred != "" && support[preferred] == workers {
		return preferred
	}
	for _, set := range kernel.InstructionSets {
		if support[set] == workers {
			return set
		}
	}
	return ""
}

// AllInstructionSets returns all instruction sets, the best first, supported or not.
func AllInstructionSets() []string { return slices.Clone(kernel.InstructionSets) }

// ParseInstructionSet returns the instruction set in the name of an engine, as recorded in
// run.json: "avx2" for "cpu (avx2)". It returns "" for engines of other packages.
func ParseInstructionSet(name string) string {
	set, ok := strings.CutPrefix(name, "cpu (")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(set, ")")
}

// NewWithInstructionSet starts an engine like New, but with the named instruction set, ""
// for the best; it ignores LOCKSTEP_CPU.
func NewWithInstructionSet(o engine.Options, set string) (engine.Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Device != "cpu" {
		return nil, fmt.Errorf("start cpu engine: got device %q, want cpu", o.Device)
	}
	k, err := chooseSet(set, o.Precision)
	if err != nil {
		return nil, fmt.Errorf("start cpu engine: %w", err)
	}
	return &Engine{options: o, kernels: k, threads: threads.New(o.Threads)}, nil
}
