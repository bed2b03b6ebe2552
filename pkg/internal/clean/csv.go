package clean

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
)

// CSVWriter writes CSV in which no cell is a formula for a spreadsheet; see [Cell].
type CSVWriter struct {
	*csv.Writer
	cells []string
}

// NewCSVWriter returns a writer to w. The caller must call Flush after the last line.
func NewCSVWriter(w io.Writer) *CSVWriter { return &CSVWriter{Writer: csv.NewWriter(w)} }

// Write writes a line.
func (w *CSVWriter) Write(cells []string) error {
	w.cells = w.cells[:0]
	for _, cell := range cells {
		w.cells = append(w.cells, FormatCell(cell))
	}
	return w.Writer.Write(w.cells)
}

// FormatCell returns a cell of a CSV file for text. A spreadsheet would run a text such as
// =HYPERLINK(…), so Cell puts an apostrophe before a text that begins like a formula. It
// also does so if the text begins with apostrophes and then like a formula, so that
// [ParseCell] can return text.
func FormatCell(text string) string {
	if beginsLikeFormula(strings.TrimLeft(text, "'")) {
		return "'" + text
	}
	return text
}

// ParseCell returns the text for which [Cell] returns cell.
func ParseCell(cell string) string {
	if text, ok := strings.CutPrefix(cell, "'"); ok && beginsLikeFormula(strings.TrimLeft(text, "'")) {
		return text
	}
	return cell
}

// FormatNumber formats v for a cell, so that parsing the text returns v. Infinity has no plus sign, which
// would begin a formula.
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
