package scaling

import (
	"fmt"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/steptime"
)

// TimeUseRow is where a step's time goes, in seconds a step: the mean over
// steps and ranks. Step = Data + Compute + Exposed + Idle. Low and High are
// the interval of the mean over the steps that were recorded (not over seeds),
// Min and Max the extremes of the steps, N the steps.
type TimeUseRow struct {
	Series             string
	Workers            int
	Source             string // "step spans" of run folders, or "trace"
	Runs, Ranks, Steps int
	Step               Estimate
	Data               Estimate // loading that nothing hides
	Compute            Estimate
	Exposed            Estimate // communication that nothing hides
	Hidden             Estimate // communication while there is computation too; part of Compute
	Idle               Estimate // nothing of these

	sentence string
}

// TimeUse is where the time of a study's steps goes.
//
// Its table has a row a series, number of workers and source: series, workers,
// source, runs, ranks, steps, and in seconds a step, each with _low and _high,
// step_seconds, data_seconds, compute_seconds, exposed_seconds,
// hidden_seconds, idle_seconds.
type TimeUse struct {
	analysis
	Rows     []TimeUseRow
	Problems []runs.Problem
	level    float64
}

// TimeUse splits the steps' time into data, compute, exposed and hidden
// communication, and idle: from the step spans of run folders (compute is
// forward, backward and optimiser; idle is what no span holds) and from traces
// (by what the spans of a rank cover; steps are the trace's, or the whole of
// it where it tells none). By the rule, failed runs and epochs left out do not
// count; a trace's steps count all.
func (s *Study) TimeUse() *TimeUse {
	t := &TimeUse{level: s.Rule.level()}
	t.analysis = analysis{t}
	for i, p := range s.Points {
		for _, source := range []string{steptime.SourceSteps, steptime.SourceTrace} {
			u, problems := steptime.UseOf(s.cells[i], s.Rule.observed(), source, t.level)
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

func (t *TimeUse) table(most int) table {
	g := grid.Grid[TimeUseRow]{What: "time use", Rows: first(t.Rows, most), Columns: []grid.Column[TimeUseRow]{
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
				text := english.Short(1000 * v.Value)
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
		"step = data + compute + exposed + idle; exposed is communication that nothing hides, hidden is communication during compute",
		fmt.Sprintf("±: %s interval of the mean over the steps recorded (moving-block bootstrap), not over seeds", english.Percent(t.level)))
	for _, p := range t.Problems {
		g.Remarks = append(g.Remarks, "problem: "+p.String())
	}
	return g
}
