package scaling

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/runs"
)

// StragglerRow is how a rank of a run arrives at the collective. In step spans
// a rank's arrival is the time from its step's start to its first collective:
// all ranks leave the collective before together. The ranks of a trace have a
// clock each, and the arrival is read from the first collective itself: who
// came last is in it for the shortest time, since all leave it together.
type StragglerRow struct {
	Series              string
	Workers             int
	Source              string // "step spans" of run folders, or "trace"
	Run                 string
	Rank, Steps         int
	Last                int     // steps in which the rank came last
	LastShare, Expected float64 // of the steps: as counted, and 1/N if all were alike
	// P is how likely a rank like the others is last so often (binomial); a
	// rank is a straggler where P is below 0.01 over the number of ranks.
	P           float64
	LateSeconds float64 // a step: behind the mean of the others, negative if ahead
	CostSeconds float64 // a step: by which the others would be done sooner, were it as fast as the last but one
	CostShare   float64 // of a step
	Straggler   bool
}

// Stragglers is who keeps the others waiting. A cell shows it as a table.
type Stragglers struct {
	Rows     []StragglerRow
	Problems []runs.Problem
	Sentence string
}

// Stragglers says of each rank of each run with step spans, or with traces of
// all ranks that mark the steps, how often it is the last at the collective,
// and what that costs the others.
func (s *Study) Stragglers() *Stragglers {
	out := &Stragglers{}
	for i, p := range s.Points {
		for _, r := range s.cells[i].runs {
			if p.Workers < 2 {
				continue
			}
			steps, problems := s.stepsOf(r)
			out.Problems = append(out.Problems, problems...)
			out.Rows = append(out.Rows, stragglers(p, r, SourceSteps, stepArrivals(steps))...)
			arrivals, problems := traceArrivals(r)
			out.Problems = append(out.Problems, problems...)
			out.Rows = append(out.Rows, stragglers(p, r, SourceTrace, arrivals)...)
		}
	}
	out.Sentence = out.say()
	return out
}

// arrivals is when the ranks of a step came to its first collective, in
// seconds from a moment of the step that is the same for all, and how long the
// step took, in the mean over the ranks.
type arrivals struct {
	at   []float64 // by rank
	step float64
}

// stepArrivals are those of a run folder's steps.
func stepArrivals(steps [][]runs.Step) []arrivals {
	var out []arrivals
	for _, step := range steps {
		a := arrivals{at: make([]float64, len(step))}
		for rank, x := range step {
			a.at[rank] = x.UntilCollective
			a.step += (x.Data + x.Forward + x.Backward + x.Wait + x.Optimizer) / float64(len(step))
		}
		if slices.Max(a.at) > 0 { // else the spans are of a version that did not record it
			out = append(out, a)
		}
	}
	return out
}

// traceArrivals are those of the steps that the traces of a run's ranks mark.
func traceArrivals(r runs.Run) ([]arrivals, []runs.Problem) {
	byRank := map[int][]runs.Span{}
	for _, s := range r.Spans {
		byRank[s.Rank] = append(byRank[s.Rank], s)
	}
	if len(byRank) < 2 {
		return nil, nil
	}
	if len(byRank) != r.Info.Workers {
		return nil, []runs.Problem{{File: r.Dir, Reason: fmt.Sprintf("the traces of %d of %d ranks do not tell who comes last: profile all ranks", len(byRank), r.Info.Workers)}}
	}
	var out []arrivals
	for rank := range r.Info.Workers {
		marked := markedSteps(byRank[rank])
		if rank == 0 {
			out = make([]arrivals, len(marked))
		}
		out = out[:min(len(out), len(marked))]
		for i, seconds := range firstCollectives(byRank[rank], marked[:len(out)]) {
			out[i].at = append(out[i].at, -seconds)
			out[i].step += (marked[i].to - marked[i].from) / float64(r.Info.Workers)
		}
	}
	out = slices.DeleteFunc(out, func(a arrivals) bool { return slices.ContainsFunc(a.at, math.IsNaN) })
	if len(out) == 0 {
		return nil, []runs.Problem{{File: r.Dir, Reason: "the traces mark no step with a collective in it at all ranks, so that they do not tell who comes last: call the profiler's step()"}}
	}
	return out, nil
}

// firstCollectives is how long a rank is in the first collective of each step,
// which are in order; NaN where a step has none.
func firstCollectives(spans []runs.Span, steps []stretch) []float64 {
	talk := slices.DeleteFunc(slices.Clone(spans), func(s runs.Span) bool { return s.Kind != runs.SpanCommunication })
	slices.SortStableFunc(talk, func(a, b runs.Span) int { return cmp.Compare(a.Start, b.Start) })
	out := make([]float64, len(steps))
	for i, step := range steps {
		out[i] = math.NaN()
		at, _ := slices.BinarySearchFunc(talk, step.from, func(s runs.Span, from float64) int { return cmp.Compare(s.Start, from) })
		if at < len(talk) && talk[at].Start < step.to {
			out[i] = talk[at].Seconds
		}
	}
	return out
}

