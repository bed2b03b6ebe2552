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

// StragglerRow describes when one rank of a run arrives at the collective. In step spans, the
// arrival is the time from the start of the step to its first collective. All ranks leave the
// previous collective together, so these times can be compared. In a trace, each rank has its own
// clock, so the arrival is derived from the duration of the first collective: all ranks leave it
// together, so the last rank to arrive spends the least time in it.
type StragglerRow struct {
	Series              string
	Workers             int
	Source              string // "step spans" of run folders, or "trace"
	Run                 string
	Rank, Steps         int
	Last                int     // steps in which this rank arrived last
	LastShare, Expected float64 // share of the steps in which it arrived last, and 1/N, the share expected if all ranks were alike
	// P is the p-value of a binomial test: the probability that a rank as fast as the others
	// arrives last at least this often. A rank is a straggler if P is below 0.01 divided by the
	// number of ranks.
	P           float64
	LateSeconds float64 // mean delay per step relative to the mean of the other ranks; negative if earlier
	CostSeconds float64 // mean time per step that the others would save if this rank were as fast as the second slowest
	CostShare   float64 // CostSeconds as a share of the step
	Straggler   bool
}

// Stragglers lists how often each rank delays the others.
//
// Its table has one row per run and rank: series, workers, source, run, rank, steps,
// last, last_share, expected_share, p, late_seconds, cost_seconds, cost_share,
// straggler.
type Stragglers struct {
	analysis
	Rows     []StragglerRow
	Problems []runs.Problem
	Sentence string
}

// Stragglers returns how often each rank arrives last at the collective, and how much time this
// costs the other ranks. It analyzes runs with step spans, and runs in which every rank has a trace
// that marks the steps.
func (s *Study) Stragglers() *Stragglers {
	out := &Stragglers{}
	out.analysis = analysis{out}
	var ranks []steptime.RankArrivals
	for i, p := range s.Points {
		for _, r := range s.cells[i].Runs {
			rows, problems := steptime.AnalyzeArrivals(p.Series, r, s.Rule.toMeasurementRule())
			ranks = append(ranks, rows...)
			out.Problems = append(out.Problems, problems...)
		}
	}
	for _, r := range ranks {
		out.Rows = append(out.Rows, StragglerRow(r))
	}
	out.Sentence = steptime.DescribeWorstStraggler(ranks)
	return out
}

func (s *Stragglers) table(maxRows int) resultTable {
	g := grid.Grid[StragglerRow]{What: "stragglers", Rows: limitRows(s.Rows, maxRows), Columns: []grid.Column[StragglerRow]{
		{Name: "series", Brief: true, Text: func(r StragglerRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r StragglerRow) int { return r.Workers }},
		{Name: "source", Text: func(r StragglerRow) string { return r.Source }},
		{Name: "run", Text: func(r StragglerRow) string { return r.Run }},
		{Name: "rank", Brief: true, Count: func(r StragglerRow) int { return r.Rank }},
		{Name: "steps", Brief: true, Count: func(r StragglerRow) int { return r.Steps }},
		{Name: "last", Count: func(r StragglerRow) int { return r.Last }},
		{Name: "last_share", Brief: true, Value: func(r StragglerRow) float64 { return r.LastShare }},
		{Name: "expected_share", Brief: true, Value: func(r StragglerRow) float64 { return r.Expected }},
		{Name: "p", Brief: true, Value: func(r StragglerRow) float64 { return r.P }, Show: func(r StragglerRow) string { return english.FormatPValue(r.P) }},
		{
			Name: "late_seconds", Title: "late_ms", Brief: true, Value: func(r StragglerRow) float64 { return r.LateSeconds },
			Show: func(r StragglerRow) string { return english.FormatNumber(1000 * r.LateSeconds) },
		},
		{
			Name: "cost_seconds", Title: "cost_ms", Brief: true, Value: func(r StragglerRow) float64 { return r.CostSeconds },
			Show: func(r StragglerRow) string { return english.FormatNumber(1000 * r.CostSeconds) },
		},
		{Name: "cost_share", Brief: true, Value: func(r StragglerRow) float64 { return r.CostShare }},
		{Name: "straggler", Brief: true, Flag: func(r StragglerRow) bool { return r.Straggler }},
	}}
	g.Remarks = []string{s.Sentence, "late: time after the mean arrival of the other ranks; cost: time that the others wait for this rank alone; both per step. p assumes that the steps are independent"}
	g.Remarks = append(g.Remarks, problemLines(s.Problems)...)
	return g
}

