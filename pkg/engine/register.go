package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/internal/plan"
)

// Kind describes a kind of engine. The engine's package registers it with Register.
type Kind struct {
	Device string // its name in Options.Device
	// Open starts an engine. o is valid and is for Device. localRank is the worker's rank among
	// the workers on this machine; it selects the GPU if o.Device has no number.
	Open func(o Options, localRank int) (Engine, error)
	// CheckProgram returns an error if the engine cannot run p on any machine. It is nil if the
	// engine can run every program.
	CheckProgram func(p *plan.Program) error
	// CountDevices returns the number of GPUs that this process may use. It is nil if the
	// engine runs on the CPU.
	CountDevices func() (int, error)
	// AllInstructionSets contains the values of Options.InstructionSet, the best first. It is
	// nil if the engine has no choice of instruction sets.
	AllInstructionSets []string
	// InstructionSets implements the package's function InstructionSets for this engine. It is
	// nil if AllInstructionSets is nil.
	InstructionSets func(precision string) ([]string, error)
	// CheckEnvironment returns an error if an environment variable of the engine has an invalid
	// value. It is nil if the engine has no environment variables. getenv is os.Getenv except
	// in tests.
	CheckEnvironment func(getenv func(string) string) error
}

// engineKindRegistry contains the registered engines, like the drivers of database/sql.
var engineKindRegistry struct { //nolint:gochecknoglobals // packages of engines register themselves when the program starts
	mu    sync.Mutex
	kinds []Kind
}

// Register makes an engine available to Open. The package of an engine calls it in an init
// function. To register all engines, import lockstep/pkg/engine/all.
func Register(k Kind) {
	engineKindRegistry.mu.Lock()
	defer engineKindRegistry.mu.Unlock()
	engineKindRegistry.kinds = append(engineKindRegistry.kinds, k)
}

// registeredKinds returns the registered engines, sorted by device.
func registeredKinds() []Kind {
	engineKindRegistry.mu.Lock()
	defer engineKindRegistry.mu.Unlock()
	return slices.SortedFunc(slices.Values(engineKindRegistry.kinds), func(a, b Kind) int { return cmp.Compare(a.Device, b.Device) })
}

// findKindForDevice returns the engine for a device, such as "cpu" or "cuda:1".
func findKindForDevice(device string) (Kind, error) {
	name, _, _ := strings.Cut(device, ":")
	kinds := registeredKinds()
	if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Device == name }); i >= 0 {
		return kinds[i], nil
	}
	return Kind{}, fmt.Errorf("this program does not contain the engine of device %s: add the import _ \"lockstep/pkg/engine/all\" to it", name)
}

// Open starts the engine for o.Device. For "cuda" it uses the GPU whose number is localRank
// modulo the number of GPUs. localRank is the worker's rank on its machine.
func Open(o Options, localRank int) (Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	k, err := findKindForDevice(o.Device)
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	return k.Open(o, localRank)
}

// CheckProgram returns an error if the engine for a device cannot run p. The device need not be
// present on this machine.
func CheckProgram(device string, p *plan.Program) error {
	k, err := findKindForDevice(device)
	if err != nil || k.CheckProgram == nil {
		return err
	}
	return k.CheckProgram(p)
}

// CountGPUs returns the number of GPUs that this process may use.
func CountGPUs() (int, error) {
	k, err := findKindForDevice("cuda")
	if err != nil {
		return 0, fmt.Errorf("count GPUs: %w", err)
	}
	return k.CountDevices()
}

// InstructionSets returns the instruction sets with which the CPU engine can compute on this
// machine in the given precision, "fp32" or "bf16". The best one comes first, and "go" (plain
// Go) last. If LOCKSTEP_CPU is set, InstructionSets returns only that instruction set, or an
// error if the processor or the build does not support it. With "bf16", plain Go alone is an
// error unless LOCKSTEP_CPU=go is set.
func InstructionSets(precision string) ([]string, error) {
	k, err := findKindForDevice("cpu")
	if err != nil {
		return nil, err
	}
	return k.InstructionSets(precision)
}

// AllInstructionSets returns all instruction sets of the CPU engine, the best first, even if
// this machine does not support them.
func AllInstructionSets() ([]string, error) {
	k, err := findKindForDevice("cpu")
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
