package table

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

// GeneralTableKind is the kind of a table that no known program wrote.
const GeneralTableKind = tableKind

// IsReadable reports whether a file that begins with head is read as a table.
func IsReadable(head []byte, mappings []ColumnMapping) bool { return isTable(mappings)("", head) }

// HasKnownHeader reports whether head begins a readable table whose header is known from a program
// or names the column with the epoch or step number.
func HasKnownHeader(head []byte) bool {
	p, ok := parsePreamble(head, nil)
	if !ok {
		return false
	}
	s := newSchema(p, completeLines(skipLines(head, p.lines)), nil)
	return s.layout != unknownLayout && (s.kind != tableKind || slices.ContainsFunc(s.columns, func(c column) bool {
		return c.name != "" && (c.field == fields.Epoch || c.field == fields.Step)
	}))
}

// ColumnInfo describes a column of a table, for a proposal of mappings.
type ColumnInfo struct {
	Name   string
	Field  string // to which its name or the user assigns it; empty for a metric
	First  string // the first cell that is not empty
	Text   bool   // most cells are no numbers
	Whole  bool   // all numbers are integers
	Values []float64
}

// DescribeColumns describes the columns of the table that begins with text. It returns nil if text
// is not a table with a header and at least two rows, if many lines have a different number of
// cells than the header, if fewer than half of the columns contain numbers, or if the header differs
// from the first row only in its numbers, as in a text with commas.
func DescribeColumns(text []byte, mappings []ColumnMapping) []ColumnInfo {
	p, ok := parsePreamble(text, nil)
	if !ok || p.header == nil || p.width > maxTableColumns {
		return nil
	}
	text = completeLines(skipLines(text, p.lines))
	s := newSchema(p, text, mappings)
	columns := make([]ColumnInfo, len(s.columns))
	for i := range s.columns {
		columns[i] = ColumnInfo{Name: s.columns[i].name, Field: s.columns[i].field, Whole: true}
	}
	texts := make([]int, len(columns))
	rows, others := 0, 0
	for cells, ok := range p.form.rowsOf(text, len(columns)) {
		if !ok {
			others++
			continue
		}
		rows++
		if rows == 1 && slices.EqualFunc(cells, p.header, func(cell scan.Cell, name string) bool { return withoutDigits(string(cell.Text)) == withoutDigits(name) }) {
			return nil
		}
		for i, cell := range cells {
			columns[i].addCell(&s.columns[i], cell.Text, &texts[i])
		}
	}
	numbers := 0
	for i := range columns {
		c := &columns[i]
		if c.Text = texts[i] > len(c.Values)-texts[i]; !c.Text {
			numbers++
		}
	}
	if rows < 2 || others*4 > rows || numbers*2 < len(columns) {
		return nil
	}
	return columns
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

func (c *ColumnInfo) addCell(column *column, cell []byte, texts *int) {
	if c.First == "" {
		c.First = strings.ToValidUTF8(string(cell), "\ufffd")
	}
	v, ok := column.form.parseMeasurement(fields.Seconds, 1, cell)
	if !ok {
		v, ok = column.form.parseMeasurement(fields.Number, 1, cell)
	}
	if !ok {
		v = math.NaN()
		if !isUnmeasured(cell) {
			*texts++
		}
	}
	c.Whole = c.Whole && (!ok || v == math.Trunc(v) && !bytes.ContainsAny(cell, ".,:"))
	c.Values = append(c.Values, v)
}

// HeaderNames returns the column names of the table that begins with head, or nil if there is none.
func HeaderNames(head []byte) []string {
	p, _ := parsePreamble(head, nil)
	return p.header
}

// DescribeUnknownTable returns the quoted column names of a table that no format reads, or "" if head
// begins no table, or if no name can be shown.
func DescribeUnknownTable(head []byte) string {
	p, ok := parsePreamble(head, nil)
	if !ok || p.width > maxTableColumns {
		return ""
	}
	if p.header == nil {
		return fmt.Sprintf("%d columns without names", p.width)
	}
	if DescribeColumns(head, nil) == nil { // a text with commas, a program or a picture
		return ""
	}
	var names []string
	for _, name := range p.header {
		if name == "" || len(name) > 60 || strings.ContainsAny(name, "{}<>\ufffd") {
			continue
		}
		names = append(names, fmt.Sprintf("%q", name))
	}
	if names == nil {
		return ""
	}
	return "the columns " + strings.Join(names, ", ")
}
