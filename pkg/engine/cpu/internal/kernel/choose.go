package kernel

import (
	"fmt"
	"slices"
	"strings"
)

// InstructionSetEnvVar is the environment variable that forces one of InstructionSets. If it is not set,
// the engine uses the best instruction set that the processor supports.
const InstructionSetEnvVar = "LOCKSTEP_CPU"

// InstructionSets lists the names of all instruction sets, the best first: four for amd64,
// one for arm64, and "go", which is plain Go and runs on every processor. "amx" and
// "avx512_bf16" are AVX-512 with additional instructions that multiply bfloat16 numbers, see
// BF16Sets.
var InstructionSets = []string{"amx", "avx512_bf16", "avx512", "avx2", "neon", "go"}

// AvailableKernelSets returns one Set for each instruction set that both this processor and this
// build support, the best first. The last one is plain Go.
func AvailableKernelSets() []*Set { return append(assemblyKernelSets(), newPlainGoKernelSet()) }

// ChooseKernelSet returns the Set of the named instruction set, or the best available one if set is
// "". It returns an error if the instruction set is unknown or unavailable.
func ChooseKernelSet(set string) (*Set, error) {
	have := AvailableKernelSets()
	if set == "" {
		return have[0], nil
	}
	names := make([]string, len(have))
	for i, k := range have {
		if names[i] = k.Name; k.Name == set {
			return k, nil
		}
	}
	list := strings.Join(names, ", ")
	if slices.ContainsFunc(AvailableBF16KernelSets(), func(k *Set) bool { return k.Name == set }) {
		return nil, fmt.Errorf("%s=%s is for precision bf16: with fp32 use one of %s, or unset it", InstructionSetEnvVar, set, list)
	}
	if slices.Contains(InstructionSets, set) {
		return nil, fmt.Errorf("%s=%s, but this processor or this build lacks it: use one of %s, or unset it", InstructionSetEnvVar, set, list)
	}
	return nil, fmt.Errorf("unknown instruction set %s=%q: use one of %s, or unset it", InstructionSetEnvVar, set, list)
}
