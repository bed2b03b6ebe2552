package scaling

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/stat/distuv"
)

// Outcomes of a gate.
const (
	OutcomePass       = "pass"
	OutcomeRegression = "regression"
	OutcomeUnknown    = "cannot tell"
)

// GateRow is the gate at a series and number of workers.
type GateRow struct {
	Series                      string
	Workers                     int
	BaselineRuns, CandidateRuns int
	Regression                  Span // share of speed lost: 0.05 is 5 % slower; negative is faster
	Outcome, Sentence           string
	RunsNeeded                  int // of each, about, to tell; 0 where the outcome is plain, or where too many
}

// GateResult says whether a candidate is slower than a baseline by more than
// is allowed. A cell shows it as a table.
type GateResult struct {
	Limit    float64 // share of speed that may be lost
	Outcome  string  // the worst of the rows': "regression", "cannot tell" or "pass"
	Rows     []GateRow
	Problems []string
	Sentence string
	rule     Rule
}

// Gate compares the speed of a candidate with that of a baseline at every
// series and number of workers that both have, and knows noise from change. A
// row is a regression only where the whole interval of what is lost lies
// above maxRegression (0.05 is 5 %), passes where it lies whole at or below
// it, and is "cannot tell" where the limit lies inside the interval, or a side
// has one run. The intervals are at 1 − (1 − confidence)/rows (Bonferroni), so
// that a table of many rows raises no more false alarms than one row.
func Gate(baseline, candidate *Study, maxRegression float64) (*GateResult, error) {
	if !(maxRegression >= 0 && maxRegression < 1) {
		return nil, fmt.Errorf("gate: the allowed regression is %g: use a share from 0 to 1, such as 0.05 for 5 %%", maxRegression)
	}
	pairs, err := pairsOf(candidate, baseline)
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	c, err := comparePoints(candidate, baseline, pairs)
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	if len(c.Rows) > 1 {
		strict := candidate.Rule
		strict.Confidence = 1 - (1-strict.level())/float64(len(c.Rows))
		again := *candidate
		again.Rule = strict
		if c, err = comparePoints(&again, baseline, pairs); err != nil {
			return nil, fmt.Errorf("gate: %w", err)
		}
	}
	g := &GateResult{Limit: maxRegression, Outcome: OutcomePass, Problems: c.Problems, rule: candidate.Rule}
	count := map[string]int{}
	for _, row := range c.Rows {
		r := gateRow(row, maxRegression)
		g.Rows = append(g.Rows, r)
		count[r.Outcome]++
	}
	lacking := missing(baseline, candidate, pairs)
	for _, r := range lacking {
		g.Rows = append(g.Rows, r)
		count[r.Outcome]++
	}
	for _, p := range candidate.Points {
		if p.Diverged > 0 {
			g.Problems = append(g.Problems, fmt.Sprintf("%s at %s: the loss of %s diverged; their speed counts, but look at them", p.Series, plural(p.Workers, "worker"), plural(p.Diverged, "run")))
		}
	}
	switch {
	case count[OutcomeRegression] > 0:
		g.Outcome = OutcomeRegression
		g.Sentence = fmt.Sprintf("regression: at %d of %d places the candidate is more than %s slower, beyond the noise", count[OutcomeRegression], len(g.Rows), percent(maxRegression))
	case count[OutcomeUnknown] > 0:
		g.Outcome = OutcomeUnknown
		cure := "add seeds to both"
		switch len(lacking) {
		case 0:
		case count[OutcomeUnknown]:
			cure = "run what the candidate lacks"
		default:
			cure += ", and run what the candidate lacks"
		}
		g.Sentence = fmt.Sprintf("cannot tell at %d of %d places whether the candidate is more than %s slower; %s", count[OutcomeUnknown], len(g.Rows), percent(maxRegression), cure)
	default:
		g.Sentence = fmt.Sprintf("pass: the candidate is nowhere more than %s slower", percent(maxRegression))
	}
	return g, nil
}

// missing are the places of the baseline where the candidate has nothing that
// counts: a candidate that crashes must not pass for it, nor one that lacks a
// series.
func missing(baseline, candidate *Study, pairs []pair) []GateRow {
	var rows []GateRow
	for i, p := range baseline.Points {
		m, timed := measureOf(baseline.cells[i : i+1])
		if !timed || slices.ContainsFunc(pairs, func(pr pair) bool { return pr.b == p.Series }) {
			continue
		}
		rows = append(rows, GateRow{
			Series: p.Series, Workers: p.Workers, BaselineRuns: p.Runs, Regression: nothing(), Outcome: OutcomeUnknown,
			Sentence: fmt.Sprintf("%s at %s: the candidate has no series of this name, and so no %s; run it, or give it the name that it has in the baseline", p.Series, plural(p.Workers, "worker"), m.words),
		})
	}
	for _, pr := range pairs {
		for i, p := range baseline.Points {
			m, timed := measureOf(baseline.cells[i : i+1])
			if p.Series != pr.b || !timed {
				continue
			}
			if j, err := candidate.find(pr.a, p.Workers); err == nil {
				if _, timed := measureOf(candidate.cells[j : j+1]); timed {
					continue
				}
			}
			rows = append(rows, GateRow{
				Series: pr.a, Workers: p.Workers, BaselineRuns: p.Runs, Regression: nothing(), Outcome: OutcomeUnknown,
				Sentence: fmt.Sprintf("%s at %s: the candidate has no run with a %s that counts; look at its problems, or run it", pr.a, plural(p.Workers, "worker"), m.words),
			})
		}
	}
	return rows
}

