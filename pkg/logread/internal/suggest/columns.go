package suggest

import (
	"math"
	"slices"
)

// Column is a column of a table.
type Column struct {
	Name   string
	Field  string // of a column of known meaning; otherwise empty
	First  string // its first value
	Text   bool   // most values are no numbers
	Whole  bool   // all values are integers
	Values []float64
}

// Columns proposes fields for the columns of unknown meaning. It returns one field
// per column; the name is empty if nothing is proposed for the column. allowed
// contains the names of the fields to which columns can be mapped.
func Columns(columns []Column, allowed []string) []Field {
	c := &candidate{shape: &shape{}}
	taken := map[string]bool{}
	for _, x := range columns {
		n := number{before: headingWords(x.Name), text: x.First, series: describeValues(x.Values, x.Whole)}
		n.readUnitInHeading(x.Name)
		c.numbers = append(c.numbers, n)
		m := meaning{field: x.Field}
		if x.Text && x.Field == "" {
			m = skip("a text")
		}
		c.meanings = append(c.meanings, m)
		taken[x.Field] = x.Field != ""
	}
	propose := func(i int, m meaning) bool {
		if columns[i].Text || c.meanings[i].field != "" || m.field == "" || taken[m.field] || m.guessed || !slices.Contains(allowed, m.field) {
			return false
		}
		c.meanings[i], taken[m.field] = m, true
		return true
	}
	for i := range columns {
		propose(i, c.numbers[i].positionOf(meaning{}))
	}
	if !taken[epochField] && !taken[stepField] {
		c.proposeCounter(columns, propose)
	}
	for i := range columns {
		context := lineContext{step: taken[stepField] && !taken[epochField], taken: taken}
		propose(i, c.numbers[i].measureOf(context))
	}
	c.proposeLosses(taken, propose)
	var fields []Field
	for i, m := range c.meanings {
		f := Field{Example: columns[i].First, Why: m.why}
		if columns[i].Field == "" {
			f.Name = m.field
		}
		fields = append(fields, f)
	}
	return fields
}

// proposeCounter proposes the first column that counts epochs or, if there is none,
// the first one with different numbers of workers.
func (c *candidate) proposeCounter(columns []Column, propose func(int, meaning) bool) {
	for i := range columns {
		if s := c.numbers[i].series; s.byOne && s.min <= 1 && s.min >= 0 && propose(i, because(epochField, "a whole number that rises by one from row to row")) {
			return
		}
	}
	for i := range columns {
		if isPowersOfTwo(columns[i]) && propose(i, because(workersField, "powers of two: the number of workers")) {
			return
		}
	}
}

// isPowersOfTwo reports whether a column has at least two different powers of two
// and nothing else.
func isPowersOfTwo(c Column) bool {
	different := map[float64]bool{}
	for _, v := range c.Values {
		if !(v >= 1) || v > 1<<20 || math.Exp2(math.Trunc(math.Log2(v))) != v {
			return false
		}
		different[v] = true
	}
	return len(different) >= 2
}

// proposeLosses proposes as a loss each column whose name has a part of the data set, such as
// val, and whose values fall, if no other column is the loss of this part.
func (c *candidate) proposeLosses(taken map[string]bool, propose func(int, meaning) bool) {
	for i := range c.numbers {
		if field := c.numbers[i].lossField(); field != "" && !taken[field] {
			propose(i, because(field, "of the %s part of the data, and it falls with time: perhaps a loss", c.numbers[i].roleName()))
		}
	}
}

// roleName returns the part of the data set that the words before the number name,
// or that of the section of the line, or "".
func (n *number) roleName() string {
	role := n.role
	for _, w := range n.before {
		if r := roleOf(w); r != "" {
			role = r
		}
	}
	return role
}

// lossField returns the field of the loss that the number may be, if it names a
// part of the data set and falls, or "".
func (n *number) lossField() string {
	if !n.series.falls || n.unit.kind != noUnit || hasAny(n.before, accuracyWords, iouWords, diceWords, " lr rate error err ppl ") {
		return ""
	}
	return map[string]string{trainRole: trainLossField, valRole: valLossField, testRole: valLossField}[n.roleName()]
}

// describeValues describes values that follow each other.
func describeValues(values []float64, whole bool) series {
	s := &shape{values: [][]float64{values}, whole: []bool{whole}, places: make([]place, len(values))}
	return s.describeSeries(0)
}
