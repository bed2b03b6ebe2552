package scaling

import (
	"cmp"
	"errors"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/steptime"
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

// Stragglers is who keeps the others waiting.
//
// Its table has a row a run and rank: series, workers, source, run, rank, steps, last,
// last_share, expected_share, p, late_seconds, cost_seconds, cost_share,
// straggler.
type Stragglers struct {
	analysis
	Rows     []StragglerRow
	Problems []runs.Problem
	Sentence string
}

// Stragglers says of each rank of each run with step spans, or with traces of
// all ranks that mark the steps, how often it is the last at the collective,
// and what that costs the others.
func (s *Study) Stragglers() *Stragglers {
	out := &Stragglers{}
	out.analysis = analysis{out}
	var ranks []steptime.Rank
	for i, p := range s.Points {
		for _, r := range s.cells[i].Runs {
			rows, problems := steptime.Ranks(p.Series, r, s.Rule.observed())
			ranks = append(ranks, rows...)
			out.Problems = append(out.Problems, problems...)
		}
	}
	for _, r := range ranks {
		out.Rows = append(out.Rows, StragglerRow(r))
	}
	out.Sentence = steptime.WorstStraggler(ranks)
	return out
}

func (s *Stragglers) table(most int) table {
	g := grid.Grid[StragglerRow]{What: "stragglers", Rows: first(s.Rows, most), Columns: []grid.Column[StragglerRow]{
		{Name: "series", Brief: true, Text: func(r StragglerRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r StragglerRow) int { return r.Workers }},
		{Name: "source", Text: func(r StragglerRow) string { return r.Source }},
		{Name: "run", Text: func(r StragglerRow) string { return r.Run }},
		{Name: "rank", Brief: true, Count: func(r StragglerRow) int { return r.Rank }},
		{Name: "steps", Brief: true, Count: func(r StragglerRow) int { return r.Steps }},
		{Name: "last", Count: func(r StragglerRow) int { return r.Last }},
		{Name: "last_share", Brief: true, Value: func(r StragglerRow) float64 { return r.LastShare }},
		{Name: "expected_share", Brief: true, Value: func(r StragglerRow) float64 { return r.Expected }},
		{Name: "p", Brief: true, Value: func(r StragglerRow) float64 { return r.P }, Show: func(r StragglerRow) string { return english.P(r.P) }},
		{
			Name: "late_seconds", Title: "late_ms", Brief: true, Value: func(r StragglerRow) float64 { return r.LateSeconds },
			Show: func(r StragglerRow) string { return english.Short(1000 * r.LateSeconds) },
		},
		{
			Name: "cost_seconds", Title: "cost_ms", Brief: true, Value: func(r StragglerRow) float64 { return r.CostSeconds },
			Show: func(r StragglerRow) string { return english.Short(1000 * r.CostSeconds) },
		},
		{Name: "cost_share", Brief: true, Value: func(r StragglerRow) float64 { return r.CostShare }},
		{Name: "straggler", Brief: true, Flag: func(r StragglerRow) bool { return r.Straggler }},
	}}
	g.Remarks = []string{s.Sentence, "late: behind the mean of the other ranks; cost: what the others wait for this rank alone; both a step. p takes the steps as independent"}
	for _, p := range s.Problems {
		g.Remarks = append(g.Remarks, "problem: "+p.String())
	}
	return g
}

// Names of the trials that tell a bottleneck, as benchy calls them.
const (
	TrialIO        = steptime.TrialIO
	TrialSynthetic = steptime.TrialSynthetic
	TrialFull      = steptime.TrialFull
)

// Values of BottleneckRow.Bound.
const (
	BoundInput   = steptime.BoundInput
	BoundCompute = steptime.BoundCompute
	BoundUnclear = steptime.BoundUnclear // the trials of the two scatter over each other, or FULL is faster than the slower one
)

// BottleneckRow is what a run's trials say of where its time goes. Rates are
// samples per second; the interval of a rate is what the log says of its
// spread (value ± spread), Min and Max those of the single trials.
type BottleneckRow struct {
	Series  string
	Workers int
	Run     string
	// IO is the loader alone, Synthetic the training on data that is there
	// already, Full both together.
	IO, Synthetic, Full Estimate
	Bound               string  // the slower of the two, "input" (IO) or "compute" (Synthetic), where the trials tell them apart, else "unclear"
	Share               float64 // Full over the slower of the two: 1 is all that can be had without making that faster
	// Overlap is how much of the time that loading and training could pass side
	// by side they do: 0 where one waits for the other all the time
	// (1/Full = 1/IO + 1/Synthetic), 1 where Full is as fast as the slower one.
	Overlap  float64
	Headroom float64 // how many times as fast Full could be at most, were what bounds it free: the faster of the two over Full
	Sentence string
}

// Bottleneck is what bounds each run that has trials.
//
// Its table has a row a run: series, workers, run, io, synthetic, full (samples
// per second), bound, share, overlap, headroom, sentence.
type Bottleneck struct {
	analysis
	Rows []BottleneckRow
}

// Bottleneck says of each run with the trials IO, SYNTHETIC and FULL whether
// loading or computing bounds it: FULL can be no faster than the slower of IO
// and SYNTHETIC, and the two tell how far it is from that.
func (s *Study) Bottleneck() (*Bottleneck, error) {
	b := &Bottleneck{}
	b.analysis = analysis{b}
	for _, g := range s.grouped() {
		for _, r := range g.Runs {
			if x, ok := steptime.BottleneckOf(g.Name, r); ok {
				b.Rows = append(b.Rows, BottleneckRow{
					Series: x.Series, Workers: x.Workers, Run: x.Run, IO: Estimate(x.IO), Synthetic: Estimate(x.Synthetic), Full: Estimate(x.Full),
					Bound: x.Bound, Share: x.Share, Overlap: x.Overlap, Headroom: x.Headroom, Sentence: x.Sentence,
				})
			}
		}
	}
	if len(b.Rows) == 0 {
		return nil, errors.New("find bottleneck: no run has the trials IO, SYNTHETIC and FULL, as benchy's logs have them")
	}
	slices.SortStableFunc(b.Rows, func(x, y BottleneckRow) int {
		return cmp.Or(runs.NaturalCompare(x.Series, y.Series), cmp.Compare(x.Workers, y.Workers))
	})
	return b, nil
}

func (b *Bottleneck) table(most int) table {
	g := grid.Grid[BottleneckRow]{What: "bottleneck", Rows: first(b.Rows, most), Columns: []grid.Column[BottleneckRow]{
		{Name: "series", Brief: true, Text: func(r BottleneckRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r BottleneckRow) int { return r.Workers }},
		{Name: "run", Text: func(r BottleneckRow) string { return r.Run }},
		{Name: "io", Brief: true, Value: func(r BottleneckRow) float64 { return r.IO.Value }},
		{Name: "synthetic", Brief: true, Value: func(r BottleneckRow) float64 { return r.Synthetic.Value }},
		{Name: "full", Brief: true, Value: func(r BottleneckRow) float64 { return r.Full.Value }},
		{Name: "bound", Brief: true, Text: func(r BottleneckRow) string { return r.Bound }},
		{Name: "share", Brief: true, Value: func(r BottleneckRow) float64 { return r.Share }},
		{Name: "overlap", Brief: true, Value: func(r BottleneckRow) float64 { return r.Overlap }},
		{Name: "headroom", Brief: true, Value: func(r BottleneckRow) float64 { return r.Headroom }},
		{Name: "sentence", Text: func(r BottleneckRow) string { return r.Sentence }},
	}}
	for _, r := range g.Rows {
		g.Remarks = append(g.Remarks, r.Sentence)
	}
	return g
}
