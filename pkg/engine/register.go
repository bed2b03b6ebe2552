package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/internal/plan"
)

// Kind is a kind of engine, which the package of the engine registers.
type Kind struct {
	Device string // its name in Options.Device
	// Open starts an engine with valid options for Device. localRank is the rank of the worker
	// among those on this machine; without a number in Options.Device, it chooses the GPU.
	Open func(o Options, localRank int) (Engine, error)
	// CheckProgram returns an error if the engine cannot run p on any machine; nil: it runs
	// every program.
	CheckProgram func(p *plan.Program) error
	// CountDevices returns the number of GPUs that this process may use; nil: the engine runs
	// on the CPU.
	CountDevices func() (int, error)
	// AllInstructionSets are the values of Options.InstructionSet, the best first; nil: the
	// engine has no choice.
	AllInstructionSets []string
	// InstructionSets is the function InstructionSets; nil without AllInstructionSets.
	InstructionSets func(precision string) ([]string, error)
	// CheckEnvironment returns an error if an environment variable of the engine has an invalid
	// value; nil: it has none. getenv is os.Getenv except in tests.
	CheckEnvironment func(getenv func(string) string) error
}

// registry contains the engines of this program, like the drivers of database/sql.
var registry struct { //nolint:gochecknoglobals // packages of engines register themselves when the program starts
	mu    sync.Mutex
	kinds []Kind
}

// Register makes an engine available to Open. Packages of engines call it when the program
// starts; a program imports them by lockstep/pkg/engine/all.
func Register(k Kind) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	registry.kinds = append(registry.kinds, k)
}

// registeredKinds returns the registered engines, sorted by device.
func registeredKinds() []Kind {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return slices.SortedFunc(slices.Values(registry.kinds), func(a, b Kind) int { return cmp.Compare(a.Device, b.Device) })
}

// findKind returns the engine for a device, such as "cpu" or "cuda:1".
func findKind(device string) (Kind, error) {
	name, _, _ := strings.Cut(device, ":")
	kinds := registeredKinds()
	if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Device == name }); i >= 0 {
		return kinds[i], nil
	}
	return Kind{}, fmt.Errorf("this program does not contain the engine of device %s: add the import _ \"lockstep/pkg/engine/all\" to it", name)
}

// Open starts the engine for o.Device. "cuda" means the GPU with the number localRank, the
// worker's rank on its machine, modulo the number of GPUs.
func Open(o Options, localRank int) (Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	k, err := findKind(o.Device)
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	return k.Open(o, localRank)
}

// CheckProgram returns an error if the engine of a device cannot run p. It does not need the
// device.
func CheckProgram(device string, p *plan.Program) error {
	k, err := findKind(device)
	if err != nil || k.CheckProgram == nil {
		return err
	}
	return k.CheckProgram(p)
}

// CountGPUs returns the number of GPUs that this process may use.
func CountGPUs() (int, error) {
	k, err := findKind("cuda")
	if err != nil {
		return 0, fmt.Errorf("count GPUs: %w", err)
	}
	return k.CountDevices()
}

// InstructionSets returns the instruction sets with which the CPU engine can compute on this
// machine with a precision, "fp32" or "bf16", the best first. The last one is "go", plain Go.
// If LOCKSTEP_CPU is set, InstructionSets returns only that name, or an error if the processor
// or the build does not support it. With bf16, plain Go alone is an error unless
// LOCKSTEP_CPU=go is set.
func InstructionSets(precision string) ([]string, error) {
	k, err := findKind("cpu")
	if err != nil {
		return nil, err
	}
	return k.InstructionSets(precision)
}

// AllInstructionSets returns the instruction sets of the CPU engine, the best first, whether
// this machine supports them or not.
func AllInstructionSets() ([]string, error) {
	k, err := findKind("cpu")
	return slices.Clone(k.AllInstructionSets), err
}

// ParseInstructionSet returns the instruction set in the name of an engine, as recorded in
// run.json: "avx2" for "cpu (avx2)". It returns "" for other engines.
func ParseInstructionSet(engine string) string {
	set, ok := strings.CutPrefix(engine, "cpu (")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(set, ")")
}

// CheckEnvironment returns an error if an environment variable of an engine has an invalid
// value. getenv is os.Getenv except in tests.
func CheckEnvironment(getenv func(string) string) error {
	for _, k := range registeredKinds() {
		if k.CheckEnvironment == nil {
			continue
		}
		if err := k.CheckEnvironment(getenv); err != nil {
			return err
		}
	}
	return nil
}
