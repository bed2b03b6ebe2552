package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/go-gota/gota/dataframe"
)

// Values of CostRow.Basis.
const (
	BasisWall  = "whole job"
	BasisTrain = "training"
	BasisEpoch = "an epoch"
)

// CostRow is what a run of a series costs at a number of workers. A device is
// a worker's: a GPU, or the cores of a CPU worker.
type CostRow struct {
	Series      string
	Workers     int
	Runs        int
	Basis       string // what the hours are of: "whole job", "training" or "an epoch"
	Hours       Span   // of the clock
	DeviceHours Span   // Hours × Workers
	Price       Span   // DeviceHours × the rate
	EnergyKWh   Span   // where the run recorded it
	Pareto      bool   // no other row is both as fast and as cheap
}

// Cost is the cost of every point of a study. A cell shows it as a table.
type Cost struct {
	Rate     float64 // price of a device-hour
	Rows     []CostRow
	Sentence string
	rule     Rule
	unlike   []string // series whose rows are not the same work
}

// unlikeWork says of series that more workers do more.
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
		if s.Mode(name).Samples == perWorkerFixed {
			c.unlike = append(c.unlike, name)
		}
	}
	c.Sentence = c.say()
	return c, nil
}

// costBasis is the time that all points tell, and of which point it is.
func (s *Study) costBasis() (string, func(int) Span) {
	epochs := map[int]bool{}
	all := func(span func(Point) Span) bool {
		return !slices.ContainsFunc(s.Points, func(p Point) bool { return p.Runs > 0 && math.IsNaN(span(p).Value) })
	}
	any := func(span func(Point) Span) bool {
		return slices.ContainsFunc(s.Points, func(p Point) bool { return !math.IsNaN(span(p).Value) })
	}
	for _, c := range s.cells {
		for _, r := range c.runs {
			epochs[len(r.Epochs)] = true
		}
	}
	wall := func(p Point) Span { return p.WallSeconds }
	train := func(p Point) Span { return p.TrainSeconds }
	epoch := func(p Point) Span { return p.EpochSeconds }
	of := func(span func(Point) Span) func(int) Span { return func(i int) Span { return span(s.Points[i]) } }
	same := len(epochs) < 2
	switch {
	case same && any(wall) && all(wall):
		return BasisWall, of(wall)
	case same && any(train) && all(train):
		return BasisTrain, of(train)
	case any(epoch):
		return BasisEpoch, of(epoch)
	case any(wall):
		return BasisWall, of(wall)
	case any(train):
		return BasisTrain, of(train)
	}
	return "", nil
}

// Front are the rows that no other beats in both time and cost, the fastest
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
	name := func(r CostRow) string { return fmt.Sprintf("%s at %s", r.Series, plural(r.Workers, "worker")) }
	fast, cheap := front[0], front[len(front)-1]
	hours := func(r CostRow) string {
		return fmt.Sprintf("%s h, %s device-hours", short(r.Hours.Value), short(r.DeviceHours.Value))
	}
	if len(front) == 1 {
		return fmt.Sprintf("%s is the fastest and the cheapest (%s, of %s).", name(fast), hours(fast), fast.Basis)
	}
	return fmt.Sprintf("%s is the fastest (%s), %s the cheapest (%s), of %s; being %s times as fast costs %s times as many device-hours.",
		name(fast), hours(fast), name(cheap), hours(cheap), fast.Basis,
		short(cheap.Hours.Value/fast.Hours.Value), short(fast.DeviceHours.Value/cheap.DeviceHours.Value))
}

func (c *Cost) grid() grid[CostRow] {
	g := grid[CostRow]{what: "cost", rows: c.Rows, columns: []column[CostRow]{
		{name: "series", brief: true, text: func(r CostRow) string { return r.Series }},
		{name: "workers", brief: true, count: func(r CostRow) int { return r.Workers }},
		{name: "runs", brief: true, count: func(r CostRow) int { return r.Runs }},
		{name: "basis", brief: true, text: func(r CostRow) string { return r.Basis }},
	}}
	g.columns = append(g.columns, spanColumns("hours", true, func(r CostRow) Span { return r.Hours })...)
	g.columns = append(g.columns, spanColumns("device_hours", true, func(r CostRow) Span { return r.DeviceHours })...)
	if c.Rate > 0 {
		g.columns = append(g.columns, spanColumns("price", true, func(r CostRow) Span { return r.Price })...)
	}
	g.columns = append(g.columns, spanColumns("energy_kwh", true, func(r CostRow) Span { return r.EnergyKWh })...)
	g.columns = append(g.columns, column[CostRow]{name: "pareto", brief: true, flag: func(r CostRow) bool { return r.Pareto }})
	g.remarks = []string{c.Sentence, "pareto: no other row is both as fast and as cheap", "rule: " + c.rule.counting()}
	g.remarks = append(g.remarks, unlikeWork(c.unlike)...)
	return g
}

// Table has a row a series and number of workers: series, workers, runs,
// basis, hours, device_hours, price (with a rate), energy_kwh, each with _low
// and _high, and pareto.
func (c *Cost) Table() dataframe.DataFrame { return c.grid().table() }

// String is the table for people.
func (c *Cost) String() string { return c.grid().String() }

// HTML is the table for a notebook's cell.
func (c *Cost) HTML() string { return c.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (c *Cost) Write(w io.Writer, format string) error { return c.grid().write(w, format) }
