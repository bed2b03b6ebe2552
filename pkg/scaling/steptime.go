package scaling

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/steptime"
)

// StepTime is the time of a training step and its parts, for a series at one worker count, in
// seconds: the mean over the counted steps of all ranks of all runs. It is a mean even if the rule
// combines repeated runs by the median, so that the parts add up.
type StepTime struct {
	Series  string
	Workers int
	// Overlap is "on" if buckets of gradients are reduced during the backward pass, "off" if they
	// are not, "mixed" if the runs differ, and "" if unknown.
	Overlap string
	Runs    int
	Steps   int // number of steps of all ranks of all runs

	// Step is the sum of the next six fields. It may differ slightly from the epoch's time divided
	// by its steps, because ranks may start an epoch at different times.
	Step      float64
	Data      float64 // waiting for the loader and copying the batch
	Forward   float64
	Backward  float64
	Wait      float64 // waiting for the gradients of other ranks: exposed communication
	Optimizer float64
	Other     float64 // time of rank 0's epochs outside all spans: logging, waiting for the slowest rank at the end of an epoch

	// AllReduce is the time in the collective, including the wait for slower ranks. Hidden is the
	// part of it that overlaps the backward pass: AllReduce − Wait, but at least 0.
	AllReduce float64
	Hidden    float64
	WaitShare float64 // Wait / Step, 0 to 1
}

// Breakdown contains the times of a study's steps by part.
//
// Its table has one row per series and worker count. The columns are the fields of
// StepTime: series, workers, overlap, runs, steps; in seconds per step step_seconds,
// data_seconds, forward_seconds, backward_seconds, wait_seconds, optimizer_seconds,
// other_seconds, all_reduce_seconds, hidden_seconds; and wait_share.
type Breakdown struct {
	analysis
	Rule     Rule
	Rows     []StepTime // by series, then by workers
	Problems []runs.Problem
}

