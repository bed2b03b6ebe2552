package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/runs"
)

// openShared opens the engine that the config names. On the CPU all ranks use one
// instruction set, so that they compute the same bits: the one of the resumed run if all
// processors support it, else the best one that all support. LOCKSTEP_CPU restricts the
// choice of a rank.
func (t *Trainer) openShared(ctx context.Context) (engine.Engine, error) {
	if t.options.Open != nil {
		return t.options.Open(t.cfg.Engine, t.options.LocalRank)
	}
	if t.cfg.Engine.Device != "cpu" {
		return OpenEngine(t.cfg.Engine, t.options.LocalRank)
	}
	mine, err := cpu.InstructionSets()
	if err != nil {
		return nil, fmt.Errorf("start cpu engine: %w", err)
	}
	recorded := ""
	if t.options.Resume {
		before, err := runs.Read(t.options.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("resume: %w", err)
		}
		recorded = cpu.ParseInstructionSet(before.Info.Engine)
	}
	names := cpu.AllInstructionSets()
	counts := make([]float64, len(names))
	have := map[string]int{}
	for _, set := range mine {
		have[set] = 1
	}
	for i, set := range names {
		counts[i] = float64(have[set])
	}
	if t.group.Size() > 1 {
		if err := t.group.AllReduce(ctx, device.Buffer{F64: counts}); err != nil {
			return nil, fmt.Errorf("agree on an instruction set: %w", err)
		}
	}
	for i, set := range names {
		have[set] = int(counts[i])
	}
	set := cpu.CommonInstructionSet(have, t.group.Size(), recorded)
	if set == "" {
		return nil, errors.New("agree on an instruction set: the workers have none in common: set LOCKSTEP_CPU to the same for all of them, or unset it")
	}
	return cpu.NewWithInstructionSet(t.cfg.Engine, set)
}

// otherSet returns a note if a run was trained on the engine was and continues, or is
// evaluated, on the engine now with another instruction set. Otherwise it returns "".
func otherSet(was, now string) string {
	if was == now || cpu.ParseInstructionSet(was) == "" || cpu.ParseInstructionSet(now) == "" {
		return ""
	}
	return fmt.Sprintf("trained on %s, now on %s: results differ in their last bits", was, now)
}

// openMatchingEngine opens the engine that o names. On the CPU it uses the instruction set of the
// engine on which the run was trained, if this processor supports it. note describes the
// difference if another engine or instruction set is used, and is empty otherwise.
func openMatchingEngine(o engine.Options, trainedOn string) (e engine.Engine, note string, err error) {
	sets, err := cpu.InstructionSets()
	if set := cpu.ParseInstructionSet(trainedOn); err == nil && o.Device == "cpu" && slices.Contains(sets, set) {
		e, err = cpu.NewWithInstructionSet(o, set)
		return e, "", err
	}
	if e, note, err = openAnywhere(o); err == nil && note == "" {
		note = otherSet(trainedOn, e.Name())
	}
	return e, note, err
}
