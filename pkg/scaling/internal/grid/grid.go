// Package grid formats rows of results as a human-readable table, as files, and as a DataFrame.
package grid

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
)

// Formats of Study.Write and of the other results' Write.
const (
	FormatTable    = "table"
	FormatCSV      = "csv"
	FormatJSON     = "json"
	FormatMarkdown = "markdown"
	FormatLaTeX    = "latex"
)

// Grid is a table with explanatory notes. Package scaling shows every result as a Grid.
type Grid[T any] struct {
	What    string // name of the table in errors: "write <What>"
	Rows    []T
	Columns []Column[T]
	Remarks []string // lines below the human-readable table
}

// Column is one column of a grid. Exactly one of Text, Count, Value and Flag is set.
type Column[T any] struct {
	Name  string
	Text  func(T) string
	Count func(T) int
	Value func(T) float64
	Flag  func(T) bool

	Brief    bool           // shown in the human-readable table
	Optional bool           // hidden in the human-readable table if no row has a value (or a count above 0)
	Title    string         // header in the human-readable table, if it differs from Name
	Show     func(T) string // cell in the human-readable table, if it is not the rounded value
	People   bool           // only in the human-readable table, not in files or a DataFrame
	Interval bool           // the interval of the column before, which a table for a paper shows as ±

	Unit string          // in a table for a paper; "" also if the name ends with the unit, as in epoch_seconds
	Half func(T) float64 // half the width of the interval of Value, or nil
}

// csvCell formats the column's number with the fewest digits that parse to exactly the same value.
// It returns "" if nothing was measured.
func (c Column[T]) csvCell(row T) string {
	switch {
	case c.Text != nil:
		return c.Text(row)
	case c.Count != nil:
		return strconv.Itoa(c.Count(row))
	case c.Flag != nil:
		return strconv.FormatBool(c.Flag(row))
	case math.IsNaN(c.Value(row)):
		return ""
	}
	return clean.FormatNumber(c.Value(row))
}

// hasValue reports whether the row has a value in the column: not "", 0, NaN or false.
func (c Column[T]) hasValue(row T) bool {
	switch {
	case c.Text != nil:
		return c.Text(row) != ""
	case c.Count != nil:
		return c.Count(row) != 0
	case c.Flag != nil:
		return c.Flag(row)
	}
	return !math.IsNaN(c.Value(row))
}

func (c Column[T]) displayCell(row T) string {
	if c.Show != nil {
		if !c.hasValue(row) {
			return "-"
		}
		return c.Show(row)
	}
	cell := c.csvCell(row)
	if c.Value != nil && cell != "" {
		cell = english.FormatNumber(c.Value(row))
	}
	if cell == "" {
		return "-"
	}
	return cell
}

func (g Grid[T]) exportColumns() []Column[T] {
	return slices.DeleteFunc(slices.Clone(g.Columns), func(c Column[T]) bool { return c.People })
}

// Table returns the grid as a DataFrame.
func (g Grid[T]) Table() dataframe.DataFrame {
	var cols []series.Series
	for _, c := range g.exportColumns() {
		switch {
		case c.Text != nil:
			cols = append(cols, newDataFrameSeries(g.Rows, c.Text, series.String, c.Name))
		case c.Count != nil:
			cols = append(cols, newDataFrameSeries(g.Rows, c.Count, series.Int, c.Name))
		case c.Flag != nil:
			cols = append(cols, newDataFrameSeries(g.Rows, c.Flag, series.Bool, c.Name))
		default:
			cols = append(cols, newDataFrameSeries(g.Rows, c.Value, series.Float, c.Name))
		}
	}
	return dataframe.New(cols...)
}

func newDataFrameSeries[T, V any](rows []T, value func(T) V, kind series.Type, name string) series.Series {
	values := make([]V, len(rows))
	for i, r := range rows {
		values[i] = value(r)
	}
	return series.New(values, kind, name)
}

