package suggest

import (
	"math"
	"slices"

	"lockstep/pkg/logread/internal/fields"
)

// Column is a column of a table.
type Column struct {
	Name   string // in the header
	Field  string // if its meaning is known; otherwise empty
	First  string // its first value
	Text   bool   // most values are no numbers
	Whole  bool   // all values are integers
	Values []float64
}

// Columns proposes fields for the columns of unknown meaning. It returns one field per column; the name
// is empty if nothing is proposed for the column.
func Columns(columns []Column) []Field {
	c := &candidate{shape: &shape{}}
	for i, x := range columns {
		n := number{slot: &slot{values: x.Values, whole: x.Whole, texts: []string{x.First}, at: i}}
		n.setHeading(x.Name)
		if x.Text {
			n.field = nil
		}
		n.as = x.Field
		c.numbers = append(c.numbers, n)
	}
	if len(columns) == 0 || len(columns[0].Values) == 0 {
		return make([]Field, len(columns))
	}
	c.groups = [][]int{nil}
	for i := range columns[0].Values {
		c.groups[0] = append(c.groups[0], i)
		c.lines = append(c.lines, place{line: i, clock: math.NaN()})
	}
	workers := c.find(fields.Workers)
	for i := range c.numbers {
		n := &c.numbers[i]
		switch {
		case n.as != "" || n.field == nil:
		case !c.has(fields.Epoch) && !c.has(fields.Step) && c.countsEpochs(n):
			n.is(fields.Epoch, "%s: a whole number that rises by one from row to row", n.quote())
		case !c.has(fields.Epoch) && workers == nil && n.isNamed(fields.Workers) && n.arePowersOfTwo():
			n.is(fields.Workers, "%s: powers of two", n.quote())
		}
	}
	if c.has(fields.Epoch) {
		c.nameMeasures()
	} else {
		c.nameRunMeasures(workers)
	}
	var found []Field
	for i := range c.numbers {
		f := Field{Example: columns[i].First, Why: c.numbers[i].why}
		if c.numbers[i].as != columns[i].Field {
			f.Name = c.numbers[i].as
		}
		found = append(found, f)
	}
	return found
}

// nameRunMeasures names the rates and shares of a table whose rows are runs. The only time is that of the complete
// run if it is shorter with more workers; losses and other times may be those of anything.
func (c *candidate) nameRunMeasures(workers *number) {
	var times []*number
	for i := range c.numbers {
		n := &c.numbers[i]
		d := decision{}
		switch {
		case n.as == fields.Time, n.as == "" && (n.isNamed(fields.Time) || n.isNamed(fields.WallSeconds)):
			times = append(times, n)
		case n.unit == rateUnit:
			d = c.rate(n)
		case n.field != nil && n.field.Kind == fields.Fraction && !n.isNamed(fields.Accuracy): // an accuracy may be one of the training
			d = n.fraction()
		}
		if n.as == "" && d.as != "" && !c.has(d.as) {
			n.decision = d
		}
	}
	if workers == nil || len(times) != 1 || c.has(fields.Step) || c.has(fields.Rank) || c.has(fields.WallSeconds) {
		return
	}
	found := times[0]
	shorter, longer := 0, 0
	for i := range found.values {
		for j := range i {
			switch d := (found.values[i] - found.values[j]) * (workers.values[i] - workers.values[j]); {
			case d < 0:
				shorter++
			case d > 0:
				longer++
			}
		}
	}
	if shorter > 0 && longer == 0 {
		found.is(fields.WallSeconds, "%s, and it is shorter with more workers", found.quote())
	}
}

// arePowersOfTwo reports whether the number has at least two different values, all of which are powers of
// two.
func (n *number) arePowersOfTwo() bool {
	values := n.distinct()
	return len(values) >= 2 && !slices.ContainsFunc(values, func(v float64) bool {
		return !(v >= 1) || v > 1<<20 || math.Exp2(math.Trunc(math.Log2(v))) != v
	})
}