// stragglers are the rows of a run, a rank each.
func stragglers(p Point, r runs.Run, source string, steps []arrivals) []StragglerRow {
	n := p.Workers
	rows := make([]StragglerRow, n)
	total := 0.0
	counted := len(steps)
	for _, step := range steps {
		last, latest, next, sum := 0, math.Inf(-1), math.Inf(-1), 0.0
		for rank, at := range step.at {
			sum += at
			switch {
			case at > latest:
				last, latest, next = rank, at, latest
			case at > next:
				next = at
			}
		}
		total += step.step
		for rank, at := range step.at {
			others := (sum - at) / float64(n-1)
			rows[rank].LateSeconds += at - others
		}
		if latest > next { // a tie keeps nobody waiting
			rows[last].Last++
			rows[last].CostSeconds += latest - next
		}
	}
	if counted == 0 {
		return nil
	}
	for rank := range rows {
		x := &rows[rank]
		x.Series, x.Workers, x.Source, x.Run, x.Rank, x.Steps = p.Series, n, source, r.Dir, rank, counted
		x.LastShare, x.Expected = float64(x.Last)/float64(counted), 1/float64(n)
		x.LateSeconds /= float64(counted)
		x.CostSeconds /= float64(counted)
		if total > 0 {
			x.CostShare = x.CostSeconds / (total / float64(len(steps)))
		}
		// P(at least Last) = 1 − P(at most Last − 1).
		x.P = 1
		if x.Last > 0 {
			x.P = distuv.Binomial{N: float64(counted), P: x.Expected}.Survival(float64(x.Last) - 1)
		}
		x.Straggler = x.P < 0.01/float64(n) && x.LateSeconds > 0
	}
	return rows
}

// say names the worst of the stragglers.
func (s *Stragglers) say() string {
	if len(s.Rows) == 0 {
		return "no run of several workers has step spans that count, or traces of all ranks"
	}
	found := slices.DeleteFunc(slices.Clone(s.Rows), func(r StragglerRow) bool { return !r.Straggler })
	if len(found) == 0 {
		return "no rank is the last at the collective more often than chance makes it"
	}
	worst := slices.MaxFunc(found, func(a, b StragglerRow) int {
		if a.CostSeconds < b.CostSeconds {
			return -1
		}
		return 1
	})
	return fmt.Sprintf("rank %d of %s is the last at the collective in %s of %s (%s by chance), and costs the others %s ms a step (%s of it)",
		worst.Rank, worst.Run, percent(math.Round(1000*worst.LastShare)/1000), plural(worst.Steps, "step"),
		percent(math.Round(1000*worst.Expected)/1000), short(1000*worst.CostSeconds), percent(math.Round(1000*worst.CostShare)/1000))
}

func (s *Stragglers) grid() grid[StragglerRow] {
	g := grid[StragglerRow]{what: "stragglers", rows: s.Rows, columns: []column[StragglerRow]{
		{name: "series", brief: true, text: func(r StragglerRow) string { return r.Series }},
		{name: "workers", brief: true, count: func(r StragglerRow) int { return r.Workers }},
		{name: "source", text: func(r StragglerRow) string { return r.Source }},
		{name: "run", text: func(r StragglerRow) string { return r.Run }},
		{name: "rank", brief: true, count: func(r StragglerRow) int { return r.Rank }},
		{name: "steps", brief: true, count: func(r StragglerRow) int { return r.Steps }},
		{name: "last", count: func(r StragglerRow) int { return r.Last }},
		{name: "last_share", brief: true, value: func(r StragglerRow) float64 { return r.LastShare }},
		{name: "expected_share", brief: true, value: func(r StragglerRow) float64 { return r.Expected }},
		{name: "p", brief: true, value: func(r StragglerRow) float64 { return r.P }, show: func(r StragglerRow) string { return pText(r.P) }},
		{
			name: "late_seconds", title: "late_ms", brief: true, value: func(r StragglerRow) float64 { return r.LateSeconds },
			show: func(r StragglerRow) string { return short(1000 * r.LateSeconds) },
		},
		{
			name: "cost_seconds", title: "cost_ms", brief: true, value: func(r StragglerRow) float64 { return r.CostSeconds },
			show: func(r StragglerRow) string { return short(1000 * r.CostSeconds) },
		},
		{name: "cost_share", brief: true, value: func(r StragglerRow) float64 { return r.CostShare }},
		{name: "straggler", brief: true, flag: func(r StragglerRow) bool { return r.Straggler }},
	}}
	g.remarks = []string{s.Sentence, "late: behind the mean of the other ranks; cost: what the others wait for this rank alone; both a step. p takes the steps as independent"}
	for _, p := range s.Problems {
		g.remarks = append(g.remarks, "problem: "+p.String())
	}
	return g
}

// Table has a row a run and rank: series, workers, source, run, rank, steps, last,
// last_share, expected_share, p, late_seconds, cost_seconds, cost_share,
// straggler.
func (s *Stragglers) Table() dataframe.DataFrame { return s.grid().table() }

// String is the table for people, in milliseconds.
func (s *Stragglers) String() string { return s.grid().String() }

// HTML is the table for a notebook's cell.
func (s *Stragglers) HTML() string { return s.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (s *Stragglers) Write(w io.Writer, format string) error { return s.grid().write(w, format) }
