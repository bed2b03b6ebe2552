package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
)

// AblationOptions configures MeasureAblation.
type AblationOptions struct {
	Shape   Shape
	Threads int // threads of one worker
	Workers int // number of processes, each with one thread, for optimizations that need several workers; 0: not measured
	Repeats int // measured steps with and without the optimization, alternating
	// Only selects the comparisons whose names contain it, for example "precision bf16". "" selects all.
	Only   string
	Output io.Writer
}

// Validate returns an error for the first invalid option.
func (o AblationOptions) Validate() error {
	switch {
	case o.Threads < 1:
		return fmt.Errorf("bench ablation: got %d threads, want at least 1", o.Threads)
	case o.Workers < 0 || o.Workers == 1:
		return fmt.Errorf("bench ablation: got %d workers, want at least 2, or 0 to skip the comparisons of several workers", o.Workers)
	case o.Repeats < 1:
		return fmt.Errorf("bench ablation: got %d repeats, want at least 1", o.Repeats)
	}
	return o.Shape.validate()
}

// ablation compares the engine with and without an optimization, with two instruction sets, or with two
// precisions.
type ablation struct {
	name, without string
	setting       workerSetting
	with, options engine.Options // of the two sides
	set           []string       // "LOCKSTEP_CPU=…" for each side; nil: the best instruction set of the processor
}

// ablations returns first each instruction set of this processor with the next slower one, then each
// optimization that engine.Options can disable, and bf16 if the processor has instructions for it.
func (o AblationOptions) ablations() []ablation {
	var all []ablation
	one := workerSetting{1, o.Threads}
	if sets, err := engine.InstructionSets("fp32"); err == nil {
		for i := 1; i < len(sets); i++ {
			all = append(all, ablation{sets[i-1], sets[i], one, engine.DefaultOptions(), engine.DefaultOptions(), []string{"LOCKSTEP_CPU=" + sets[i-1], "LOCKSTEP_CPU=" + sets[i]}})
		}
	}
	for _, c := range []string{"direct", "winograd"} {
		e := engine.DefaultOptions()
		if e.Convolution = c; e.Validate() == nil { // skip algorithms that the engine lacks
			all = append(all, ablation{"convolution auto", "convolution " + c, one, engine.DefaultOptions(), e, nil})
		}
	}
	e := engine.DefaultOptions()
	e.Fuse = false
	all = append(all, ablation{"fuse", "fuse off", one, engine.DefaultOptions(), e, nil})
	if o.Workers > 0 {
		e := engine.DefaultOptions()
		e.Overlap = false
		all = append(all, ablation{"overlap", "overlap off", workerSetting{o.Workers, 1}, engine.DefaultOptions(), e, nil})
	}
	if _, err := engine.InstructionSets("bf16"); err == nil {
		e := engine.DefaultOptions()
		e.Precision = "bf16"
		all = append(all, ablation{"precision bf16", "precision fp32", one, e, engine.DefaultOptions(), nil})
	}
	return slices.DeleteFunc(all, func(a ablation) bool { return !strings.Contains(a.name, o.Only) })
}

// MeasureAblation measures the gain of each optimization in engine.Options. It alternates between two
// sides in separate processes, one with all optimizations and one without the optimization to measure.
func MeasureAblation(ctx context.Context, o AblationOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	command, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench ablation: %w", err)
	}
	common := Record{Unit: "images/s", Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx)}
	list := o.ablations()
	if len(list) == 0 {
		return nil, fmt.Errorf("bench ablation: no comparison on this processor has %q in its name", o.Only)
	}
	var records []Record
	for _, a := range list {
		r, err := o.compareVariants(ctx, command, a, common)
		if err != nil {
			return nil, fmt.Errorf("bench ablation, %s: %w", a.name, comparison.ContextCause(ctx, err))
		}
		records = append(records, r)
	}
	return records, nil
}

// compareVariants alternates training steps of the two variants of a, and returns r with the measured
// values filled in.
func (o AblationOptions) compareVariants(ctx context.Context, command []string, a ablation, r Record) (Record, error) {
	var here, there []string
	if a.set != nil {
		here, there = a.set[:1], a.set[1:]
	}
	cpus, err := a.setting.planCPUs()
	if err != nil {
		return Record{}, err
	}
	with, err := startLockstep(ctx, command, o.Shape, a.setting, cpus, a.with, here...)
	if err != nil {
		return Record{}, err
	}
	defer with.Close()
	without, err := startLockstep(ctx, command, o.Shape, a.setting, cpus, a.options, there...)
	if err != nil {
		return Record{}, err
	}
	defer without.Close()
	on, off, err := measureAlternately(with, without, comparison.RequestStep, o.Repeats)
	if err != nil {
		return Record{}, err
	}
	comparison.Logf(o.Output, "%s, %s: %.3f s per step; %s: %.3f s per step", a.name, a.setting, comparison.Median(on), a.without, comparison.Median(off))
	r.Name, r.Peer = fmt.Sprintf("%s, %s", a.name, a.setting), "ours, "+a.without
	images := float64(o.Shape.Batch * a.setting.workers)
	return comparison.CompareRates(r, comparison.PerSecond(images, on), comparison.PerSecond(images, off)), nil
}
