package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"lockstep/pkg/engine/cpu/internal/kernel"
)

// instructionSets implements engine.InstructionSets.
func instructionSets(precision string) ([]string, error) {
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

// checkVariable returns an error if LOCKSTEP_CPU is not the name of an instruction set. Another
// machine may support one that this machine lacks.
func checkVariable(getenv func(string) string) error {
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
