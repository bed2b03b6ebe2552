package scaling

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/go-gota/gota/dataframe"
)

// BudgetRow is how many workers a budget allows a series.
type BudgetRow struct {
	Series      string
	Workers     int     // 0 where the budget is too small for any
	Hours       float64 // of the clock
	DeviceHours float64
	Predicted   bool // by the fitted law, between or beyond what was measured
	Sentence    string
}

// Budget is the answer to "how many workers for so many device-hours?". A cell
// shows it as a table.
type Budget struct {
	DeviceHours float64
	Basis       string // what the hours pay for: "whole job", "training" or "an epoch"
	Rows        []BudgetRow
	Sentence    string
	unlike      []string // series whose rows are not the same work
}

// farthestPredicted is how many times the most workers measured a budget is
// predicted for: a law says little beyond.
const farthestPredicted = 2

// Budget finds for each series the fastest number of workers whose run costs
// at most so many device-hours: among those measured, and where a law was
// fitted also among those between and up to twice as many as were measured.
func (s *Study) Budget(deviceHours float64) (*Budget, error) {
	if !(deviceHours > 0) || math.IsInf(deviceHours, 0) {
		return nil, fmt.Errorf("budget: %g device-hours: give a number above 0", deviceHours)
	}
	cost, err := s.Cost(0)
	if err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	b := &Budget{DeviceHours: deviceHours, Basis: cost.Rows[0].Basis, unlike: cost.unlike}
	var sentences []string
	for _, series := range s.Series() {
		rows := s.budgetRows(series, cost.Rows, deviceHours)
		b.Rows = append(b.Rows, rows...)
		for _, r := range rows {
			sentences = append(sentences, r.Sentence)
		}
	}
	b.Sentence = strings.Join(sentences, " ")
	return b, nil
}

func (s *Study) budgetRows(series string, all []CostRow, budget float64) []BudgetRow {
	best := BudgetRow{Series: series, Hours: math.Inf(1)}
	cheapest := CostRow{DeviceHours: Span{Value: math.Inf(1)}}
	for _, r := range all {
		if r.Series != series {
			continue
		}
		if r.DeviceHours.Value < cheapest.DeviceHours.Value {
			cheapest = r
		}
		if r.DeviceHours.Value <= budget && r.Hours.Value < best.Hours {
			best.Workers, best.Hours, best.DeviceHours = r.Workers, r.Hours.Value, r.DeviceHours.Value
		}
	}
	if cheapest.Workers == 0 {
		return nil
	}
	if best.Workers == 0 {
		best.Hours, best.DeviceHours = math.NaN(), math.NaN()
		best.Sentence = fmt.Sprintf("%s: %s device-hours are not enough; the cheapest that was measured, %s, needs %s.",
			series, short(budget), plural(cheapest.Workers, "worker"), short(cheapest.DeviceHours.Value))
		return []BudgetRow{best}
	}
	best.Sentence = fmt.Sprintf("%s: with %s device-hours use %s: %s h, %s device-hours, as measured.",
		series, short(budget), plural(best.Workers, "worker"), short(best.Hours), short(best.DeviceHours))
	rows := []BudgetRow{best}
	if p, ok := s.predicted(series, cheapest, best, budget); ok {
		rows = append(rows, p)
	}
	return rows
}

// predicted is the fastest number of workers within the budget by the series'
// best law, if it is faster than what was measured.
func (s *Study) predicted(series string, from CostRow, measured BudgetRow, budget float64) (BudgetRow, bool) {
	if s.Rule.Per == PerNode || s.Mode(series).Samples == perWorkerFixed { // a law of nodes says nothing of workers
		return BudgetRow{}, false
	}
	fits, err := s.Fit(series)
	if err != nil {
		return BudgetRow{}, false
	}
	fit := fits.Named()
	if fit == nil { // a law that the data contradict predicts nothing
		return BudgetRow{}, false
	}
	p := BudgetRow{Series: series, Predicted: true, Hours: measured.Hours}
	for n := 1; n <= farthestPredicted*fit.largest; n++ {
		hours := from.Hours.Value * fit.Rate(float64(from.Workers)) / fit.Rate(float64(n))
		if devices := hours * float64(n); devices <= budget && hours < p.Hours {
			p.Workers, p.Hours, p.DeviceHours = n, hours, devices
		}
	}
	if p.Workers == 0 || p.Workers == measured.Workers {
		return p, false
	}
	p.Sentence = fmt.Sprintf("By %s %s would do it in %s h for %s device-hours.",
		lawNames(fit.Law), plural(p.Workers, "worker"), short(p.Hours), short(p.DeviceHours))
	return p, true
}

func (b *Budget) grid() grid[BudgetRow] {
	g := grid[BudgetRow]{what: "budget", rows: b.Rows, columns: []column[BudgetRow]{
		{name: "series", brief: true, text: func(r BudgetRow) string { return r.Series }},
		{name: "workers", brief: true, count: func(r BudgetRow) int { return r.Workers }},
		{name: "hours", brief: true, value: func(r BudgetRow) float64 { return r.Hours }},
		{name: "device_hours", brief: true, value: func(r BudgetRow) float64 { return r.DeviceHours }},
		{name: "predicted", brief: true, flag: func(r BudgetRow) bool { return r.Predicted }},
		{name: "sentence", text: func(r BudgetRow) string { return r.Sentence }},
	}}
	for _, r := range b.Rows {
		g.remarks = append(g.remarks, r.Sentence)
	}
	g.remarks = append(append(g.remarks, "hours are of "+b.Basis), unlikeWork(b.unlike)...)
	return g
}

// Table has a row or two a series: series, workers, hours, device_hours,
// predicted, sentence.
func (b *Budget) Table() dataframe.DataFrame { return b.grid().table() }

// String is the table for people.
func (b *Budget) String() string { return b.grid().String() }

// HTML is the table for a notebook's cell.
func (b *Budget) HTML() string { return b.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (b *Budget) Write(w io.Writer, format string) error { return b.grid().write(w, format) }
