package bench

import (
	"context"
	"fmt"
	"io"

	"lockstep/pkg/bench/internal/beside"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
)

// AblationOptions say what AblationRuns measures.
type AblationOptions struct {
	Shape   Shape
	Threads int // of one worker
	Workers int // processes with one thread each, for what only several have; 0: it is not measured
	Repeats int // steps with and without, in turns
	Output  io.Writer
}

// Validate reports the first option that cannot be.
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

// ablation is an optimisation and the engine without it, or two instruction sets.
type ablation struct {
	name, without string
	setting       setting
	options       engine.Options
	set           []string // LOCKSTEP_CPU of either side; nil: the processor's best
}

// ablations are the optimisations that engine.Options switches, after the
// instruction sets that this processor has, each beside the next slower one.
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
		if e.Convolution = c; e.Validate() == nil { // the engine may not have it
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

// AblationRuns measures what each optimisation of engine.Options gives: ours
// with all of them and ours without one, in turns, in processes of their own.
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
	on, off, err := inTurns(with, without, beside.RequestStep, o.Repeats)
	if err != nil {
		return Record{}, err
	}
	beside.Say(o.Output, "%s, %s: %.3f s a step; %s: %.3f s", a.name, a.setting, beside.Median(on), a.without, beside.Median(off))
	r.Name, r.Peer = fmt.Sprintf("%s, %s", a.name, a.setting), "ours, "+a.without
	images := float64(o.Shape.Batch * a.setting.workers)
	return beside.Compared(r, beside.PerSecond(images, on), beside.PerSecond(images, off)), nil
}
