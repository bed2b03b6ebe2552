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

// analysis is embedded in every result and implements the methods Table, String, HTML and Write.
// They always use the original result, to which the field result points, even if a copy of it was
// modified.
type analysis struct {
	result interface {
		// resultTable returns the table, limited to the first maxRows rows.
		table(maxRows int) resultTable
	}
}

// unlimitedRows is a value for maxRows that no table reaches.
const unlimitedRows = 1<<31 - 1

func (a analysis) buildTable(maxRows int) resultTable {
	if a.result == nil { // a result that the caller constructed
		return grid.Grid[struct{}]{What: "an empty result"}
	}
	return a.result.table(maxRows)
}

// Table returns the result as a DataFrame, with exact numbers. The doc comment of the result's type
// lists the columns.
func (a analysis) Table() dataframe.DataFrame { return a.buildTable(unlimitedRows).Table() }

// String returns the table for people: the main columns with rounded numbers, and notes.
func (a analysis) String() string { return a.buildTable(unlimitedRows).String() }

// HTML returns the human-readable table as HTML for a notebook.
func (a analysis) HTML() string { return a.buildTable(unlimitedRows).HTML() }

// FirstHTML is like HTML, limited to the first maxRows rows.
func (a analysis) FirstHTML(maxRows int) string { return a.buildTable(maxRows).HTML() }

// Write writes the result in the given format. "table" is human-readable. "csv" has every column
// with exact numbers, and empty cells for values that were not measured. "json" is an array of
// objects with the same names, with null for values that were not measured. "markdown" and "latex"
// are for a paper: the main columns with units, and intervals as ±. LaTeX needs the package
// booktabs.
func (a analysis) Write(w io.Writer, format string) error {
	return a.buildTable(unlimitedRows).Write(w, format)
}

func limitRows[T any](rows []T, maxRows int) []T { return rows[:min(maxRows, len(rows))] }
