package table

import (
	"bytes"
	"errors"
	"iter"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

// tableSyntax is how a table is written: the delimiter of its cells (a blank stands for several), whether
// each row has a bar at both ends, and whether it begins with a number that has no name in the header.
type tableSyntax struct {
	delimiter byte
	bars      bool
	numbered  bool
}

var errBars = errors.New("the row has no bar at its beginning or at its end: it is torn")

// splitCells appends the cells of a line to cells, without blanks at their ends and without quotes.
func (f tableSyntax) splitCells(cells []scan.Cell, line []byte) ([]scan.Cell, error) {
	if f.delimiter == ' ' {
		words := bytes.Fields(line)
		if f.numbered && len(words) > 0 && line[0] != ' ' {
			words = words[1:]
		}
		for _, w := range words {
			v, n := scan.ParseDecimal(w)
			cells = append(cells, scan.Cell{Text: w, Number: v, Length: n})
		}
		return cells, nil
	}
	if f.bars {
		if !hasBarsAtEnds(line) {
			return cells, errBars
		}
		line = bytes.TrimSpace(line)
		line = line[1 : len(line)-1]
	}
	return scan.AppendCells(cells, line, f.delimiter, true)
}

// rowsOf iterates over the cells of the rows in a text, and whether their number is width. The cells
// are valid until the next row.
func (f tableSyntax) rowsOf(text []byte, width int) iter.Seq2[[]scan.Cell, bool] {
	return func(yield func([]scan.Cell, bool) bool) {
		var cells []scan.Cell
		for line := range bytes.Lines(text) {
			line = bytes.TrimRight(line, "\r\n")
			if trimmed := bytes.TrimSpace(line); len(trimmed) == 0 || trimmed[0] == '#' || f.isDivider(line) {
				continue
			}
			var err error
			cells, err = f.splitCells(cells[:0], line)
			if !yield(cells, err == nil && len(cells) == width) {
				return
			}
		}
	}
}

func hasBarsAtEnds(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 1 && line[0] == '|' && line[len(line)-1] == '|'
}

// isDividerLine reports whether a line is drawn between the rows of a table with bars, as |---|:--:|,
// +====+====+ or ----+----.
func isDividerLine(line []byte) bool {
	dashes := 0
	for _, c := range line {
		switch c {
		case '-', '=':
			dashes++
		case '|', '+', ':', ' ', '\t', '\r':
		default:
			return false
		}
	}
	return dashes >= 3 && (bytes.IndexByte(line, '|') >= 0 || bytes.IndexByte(line, '+') >= 0)
}

func (f tableSyntax) isDivider(line []byte) bool { return f.delimiter == '|' && isDividerLine(line) }

// detectTableSyntax returns the form of a table from its header and following lines. It chooses the
// delimiter of the header with which most lines have as many cells as the header. ok is false if
// the header has no delimiter.
func detectTableSyntax(header []byte, lines [][]byte) (f tableSyntax, ok bool) {
	best, bestCells := -1, 0
	var cells, row []scan.Cell
	for _, d := range []byte{',', ';', '\t', '|'} {
		tried := tableSyntax{delimiter: d, bars: d == '|' && hasBarsAtEnds(header)}
		var err error
		if cells, err = tried.splitCells(cells[:0], header); err != nil || len(cells) < 2 {
			continue
		}
		good := 0
		for _, line := range lines {
			if row, err = tried.splitCells(row[:0], line); err == nil && len(row) == len(cells) {
				good++
			}
		}
		if good > best || good == best && len(cells) > bestCells {
			best, bestCells, f = good, len(cells), tried
		}
	}
	if best < 0 {
		return detectBlankSyntax(header, lines)
	}
	return f, true
}

// detectBlankSyntax determines the form of a table whose cells are separated by blanks. Its lines are
// numbers without a header, or a table of numbers as pandas prints it:
//
//	   epoch  loss
//	0      1   0.5
//	1      2   0.4
func detectBlankSyntax(header []byte, lines [][]byte) (f tableSyntax, ok bool) {
	f.delimiter = ' '
	if isNumberRow(header) {
		return f, true
	}
	names := bytes.Fields(header)
	if len(names) < 2 || slices.ContainsFunc(names, func(n []byte) bool { return !scan.IsLetter(n[0]) && n[0] != '_' }) {
		return f, false
	}
	rows := slices.DeleteFunc(slices.Clone(lines), func(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 || isTableSize(line) })
	if len(rows) < 2 {
		return f, false
	}
	width := len(bytes.Fields(rows[0]))
	for i, row := range rows {
		if torn := i > 1 && i == len(rows)-1; !torn && (!isNumberRow(row) || len(bytes.Fields(row)) != width) {
			return f, false
		}
		f.numbered = width == len(names)+1 && scan.IsDigit(row[0])
	}
	return f, f.numbered || width == len(names)
}

// isTableSize reports whether pandas printed the line after a long table: [100 rows x 4 columns].
func isTableSize(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] == '[' && bytes.HasSuffix(line, []byte(" columns]"))
}

