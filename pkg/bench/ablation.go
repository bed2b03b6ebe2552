package bench

import (
	"context"
	"fmt"
	"io"

	"lockstep/pkg/bench/internal/beside"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
)

// AblationOptions configures AblationRuns.
type AblationOptions struct {
	Shape   Shape
	Threads int // threads of one worker
	Workers int // processes with one thread each, for optimizations that need several workers; 0: not measured
	Repeats int // measured steps with and without the optimization, alternating
	Output  io.Writer
}

// Validate returns an error for the first invalid option.
func (o AblationOptions) Validate() error {
	switch {
	case o.Threads < 1:
		return fmt.Errorf("bench ablation: threads is %d: use at least 1", o.Threads)
	case o.Workers < 0 || o.Workers == 1:
		return fmt.Errorf("bench ablation: workers is %d: use at least 2, or 0 for none", o.Workers)
	case o.Repeats < 1:
		return fmt.Errorf("bench ablation: repeats is %d: use at least 1", o.Repeats)
	}
	return o.Shape.validate()
}

// ablation compares the engine with and without an optimization, or with two instruction
// sets.
type ablation struct {
	name, without string
	setting       setting
	options       engine.Options
	set           []string // value of LOCKSTEP_CPU for each side; nil: the processor's best instruction set
}

// ablations returns the comparisons: first each instruction set of this processor with
// the next slower one, then each optimization that engine.Options can disable.
func (o AblationOptions) ablations() []ablation {
	var all []ablation
	one := setting{1, o.Threads}
	if sets, err := cpu.InstructionSets(); err == nil {
		for i := 1; i < len(sets); i++ {
			all = append(all, ablation{sets[i-1], sets[i], one, engine.DefaultOptions(), []string{"LOCKSTEP_CPU=" + sets[i-1], "LOCKSTEP_CPU=" + sets[i]}})
		}
	}
	for _, c := range []string{"direct", "winograd"} {
		e := engine.DefaultOptions()
		if e.Convolution = c; e.Validate() == nil { // skip algorithms that the engine lacks
			all = append(all, ablation{"convolution auto", "convolution " + c, one, e, nil})
		}
	}
	e := engine.DefaultOptions()
	e.Fuse = false
	all = append(all, ablation{"fuse", "fuse off", one, e, nil})
	if o.Workers > 0 {
		e := engine.DefaultOptions()
		e.Overlap = false
		all = append(all, ablation{"overlap", "overlap off", setting{o.Workers, 1}, e, nil})
	}
	return all
}

// AblationRuns measures the gain of each optimization in engine.Options: the engine with
// all optimizations and without one of them, alternating, in separate processes.
func AblationRuns(ctx context.Context, o AblationOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	command, err := beside.OwnCommand(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench ablation: %w", err)
	}
	common := Record{Unit: "images/s", Machine: beside.Machine(), Commit: beside.Commit(ctx)}
	var records []Record
	for _, a := range o.ablations() {
		r, err := o.compare(ctx, command, a, common)
		if err != nil {
			return nil, fmt.Errorf("bench ablation, %s: %w", a.name, beside.Stopped(ctx, err))
		}
		records = append(records, r)
	}
	return records, nil
}

func (o AblationOptions) compare(ctx context.Context, command []string, a ablation, r Record) (Record, error) {
	var here, there []string
	if a.set != nil {
		here, there = a.set[:1], a.set[1:]
	}
	with, err := startOurs(ctx, command, o.Shape, a.setting, engine.DefaultOptions(), here...)
	if err != nil {
		return Record{}, err
	}
	defer with.Close()
	without, err := startOurs(ctx, command, o.Shape, a.setting, a.options, there...)
	if err != nil {
		return Record{}, err
	}
	defer without.Close()
	on, off, err := alternate(with, without, beside.RequestStep, o.Repeats)
	if err != nil {
		return Record{}, err
	}
	beside.Say(o.Output, "%s, %s: %.3f s a step; %s: %.3f s", a.name, a.setting, beside.Median(on), a.without, beside.Median(off))
	r.Name, r.Peer = fmt.Sprintf("%s, %s", a.name, a.setting), "ours, "+a.without
	images := float64(o.Shape.Batch * a.setting.workers)
	return beside.Compared(r, beside.PerSecond(images, on), beside.PerSecond(images, off)), nil
}
