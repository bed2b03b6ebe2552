package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/runs"
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

// Breakdown is where the steps' time of a study goes. A cell shows it as a
// table.
type Breakdown struct {
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
	for _, g := range s.grouped() {
		sums := map[int]*stepSums{}
		for _, r := range g.runs {
			if r.Info.Status == runs.StatusFailed || r.Info.Status == runs.StatusCanceled {
				continue
			}
			n := r.Info.Workers
			if sums[n] == nil {
				sums[n] = &stepSums{}
			}
			s.addSteps(b, r, sums[n])
		}
		rows := len(b.Rows)
		for n, sum := range sums {
			if sum.steps > 0 {
				b.Rows = append(b.Rows, sum.mean(g.name, n))
			}
		}
		slices.SortFunc(b.Rows[rows:], func(x, y StepTime) int { return cmp.Compare(x.Workers, y.Workers) })
	}
	return b
}

// stepSums are sums over the steps of all ranks and runs.
type stepSums struct {
	runs, steps int
	span        runs.Step
	overlap     []string // that were seen
	// Of rank 0, whose clock epochs.csv has: its steps, and the seconds of its
	// epochs that its spans do not hold.
	firstSteps int
	other      float64
}

// addSteps adds the steps of r that count.
func (s *Study) addSteps(b *Breakdown, r runs.Run, sum *stepSums) {
	problem := func(format string, a ...any) {
		b.Problems = append(b.Problems, runs.Problem{File: r.Dir, Reason: fmt.Sprintf(format, a...)})
	}
	if len(r.Workers) == 0 {
		problem("the run has no step spans (steps-<rank>.jsonl); lockstep train writes them")
		return
	}
	seconds := map[int]float64{} // of the epochs that count
	counts := s.counting(r)
	for i, e := range r.Epochs {
		if counts(i) && e.Seconds > 0 {
			seconds[e.Epoch] = e.Seconds
		}
	}
	var own stepSums
	for rank := range r.Info.Workers {
		_, steps, problems, err := runs.ReadSteps(r.Dir, rank)
		b.Problems = append(b.Problems, problems...)
		if err != nil {
			problem("the spans of rank %d do not count: %v", rank, err)
			continue
		}
		seen := map[int]bool{}
		for _, step := range steps {
			if seconds[step.Epoch] > 0 {
				own.add(step, rank)
				if rank == 0 && !seen[step.Epoch] {
					seen[step.Epoch] = true
					own.other += seconds[step.Epoch]
				}
			}
		}
	}
	if own.steps == 0 {
		problem("no step of the run counts by the rule (%s)", s.Rule)
		return
	}
	sum.runs++
	sum.steps += own.steps
	sum.firstSteps += own.firstSteps
	sum.other += own.other
	sum.addSpan(own.span)
	if o := overlap(r); !slices.Contains(sum.overlap, o) {
		sum.overlap = append(sum.overlap, o)
	}
}

func (s *stepSums) add(x runs.Step, rank int) {
	s.steps++
	s.addSpan(x)
	if rank == 0 {
		s.firstSteps++
		s.other -= x.Data + x.Forward + x.Backward + x.Wait + x.Optimizer
	}
}

func (s *stepSums) addSpan(x runs.Step) {
	s.span.Data += x.Data
	s.span.Forward += x.Forward
	s.span.Backward += x.Backward
	s.span.Wait += x.Wait
	s.span.AllReduce += x.AllReduce
	s.span.Optimizer += x.Optimizer
}

func (s *stepSums) mean(series string, workers int) StepTime {
	n := float64(s.steps)
	t := StepTime{
		Series: series, Workers: workers, Runs: s.runs, Steps: s.steps,
		Data: s.span.Data / n, Forward: s.span.Forward / n, Backward: s.span.Backward / n,
		Wait: s.span.Wait / n, Optimizer: s.span.Optimizer / n, AllReduce: s.span.AllReduce / n,
	}
	if s.firstSteps > 0 {
		t.Other = s.other / float64(s.firstSteps)
	}
	t.Step = t.Data + t.Forward + t.Backward + t.Wait + t.Optimizer + t.Other
	t.Hidden = max(0, t.AllReduce-t.Wait)
	t.WaitShare = t.Wait / t.Step
	if t.Overlap = s.overlap[0]; len(s.overlap) > 1 {
		t.Overlap = "mixed"
	}
	return t
}

// overlap is the engine's option in the run's config.
func overlap(r runs.Run) string {
	engine, ok := r.Info.Config["engine"].(map[string]any)
	if !ok {
		return ""
	}
	switch on, ok := engine["overlap"].(bool); {
	case !ok:
		return ""
	case on:
		return "on"
	}
	return "off"
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

// grid is the breakdown as a table; people read milliseconds.
func (b *Breakdown) grid() grid[StepTime] {
	g := grid[StepTime]{what: "breakdown", rows: b.Rows, remarks: b.remarks(), columns: []column[StepTime]{
		{name: "series", brief: true, text: func(t StepTime) string { return t.Series }},
		{name: "workers", brief: true, count: func(t StepTime) int { return t.Workers }},
		{name: "overlap", brief: true, text: func(t StepTime) string { return t.Overlap }},
		{name: "runs", count: func(t StepTime) int { return t.Runs }},
		{name: "steps", brief: true, count: func(t StepTime) int { return t.Steps }},
	}}
	for _, c := range stepColumns() {
		g.columns = append(g.columns, column[StepTime]{
			name: c.name + "_seconds", title: c.name + "_ms", brief: true, value: c.value,
			show: func(t StepTime) string { return short(1000 * c.value(t)) },
		})
	}
	g.columns = append(g.columns, column[StepTime]{
		name: "wait_share", brief: true, value: func(t StepTime) float64 { return t.WaitShare },
		show: func(t StepTime) string { return fmt.Sprintf("%.1f%%", 100*t.WaitShare) },
	})
	return g
}

// Table has a row for each series and number of workers. The columns are those
// of StepTime: series, workers, overlap, runs, steps; in seconds per step
// step_seconds, data_seconds, forward_seconds, backward_seconds, wait_seconds,
// optimizer_seconds, other_seconds, all_reduce_seconds, hidden_seconds; and
// wait_share.
func (b *Breakdown) Table() dataframe.DataFrame { return b.grid().table() }

// Write writes the rows as "table" (for people: milliseconds, then what the
// columns mean and the problems), "csv" or "json" (seconds, exact numbers). It
// is an error that no run has step spans.
func (b *Breakdown) Write(w io.Writer, format string) error {
	if len(b.Rows) == 0 {
		text := "write breakdown: no run has step spans that count"
		for _, p := range b.Problems {
			text += "\n  " + p.String()
		}
		return errors.New(text)
	}
	return b.grid().write(w, format)
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

// String is the table for people.
func (b *Breakdown) String() string { return b.grid().String() }

// HTML is the table for people in a notebook's cell.
func (b *Breakdown) HTML() string { return b.grid().html() }