// Breakdown reads the step spans (steps-<rank>.jsonl) of the study's runs. Failed runs and epochs that
// the rule omits do not count. Problems lists runs without step spans, such as logs of other tools.
func (s *Study) Breakdown() *Breakdown {
	b := &Breakdown{Rule: s.Rule}
	b.analysis = analysis{b}
	for _, g := range s.groupBySeries() {
		totals := map[int]*steptime.StepTotals{}
		for _, r := range g.Runs {
			if observe.HasFailed(r) {
				continue
			}
			if totals[r.Info.Workers] == nil {
				totals[r.Info.Workers] = &steptime.StepTotals{}
			}
			if len(r.Workers) == 0 {
				b.addProblem(r, "the run has no step spans (steps-<rank>.jsonl); lockstep train writes them")
				continue
			}
			spans := steptime.ReadCountedSteps(r, s.Rule.toMeasurementRule())
			b.Problems = append(b.Problems, spans.Problems...)
			if !totals[r.Info.Workers].AddRunSteps(r, spans) {
				b.addProblem(r, "no step of the run counts by the rule (%s)", s.Rule)
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

func (b *Breakdown) addProblem(r runs.Run, format string, a ...any) {
	b.Problems = append(b.Problems, runs.Problem{File: r.Dir, Reason: fmt.Sprintf(format, a...)})
}

// stepTimeColumns returns the names and values of the columns that contain times, in the order of the
// table.
func stepTimeColumns() []struct {
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

// table returns the breakdown in milliseconds for display, and in seconds for files.
func (b *Breakdown) table(maxRows int) resultTable {
	g := grid.Grid[StepTime]{What: "breakdown", Rows: limitRows(b.Rows, maxRows), Remarks: b.tableRemarks(), Columns: []grid.Column[StepTime]{
		{Name: "series", Brief: true, Text: func(t StepTime) string { return t.Series }},
		{Name: "workers", Brief: true, Count: func(t StepTime) int { return t.Workers }},
		{Name: "overlap", Brief: true, Text: func(t StepTime) string { return t.Overlap }},
		{Name: "runs", Count: func(t StepTime) int { return t.Runs }},
		{Name: "steps", Brief: true, Count: func(t StepTime) int { return t.Steps }},
	}}
	for _, c := range stepTimeColumns() {
		g.Columns = append(g.Columns, grid.Column[StepTime]{
			Name: c.name + "_seconds", Title: c.name + "_ms", Brief: true, Value: c.value,
			Show: func(t StepTime) string { return english.FormatNumber(1000 * c.value(t)) },
		})
	}
	g.Columns = append(g.Columns, grid.Column[StepTime]{
		Name: "wait_share", Brief: true, Value: func(t StepTime) float64 { return t.WaitShare },
		Show: func(t StepTime) string { return fmt.Sprintf("%.1f%%", 100*t.WaitShare) },
	})
	return breakdownTable{g, b.Problems}
}

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

// tableRemarks returns notes that explain the columns, followed by the problems.
func (b *Breakdown) tableRemarks() []string {
	return append([]string{
		"rule: " + b.Rule.String() + "; mean over all steps of all ranks and runs",
		"step = data + forward + backward + wait + optimizer + other; wait is exposed communication",
		"hidden = all_reduce − wait: communication during the backward pass",
	}, problemLines(b.Problems)...)
}

// TimeUseRow describes how the steps of a series at one worker count spend their time, in seconds
// per step, averaged over steps and ranks. Step = Data + Compute + Exposed + Idle. In each
// Estimate, Low and High are the interval of the mean over the recorded steps (not over seeds), Min
// and Max are the extremes of the steps, and N is the number of steps.
type TimeUseRow struct {
	Series             string
	Workers            int
	Source             string // "step spans" of run folders, or "trace"
	Runs, Ranks, Steps int
	Step               Estimate
	Data               Estimate // loading that does not overlap computation or communication
	Compute            Estimate
	Exposed            Estimate // communication that does not overlap computation
	Hidden             Estimate // communication that overlaps computation; included in Compute
	Idle               Estimate // time without loading, computation or communication

	sentence string
}

// TimeUse describes how the training steps of a study spend their time.
//
// Its table has one row per series, worker count and source: series, workers, source,
// runs, ranks, steps, and in seconds per step, each with _low and _high, step_seconds,
// data_seconds, compute_seconds, exposed_seconds, hidden_seconds, idle_seconds.
type TimeUse struct {
	analysis
	Rows     []TimeUseRow
	Problems []runs.Problem
	level    float64
}

// TimeUse divides the time of the steps into data, compute, exposed communication, hidden
// communication and idle time. In the step spans of run folders, compute is forward, backward and
// optimizer, and idle is the time outside all spans. In traces, each part is the time covered by
// spans of that kind; the steps are those marked in the trace, or the complete trace if none are
// marked. Failed runs and epochs that the rule omits do not count, but all steps of a trace count.
func (s *Study) TimeUse() *TimeUse {
	t := &TimeUse{level: s.Rule.confidenceLevel()}
	t.analysis = analysis{t}
	for i, p := range s.Points {
		for _, source := range []string{steptime.SourceSteps, steptime.SourceTrace} {
			u, problems := steptime.MeasureTimeUse(s.cells[i], s.Rule.toMeasurementRule(), source, t.level)
			t.Problems = append(t.Problems, problems...)
			if u.Runs == 0 {
				continue
			}
			u.Series, u.Workers = p.Series, p.Workers
			t.Rows = append(t.Rows, TimeUseRow{
				Series: u.Series, Workers: u.Workers, Source: u.Source, Runs: u.Runs, Ranks: u.Ranks, Steps: u.Steps,
				Step: Estimate(u.Step), Data: Estimate(u.Data), Compute: Estimate(u.Compute),
				Exposed: Estimate(u.Exposed), Hidden: Estimate(u.Hidden), Idle: Estimate(u.Idle),
				sentence: u.Sentence(),
			})
		}
	}
	return t
}

func (t *TimeUse) table(maxRows int) resultTable {
	g := grid.Grid[TimeUseRow]{What: "time use", Rows: limitRows(t.Rows, maxRows), Columns: []grid.Column[TimeUseRow]{
		{Name: "series", Brief: true, Text: func(r TimeUseRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r TimeUseRow) int { return r.Workers }},
		{Name: "source", Brief: true, Text: func(r TimeUseRow) string { return r.Source }},
		{Name: "runs", Count: func(r TimeUseRow) int { return r.Runs }},
		{Name: "ranks", Brief: true, Count: func(r TimeUseRow) int { return r.Ranks }},
		{Name: "steps", Brief: true, Count: func(r TimeUseRow) int { return r.Steps }},
	}}
	for _, part := range []struct {
		name string
		span func(TimeUseRow) Estimate
	}{
		{"step", func(r TimeUseRow) Estimate { return r.Step }},
		{"data", func(r TimeUseRow) Estimate { return r.Data }},
		{"compute", func(r TimeUseRow) Estimate { return r.Compute }},
		{"exposed", func(r TimeUseRow) Estimate { return r.Exposed }},
		{"hidden", func(r TimeUseRow) Estimate { return r.Hidden }},
		{"idle", func(r TimeUseRow) Estimate { return r.Idle }},
	} {
		g.Columns = append(g.Columns, grid.Column[TimeUseRow]{
			Name: part.name + "_seconds", Title: part.name + "_ms", Brief: true,
			Value: func(r TimeUseRow) float64 { return part.span(r).Value },
			Show: func(r TimeUseRow) string {
				v := part.span(r)
				text := english.FormatNumber(1000 * v.Value)
				if half := 500 * (v.High - v.Low); half > 0 {
					text += " ±" + strconv.FormatFloat(half, 'g', 2, 64)
				}
				return text
			},
		},
			grid.Column[TimeUseRow]{Name: part.name + "_seconds_low", Value: func(r TimeUseRow) float64 { return part.span(r).Low }},
			grid.Column[TimeUseRow]{Name: part.name + "_seconds_high", Value: func(r TimeUseRow) float64 { return part.span(r).High }})
	}
	for _, r := range g.Rows {
		g.Remarks = append(g.Remarks, r.sentence)
	}
	g.Remarks = append(g.Remarks,
		"step = data + compute + exposed + idle; exposed is communication without compute at the same time, hidden is communication during compute",
		fmt.Sprintf("±: %s interval of the mean over the recorded steps (moving-block bootstrap), not over seeds", english.FormatPercent(t.level)))
	g.Remarks = append(g.Remarks, problemLines(t.Problems)...)
	return g
}
