package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"lockstep/pkg/engine/cpu/internal/kernel"
)

// listInstructionSets implements engine.InstructionSets.
func listInstructionSets(precision string) ([]string, error) {
	if set := os.Getenv(kernel.InstructionSetEnvVar); set != "" {
		_, err := chooseKernelSet(set, precision)
		return []string{set}, err
	}
	have := kernel.AvailableKernelSets()
	if precision == precisionBF16 {
		if _, err := kernel.ChooseBF16KernelSet(""); err != nil {
			return nil, err
		}
		have = kernel.AvailableBF16KernelSets()
	}
	var names []string
	for _, k := range have {
		names = append(names, k.Name)
	}
	return names, nil
}

// checkInstructionSetVariable returns an error if LOCKSTEP_CPU is not the name of an
// instruction set. It accepts a name that this machine does not support, because another
// machine may.
func checkInstructionSetVariable(getenv func(string) string) error {
	if set := getenv(kernel.InstructionSetEnvVar); set != "" && !slices.Contains(kernel.InstructionSets, set) {
		return fmt.Errorf("unknown instruction set %s=%q: use one of %s, or unset it", kernel.InstructionSetEnvVar, set, strings.Join(kernel.InstructionSets, ", "))
	}
	return nil
}

// precisionBF16 is the value of Options.Precision for which convolutions round their operands
// to bfloat16.
const precisionBF16 = "bf16"

// chooseKernelSet chooses the best instruction set for the precision if set is "".
func chooseKernelSet(set, precision string) (*kernel.Set, error) {
	if precision == precisionBF16 {
		return kernel.ChooseBF16KernelSet(set)
	}
	return kernel.ChooseKernelSet(set)
}