// gateRow judges one comparison of the candidate (A) with the baseline (B).
func gateRow(c Comparison, limit float64) GateRow {
	ratio := c.Ratio
	r := GateRow{
		Series: c.A, Workers: c.Workers, BaselineRuns: c.RunsB, CandidateRuns: c.RunsA,
		Regression: Span{
			Value: 1 - ratio.Value, Min: 1 - ratio.Max, Max: 1 - ratio.Min,
			Low: 1 - ratio.High, High: 1 - ratio.Low, N: ratio.N,
		},
	}
	lost := r.Regression
	change := fmt.Sprintf("%s at %s: %s", r.Series, plural(r.Workers, "worker"), changeText(lost.Value))
	bounds := fmt.Sprintf("between %s and %s", changeText(lost.Low), changeText(lost.High))
	switch {
	case c.same:
		r.Outcome = OutcomePass
		r.Sentence = fmt.Sprintf("%s at %s: %s, the same in baseline and candidate", r.Series, plural(r.Workers, "worker"), plural(c.RunsA, "run"))
	case math.IsNaN(lost.Low):
		r.Outcome = OutcomeUnknown
		r.Sentence = fmt.Sprintf("%s, from %s of the baseline and %s of the candidate: one run says nothing of the noise; run at least 3 seeds of each", change, plural(c.RunsB, "run"), plural(c.RunsA, "run"))
	case lost.Low > limit:
		r.Outcome = OutcomeRegression
		r.Sentence = fmt.Sprintf("%s, %s: more than the allowed %s", change, bounds, percent(limit))
	case lost.High <= limit:
		r.Outcome = OutcomePass
		r.Sentence = fmt.Sprintf("%s, %s: within the allowed %s", change, bounds, percent(limit))
	default:
		r.Outcome = OutcomeUnknown
		r.RunsNeeded = runsNeeded(c, limit)
		r.Sentence = fmt.Sprintf("%s, %s: the allowed %s lies between, so that the runs cannot tell", change, bounds, percent(limit))
		if r.RunsNeeded > 0 {
			r.Sentence += fmt.Sprintf("; about %d runs of each would", r.RunsNeeded)
		} else {
			r.Sentence += fmt.Sprintf("; the change is so near to the limit that more than %d runs of each would be needed", mostRuns)
		}
	}
	return r
}

// changeText is a share of speed lost, for people.
func changeText(lost float64) string {
	if lost < 0 {
		return percent(-lost) + " faster"
	}
	return percent(lost) + " slower"
}

// mostRuns is how many runs one would not do for a gate.
const mostRuns = 100

// runsNeeded is about how many runs of each would narrow the interval to one
// side of the limit, if the spread stays: the half-width falls as 1/√n, and
// Student's quantile with it. 0 where it is more than mostRuns.
func runsNeeded(c Comparison, limit float64) int {
	room := math.Abs(math.Log(c.Ratio.Value) - math.Log(1-limit))
	half := (math.Log(c.Ratio.High) - math.Log(c.Ratio.Low)) / 2
	if room == 0 || !finite(half) {
		return 0
	}
	now := float64(min(c.RunsA, c.RunsB))
	quantile := func(n float64) float64 {
		return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: 2*n - 2}.Quantile(0.975)
	}
	for n := now + 1; n <= mostRuns; n++ {
		if half*quantile(n)/quantile(now)*math.Sqrt(now/n) < room {
			return int(n)
		}
	}
	return 0
}

func (g *GateResult) grid() grid[GateRow] {
	out := grid[GateRow]{what: "gate", rows: g.Rows, columns: []column[GateRow]{
		{name: "series", brief: true, text: func(r GateRow) string { return r.Series }},
		{name: "workers", brief: true, count: func(r GateRow) int { return r.Workers }},
		{name: "baseline_runs", brief: true, count: func(r GateRow) int { return r.BaselineRuns }},
		{name: "candidate_runs", brief: true, count: func(r GateRow) int { return r.CandidateRuns }},
	}}
	out.columns = append(out.columns, spanColumns("regression", true, func(r GateRow) Span { return r.Regression })...)
	out.columns = append(out.columns,
		column[GateRow]{name: "outcome", brief: true, text: func(r GateRow) string { return r.Outcome }},
		column[GateRow]{name: "runs_needed", brief: true, optional: true, count: func(r GateRow) int { return r.RunsNeeded }},
		column[GateRow]{name: "sentence", text: func(r GateRow) string { return r.Sentence }})
	for _, r := range g.Rows {
		out.remarks = append(out.remarks, r.Sentence)
	}
	out.remarks = append(out.remarks, "rule: "+g.rule.counting())
	for _, p := range g.Problems {
		out.remarks = append(out.remarks, "problem: "+p)
	}
	out.remarks = append(out.remarks, g.Sentence)
	return out
}

// Table has a row a series and number of workers: series, workers,
// baseline_runs, candidate_runs, regression, regression_low, regression_high,
// outcome, runs_needed, sentence.
func (g *GateResult) Table() dataframe.DataFrame { return g.grid().table() }

// String is the table for people; its last line is the outcome.
func (g *GateResult) String() string { return g.grid().String() }

// HTML is the table for a notebook's cell.
func (g *GateResult) HTML() string { return g.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (g *GateResult) Write(w io.Writer, format string) error { return g.grid().write(w, format) }
