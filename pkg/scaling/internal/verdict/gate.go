package verdict

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// Values of GateResult.Outcome and GateRow.Outcome.
const (
	OutcomePass       = "pass"
	OutcomeRegression = "regression"
	OutcomeUnknown    = "cannot tell"
)

// GateRow is the gate's outcome for one series at one worker count; see scaling.GateRow.
type GateRow struct {
	Series                      string
	Workers                     int
	BaselineRuns, CandidateRuns int
	Regression                  stats.Estimate
	Outcome, Sentence           string
	RunsNeeded                  int
}

// GateResult is the gate's outcome for all series and worker counts.
type GateResult struct {
	Outcome  string // the worst outcome of the rows
	Rows     []GateRow
	Problems []string
	Sentence string
}

// EvaluateGate compares the speed of a candidate with that of a baseline, as documented for
// scaling.Gate. limit is the fraction of speed that the candidate may lose.
func EvaluateGate(baseline, candidate Study, limit float64) (*GateResult, error) {
	pairs, err := matchSeries(candidate, baseline)
	if err != nil {
		return nil, err
	}
	c, err := CompareSeriesPairs(candidate, baseline, pairs)
	if err != nil {
		return nil, err
	}
	if len(c.Rows) > 1 {
		strict := candidate
		strict.By.Level = 1 - (1-candidate.By.Level)/float64(len(c.Rows))
		if c, err = CompareSeriesPairs(strict, baseline, pairs); err != nil {
			return nil, err
		}
	}
	g := &GateResult{Outcome: OutcomePass, Problems: c.Problems}
	count := map[string]int{}
	for _, row := range c.Rows {
		r := newGateRow(row, limit)
		g.Rows = append(g.Rows, r)
		count[r.Outcome]++
	}
	lacking := newMissingRows(baseline, candidate, pairs)
	for _, r := range lacking {
		g.Rows = append(g.Rows, r)
		count[r.Outcome]++
	}
	for _, p := range candidate.Points {
		if p.Diverged > 0 {
			g.Problems = append(g.Problems, fmt.Sprintf("%s at %s: the loss of %s diverged; their speed counts, but check them", p.Series, english.FormatCount(p.Workers, "worker"), english.FormatCount(p.Diverged, "run")))
		}
	}
	switch {
	case count[OutcomeRegression] > 0:
		g.Outcome = OutcomeRegression
		g.Sentence = fmt.Sprintf("regression: at %d of %d points, the candidate is more than %s slower, beyond the noise", count[OutcomeRegression], len(g.Rows), english.FormatPercent(limit))
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
		g.Sentence = fmt.Sprintf("cannot tell at %d of %d points whether the candidate is more than %s slower: %s", count[OutcomeUnknown], len(g.Rows), english.FormatPercent(limit), cure)
	default:
		g.Sentence = fmt.Sprintf("pass: the candidate is at no point more than %s slower", english.FormatPercent(limit))
	}
	return g, nil
}

// newMissingRows returns a row "cannot tell" for each point of the baseline at which the candidate
// has no counted run, so that a candidate that crashes or lacks a series does not pass.
func newMissingRows(baseline, candidate Study, pairs []SeriesPair) []GateRow {
	var rows []GateRow
	for _, p := range baseline.Points {
		m, timed := observe.ChooseSpeedMeasure([]observe.RunGroup{p.Cell})
		if !timed || slices.ContainsFunc(pairs, func(pr SeriesPair) bool { return pr.B == p.Series }) {
			continue
		}
		rows = append(rows, GateRow{
			Series: p.Series, Workers: p.Workers, BaselineRuns: len(p.Cell.Runs), Regression: stats.UnknownEstimate(), Outcome: OutcomeUnknown,
			Sentence: fmt.Sprintf("%s at %s: the candidate has no series of this name, and so no %s; run it, or give it the same name as in the baseline", p.Series, english.FormatCount(p.Workers, "worker"), m.Words),
		})
	}
	for _, pr := range pairs {
		for _, p := range baseline.Points {
			m, timed := observe.ChooseSpeedMeasure([]observe.RunGroup{p.Cell})
			if p.Series != pr.B || !timed {
				continue
			}
			if j := candidate.pointIndex(pr.A, p.Workers); j >= 0 {
				if _, timed := observe.ChooseSpeedMeasure([]observe.RunGroup{candidate.Points[j].Cell}); timed {
					continue
				}
			}
			rows = append(rows, GateRow{
				Series: pr.A, Workers: p.Workers, BaselineRuns: len(p.Cell.Runs), Regression: stats.UnknownEstimate(), Outcome: OutcomeUnknown,
				Sentence: fmt.Sprintf("%s at %s: the candidate has no run with a %s that counts; look at its problems, or run it", pr.A, english.FormatCount(p.Workers, "worker"), m.Words),
			})
		}
	}
	return rows
}

