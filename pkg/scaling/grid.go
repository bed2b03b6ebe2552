package scaling

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"

	"lockstep/pkg/internal/clean"
)

// Formats of Study.Write and of the other results' Write.
const (
	FormatTable = "table"
	FormatCSV   = "csv"
	FormatJSON  = "json"
)

// grid is a table of results with what must be said beside it. Every result
// of the package shows itself through one.
type grid[T any] struct {
	what    string // in errors: "write <what>"
	rows    []T
	columns []column[T]
	remarks []string // lines below the table for people
}

// column is one of a grid: exactly one of text, count, value and flag is set.
type column[T any] struct {
	name  string
	text  func(T) string
	count func(T) int
	value func(T) float64
	flag  func(T) bool

	brief    bool           // shown where people read
	optional bool           // but not where no row has a value (or a count above 0)
	title    string         // for people, where it is not the name
	show     func(T) string // for people, where it is not the rounded cell
	people   bool           // for people alone: in no file and no DataFrame
}

// cell is the column's cell of a CSV: the shortest number that reads back
// exactly, empty where nothing was measured.
func (c column[T]) cell(row T) string {
	switch {
	case c.text != nil:
		return c.text(row)
	case c.count != nil:
		return strconv.Itoa(c.count(row))
	case c.flag != nil:
		return strconv.FormatBool(c.flag(row))
	case math.IsNaN(c.value(row)):
		return ""
	}
	return strconv.FormatFloat(c.value(row), 'g', -1, 64)
}

// says whether the row has something in an optional column.
func (c column[T]) says(row T) bool {
	switch {
	case c.text != nil:
		return c.text(row) != ""
	case c.count != nil:
		return c.count(row) != 0
	case c.flag != nil:
		return c.flag(row)
	}
	return !math.IsNaN(c.value(row))
}

// forPeople is the cell that people read.
func (c column[T]) forPeople(row T) string {
	if c.show != nil {
		if !c.says(row) {
			return "-"
		}
		return c.show(row)
	}
	cell := c.cell(row)
	if c.value != nil && cell != "" {
		cell = short(c.value(row))
	}
	if cell == "" {
		return "-"
	}
	return cell
}

// decimals keeps about four digits of v.
func decimals(v float64) int {
	switch a := math.Abs(v); {
	case a >= 1000:
		return 0
	case a >= 100:
		return 1
	case a >= 10:
		return 2
	case a != 0 && a < 0.1:
		return 4
	}
	return 3
}

// files are the columns of a CSV, a JSON document and a DataFrame.
func (g grid[T]) files() []column[T] {
	var cols []column[T]
	for _, c := range g.columns {
		if !c.people {
			cols = append(cols, c)
		}
	}
	return cols
}

// table is the grid as a DataFrame.
func (g grid[T]) table() dataframe.DataFrame {
	var cols []series.Series
	for _, c := range g.files() {
		var texts []string
		var counts []int
		var values []float64
		var flags []bool
		for _, r := range g.rows {
			switch {
			case c.text != nil:
				texts = append(texts, c.text(r))
			case c.count != nil:
				counts = append(counts, c.count(r))
			case c.flag != nil:
				flags = append(flags, c.flag(r))
			default:
				values = append(values, c.value(r))
			}
		}
		switch {
		case c.text != nil:
			cols = append(cols, series.New(texts, series.String, c.name))
		case c.count != nil:
			cols = append(cols, series.New(counts, series.Int, c.name))
		case c.flag != nil:
			cols = append(cols, series.New(flags, series.Bool, c.name))
		default:
			cols = append(cols, series.New(values, series.Float, c.name))
		}
	}
	return dataframe.New(cols...)
}

// write writes the grid as "table" (for people: rounded, the main columns,
// then the remarks), "csv" (every column, exact numbers, an empty cell where
// nothing was measured) or "json" (an array of objects with the same names,
// null where nothing was measured).
func (g grid[T]) write(w io.Writer, format string) error {
	var err error
	switch format {
	case FormatTable:
		_, err = io.WriteString(w, g.String())
	case FormatCSV:
		err = g.writeCSV(w)
	case FormatJSON:
		err = g.writeJSON(w)
	default:
		return fmt.Errorf("write %s: format %q is not known; use %s, %s or %s", g.what, format, FormatTable, FormatCSV, FormatJSON)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", g.what, err)
	}
	return nil
}

