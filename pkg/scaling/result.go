package scaling

import (
	"io"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/scaling/internal/grid"
)

// Formats of Study.Write and of the other results' Write.
const (
	FormatTable    = grid.FormatTable
	FormatCSV      = grid.FormatCSV
	FormatJSON     = grid.FormatJSON
	FormatMarkdown = grid.FormatMarkdown
	FormatLaTeX    = grid.FormatLaTeX
)

type resultTable interface {
	Table() dataframe.DataFrame
	String() string
	HTML() string
	Write(w io.Writer, format string) error
}

// analysis is embedded in every result and implements its Table, String, HTML and Write methods.
// The table is always computed from the original result, to which the field result points, even if
// a copy of the result was modified.
type analysis struct {
	result interface {
		// resultTable returns the table, limited to the first maxRows rows.
		table(maxRows int) resultTable
	}
}

// unlimitedRows is a value of maxRows that exceeds the rows of any table.
const unlimitedRows = 1<<31 - 1

func (a analysis) buildTable(maxRows int) resultTable {
	if a.result == nil { // a result that the caller constructed
		return grid.Grid[struct{}]{What: "an empty result"}
	}
	return a.result.table(maxRows)
}

// Table returns the result as a DataFrame, with exact numbers. The comment of the type names its columns.
func (a analysis) Table() dataframe.DataFrame { return a.buildTable(unlimitedRows).Table() }

// String returns the table for people: the main columns with rounded numbers, and notes.
func (a analysis) String() string { return a.buildTable(unlimitedRows).String() }

// HTML returns the human-readable table as HTML for a notebook.
func (a analysis) HTML() string { return a.buildTable(unlimitedRows).HTML() }

// FirstHTML is like HTML, limited to the first maxRows rows.
func (a analysis) FirstHTML(maxRows int) string { return a.buildTable(maxRows).HTML() }

// Write writes the result as "table" (human-readable), "csv" (every column, exact
// numbers, an empty cell if nothing was measured), "json" (an array of objects
// with the same names, null if nothing was measured), or for a paper as "markdown" or
// "latex" (the main columns with units, intervals as ±, with the package booktabs).
func (a analysis) Write(w io.Writer, format string) error {
	return a.buildTable(unlimitedRows).Write(w, format)
}

func limitRows[T any](rows []T, maxRows int) []T { return rows[:min(maxRows, len(rows))] }