// newGateRow returns the outcome of a comparison of the candidate (A) with the baseline (B).
func newGateRow(c Comparison, limit float64) GateRow {
	ratio := c.Ratio
	r := GateRow{
		Series: c.A, Workers: c.Workers, BaselineRuns: c.RunsB, CandidateRuns: c.RunsA,
		Regression: ratio.Complement(),
	}
	lost := r.Regression
	change := fmt.Sprintf("%s at %s: %s", r.Series, english.FormatCount(r.Workers, "worker"), formatSpeedChange(lost.Value))
	bounds := fmt.Sprintf("between %s and %s", formatSpeedChange(lost.Low), formatSpeedChange(lost.High))
	switch {
	case c.same:
		r.Outcome = OutcomePass
		r.Sentence = fmt.Sprintf("%s at %s: the baseline and the candidate contain the same %s", r.Series, english.FormatCount(r.Workers, "worker"), english.FormatCount(c.RunsA, "run"))
	case math.IsNaN(lost.Low):
		r.Outcome = OutcomeUnknown
		r.Sentence = fmt.Sprintf("%s, from %s of the baseline and %s of the candidate: one run does not show the noise; run at least 3 seeds of each", change, english.FormatCount(c.RunsB, "run"), english.FormatCount(c.RunsA, "run"))
	case lost.Low > limit:
		r.Outcome = OutcomeRegression
		r.Sentence = fmt.Sprintf("%s, %s: more than the allowed %s", change, bounds, english.FormatPercent(limit))
	case lost.High <= limit:
		r.Outcome = OutcomePass
		r.Sentence = fmt.Sprintf("%s, %s: within the allowed %s", change, bounds, english.FormatPercent(limit))
	default:
		r.Outcome = OutcomeUnknown
		r.RunsNeeded = estimateRunsNeeded(c, limit)
		r.Sentence = fmt.Sprintf("%s, %s: the allowed %s is in this interval, so the runs cannot decide", change, bounds, english.FormatPercent(limit))
		if r.RunsNeeded > 0 {
			r.Sentence += fmt.Sprintf("; about %d runs of each would", r.RunsNeeded)
		} else {
			r.Sentence += fmt.Sprintf("; the change is so close to the limit that more than %d runs of each would be needed", maxRecommendedRuns)
		}
	}
	return r
}

// formatSpeedChange formats a fraction of lost speed, such as "5 % slower". A negative fraction is
// formatted as faster.
func formatSpeedChange(lost float64) string {
	if lost < 0 {
		return english.FormatPercent(-lost) + " faster"
	}
	return english.FormatPercent(lost) + " slower"
}

const maxRecommendedRuns = 100

// estimateRunsNeeded estimates how many runs the baseline and the candidate each need so that the
// interval no longer contains the limit. It returns 0 if this is more than maxRecommendedRuns. It
// assumes that the spread stays the same: the half-width is proportional to 1/√n and to Student's
// quantile.
func estimateRunsNeeded(c Comparison, limit float64) int {
	margin := math.Abs(math.Log(c.Ratio.Value) - math.Log(1-limit))
	half := (math.Log(c.Ratio.High) - math.Log(c.Ratio.Low)) / 2
	if margin == 0 || !observe.IsFinite(half) {
		return 0
	}
	now := float64(min(c.RunsA, c.RunsB))
	quantile := func(n float64) float64 {
		return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: 2*n - 2}.Quantile(0.975)
	}
	for n := now + 1; n <= maxRecommendedRuns; n++ {
		if half*quantile(n)/quantile(now)*math.Sqrt(now/n) < margin {
			return int(n)
		}
	}
	return 0
}
