package clean

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
)

// CSVWriter writes CSV files that are safe to open in a spreadsheet: no cell is run as a formula.
// See [EscapeCSVCell].
type CSVWriter struct {
	*csv.Writer
	cells []string
}

// NewCSVWriter returns a CSVWriter that writes to w. The caller must call Flush after the last
// row.
func NewCSVWriter(w io.Writer) *CSVWriter { return &CSVWriter{Writer: csv.NewWriter(w)} }

// Write writes one row. It passes each cell through [EscapeCSVCell].
func (w *CSVWriter) Write(cells []string) error {
	w.cells = w.cells[:0]
	for _, cell := range cells {
		w.cells = append(w.cells, EscapeCSVCell(cell))
	}
	return w.Writer.Write(w.cells)
}

// EscapeCSVCell returns text as a cell of a CSV file. A spreadsheet would run a text such as
// =HYPERLINK(…), so EscapeCSVCell puts an apostrophe before a text that begins like a formula. It
// also adds one before apostrophes that are followed by a formula, so that [UnescapeCSVCell] can
// restore every text.
func EscapeCSVCell(text string) string {
	if beginsLikeFormula(strings.TrimLeft(text, "'")) {
		return "'" + text
	}
	return text
}

// UnescapeCSVCell is the inverse of [EscapeCSVCell]: it returns the original text of cell.
func UnescapeCSVCell(cell string) string {
	if text, ok := strings.CutPrefix(cell, "'"); ok && beginsLikeFormula(strings.TrimLeft(text, "'")) {
		return text
	}
	return cell
}

// FormatNumber formats v with enough digits to parse the same value back. Infinity has no plus
// sign, because a spreadsheet could take it for the start of a formula.
func FormatNumber(v float64) string {
	return strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+")
}

// beginsLikeFormula reports whether a spreadsheet may take text for a formula, but returns
// false for negative numbers.
func beginsLikeFormula(text string) bool {
	if text == "" {
		return false
	}
	switch text[0] {
	case '=', '+', '@', '\t', '\r', '\n':
		return true
	case '-':
		_, err := strconv.ParseFloat(text, 64)
		return err != nil || strings.ContainsAny(text, "xX_")
	}
	return false
}
