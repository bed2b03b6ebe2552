package scaling

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/runs"
)

// StragglerRow is how a rank of a run arrives at the collective. A rank's
// arrival is the time from its step's start to its first collective: all ranks
// leave the collective before together.
type StragglerRow struct {
	Series              string
	Workers             int
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

// Stragglers says of each rank of each run with step spans how often it is the
// last at the collective, and what that costs the others.
func (s *Study) Stragglers() *Stragglers {
	out := &Stragglers{}
	for i, p := range s.Points {
		for _, r := range s.cells[i].runs {
			if p.Workers < 2 {
				continue
			}
			steps, problems := s.stepsOf(r)
			out.Problems = append(out.Problems, problems...)
			if len(steps) > 0 {
				out.Rows = append(out.Rows, stragglers(p, r, steps)...)
			}
		}
	}
	out.Sentence = out.say()
	return out
}

// stragglers are the rows of a run, a rank each.
func stragglers(p Point, r runs.Run, steps [][]runs.Step) []StragglerRow {
	n := p.Workers
	rows := make([]StragglerRow, n)
	total := 0.0
	counted := 0
	for _, step := range steps {
		last, latest, next, sum := 0, math.Inf(-1), math.Inf(-1), 0.0
		arrived := 0.0
		for rank, x := range step {
			at := x.UntilCollective
			arrived = max(arrived, at)
			sum += at
			switch {
			case at > latest:
				last, latest, next = rank, at, latest
			case at > next:
				next = at
			}
			total += (x.Data + x.Forward + x.Backward + x.Wait + x.Optimizer) / float64(n)
		}
		if arrived <= 0 { // the spans are of a version that did not record it
			continue
		}
		counted++
		for rank, x := range step {
			others := (sum - x.UntilCollective) / float64(n-1)
			rows[rank].LateSeconds += x.UntilCollective - others
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
		x.Series, x.Workers, x.Run, x.Rank, x.Steps = p.Series, n, r.Dir, rank, counted
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
		return "no run of several workers has step spans that count"
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

// Table has a row a run and rank: series, workers, run, rank, steps, last,
// last_share, expected_share, p, late_seconds, cost_seconds, cost_share,
// straggler.
func (s *Stragglers) Table() dataframe.DataFrame { return s.grid().table() }

// String is the table for people, in milliseconds.
func (s *Stragglers) String() string { return s.grid().String() }

// HTML is the table for a notebook's cell.
func (s *Stragglers) HTML() string { return s.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (s *Stragglers) Write(w io.Writer, format string) error { return s.grid().write(w, format) }