// isNumberRow reports whether a line is at least two numbers, separated by blanks.
func isNumberRow(line []byte) bool {
	words := bytes.Fields(line)
	return len(words) > 1 && !slices.ContainsFunc(words, func(w []byte) bool { return !looksNumeric(w) })
}

type numberFormat struct {
	decimal byte // point or comma
	group   byte // separator of thousands; 0: none
}

// isUnmeasured reports whether a cell stands for a value that was not measured.
func isUnmeasured(cell []byte) bool {
	switch n := len(cell); {
	case n == 0:
		return true
	case n == 1:
		return cell[0] == '-' || cell[0] == '?'
	case n > 30 || bytes.IndexByte([]byte("-<#[nN"), cell[0]) < 0: // usually
		return false
	}
	switch strings.ToLower(string(cell)) {
	case "--", "na", "n/a", "<na>", "#n/a", "null", "none", "[n/a]", "[not supported]", "[unknown error]", "[insufficient permissions]":
		return true
	}
	return false
}

func (n numberFormat) parse(cell []byte) (v float64, ok bool) {
	if n.decimal == '.' && n.group == 0 {
		return scan.ParseFloat(cell)
	}
	if n.group != 0 && bytes.IndexByte(cell, n.group) >= 0 {
		if !hasThousandsGroups(cell, n) {
			return 0, false
		}
		cell = bytes.ReplaceAll(cell, []byte{n.group}, nil)
	}
	if n.decimal == ',' {
		cell = bytes.Replace(cell, []byte{','}, []byte{'.'}, 1)
	}
	return scan.ParseFloat(cell)
}

// hasThousandsGroups reports whether the separators in the whole part of a number separate three digits each.
func hasThousandsGroups(cell []byte, n numberFormat) bool {
	whole, _, _ := bytes.Cut(bytes.TrimLeft(cell, "+-"), []byte{n.decimal})
	for i, part := range bytes.Split(whole, []byte{n.group}) {
		if i == 0 && (len(part) < 1 || len(part) > 3) || i > 0 && len(part) != 3 {
			return false
		}
	}
	return true
}

// unitFactor returns the factor that converts a unit to that of a kind of fields: seconds, joules
// or a fraction. ok is false if the unit does not belong to the kind.
func unitFactor(kind fields.Kind, unit string) (factor float64, ok bool) {
	switch kind {
	case fields.Seconds:
		factor = scan.SecondsPerUnit([]byte(strings.ToLower(unit)))
		return factor, factor > 0
	case fields.Fraction:
		switch strings.ToLower(unit) {
		case "%", "pct", "percent":
			return 0.01, true
		}
	case fields.Number:
		switch unit {
		case "J":
			return 1, true
		case "kJ":
			return 1e3, true
		case "Wh":
			return 3600, true
		case "kWh":
			return 3.6e6, true
		}
	case fields.Whole, fields.Moment, fields.Text:
	}
	return 0, false
}

// parseMeasurement parses a number with an optional unit. If kind is fields.Seconds, it also parses
// durations such as 1:02:03 or "1 day, 2:03:04". A number without a unit is multiplied by factor.
func (n numberFormat) parseMeasurement(kind fields.Kind, factor float64, cell []byte) (v float64, ok bool) {
	if v, ok = n.parse(cell); ok {
		return v * factor, true
	}
	at := len(cell)
	for at > 0 && !scan.IsDigit(cell[at-1]) && cell[at-1] != '.' {
		at--
	}
	number, unit := bytes.TrimSpace(cell[:at]), string(bytes.TrimSpace(cell[at:]))
	if v, ok = n.parse(number); !ok && kind == fields.Seconds { // such as 3m12s and 1:02:03
		if n.decimal == ',' {
			cell = scan.WithDecimalPoints(cell)
		}
		return scan.ParseDuration(cell)
	}
	if !ok || unit == "" {
		return 0, false
	}
	if f, known := unitFactor(kind, unit); known {
		return v * f, true
	}
	switch kind {
	case fields.Number: // such as 154.32 W: the unit is part of the column's name
		return v * factor, at < len(cell) && (cell[at] == ' ' || cell[at] == '%' || unit == "x") && len(unit) <= 12
	case fields.Seconds, fields.Fraction, fields.Whole, fields.Moment, fields.Text:
	}
	return 0, false
}