// Values of BottleneckRow.Bound.
const (
	BoundInput   = steptime.BoundInput
	BoundCompute = steptime.BoundCompute
	BoundUnclear = steptime.BoundUnclear // the ranges of the IO and SYNTHETIC trials overlap, or FULL is faster than the slower of them
)

// BottleneckRow describes what limits the throughput of one run, according to its trials. Rates are
// in samples per second. The interval of a rate is the value ± the spread in the log; Min and Max
// are the extremes of the individual trials.
type BottleneckRow struct {
	Series  string
	Workers int
	Run     string
	// IO is the rate of the loader alone, Synthetic that of training on data in memory, and Full
	// that of both together.
	IO, Synthetic, Full Estimate
	Bound               string  // the slower of the two, "input" (IO) or "compute" (Synthetic); "unclear" if the trials do not show which
	Share               float64 // Full divided by the slower of IO and Synthetic; 1 means that only a faster bottleneck would help
	// Overlap is the fraction of the possible overlap of loading and training that was achieved. It
	// is 0 if they never overlap (1/Full = 1/IO + 1/Synthetic), and 1 if Full is as fast as the
	// slower of IO and Synthetic.
	Overlap  float64
	Headroom float64 // largest possible speed-up of Full without its bottleneck: the faster of IO and Synthetic divided by Full
	Sentence string
}

// Bottleneck lists what limits the throughput of each run that has trials.
//
// Its table has one row per run: series, workers, run, io, synthetic, full (samples per
// second), bound, share, overlap, headroom, sentence.
type Bottleneck struct {
	analysis
	Rows []BottleneckRow
}

// Bottleneck determines whether loading or computing limits the throughput of each run that has the
// trials IO, SYNTHETIC and FULL. FULL cannot be faster than the slower of IO and SYNTHETIC; the
// result states how close it gets. It is an error if no run has these trials.
func (s *Study) Bottleneck() (*Bottleneck, error) {
	b := &Bottleneck{}
	b.analysis = analysis{b}
	for _, g := range s.groupBySeries() {
		for _, r := range g.Runs {
			if x, ok := steptime.FindBottleneck(g.Name, r); ok {
				b.Rows = append(b.Rows, BottleneckRow{
					Series: x.Series, Workers: x.Workers, Run: x.Run, IO: Estimate(x.IO), Synthetic: Estimate(x.Synthetic), Full: Estimate(x.Full),
					Bound: x.Bound, Share: x.Share, Overlap: x.Overlap, Headroom: x.Headroom, Sentence: x.Sentence,
				})
			}
		}
	}
	if len(b.Rows) == 0 {
		return nil, errors.New("find bottleneck: no run has the trials IO, SYNTHETIC and FULL, which benchy's logs contain")
	}
	slices.SortStableFunc(b.Rows, func(x, y BottleneckRow) int {
		return cmp.Or(runs.NaturalCompare(x.Series, y.Series), cmp.Compare(x.Workers, y.Workers))
	})
	return b, nil
}

func (b *Bottleneck) table(maxRows int) resultTable {
	g := grid.Grid[BottleneckRow]{What: "bottleneck", Rows: limitRows(b.Rows, maxRows), Columns: []grid.Column[BottleneckRow]{
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
