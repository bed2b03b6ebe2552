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

// openShared starts the engine that the config names. On the CPU all ranks use one
// instruction set, so that each would compute the same bits: a resumed run's, if
// every rank's processor has it, else the best that all of them have. LOCKSTEP_CPU
// restricts a rank's choice.
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
		recorded = cpu.SetOf(before.Info.Engine)
	}
	names := cpu.SetNames()
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
	set := cpu.CommonSet(have, t.group.Size(), recorded)
	if set == "" {
		return nil, errors.New("agree on an instruction set: the workers have none in common: set LOCKSTEP_CPU to the same for all of them, or unset it")
	}
	return cpu.NewWith(t.cfg.Engine, set)
}

// otherSet is the notice of a run that was begun on one engine and goes on, or is
// evaluated, on another one; empty if they are the same.
func otherSet(was, now string) string {
	if was == now || cpu.SetOf(was) == "" || cpu.SetOf(now) == "" {
		return ""
	}
	return fmt.Sprintf("trained on %s, now on %s: results differ in their last bits", was, now)
}

// openLike starts the engine that o names, on the CPU with the instruction set of
// the engine that a run was trained on if this processor has it. The note is empty
// or names the difference.
func openLike(o engine.Options, trainedOn string) (e engine.Engine, note string, err error) {
	sets, err := cpu.InstructionSets()
	if set := cpu.SetOf(trainedOn); err == nil && o.Device == "cpu" && slices.Contains(sets, set) {
		e, err = cpu.NewWith(o, set)
		return e, "", err
	}
	if e, note, err = openAnywhere(o); err == nil && note == "" {
		note = otherSet(trainedOn, e.Name())
	}
	return e, note, err
}
