package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/law"
	"lockstep/pkg/scaling/internal/verdict"
)

// Values of CostRow.Basis.
const (
	basisWall  = "whole job"
	basisTrain = "training"
	basisEpoch = "an epoch"
)

// CostRow is what a run of a series costs at a number of workers. A device is
// a worker's: a GPU, or the cores of a CPU worker.
type CostRow struct {
	Series      string
	Workers     int
	Runs        int
	Basis       string   // what the hours are of: "whole job", "training" or "an epoch"
	Hours       Estimate // of the clock
	DeviceHours Estimate // Hours × Workers
	Price       Estimate // DeviceHours × the rate
	EnergyKWh   Estimate // where the run recorded it
	Pareto      bool     // no other row is both as fast and as cheap
}

// Cost is the cost of every point of a study.
//
// Its table has a row a series and number of workers: series, workers, runs,
// basis, hours, device_hours, price (with a rate), energy_kwh, each with _low
// and _high, and pareto.
type Cost struct {
	analysis
	Rate     float64 // price of a device-hour
	Rows     []CostRow
	Sentence string
	rule     Rule
	unlike   []string // series whose rows are not the same work
}

// unlikeWork returns a note on each series whose workers do more work the more they are.
func unlikeWork(series []string) []string {
	var out []string
	for _, name := range series {
		out = append(out, fmt.Sprintf("series %s: the samples of an epoch grow with the workers, so that its rows are not the same work; compare its throughput", name))
	}
	return out
}

// Cost sets the hours of the clock against the device-hours, for a price per
// device-hour (0 where only hours matter). The hours are those of the whole
// job where every run tells them, else of the training, else of an epoch: one
// basis for all rows, and of an epoch where runs train different numbers of
// epochs, so that rows can be compared. Quality is not weighed: see Quality.
func (s *Study) Cost(rate float64) (*Cost, error) {
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return nil, fmt.Errorf("cost: the rate is %g: use the price of a device-hour, 0 or more", rate)
	}
	basis, seconds := s.costBasis()
	if seconds == nil {
		return nil, errors.New("cost: no run that counts tells its time")
	}
	c := &Cost{Rate: rate, rule: s.Rule}
	for i, p := range s.Points {
		hours := seconds(i).scaled(1.0 / 3600)
		if math.IsNaN(hours.Value) {
			continue
		}
		devices := hours.scaled(float64(p.Workers))
		c.Rows = append(c.Rows, CostRow{
			Series: p.Series, Workers: p.Workers, Runs: hours.N, Basis: basis,
			Hours: hours, DeviceHours: devices, Price: devices.scaled(rate), EnergyKWh: p.EnergyJoules.scaled(1 / 3.6e6),
		})
	}
	for i, r := range c.Rows {
		c.Rows[i].Pareto = !slices.ContainsFunc(c.Rows, func(o CostRow) bool {
			a, b := o.Hours.Value, r.Hours.Value
			x, y := o.DeviceHours.Value, r.DeviceHours.Value
			return a <= b && x <= y && (a < b || x < y)
		})
	}
	for _, name := range s.Series() {
		if s.Mode(name).Samples == verdict.PerWorkerFixed {
			c.unlike = append(c.unlike, name)
		}
	}
	c.analysis = analysis{c}
	c.Sentence = c.say()
	return c, nil
}

// costBasis returns the time that all points tell, and of which point it is.
func (s *Study) costBasis() (string, func(int) Estimate) {
	epochs := map[int]bool{}
	all := func(span func(Point) Estimate) bool {
		return !slices.ContainsFunc(s.Points, func(p Point) bool { return p.Runs > 0 && math.IsNaN(span(p).Value) })
	}
	any := func(span func(Point) Estimate) bool {
		return slices.ContainsFunc(s.Points, func(p Point) bool { return !math.IsNaN(span(p).Value) })
	}
	for _, c := range s.cells {
		for _, r := range c.Runs {
			epochs[len(r.Epochs)] = true
		}
	}
	wall := func(p Point) Estimate { return p.WallSeconds }
	train := func(p Point) Estimate { return p.TrainSeconds }
	epoch := func(p Point) Estimate { return p.EpochSeconds }
	of := func(span func(Point) Estimate) func(int) Estimate {
		return func(i int) Estimate { return span(s.Points[i]) }
	}
	same := len(epochs) < 2
	switch {
	case same && any(wall) && all(wall):
		return basisWall, of(wall)
	case same && any(train) && all(train):
		return basisTrain, of(train)
	case any(epoch):
		return basisEpoch, of(epoch)
	case any(wall):
		return basisWall, of(wall)
	case any(train):
		return basisTrain, of(train)
	}
	return "", nil
}

// Front returns the rows that no other beats in both time and cost, the fastest
// first.
func (c *Cost) Front() []CostRow {
	var front []CostRow
	for _, r := range c.Rows {
		if r.Pareto {
			front = append(front, r)
		}
	}
	slices.SortStableFunc(front, func(a, b CostRow) int { return cmp.Compare(a.Hours.Value, b.Hours.Value) })
	return front
}

func (c *Cost) say() string {
	front := c.Front()
	name := func(r CostRow) string { return fmt.Sprintf("%s at %s", r.Series, english.Count(r.Workers, "worker")) }
	fast, cheap := front[0], front[len(front)-1]
	hours := func(r CostRow) string {
		return fmt.Sprintf("%s h, %s device-hours", english.Short(r.Hours.Value), english.Short(r.DeviceHours.Value))
	}
	if len(front) == 1 {
		return fmt.Sprintf("%s is the fastest and the cheapest (%s, of %s).", name(fast), hours(fast), fast.Basis)
	}
	return fmt.Sprintf("%s is the fastest (%s), %s the cheapest (%s), of %s; being %s times as fast costs %s times as many device-hours.",
		name(fast), hours(fast), name(cheap), hours(cheap), fast.Basis,
		english.Short(cheap.Hours.Value/fast.Hours.Value), english.Short(fast.DeviceHours.Value/cheap.DeviceHours.Value))
}

func (c *Cost) table(most int) table {
	g := grid.Grid[CostRow]{What: "cost", Rows: first(c.Rows, most), Columns: []grid.Column[CostRow]{
		{Name: "series", Brief: true, Text: func(r CostRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r CostRow) int { return r.Workers }},
		{Name: "runs", Brief: true, Count: func(r CostRow) int { return r.Runs }},
		{Name: "basis", Brief: true, Text: func(r CostRow) string { return r.Basis }},
	}}
	g.Columns = append(g.Columns, estimateColumns("hours", func(r CostRow) Estimate { return r.Hours })...)
	g.Columns = append(g.Columns, estimateColumns("device_hours", func(r CostRow) Estimate { return r.DeviceHours })...)
	if c.Rate > 0 {
		g.Columns = append(g.Columns, estimateColumns("price", func(r CostRow) Estimate { return r.Price })...)
	}
	g.Columns = append(g.Columns, estimateColumns("energy_kwh", func(r CostRow) Estimate { return r.EnergyKWh })...)
	g.Columns = append(g.Columns, grid.Column[CostRow]{Name: "pareto", Brief: true, Flag: func(r CostRow) bool { return r.Pareto }})
	g.Remarks = []string{c.Sentence, "pareto: no other row is both as fast and as cheap", "rule: " + c.rule.counting()}
	g.Remarks = append(g.Remarks, unlikeWork(c.unlike)...)
	return g
}

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

// predicted returns the fastest number of workers within the budget by the series'
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
