package scan

import (
	"bytes"
	"errors"
	"slices"
)

// Cell is a cell of a row of a table.
type Cell struct {
	Text   []byte  // without quotes
	Number float64 // the number with which Text begins
	Length int     // of that number in bytes; 0 if Text begins with none that ParseDecimal parses
}

// ErrMisplacedQuote is the error for a quoted cell that does not end in its line.
var ErrMisplacedQuote = errors.New(`read the row as CSV: extraneous or missing " in quoted-field`)

// AppendCells splits a row into cells and appends them to cells. Cells may be quoted as in RFC
// 4180. If trim is set, blanks at both ends of each cell are removed.
func AppendCells(cells []Cell, row []byte, delimiter byte, trim bool) ([]Cell, error) {
	for {
		cells = slices.Grow(cells, 1)
		cells = cells[:len(cells)+1]
		c := &cells[len(cells)-1] // a local copy would be slower
		c.Text, c.Length = nil, 0
		if len(row) > 0 && row[0] == delimiter { // as in most of a sparse table
			row = row[1:]
			continue
		}
		if len(row) > 0 && row[0] == ' ' && trim { // after most delimiters in many tables
			row = row[1:]
		}
		if len(row) > 0 && (row[0] == '"' || row[0] == ' ' && trim) {
			if rest := bytes.TrimLeft(row, " "); len(rest) > 0 && rest[0] == '"' {
				text, rest, err := unquoteCell(rest[1:])
				if err != nil {
					return cells[:len(cells)-1], err
				}
				if c.Text = text; trim {
					c.Text = bytes.TrimSpace(text)
				}
				c.Number, c.Length = ParseDecimal(c.Text)
				if rest = bytes.TrimLeft(rest, " "); len(rest) == 0 {
					return cells, nil
				}
				if rest[0] != delimiter {
					return cells, ErrMisplacedQuote
				}
				row = rest[1:]
				continue
			}
		}
		if len(row) > 0 && row[0] <= '9' {
			c.Number, c.Length = ParseDecimal(row)
		}
		n := c.Length
		for n < len(row) && row[n] != delimiter { // cells are short
			n++
		}
		if c.Text = row[:n]; n > c.Length && trim && (row[0] <= ' ' || row[0] >= 0x80 || row[n-1] <= ' ' || row[n-1] >= 0x80) {
			c.Text = bytes.TrimSpace(c.Text)
			c.Number, c.Length = ParseDecimal(c.Text)
		}
		if n == len(row) {
			return cells, nil
		}
		row = row[n+1:]
	}
}

// unquoteCell parses a quoted cell. text begins after the opening quote; rest begins after the closing
// quote. Two quotes within the cell stand for one.
func unquoteCell(text []byte) (cell, rest []byte, err error) {
	i := bytes.IndexByte(text, '"')
	if i < 0 {
		return nil, nil, ErrMisplacedQuote
	}
	if i+1 >= len(text) || text[i+1] != '"' {
		return text[:i], text[i+1:], nil
	}
	for {
		i = bytes.IndexByte(text, '"')
		if i < 0 {
			return nil, nil, ErrMisplacedQuote
		}
		cell = append(cell, text[:i]...)
		if i+1 >= len(text) || text[i+1] != '"' {
			return cell, text[i+1:], nil
		}
		cell, text = append(cell, '"'), text[i+2:]
	}
}

// maxJoinedBytes is the number of bytes after a line in which the end of its last cell is searched.
const maxJoinedBytes = 1 << 14

// JoinRow returns a row whose last, quoted cell continues on the following lines. line is its first
// line, and err is the error that split returned for it. lines is the number of following lines
// that belong to the row, which JoinRow does not consume. It is 0 if err is not ErrMisplacedQuote, or if
// split accepts none of the longer rows. JoinRow invalidates line.
func (l *LineReader) JoinRow(line []byte, split func(row []byte) error, err error) (row []byte, lines int) {
	if !errors.Is(err, ErrMisplacedQuote) {
		return nil, 0
	}
	row = bytes.Clone(line)
	for ahead := l.Peek(maxJoinedBytes); len(ahead) > 0; {
		next, rest, ended := bytes.Cut(ahead, []byte("\n"))
		if !ended {
			break
		}
		row, lines, ahead = append(append(row, '\n'), bytes.TrimRight(next, "\r")...), lines+1, rest
		if split(row) == nil {
			return row, lines
		}
	}
	return nil, 0
}