func (g grid[T]) writeCSV(w io.Writer) error {
	cols := g.files()
	row := make([]string, len(cols))
	for i, c := range cols {
		row[i] = c.name
	}
	cw := csv.NewWriter(w)
	err := cw.Write(row)
	for _, r := range g.rows {
		for i, c := range cols {
			row[i] = c.cell(r)
		}
		err = errors.Join(err, cw.Write(row))
	}
	cw.Flush()
	return errors.Join(err, cw.Error())
}

// writeJSON keeps the order of the columns, which a map would lose.
func (g grid[T]) writeJSON(w io.Writer) error {
	var b strings.Builder
	b.WriteString("[")
	for i, r := range g.rows {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  {")
		for j, c := range g.files() {
			cell := c.cell(r)
			switch {
			case c.text != nil || strings.HasSuffix(cell, "Inf"):
				quoted, err := json.Marshal(cell)
				if err != nil {
					return err
				}
				cell = string(quoted)
			case cell == "":
				cell = "null"
			}
			if j > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%q: %s", c.name, cell)
		}
		b.WriteString("}")
	}
	b.WriteString("\n]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// brief is the header and the rows that people read.
func (g grid[T]) brief() [][]string {
	lines := make([][]string, 1+len(g.rows))
	for _, c := range g.columns {
		if !c.brief || c.optional && !g.any(c) {
			continue
		}
		title := c.title
		if title == "" {
			title = c.name
		}
		lines[0] = append(lines[0], title)
		for i, r := range g.rows {
			lines[i+1] = append(lines[i+1], clean.Text(c.forPeople(r)))
		}
	}
	return lines
}

func (g grid[T]) any(c column[T]) bool {
	for _, r := range g.rows {
		if c.says(r) {
			return true
		}
	}
	return false
}

// String is the table for people, with the remarks below it.
func (g grid[T]) String() string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, row := range g.brief() {
		// AlignRight would align the names of series to the right too.
		_, _ = fmt.Fprintln(tw, strings.Join(row, "\t")+"\t") // a strings.Builder does not fail
	}
	_ = tw.Flush()
	for _, line := range g.remarks {
		b.WriteString(clean.Text(line) + "\n")
	}
	return b.String()
}

// html is the table for people in a notebook's cell.
func (g grid[T]) html() string {
	var b strings.Builder
	line := func(cells []string, tag string) {
		b.WriteString("<tr>")
		for _, c := range cells {
			fmt.Fprintf(&b, "<%s>%s</%s>", tag, html.EscapeString(c), tag)
		}
		b.WriteString("</tr>\n")
	}
	rows := g.brief()
	b.WriteString("<table>\n<thead>")
	line(rows[0], "th")
	b.WriteString("</thead>\n<tbody>\n")
	for _, row := range rows[1:] {
		line(row, "td")
	}
	b.WriteString("</tbody>\n</table>\n")
	for _, r := range g.remarks {
		fmt.Fprintf(&b, "<div><small>%s</small></div>\n", html.EscapeString(clean.Text(r)))
	}
	return b.String()
}

// spanColumn are the columns of a Span: its value (brief), the interval and
// the extremes (for files), and the interval for people where there is one.
func spanColumns[T any](name string, brief bool, span func(T) Span) []column[T] {
	value := func(suffix string, pick func(Span) float64) column[T] {
		return column[T]{name: name + suffix, value: func(r T) float64 { return pick(span(r)) }}
	}
	first := value("", func(s Span) float64 { return s.Value })
	first.brief, first.optional = brief, true
	shown := column[T]{
		name: name + "_interval", title: "interval", brief: brief, optional: true, people: true,
		value: func(r T) float64 { return span(r).Low },
		show:  func(r T) string { return span(r).interval() },
	}
	return []column[T]{
		first, shown,
		value("_low", func(s Span) float64 { return s.Low }), value("_high", func(s Span) float64 { return s.High }),
	}
}

// paragraph is a sentence for a notebook's cell.
func paragraph(text string) string { return "<p>" + html.EscapeString(clean.Lines(text)) + "</p>\n" }
