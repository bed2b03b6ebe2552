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

// table is a grid of any rows.
type table interface {
	Table() dataframe.DataFrame
	String() string
	HTML() string
	Write(w io.Writer, format string) error
}

// analysis is what a result embeds to show itself: it has the methods of a table.
// The table is that of the analysis as it was made, also of a copy whose fields
// were changed.
type analysis struct {
	of interface {
		// table makes the table of the first rows, at most so many.
		table(most int) table
	}
}

// everyRow is more rows than any table has.
const everyRow = 1<<31 - 1

func (a analysis) rows(most int) table {
	if a.of == nil { // a result that a caller made
		return grid.Grid[struct{}]{What: "an empty result"}
	}
	return a.of.table(most)
}

// Table returns the result as a DataFrame, with exact numbers. The comment of
// the type names its columns.
func (a analysis) Table() dataframe.DataFrame { return a.rows(everyRow).Table() }

// String returns the table for people: rounded, the main columns, then what
// must be said beside it.
func (a analysis) String() string { return a.rows(everyRow).String() }

// HTML returns the table for people, for a notebook's cell.
func (a analysis) HTML() string { return a.rows(everyRow).HTML() }

// FirstHTML returns the table for people of the first rows, at most so many.
func (a analysis) FirstHTML(most int) string { return a.rows(most).HTML() }

// Write writes the result as "table" (for people), "csv" (every column, exact
// numbers, an empty cell if nothing was measured) or "json" (an array of objects
// with the same names, null if nothing was measured).
func (a analysis) Write(w io.Writer, format string) error { return a.rows(everyRow).Write(w, format) }

// first returns the first rows, at most so many.
func first[T any](rows []T, most int) []T { return rows[:min(most, len(rows))] }
