package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/runs"
)

// openCommonEngine opens the engine for the config's device. On the CPU, all ranks use the same
// instruction set, so that they compute the same bits. It is the instruction set of the resumed run
// if all processors support it, else the best one that all support. LOCKSTEP_CPU restricts the
// instruction sets of a rank.
func (t *Trainer) openCommonEngine(ctx context.Context) (engine.Engine, error) {
	if t.options.Open != nil {
		return t.options.Open(t.cfg.Engine, t.options.LocalRank)
	}
	if t.cfg.Engine.Device != "cpu" {
		return engine.Open(t.cfg.Engine, t.options.LocalRank)
	}
	mine, err := engine.InstructionSets(t.cfg.Engine.Precision)
	if err != nil {
		return nil, fmt.Errorf("open CPU engine: %w", err)
	}
	recorded := ""
	if t.options.Resume {
		before, err := runs.Read(t.options.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("resume: %w", err)
		}
		recorded = engine.ParseInstructionSet(before.Info.Engine)
	}
	names, err := engine.AllInstructionSets()
	if err != nil {
		return nil, fmt.Errorf("open CPU engine: %w", err)
	}
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
			return nil, fmt.Errorf("choose a common instruction set: %w", err)
		}
	}
	for i, set := range names {
		have[set] = int(counts[i])
	}
	set := commonInstructionSet(names, have, t.group.Size(), recorded)
	if set == "" {
		return nil, errors.New("choose a common instruction set: no instruction set is available on all workers: set LOCKSTEP_CPU to the same value for all workers, or unset it")
	}
	o := t.cfg.Engine
	o.InstructionSet = set
	return engine.Open(o, t.options.LocalRank)
}

// commonInstructionSet returns the instruction set that all workers should use. names lists all
// instruction sets, the best first; support contains the number of workers that support each. The
// result is preferred if all workers support it, else the best set that all workers support, or ""
// if there is none.
func commonInstructionSet(names []string, support map[string]int, workers int, preferred string) string {
	for _, set := range append([]string{preferred}, names...) {
		if set != "" && support[set] == workers {
			return set
		}
	}
	return ""
}

// instructionSetNote returns a note for the log if two engines use different CPU instruction sets,
// or "" if they do not. trainedOn is the name of the engine that trained a run, and current the
// name of the engine that continues or evaluates it.
func instructionSetNote(trainedOn, current string) string {
	if trainedOn == current || engine.ParseInstructionSet(trainedOn) == "" || engine.ParseInstructionSet(current) == "" {
		return ""
	}
	return fmt.Sprintf("trained on %s, now on %s: results differ in their last bits", trainedOn, current)
}

// openMatchingEngine opens the engine for o.Device. trainedOn is the name of the engine that
// trained the run. On the CPU, the new engine uses the same instruction set if this processor
// supports it. Otherwise note is a message for the log.
func openMatchingEngine(o engine.Options, trainedOn string) (e engine.Engine, note string, err error) {
	sets, err := engine.InstructionSets(o.Precision)
	if set := engine.ParseInstructionSet(trainedOn); err == nil && o.Device == "cpu" && slices.Contains(sets, set) {
		o.InstructionSet = set
		e, err = engine.Open(o, 0)
		return e, "", err
	}
	if e, note, err = openEngineOrCPU(o); err == nil && note == "" {
		note = instructionSetNote(trainedOn, e.Name())
	}
	return e, note, err
}

// marshalLossScale returns the loss scale as JSON. It returns "" for precisions other than fp16,
// which have none.
func marshalLossScale(can engine.Capabilities) (string, error) {
	if can.LossScale == nil {
		return "", nil
	}
	text, err := json.Marshal(can.LossScale())
	return string(text), err
}

// restoreLossScale sets the loss scale from the JSON in a checkpoint, if the precision needs one.
// text is "" if the run used a precision without a loss scale.
func restoreLossScale(can engine.Capabilities, text string) error {
	if can.SetLossScale == nil || text == "" {
		return nil
	}
	var s engine.LossScale
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("restore loss scale %q: %w", text, err)
	}
	return can.SetLossScale(s)
}

// openEngineOrCPU opens the engine for o.Device. If this machine has no such GPU, or its processor
// does not support the precision, it opens the CPU engine in fp32, and note is a message for the
// log.
func openEngineOrCPU(o engine.Options) (e engine.Engine, note string, err error) {
	e, err = engine.Open(o, 0)
	here := engine.DefaultOptions()
	if _, onGPU := o.CUDA(); err == nil || !onGPU && (o.Device != "cpu" || o.Precision == here.Precision) {
		return e, "", err
	}
	here.Fuse, here.Threads = o.Fuse, o.Threads
	e, cpuErr := engine.Open(here, 0)
	if cpuErr != nil {
		return nil, "", errors.Join(err, cpuErr)
	}
	reason, _, _ := strings.Cut(err.Error(), "\n")
	return e, fmt.Sprintf("trained on %s (%s), which cannot be used here: computed on the CPU in fp32 instead (%s)", o.Device, o.Precision, reason), nil
}
