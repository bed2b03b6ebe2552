package scaling

import (
	"io"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/scaling/internal/grid"
)

// Formats of Study.Write and of the other results' Write.
const (
	FormatTable = grid.FormatTable
	FormatCSV   = grid.FormatCSV
	FormatJSON  = grid.FormatJSON
)

// table is the common interface of the tables, whatever the type of their rows.
type table interface {
	Table() dataframe.DataFrame
	String() string
	HTML() string
	Write(w io.Writer, format string) error
}

// analysis is embedded by the results and implements their Table, String, HTML and
// Write methods. The table is computed from the result to which `of` points; a copy of
// a result whose fields were changed still displays the original.
type analysis struct {
	of interface {
		// table returns the table of the first rows, limited to most rows.
		table(most int) table
	}
}

// allRows is a limit that is larger than the number of rows of any table.
const allRows = 1<<31 - 1

func (a analysis) rows(most int) table {
	if a.of == nil { // a result that the caller constructed
		return grid.Grid[struct{}]{What: "an empty result"}
	}
	return a.of.table(most)
}

// Table returns the result as a DataFrame, with exact numbers. The comment of
// the type names its columns.
func (a analysis) Table() dataframe.DataFrame { return a.rows(allRows).Table() }

// String returns the table for people: the main columns with rounded numbers, followed
// by explanatory notes.
func (a analysis) String() string { return a.rows(allRows).String() }

// HTML returns the table for people as HTML for a notebook.
func (a analysis) HTML() string { return a.rows(allRows).HTML() }

// FirstHTML returns the table for people as HTML, limited to the first most rows.
func (a analysis) FirstHTML(most int) string { return a.rows(most).HTML() }

// Write writes the result as "table" (for people), "csv" (every column, exact
// numbers, an empty cell if nothing was measured) or "json" (an array of objects
// with the same names, null if nothing was measured).
func (a analysis) Write(w io.Writer, format string) error { return a.rows(allRows).Write(w, format) }

// first returns the first rows, limited to most rows.
func first[T any](rows []T, most int) []T { return rows[:min(most, len(rows))] }
