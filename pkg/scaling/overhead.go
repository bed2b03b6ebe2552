package scaling

import (
	"fmt"
	"math"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/stats"
)

// OverheadRow is what communication costs at a number of workers.
type OverheadRow struct {
	Workers, Size int
	With, Without Estimate // speed: throughput, or 1/seconds
	Overhead      Estimate // (without − with)/without, 0 to 1
}

// Overhead is what communication costs a series, from another that is the same
// but for it.
//
// Its table has a row a number of workers: workers, size, with, without, overhead,
// each with _low and _high.
type Overhead struct {
	analysis
	With, Without string
	Measure       string
	Rows          []OverheadRow
	Sentence      string
	rule          Rule
}

// Overhead compares a series with one of the same work without communication:
// at each number of workers that both have, the share of the speed that
// communication costs, (without − with)/without.
func (s *Study) Overhead(with, without string) (*Overhead, error) {
	c, err := s.CompareSeries(with, without)
	if err != nil {
		return nil, fmt.Errorf("find overhead: %w", err)
	}
	o := &Overhead{With: with, Without: without, rule: s.Rule}
	for _, r := range c.Rows {
		i, err := s.find(with, r.Workers)
		if err != nil {
			return nil, fmt.Errorf("find overhead: %w", err)
		}
		j, err := s.find(without, r.Workers)
		if err != nil {
			return nil, fmt.Errorf("find overhead: %w", err)
		}
		a, b := s.Points[i], s.Points[j]
		row := OverheadRow{Workers: r.Workers, Size: a.Size, With: a.Throughput, Without: b.Throughput}
		switch r.Measure {
		case "epoch_seconds":
			row.With, row.Without = inverse(a.EpochSeconds), inverse(b.EpochSeconds)
		case "wall_seconds":
			row.With, row.Without = inverse(a.WallSeconds), inverse(b.WallSeconds)
		}
		o.Measure = r.Measure
		row.Overhead = Estimate(stats.Estimate(r.Ratio).Lost())
		o.Rows = append(o.Rows, row)
	}
	o.analysis = analysis{o}
	o.Sentence = o.say()
	return o, nil
}

// say returns what communication costs at the most workers, and at the fewest.
func (o *Overhead) say() string {
	last := o.Rows[len(o.Rows)-1]
	text := fmt.Sprintf("communication costs %s of the speed at %s", english.Percent(last.Overhead.Value), o.rule.units(last.Size))
	if last.Overhead.Value < 0 {
		text = fmt.Sprintf("communication costs no speed at %s: with it the series is %s faster than without", o.rule.units(last.Size), english.Percent(-last.Overhead.Value))
	}
	switch {
	case math.IsNaN(last.Overhead.Low):
	case last.Overhead.Low <= 0 && last.Overhead.High >= 0:
		text += fmt.Sprintf(" (%s to %s: the runs do not show that it costs anything)", english.Percent(last.Overhead.Low), english.Percent(last.Overhead.High))
	default:
		text += fmt.Sprintf(" (%s to %s)", english.Percent(last.Overhead.Low), english.Percent(last.Overhead.High))
	}
	if first := o.Rows[0]; len(o.Rows) > 1 {
		text += fmt.Sprintf(", and %s at %s", english.Percent(first.Overhead.Value), o.rule.units(first.Size))
	}
	return text + "."
}

// inverse returns the estimate of 1/x.
func inverse(e Estimate) Estimate { return Estimate(stats.Estimate(e).Inverse()) }

func (o *Overhead) table(most int) table {
	g := grid.Grid[OverheadRow]{What: "overhead", Rows: first(o.Rows, most), Columns: []grid.Column[OverheadRow]{
		{Name: "workers", Brief: true, Count: func(r OverheadRow) int { return r.Workers }},
		{Name: "size", Count: func(r OverheadRow) int { return r.Size }},
	}}
	g.Columns = append(g.Columns, estimateColumns("with", func(r OverheadRow) Estimate { return r.With })...)
	g.Columns = append(g.Columns, estimateColumns("without", func(r OverheadRow) Estimate { return r.Without })...)
	g.Columns = append(g.Columns, estimateColumns("overhead", func(r OverheadRow) Estimate { return r.Overhead })...)
	g.Remarks = []string{
		o.Sentence,
		fmt.Sprintf("with: %s; without: %s; of %s; overhead = (without − with)/without", o.With, o.Without, rateWords[o.Measure]),
		"rule: " + o.rule.counting(),
	}
	return g
}