// Write writes the grid as "table" (human-readable: the main columns, rounded, then the remarks),
// "csv" (every column, exact numbers, an empty cell if nothing was measured), "json" (an array of
// objects with the same names, null if nothing was measured), or for a paper as "markdown" or
// "latex" (the main columns with units, intervals as ±, and the remarks).
func (g Grid[T]) Write(w io.Writer, format string) error {
	var err error
	switch format {
	case FormatTable:
		_, err = io.WriteString(w, g.String())
	case FormatCSV:
		err = g.writeCSV(w)
	case FormatJSON:
		err = g.writeJSON(w)
	case FormatMarkdown:
		_, err = io.WriteString(w, g.markdown())
	case FormatLaTeX:
		_, err = io.WriteString(w, g.latex())
	default:
		return fmt.Errorf("write %s: unknown format %q: use %s", g.What, format, english.JoinOr([]string{FormatTable, FormatCSV, FormatJSON, FormatMarkdown, FormatLaTeX}))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", g.What, err)
	}
	return nil
}

func (g Grid[T]) writeCSV(w io.Writer) error {
	cols := g.exportColumns()
	row := make([]string, len(cols))
	for i, c := range cols {
		row[i] = c.Name
	}
	cw := clean.NewCSVWriter(w)
	err := cw.Write(row)
	for _, r := range g.Rows {
		for i, c := range cols {
			row[i] = c.csvCell(r)
		}
		err = errors.Join(err, cw.Write(row))
	}
	cw.Flush()
	return errors.Join(err, cw.Error())
}

// writeJSON writes the objects by hand: encoding a map would lose the order of the columns.
func (g Grid[T]) writeJSON(w io.Writer) error {
	var b strings.Builder
	b.WriteString("[")
	for i, r := range g.Rows {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  {")
		for j, c := range g.exportColumns() {
			cell := c.csvCell(r)
			switch {
			case c.Text != nil || strings.HasSuffix(cell, "Inf"):
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
			fmt.Fprintf(&b, "%q: %s", c.Name, cell)
		}
		b.WriteString("}")
	}
	b.WriteString("\n]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (g Grid[T]) displayRows() [][]string {
	lines := make([][]string, 1+len(g.Rows))
	for _, c := range g.Columns {
		if !c.Brief || c.Optional && !slices.ContainsFunc(g.Rows, c.hasValue) {
			continue
		}
		lines[0] = append(lines[0], cmp.Or(c.Title, c.Name))
		for i, r := range g.Rows {
			lines[i+1] = append(lines[i+1], clean.EscapeText(c.displayCell(r)))
		}
	}
	return lines
}

// String returns the human-readable table, with the remarks below it.
func (g Grid[T]) String() string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, row := range g.displayRows() {
		_, _ = fmt.Fprintln(tw, strings.Join(row, "\t")+"\t") // a strings.Builder does not fail
	}
	_ = tw.Flush()
	for _, line := range g.Remarks {
		b.WriteString(clean.EscapeText(line) + "\n")
	}
	return b.String()
}

// HTML returns the human-readable table as HTML for a notebook, with the remarks below it.
func (g Grid[T]) HTML() string {
	var b strings.Builder
	line := func(cells []string, tag string) {
		b.WriteString("<tr>")
		for _, c := range cells {
			text := html.EscapeString(c)
			if tag == "th" {
				text = strings.ReplaceAll(text, "_", "_<wbr>") // a long name may take two lines
			}
			fmt.Fprintf(&b, "<%s>%s</%s>", tag, text, tag)
		}
		b.WriteString("</tr>\n")
	}
	rows := g.displayRows()
	b.WriteString("<div style=\"overflow-x: auto\"><table>\n<thead>") // a wide table would widen the notes too
	line(rows[0], "th")
	b.WriteString("</thead>\n<tbody>\n")
	for _, row := range rows[1:] {
		line(row, "td")
	}
	b.WriteString("</tbody>\n</table></div>\n")
	for _, r := range g.Remarks {
		fmt.Fprintf(&b, "<div><small>%s</small></div>\n", html.EscapeString(clean.EscapeText(r)))
	}
	return b.String()
}
