package scaling

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/steptime"
)

// StepTime is where a training step's time goes, for a series at a number of
// workers: seconds per step, the mean over the steps that count of all ranks
// of all its runs. A mean, whatever the rule says of repeats, so that the
// parts add up.
type StepTime struct {
	Series  string
	Workers int
	// Overlap is whether a bucket of gradients is reduced while backward goes
	// on: "on", "off", "mixed", or empty where unknown.
	Overlap string
	Runs    int
	Steps   int // of all ranks of all runs

	// Step is the sum of the six parts that follow; up to what ranks begin an
	// epoch apart, it is the epoch's time over its steps.
	Step      float64
	Data      float64 // waiting for the loader, copying the batch
	Forward   float64
	Backward  float64
	Wait      float64 // for the gradients of the others: exposed communication
	Optimizer float64
	Other     float64 // what of rank 0's epochs no span holds: logging, the wait for the slowest rank at an epoch's end

	// AllReduce is the time inside the collective, the wait for slower ranks
	// included. Hidden is what of it was spent while backward went on:
	// AllReduce − Wait, and 0 where that is negative.
	AllReduce float64
	Hidden    float64
	WaitShare float64 // Wait / Step, 0 to 1
}

// Breakdown is where the steps' time of a study goes.
//
// Its table has a row for each series and number of workers. The columns are those
// of StepTime: series, workers, overlap, runs, steps; in seconds per step
// step_seconds, data_seconds, forward_seconds, backward_seconds, wait_seconds,
// optimizer_seconds, other_seconds, all_reduce_seconds, hidden_seconds; and
// wait_share.
type Breakdown struct {
	analysis
	Rule     Rule
	Rows     []StepTime // by series, then by workers
	Problems []runs.Problem
}

// Breakdown reads the step spans (steps-<rank>.jsonl) of the study's runs. As
// for the study's times, failed runs and epochs that the rule leaves out do
// not count. Runs without step spans, such as other tools' logs, are named in
// Problems.
func (s *Study) Breakdown() *Breakdown {
	b := &Breakdown{Rule: s.Rule}
	b.analysis = analysis{b}
	for _, g := range s.grouped() {
		totals := map[int]*steptime.Total{}
		for _, r := range g.Runs {
			if observe.Failed(r) {
				continue
			}
			if totals[r.Info.Workers] == nil {
				totals[r.Info.Workers] = &steptime.Total{}
			}
			if len(r.Workers) == 0 {
				b.problem(r, "the run has no step spans (steps-<rank>.jsonl); lockstep train writes them")
				continue
			}
			spans := steptime.Read(r, s.Rule.observed())
			b.Problems = append(b.Problems, spans.Problems...)
			if !totals[r.Info.Workers].Add(r, spans) {
				b.problem(r, "no step of the run counts by the rule (%s)", s.Rule)
			}
		}
		for _, n := range slices.Sorted(maps.Keys(totals)) {
			if mean, ok := totals[n].Mean(g.Name, n); ok {
				b.Rows = append(b.Rows, StepTime(mean))
			}
		}
	}
	return b
}

func (b *Breakdown) problem(r runs.Run, format string, a ...any) {
	b.Problems = append(b.Problems, runs.Problem{File: r.Dir, Reason: fmt.Sprintf(format, a...)})
}

// stepColumns are the times of a row, in order.
func stepColumns() []struct {
	name  string
	value func(StepTime) float64
} {
	return []struct {
		name  string
		value func(StepTime) float64
	}{
		{"step", func(t StepTime) float64 { return t.Step }},
		{"data", func(t StepTime) float64 { return t.Data }},
		{"forward", func(t StepTime) float64 { return t.Forward }},
		{"backward", func(t StepTime) float64 { return t.Backward }},
		{"wait", func(t StepTime) float64 { return t.Wait }},
		{"optimizer", func(t StepTime) float64 { return t.Optimizer }},
		{"other", func(t StepTime) float64 { return t.Other }},
		{"all_reduce", func(t StepTime) float64 { return t.AllReduce }},
		{"hidden", func(t StepTime) float64 { return t.Hidden }},
	}
}

// table is the breakdown as a table; people read milliseconds.
func (b *Breakdown) table(most int) table {
	g := grid.Grid[StepTime]{What: "breakdown", Rows: first(b.Rows, most), Remarks: b.remarks(), Columns: []grid.Column[StepTime]{
		{Name: "series", Brief: true, Text: func(t StepTime) string { return t.Series }},
		{Name: "workers", Brief: true, Count: func(t StepTime) int { return t.Workers }},
		{Name: "overlap", Brief: true, Text: func(t StepTime) string { return t.Overlap }},
		{Name: "runs", Count: func(t StepTime) int { return t.Runs }},
		{Name: "steps", Brief: true, Count: func(t StepTime) int { return t.Steps }},
	}}
	for _, c := range stepColumns() {
		g.Columns = append(g.Columns, grid.Column[StepTime]{
			Name: c.name + "_seconds", Title: c.name + "_ms", Brief: true, Value: c.value,
			Show: func(t StepTime) string { return english.Short(1000 * c.value(t)) },
		})
	}
	g.Columns = append(g.Columns, grid.Column[StepTime]{
		Name: "wait_share", Brief: true, Value: func(t StepTime) float64 { return t.WaitShare },
		Show: func(t StepTime) string { return fmt.Sprintf("%.1f%%", 100*t.WaitShare) },
	})
	return breakdownTable{g, b.Problems}
}

// breakdownTable is not written if no run has step spans.
type breakdownTable struct {
	grid.Grid[StepTime]
	problems []runs.Problem
}

func (b breakdownTable) Write(w io.Writer, format string) error {
	if len(b.Rows) == 0 {
		text := "write breakdown: no run has step spans that count"
		for _, p := range b.problems {
			text += "\n  " + p.String()
		}
		return errors.New(text)
	}
	return b.Grid.Write(w, format)
}

// remarks say what the columns mean, and name the problems.
func (b *Breakdown) remarks() []string {
	lines := []string{
		"rule: " + b.Rule.String() + "; a mean over all steps of all ranks and runs",
		"step = data + forward + backward + wait + optimizer + other; wait is exposed communication",
		"hidden = all_reduce − wait: communication behind backward",
	}
	for _, p := range b.Problems {
		lines = append(lines, "problem: "+p.String())
	}
	return lines
}
