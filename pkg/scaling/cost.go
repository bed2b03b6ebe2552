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
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/verdict"
)

// Values of CostRow.Basis.
const (
	basisWall  = "whole job"
	basisTrain = "training"
	basisEpoch = "an epoch"
)

// CostRow is the cost of a run of one series at one worker count. Each worker uses one device: a
// GPU, or a CPU worker's cores.
type CostRow struct {
	Series      string
	Workers     int
	Runs        int
	Basis       string   // time span that the hours measure: "whole job", "training" or "an epoch", or one of the first two "per epoch"
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

// unequalWorkNotes returns one note for each of the given series, whose samples per epoch grow with
// the workers.
func unequalWorkNotes(series []string) []string {
	var out []string
	for _, name := range series {
		out = append(out, fmt.Sprintf("series %s: the samples per epoch grow with the workers, so its rows are not for the same work; compare the throughput instead", name))
	}
	return out
}

func (s *Study) seriesWithGrowingWork() []string {
	return slices.DeleteFunc(s.Series(), func(name string) bool { return s.Mode(name).Samples != verdict.FixedPerWorker })
}

// Cost computes the elapsed hours and the device-hours of each point, and the price at a rate per
// device-hour (0 to omit prices). All rows use the same basis: the time of the complete job if
// every run has it, else the training time, else the time per epoch. If the runs have different
// numbers of epochs, the basis is the time per epoch, which may be the job's time divided by its
// epochs. Cost ignores the quality of the model: see Quality.
func (s *Study) Cost(rate float64) (*Cost, error) {
	if !(rate >= 0) || math.IsInf(rate, 0) {
		return nil, fmt.Errorf("cost: invalid rate %g: use the price of a device-hour, 0 or more", rate)
	}
	basis, seconds := s.chooseCostTime()
	if seconds == nil {
		return nil, errors.New("cost: no counted run has a time")
	}
	c := &Cost{Rate: rate, rule: s.Rule}
	perEpoch := basis != basisEpoch && !s.runsHaveEqualEpochs()
	if perEpoch {
		if !s.allPointsHaveEpochCounts() {
			return nil, fmt.Errorf("cost: the runs trained different numbers of epochs, and not all logs contain a time per epoch or these numbers, so the times of %s cannot be compared: compare runs of equal length", map[string]string{basisWall: "the whole jobs", basisTrain: "the trainings"}[basis])
		}
		basis += ", per epoch"
	}
	for i, p := range s.Points {
		hours := seconds(p).scale(1.0 / 3600)
		if perEpoch {
			hours = hours.scale(1 / s.pointEpochCount(i))
		}
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
	c.growingWork = s.seriesWithGrowingWork()
	c.analysis = analysis{c}
	c.Sentence = c.summarize()
	return c, nil
}

// chooseCostTime chooses the time from which the cost is computed. It returns the name of the time
// and a function that returns it for a point. The function is nil if no point has a time.
func (s *Study) chooseCostTime() (string, func(Point) Estimate) {
	all := func(span func(Point) Estimate) bool {
		return !slices.ContainsFunc(s.Points, func(p Point) bool { return p.Runs > 0 && math.IsNaN(span(p).Value) })
	}
	any := func(span func(Point) Estimate) bool {
		return slices.ContainsFunc(s.Points, func(p Point) bool { return !math.IsNaN(span(p).Value) })
	}
	wall := func(p Point) Estimate { return p.WallSeconds }
	train := func(p Point) Estimate { return p.TrainSeconds }
	epoch := func(p Point) Estimate { return p.EpochSeconds }
	same := s.runsHaveEqualEpochs()
	switch {
	case same && any(wall) && all(wall):
		return basisWall, wall
	case same && any(train) && all(train):
		return basisTrain, train
	case any(epoch):
		return basisEpoch, epoch
	case any(wall):
		return basisWall, wall
	case any(train):
		return basisTrain, train
	}
	return "", nil
}

// ParetoFront returns the rows whose Pareto field is set, the fastest first.
func (c *Cost) ParetoFront() []CostRow {
	front := slices.DeleteFunc(slices.Clone(c.Rows), func(r CostRow) bool { return !r.Pareto })
	slices.SortStableFunc(front, func(a, b CostRow) int { return cmp.Compare(a.Hours.Value, b.Hours.Value) })
	return front
}

func (c *Cost) summarize() string {
	front := c.ParetoFront()
	name := func(r CostRow) string {
		return fmt.Sprintf("%s at %s", r.Series, english.FormatCount(r.Workers, "worker"))
	}
	fast, cheap := front[0], front[len(front)-1]
	hours := func(r CostRow) string {
		return fmt.Sprintf("%s h, %s device-hours", english.FormatNumber(r.Hours.Value), english.FormatNumber(r.DeviceHours.Value))
	}
	if len(front) == 1 {
		return fmt.Sprintf("%s is the fastest and the cheapest (%s; basis: %s).", name(fast), hours(fast), fast.Basis)
	}
	return fmt.Sprintf("%s is the fastest (%s), and %s is the cheapest (%s); basis: %s. The fastest is %s times as fast and costs %s times as many device-hours.",
		name(fast), hours(fast), name(cheap), hours(cheap), fast.Basis,
		english.FormatNumber(cheap.Hours.Value/fast.Hours.Value), english.FormatNumber(fast.DeviceHours.Value/cheap.DeviceHours.Value))
}

func (c *Cost) table(maxRows int) resultTable {
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
	g.Remarks = []string{c.Sentence, "pareto: no other row is both as fast and as cheap", "rule: " + c.rule.describeCountedEpochs()}
	g.Remarks = append(g.Remarks, unequalWorkNotes(c.growingWork)...)
	return g
}

// Project is the work that a budget pays for: one training of Epochs epochs for each seed. A field
// that is 0 is taken from the logs: the most epochs of a run, or the most seeds at one worker
// count.
type Project struct{ Epochs, Seeds int }

// BudgetRow is the worker count that a budget allows for a series.
type BudgetRow struct {
	Series      string
	Workers     int     // 0 if the budget is too small for any worker count
	Hours       float64 // elapsed time of the project, one run after the other
	DeviceHours float64
	Epochs      int  // of each run of the project; 0 if unknown: as many as the runs of the logs
	Seeds       int  // runs of the project
	Predicted   bool // predicted by the fitted law, instead of measured
	Sentence    string
}

// Budget answers "how many workers for this number of device-hours?".
//
// Its table has one or two rows per series: series, workers, hours, device_hours, epochs,
// seeds, predicted, sentence.
type Budget struct {
	analysis
	DeviceHours float64
	Basis       string // time span from which the hours are computed: "whole job", "training" or "an epoch"
	Rows        []BudgetRow
	Sentence    string
	growingWork []string // series whose samples per epoch grow with the workers, so that their rows are different work
}

// maxExtrapolationFactor limits predictions to twice the largest measured worker count, because a
// fitted law is unreliable beyond that.
const maxExtrapolationFactor = 2

// Budget returns for each series the fastest worker count at which a project costs at most
// deviceHours. Without a project, the epochs and seeds are taken from the logs. Candidates are the
// measured worker counts and, if a law was fitted, all counts up to twice the largest measured one.
func (s *Study) Budget(deviceHours float64, project ...Project) (*Budget, error) {
	if !(deviceHours > 0) || math.IsInf(deviceHours, 0) {
		return nil, fmt.Errorf("budget: invalid number of device-hours %g: use a number above 0", deviceHours)
	}
	if len(project) == 0 {
		project = []Project{{}}
	}
	plan := budgetPlan{budget: deviceHours, planned: project[0]}
	if len(project) > 1 || plan.planned.Epochs < 0 || plan.planned.Seeds < 0 {
		return nil, fmt.Errorf("budget: invalid project %v: use one project with 0 (as in the logs) or more epochs and seeds", project)
	}
	basis, seconds := s.chooseCostTime()
	if seconds == nil {
		return nil, errors.New("budget: no counted run has a time")
	}
	known := s.allPointsHaveEpochCounts()
	if plan.planned.Epochs > 0 && basis != basisEpoch && !known {
		if slices.ContainsFunc(s.Points, func(p Point) bool { return p.Runs > 0 && math.IsNaN(p.EpochSeconds.Value) }) {
			return nil, fmt.Errorf("budget: the logs contain only the time of %s, and not how many epochs it trained: leave out the number of epochs, or add it to the logs", map[string]string{basisWall: "the whole job", basisTrain: "the training"}[basis])
		}
		basis, seconds = basisEpoch, func(p Point) Estimate { return p.EpochSeconds }
	}
	plan.epochs, plan.seeds = float64(plan.planned.Epochs), plan.planned.Seeds
	for _, c := range s.cells {
		plan.fillEpochsAndSeeds(c)
	}
	if basis == basisEpoch {
		plan.epochs = max(plan.epochs, 1)
	} else if !known {
		plan.epochs = 0
	}
	var costs []CostRow
	for i, p := range s.Points {
		hours := seconds(p).scale(float64(plan.seeds) / 3600)
		switch {
		case basis == basisEpoch:
			hours = hours.scale(plan.epochs)
		case plan.epochs > 0:
			hours = hours.scale(plan.epochs / s.pointEpochCount(i))
		}
		if !math.IsNaN(hours.Value) {
			costs = append(costs, CostRow{Series: p.Series, Workers: p.Workers, Hours: hours, DeviceHours: hours.scale(float64(p.Workers))})
		}
	}
	b := &Budget{DeviceHours: deviceHours, Basis: basis, growingWork: s.seriesWithGrowingWork()}
	var sentences []string
	for _, series := range s.Series() {
		rows := s.budgetRows(series, costs, plan)
		b.Rows = append(b.Rows, rows...)
		for _, r := range rows {
			sentences = append(sentences, r.Sentence)
		}
	}
	b.analysis = analysis{b}
	b.Sentence = strings.Join(sentences, " ")
	return b, nil
}

// runsHaveEqualEpochs reports whether all counted runs trained the same number of epochs. It is also
// true if no run states its number.
func (s *Study) runsHaveEqualEpochs() bool {
	epochs := map[float64]bool{}
	for _, c := range s.cells {
		for _, r := range c.Runs {
			epochs[observe.TrainedEpochs(r)] = true
		}
	}
	return len(epochs) < 2
}

// pointEpochCount returns the number of epochs of the i-th point's runs, or 0 if it is unknown or the
// runs differ.
func (s *Study) pointEpochCount(i int) float64 {
	n := 0.0
	for k, r := range s.cells[i].Runs {
		one := observe.TrainedEpochs(r)
		if k > 0 && one != n {
			return 0
		}
		n = one
	}
	return n
}

// allPointsHaveEpochCounts reports whether the number of epochs of every point with runs is known.
func (s *Study) allPointsHaveEpochCounts() bool {
	for i := range s.cells {
		if len(s.cells[i].Runs) > 0 && s.pointEpochCount(i) == 0 {
			return false
		}
	}
	return true
}

type budgetPlan struct {
	budget  float64 // device-hours
	planned Project // as the user stated it
	epochs  float64 // of each run; 0 if unknown
	seeds   int
}

// fillEpochsAndSeeds increases the epochs and seeds that the user did not state to those of cell, the
// runs of a series at one worker count.
func (p *budgetPlan) fillEpochsAndSeeds(cell observe.RunGroup) {
	seeds := map[int64]bool{}
	for _, r := range cell.Runs {
		seeds[r.Info.Seed] = true
		if p.planned.Epochs == 0 {
			p.epochs = max(p.epochs, observe.TrainedEpochs(r))
		}
	}
	if p.planned.Seeds == 0 {
		p.seeds = max(p.seeds, len(seeds), 1)
	}
}

// String describes the project, as in "200 epochs with each of 3 seeds, both assumed from the logs".
func (p budgetPlan) String() string {
	epochs, seeds := english.FormatCount(int(math.Round(p.epochs)), "epoch"), english.FormatCount(p.seeds, "seed")
	if p.seeds > 1 {
		seeds = "each of " + seeds
	}
	const assumed = " (assumed from the logs)"
	switch ofLogs := p.planned.Epochs == 0; {
	case p.epochs == 0 && p.seeds == 1:
		return "1 run as in the logs"
	case p.epochs == 0:
		return english.FormatCount(p.seeds, "run") + " as in the logs, one per seed"
	case ofLogs && p.planned.Seeds == 0:
		return epochs + " with " + seeds + ", both assumed from the logs"
	case ofLogs:
		return epochs + assumed + " with " + seeds
	case p.planned.Seeds == 0:
		return epochs + " with " + seeds + assumed
	}
	return epochs + " with " + seeds
}

// budgetRows returns the budget's rows for one series. The first contains the fastest measured
// worker count within the budget, or 0 workers if the budget is too small. If a law predicts a
// faster one within the budget, a second row contains the prediction. all contains the costs of the
// project; budgetRows returns nil if it has no row of the series.
func (s *Study) budgetRows(series string, all []CostRow, plan budgetPlan) []BudgetRow {
	best := BudgetRow{Series: series, Hours: math.Inf(1), Epochs: int(math.Round(plan.epochs)), Seeds: plan.seeds}
	cheapest := CostRow{DeviceHours: Estimate{Value: math.Inf(1)}}
	for _, r := range all {
		if r.Series != series {
			continue
		}
		if r.DeviceHours.Value < cheapest.DeviceHours.Value {
			cheapest = r
		}
		if r.DeviceHours.Value <= plan.budget && r.Hours.Value < best.Hours {
			best.Workers, best.Hours, best.DeviceHours = r.Workers, r.Hours.Value, r.DeviceHours.Value
		}
	}
	if cheapest.Workers == 0 {
		return nil
	}
	if best.Workers == 0 {
		best.Hours, best.DeviceHours = math.NaN(), math.NaN()
		best.Sentence = fmt.Sprintf("%s: %s device-hours are not enough: the cheapest measured worker count, %s, needs %s for %s.",
			series, english.FormatNumber(plan.budget), english.FormatCount(cheapest.Workers, "worker"), english.FormatNumber(cheapest.DeviceHours.Value), plan)
		return []BudgetRow{best}
	}
	best.Sentence = fmt.Sprintf("%s: with %s device-hours, use %s (measured: %s h, %s device-hours) for %s.",
		series, english.FormatNumber(plan.budget), english.FormatCount(best.Workers, "worker"), english.FormatNumber(best.Hours), english.FormatNumber(best.DeviceHours), plan)
	rows := []BudgetRow{best}
	if p, ok := s.predictBudgetRow(series, cheapest, best, plan.budget); ok {
		rows = append(rows, p)
	}
	return rows
}

// predictBudgetRow predicts the fastest worker count within the budget from the law that the data
// support, extrapolating from the measured row from. It returns false if the data support no law,
// or if the predicted count is not faster than the measured one.
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
	p := BudgetRow{Series: series, Predicted: true, Hours: measured.Hours, Epochs: measured.Epochs, Seeds: measured.Seeds}
	for n := 1; n <= maxExtrapolationFactor*fit.fit.LargestSize(); n++ {
		hours := from.Hours.Value * fit.Rate(float64(from.Workers)) / fit.Rate(float64(n))
		if devices := hours * float64(n); devices <= budget && hours < p.Hours {
			p.Workers, p.Hours, p.DeviceHours = n, hours, devices
		}
	}
	if p.Workers == 0 || p.Workers == measured.Workers {
		return p, false
	}
	p.Sentence = fmt.Sprintf("According to %s, %s would take %s h and %s device-hours.",
		law.DisplayName(fit.Law), english.FormatCount(p.Workers, "worker"), english.FormatNumber(p.Hours), english.FormatNumber(p.DeviceHours))
	return p, true
}

func (b *Budget) table(maxRows int) resultTable {
	g := grid.Grid[BudgetRow]{What: "budget", Rows: limitRows(b.Rows, maxRows), Columns: []grid.Column[BudgetRow]{
		{Name: "series", Brief: true, Text: func(r BudgetRow) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r BudgetRow) int { return r.Workers }},
		{Name: "hours", Brief: true, Value: func(r BudgetRow) float64 { return r.Hours }},
		{Name: "device_hours", Brief: true, Value: func(r BudgetRow) float64 { return r.DeviceHours }},
		{Name: "epochs", Brief: true, Count: func(r BudgetRow) int { return r.Epochs }},
		{Name: "seeds", Brief: true, Count: func(r BudgetRow) int { return r.Seeds }},
		{Name: "predicted", Brief: true, Flag: func(r BudgetRow) bool { return r.Predicted }},
		{Name: "sentence", Text: func(r BudgetRow) string { return r.Sentence }},
	}}
	for _, r := range g.Rows {
		g.Remarks = append(g.Remarks, r.Sentence)
	}
	g.Remarks = append(append(g.Remarks, "basis of the hours: "+b.Basis+", times the epochs and seeds of the project"), unequalWorkNotes(b.growingWork)...)
	return g
}
