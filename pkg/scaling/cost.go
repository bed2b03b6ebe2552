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

// CostRow is the cost of a run of one series at one worker count. Each worker uses one
// device: a GPU, or the cores of a CPU worker.
type CostRow struct {
	Series      string
	Workers     int
	Runs        int
	Basis       string   // time span that the hours measure: "whole job", "training" or "an epoch"
	Hours       Estimate // elapsed time
	DeviceHours Estimate // Hours × Workers
	Price       Estimate // DeviceHours × Cost.Rate
	EnergyKWh   Estimate // NaN if the runs did not record energy
	Pareto      bool     // no other row is at least as fast and as cheap, and better in one of the two
}

// Cost is the cost of every point of a study.
//
// Its table has one row per series and worker count: series, workers, runs, basis,
// hours, device_hours, price (with a rate), energy_kwh, each with _low and _high, and
// pareto.
type Cost struct {
	analysis
	Rate        float64 // price per device-hour
	Rows        []CostRow
	Sentence    string
	rule        Rule
	growingWork []string // series whose samples per epoch grow with the workers, so that their rows are different work
}

// unequalWorkNotes returns one note per series. The caller passes the series whose samples
// per epoch grow with the number of workers.
func unequalWorkNotes(series []string) []string {
	var out []string
	for _, name := range series {
		out = append(out, fmt.Sprintf("series %s: the samples per epoch grow with the workers, so its rows are not for the same work; compare the throughput instead", name))
	}
	return out
}

