package scaling

import (
	"fmt"
	"math"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/law"
	"lockstep/pkg/scaling/internal/verdict"
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

// Budget is the answer to "how many workers for so many device-hours?".
//
// Its table has a row or two a series: series, workers, hours, device_hours,
// predicted, sentence.
type Budget struct {
	analysis
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
	b.analysis = analysis{b}
	b.Sentence = strings.Join(sentences, " ")
	return b, nil
}

func (s *Study) budgetRows(series string, all []CostRow, budget float64) []BudgetRow {
	best := BudgetRow{Series: series, Hours: math.Inf(1)}
	cheapest := CostRow{DeviceHours: Estimate{Value: math.Inf(1)}}
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
			series, english.Short(budget), english.Count(cheapest.Workers, "worker"), english.Short(cheapest.DeviceHours.Value))
		return []BudgetRow{best}
	}
	best.Sentence = fmt.Sprintf("%s: with %s device-hours use %s: %s h, %s device-hours, as measured.",
		series, english.Short(budget), english.Count(best.Workers, "worker"), english.Short(best.Hours), english.Short(best.DeviceHours))
	rows := []BudgetRow{best}
	if p, ok := s.predicted(series, cheapest, best, budget); ok {
		rows = append(rows, p)
	}
	return rows
}

// predicted is the fastest number of workers within the budget by the series'
// best law, if it is faster than what was measured.
func (s *Study) predicted(series string, from CostRow, measured BudgetRow, budget float64) (BudgetRow, bool) {
	if s.Rule.Per == PerNode || s.Mode(series).Samples == verdict.PerWorkerFixed { // a law of nodes says nothing of workers
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
	for n := 1; n <= farthestPredicted*fit.fit.Largest(); n++ {
		hours := from.Hours.Value * fit.Rate(float64(from.Workers)) / fit.Rate(float64(n))
		if devices := hours * float64(n); devices <= budget && hours < p.Hours {
			p.Workers, p.Hours, p.DeviceHours = n, hours, devices
		}
	}
	if p.Workers == 0 || p.Workers == measured.Workers {
		return p, false
	}
	p.Sentence = fmt.Sprintf("By %s %s would do it in %s h for %s device-hours.",
		law.Name(fit.Law), english.Count(p.Workers, "worker"), english.Short(p.Hours), english.Short(p.DeviceHours))
	return p, true
}

func (b *Budget) table(most int) table {
	g := grid.Grid[BudgetRow]{What: "budget", Rows: first(b.Rows, most), Columns: []grid.Column[BudgetRow]{
		{Name: "series", Brief: true, Text: func(r BudgetRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r BudgetRow) int { return r.Workers }},
		{Name: "hours", Brief: true, Value: func(r BudgetRow) float64 { return r.Hours }},
		{Name: "device_hours", Brief: true, Value: func(r BudgetRow) float64 { return r.DeviceHours }},
		{Name: "predicted", Brief: true, Flag: func(r BudgetRow) bool { return r.Predicted }},
		{Name: "sentence", Text: func(r BudgetRow) string { return r.Sentence }},
	}}
	for _, r := range g.Rows {
		g.Remarks = append(g.Remarks, r.Sentence)
	}
	g.Remarks = append(append(g.Remarks, "hours are of "+b.Basis), unlikeWork(b.unlike)...)
	return g
}
