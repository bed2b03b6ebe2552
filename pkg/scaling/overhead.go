package scaling

import (
	"fmt"
	"io"
	"math"

	"github.com/go-gota/gota/dataframe"
)

// OverheadRow is what communication costs at a number of workers.
type OverheadRow struct {
	Workers, Size int
	With, Without Span // speed: throughput, or 1/seconds
	Overhead      Span // (without − with)/without, 0 to 1
}

// Overhead is what communication costs a series, from another that is the same
// but for it. A cell shows it as a table.
type Overhead struct {
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
			row.With, row.Without = a.EpochSeconds.inverse(), b.EpochSeconds.inverse()
		case "wall_seconds":
			row.With, row.Without = a.WallSeconds.inverse(), b.WallSeconds.inverse()
		}
		o.Measure = r.Measure
		row.Overhead = Span{
			Value: 1 - r.Ratio.Value, Min: 1 - r.Ratio.Max, Max: 1 - r.Ratio.Min,
			Low: 1 - r.Ratio.High, High: 1 - r.Ratio.Low, N: r.Ratio.N,
		}
		o.Rows = append(o.Rows, row)
	}
	o.Sentence = o.say()
	return o, nil
}

// say returns what communication costs at the most workers, and at the fewest.
func (o *Overhead) say() string {
	last := o.Rows[len(o.Rows)-1]
	text := fmt.Sprintf("communication costs %s of the speed at %s", percent(last.Overhead.Value), o.rule.units(last.Size))
	if last.Overhead.Value < 0 {
		text = fmt.Sprintf("communication costs no speed at %s: with it the series is %s faster than without", o.rule.units(last.Size), percent(-last.Overhead.Value))
	}
	switch {
	case math.IsNaN(last.Overhead.Low):
	case last.Overhead.Low <= 0 && last.Overhead.High >= 0:
		text += fmt.Sprintf(" (%s to %s: the runs do not show that it costs anything)", percent(last.Overhead.Low), percent(last.Overhead.High))
	default:
		text += fmt.Sprintf(" (%s to %s)", percent(last.Overhead.Low), percent(last.Overhead.High))
	}
	if first := o.Rows[0]; len(o.Rows) > 1 {
		text += fmt.Sprintf(", and %s at %s", percent(first.Overhead.Value), o.rule.units(first.Size))
	}
	return text + "."
}

// inverse is the span of 1/x.
func (s Span) inverse() Span {
	return Span{Value: 1 / s.Value, Min: 1 / s.Max, Max: 1 / s.Min, Low: 1 / s.High, High: 1 / s.Low, N: s.N}
}

func (o *Overhead) grid() grid[OverheadRow] {
	g := grid[OverheadRow]{what: "overhead", rows: o.Rows, columns: []column[OverheadRow]{
		{name: "workers", brief: true, count: func(r OverheadRow) int { return r.Workers }},
		{name: "size", count: func(r OverheadRow) int { return r.Size }},
	}}
	g.columns = append(g.columns, spanColumns("with", true, func(r OverheadRow) Span { return r.With })...)
	g.columns = append(g.columns, spanColumns("without", true, func(r OverheadRow) Span { return r.Without })...)
	g.columns = append(g.columns, spanColumns("overhead", true, func(r OverheadRow) Span { return r.Overhead })...)
	g.remarks = []string{
		o.Sentence,
		fmt.Sprintf("with: %s; without: %s; of %s; overhead = (without − with)/without", o.With, o.Without, rateWords(o.Measure)),
		"rule: " + o.rule.counting(),
	}
	return g
}

// Table has a row a number of workers: workers, size, with, without, overhead,
// each with _low and _high.
func (o *Overhead) Table() dataframe.DataFrame { return o.grid().table() }

// String is the table for people.
func (o *Overhead) String() string { return o.grid().String() }

// HTML is the table for a notebook's cell.
func (o *Overhead) HTML() string { return o.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (o *Overhead) Write(w io.Writer, format string) error { return o.grid().write(w, format) }
