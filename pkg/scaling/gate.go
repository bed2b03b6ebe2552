package scaling

import (
	"fmt"

	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/verdict"
)

// Values of GateResult.Outcome and GateRow.Outcome.
const (
	OutcomePass       = verdict.OutcomePass
	OutcomeRegression = verdict.OutcomeRegression
	OutcomeUnknown    = verdict.OutcomeUnknown
)

// GateRow is the gate's outcome for one series at one worker count.
type GateRow struct {
	Series                      string
	Workers                     int
	BaselineRuns, CandidateRuns int
	Regression                  Estimate // share of speed lost: 0.05 is 5 % slower; negative is faster
	Outcome, Sentence           string
	RunsNeeded                  int // approximate number of runs per side that would decide; 0 if the outcome is clear or too many would be needed
}

// GateResult states whether a candidate is slower than a baseline by more than an allowed fraction.
//
// Its table has one row per series and worker count: series, workers, baseline_runs,
// candidate_runs, regression, regression_low, regression_high, outcome, runs_needed,
// sentence.
type GateResult struct {
	analysis
	Limit    float64 // share of speed that may be lost
	Outcome  string  // the worst outcome of the rows: "regression", "cannot tell" or "pass"
	Rows     []GateRow
	Problems []string
	Sentence string
	rule     Rule
	cautions []string // about both studies; see Study.Cautions
}

// Gate compares the speed of a candidate with that of a baseline for every series and worker count
// that both have, and distinguishes a change from noise. The compared quantity is the lost fraction
// of the speed, with its interval. A row is a regression only if the complete interval is above
// maxRegression (0.05 is 5 %). It passes if the complete interval is at or below maxRegression. It
// is "cannot tell" if the interval contains maxRegression or a side has one run. The intervals have
// confidence 1 − (1 − confidence)/rows (Bonferroni), so that a table with many rows does not raise
// more false alarms than a single row.
func Gate(baseline, candidate *Study, maxRegression float64) (*GateResult, error) {
	if !(maxRegression >= 0 && maxRegression < 1) {
		return nil, fmt.Errorf("gate: invalid allowed regression %g: use a share from 0 to below 1, such as 0.05 for 5 %%", maxRegression)
	}
	if baseline == nil || candidate == nil {
		return nil, fmt.Errorf("gate: %w", errNilStudy)
	}
	found, err := verdict.EvaluateGate(baseline.toVerdictStudy(), candidate.toVerdictStudy(), maxRegression)
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	g := &GateResult{Limit: maxRegression, Outcome: found.Outcome, Problems: found.Problems, Sentence: found.Sentence, rule: candidate.Rule, cautions: mergeCautions(baseline, candidate)}
	g.analysis = analysis{g}
	for _, r := range found.Rows {
		g.Rows = append(g.Rows, GateRow{
			Series: r.Series, Workers: r.Workers, BaselineRuns: r.BaselineRuns, CandidateRuns: r.CandidateRuns,
			Regression: Estimate(r.Regression), Outcome: r.Outcome, Sentence: r.Sentence, RunsNeeded: r.RunsNeeded,
		})
	}
	return g, nil
}

func (g *GateResult) table(maxRows int) resultTable {
	out := grid.Grid[GateRow]{What: "gate", Rows: limitRows(g.Rows, maxRows), Columns: []grid.Column[GateRow]{
		{Name: "series", Brief: true, Text: func(r GateRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r GateRow) int { return r.Workers }},
		{Name: "baseline_runs", Brief: true, Count: func(r GateRow) int { return r.BaselineRuns }},
		{Name: "candidate_runs", Brief: true, Count: func(r GateRow) int { return r.CandidateRuns }},
	}}
	out.Columns = append(out.Columns, estimateColumns("regression", func(r GateRow) Estimate { return r.Regression })...)
	out.Columns = append(out.Columns,
		grid.Column[GateRow]{Name: "outcome", Brief: true, Text: func(r GateRow) string { return r.Outcome }},
		grid.Column[GateRow]{Name: "runs_needed", Brief: true, Optional: true, Count: func(r GateRow) int { return r.RunsNeeded }},
		grid.Column[GateRow]{Name: "sentence", Text: func(r GateRow) string { return r.Sentence }})
	out.Remarks = formatCautions(g.cautions)
	for _, r := range out.Rows {
		out.Remarks = append(out.Remarks, r.Sentence)
	}
	out.Remarks = append(out.Remarks, "rule: "+g.rule.describeCountedEpochs())
	for _, p := range g.Problems {
		out.Remarks = append(out.Remarks, "problem: "+p)
	}
	out.Remarks = append(out.Remarks, g.Sentence)
	return out
}
