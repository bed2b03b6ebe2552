package scaling

import (
	"cmp"
	"errors"
	"slices"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/steptime"
)

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