// Cost compares the elapsed hours with the device-hours of each point, and computes the
// price at a rate per device-hour (0 if only hours matter). All rows use the same
// basis, so that they can be compared: the time of the complete job if every run has it,
// else the training time, else the time per epoch. If the runs have different numbers of
// epochs, the basis is the time per epoch. Cost ignores the quality of the model: see
// Quality.
func (s *Study) Cost(rate float64) (*Cost, error) {
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return nil, fmt.Errorf("cost: invalid rate %g: use the price of a device-hour, 0 or more", rate)
	}
	basis, seconds := s.costBasis()
	if seconds == nil {
		return nil, errors.New("cost: no counted run has a time")
	}
	c := &Cost{Rate: rate, rule: s.Rule}
	for i, p := range s.Points {
		hours := seconds(i).scale(1.0 / 3600)
		if math.IsNaN(hours.Value) {
			continue
		}
		devices := hours.scale(float64(p.Workers))
		c.Rows = append(c.Rows, CostRow{
			Series: p.Series, Workers: p.Workers, Runs: hours.N, Basis: basis,
			Hours: hours, DeviceHours: devices, Price: devices.scale(rate), EnergyKWh: p.EnergyJoules.scale(1 / 3.6e6),
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
		if s.Mode(name).Samples == verdict.FixedPerWorker {
			c.growingWork = append(c.growingWork, name)
		}
	}
	c.analysis = analysis{c}
	c.Sentence = c.summarize()
	return c, nil
}

// costBasis chooses the measured time from which the cost is computed. It returns the
// name of this time, and a function that returns the time of the i-th point. The function
// is nil if no point has a time.
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

// ParetoFront returns the Pareto front, which consists of the rows with Pareto set. The
// fastest row comes first.
func (c *Cost) ParetoFront() []CostRow {
	var front []CostRow
	for _, r := range c.Rows {
		if r.Pareto {
			front = append(front, r)
		}
	}
	slices.SortStableFunc(front, func(a, b CostRow) int { return cmp.Compare(a.Hours.Value, b.Hours.Value) })
	return front
}

// summarize names the fastest and the cheapest rows in a sentence.
func (c *Cost) summarize() string {
	front := c.ParetoFront()
	name := func(r CostRow) string { return fmt.Sprintf("%s at %s", r.Series, english.Count(r.Workers, "worker")) }
	fast, cheap := front[0], front[len(front)-1]
	hours := func(r CostRow) string {
		return fmt.Sprintf("%s h, %s device-hours", english.Number(r.Hours.Value), english.Number(r.DeviceHours.Value))
	}
	if len(front) == 1 {
		return fmt.Sprintf("%s is the fastest and the cheapest (%s; basis: %s).", name(fast), hours(fast), fast.Basis)
	}
	return fmt.Sprintf("%s is the fastest (%s), and %s is the cheapest (%s); basis: %s. The fastest is %s times as fast and costs %s times as many device-hours.",
		name(fast), hours(fast), name(cheap), hours(cheap), fast.Basis,
		english.Number(cheap.Hours.Value/fast.Hours.Value), english.Number(fast.DeviceHours.Value/cheap.DeviceHours.Value))
}

func (c *Cost) table(maxRows int) table {
	g := grid.Grid[CostRow]{What: "cost", Rows: limitRows(c.Rows, maxRows), Columns: []grid.Column[CostRow]{
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
	g.Remarks = []string{c.Sentence, "pareto: no other row is both as fast and as cheap", "rule: " + c.rule.describeCounting()}
	g.Remarks = append(g.Remarks, unequalWorkNotes(c.growingWork)...)
	return g
}

// BudgetRow is the worker count that a budget allows for a series.
type BudgetRow struct {
	Series      string
	Workers     int     // 0 if the budget is too small for any worker count
	Hours       float64 // elapsed time
	DeviceHours float64
	Predicted   bool // predicted by the fitted law, instead of measured
	Sentence    string
}

// Budget answers "how many workers for this number of device-hours?".
//
// Its table has one or two rows per series: series, workers, hours, device_hours,
// predicted, sentence.
type Budget struct {
	analysis
	DeviceHours float64
	Basis       string // time span that the hours measure: "whole job", "training" or "an epoch"
	Rows        []BudgetRow
	Sentence    string
	growingWork []string // series whose samples per epoch grow with the workers, so that their rows are different work
}

// maxPredictionFactor limits predictions to twice the largest measured worker count:
// beyond that, a fitted law is unreliable.
const maxPredictionFactor = 2

// Budget returns for each series the fastest worker count whose run costs at most
// deviceHours. Candidates are the measured worker counts and, if a law was fitted, all
// counts up to twice the largest measured one.
func (s *Study) Budget(deviceHours float64) (*Budget, error) {
	if !(deviceHours > 0) || math.IsInf(deviceHours, 0) {
		return nil, fmt.Errorf("budget: invalid number of device-hours %g: use a number above 0", deviceHours)
	}
	cost, err := s.Cost(0)
	if err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	b := &Budget{DeviceHours: deviceHours, Basis: cost.Rows[0].Basis, growingWork: cost.growingWork}
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

// budgetRows returns a row with the fastest measured worker count of a series within the
// budget (0 workers if the budget is too small) and, if a law predicts a faster one
// within the budget, a second row with the prediction. It returns nil if all contains no
// row of the series.
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
		best.Sentence = fmt.Sprintf("%s: %s device-hours are not enough: the cheapest measured worker count, %s, needs %s.",
			series, english.Number(budget), english.Count(cheapest.Workers, "worker"), english.Number(cheapest.DeviceHours.Value))
		return []BudgetRow{best}
	}
	best.Sentence = fmt.Sprintf("%s: with %s device-hours, use %s (measured: %s h, %s device-hours).",
		series, english.Number(budget), english.Count(best.Workers, "worker"), english.Number(best.Hours), english.Number(best.DeviceHours))
	rows := []BudgetRow{best}
	if p, ok := s.predictBudgetRow(series, cheapest, best, budget); ok {
		rows = append(rows, p)
	}
	return rows
}

// predictBudgetRow predicts, by the law that the data support, the fastest worker count
// within the budget. from is the measured row of the series from which it extrapolates. It
// returns false if the data support no law, or if the predicted count is not faster than
// the measured one.
func (s *Study) predictBudgetRow(series string, from CostRow, measured BudgetRow, budget float64) (BudgetRow, bool) {
	if s.Rule.Per == PerNode || s.Mode(series).Samples == verdict.FixedPerWorker { // a law of nodes cannot predict worker counts
		return BudgetRow{}, false
	}
	fits, err := s.Fit(series)
	if err != nil {
		return BudgetRow{}, false
	}
	fit := fits.SupportedLaw()
	if fit == nil { // no law is supported by the data
		return BudgetRow{}, false
	}
	p := BudgetRow{Series: series, Predicted: true, Hours: measured.Hours}
	for n := 1; n <= maxPredictionFactor*fit.fit.LargestSize(); n++ {
		hours := from.Hours.Value * fit.Rate(float64(from.Workers)) / fit.Rate(float64(n))
		if devices := hours * float64(n); devices <= budget && hours < p.Hours {
			p.Workers, p.Hours, p.DeviceHours = n, hours, devices
		}
	}
	if p.Workers == 0 || p.Workers == measured.Workers {
		return p, false
	}
	p.Sentence = fmt.Sprintf("According to %s, %s would take %s h and %s device-hours.",
		law.SentenceName(fit.Law), english.Count(p.Workers, "worker"), english.Number(p.Hours), english.Number(p.DeviceHours))
	return p, true
}

func (b *Budget) table(maxRows int) table {
	g := grid.Grid[BudgetRow]{What: "budget", Rows: limitRows(b.Rows, maxRows), Columns: []grid.Column[BudgetRow]{
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
	g.Remarks = append(append(g.Remarks, "basis of the hours: "+b.Basis), unequalWorkNotes(b.growingWork)...)
	return g
}
