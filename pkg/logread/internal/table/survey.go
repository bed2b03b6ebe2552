package table

import (
	"bytes"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

// maxSurveyedLines is the number of lines after the header that detect the delimiter.
const maxSurveyedLines = 100

const maxTableColumns = 1000

// preamble is the beginning of a table up to its header.
type preamble struct {
	form   tableSyntax
	header []string // names of the columns; nil if the table has none
	lines  int      // number of lines before the first row
	width  int      // number of columns
	source string   // comment with who published the numbers, for runs.Info.Source; "" if there is none
}

// parsePreamble parses the beginning of a text. Lines that begin with # are comments; one of them
// is the header if no other line is (as numpy.savetxt writes it). A line sep=; states the
// delimiter. A line +---+---+ may precede the header. If the mappings give columns by position, the
// first line may be a row. ok is false if text begins no table.
func parsePreamble(text []byte, mappings []ColumnMapping) (p preamble, ok bool) {
	var comment, stated []byte
	for number := 1; len(text) > 0; number++ {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		line = bytes.TrimRight(line, "\r")
		trimmed := bytes.TrimSpace(line)
		switch {
		case len(trimmed) == 0:
		case trimmed[0] == '#':
			comment = bytes.TrimSpace(trimmed[1:])
			if bytes.HasPrefix(comment, []byte("published by ")) {
				p.source = string(comment)
			}
		case isDividerLine(trimmed):
		case number == 1 && len(trimmed) == 5 && bytes.HasPrefix(trimmed, []byte("sep=")):
			stated = trimmed[4:]
		default:
			p, ok = p.parseHeader(number, line, comment, stated, rest, ended)
			if ok && p.headerIsRow(mappings) {
				p.header, p.lines = nil, p.lines-1
			}
			return p, ok
		}
		text = rest
	}
	return p, false
}

// parseHeader completes parsePreamble with the first line that is neither blank nor a comment.
// ended is false if the text ends before the line does.
func (p preamble) parseHeader(number int, line, comment, stated, rest []byte, ended bool) (preamble, bool) {
	var lines [][]byte
	for len(rest) > 0 && len(lines) < maxSurveyedLines {
		var one []byte
		var complete bool
		if one, rest, complete = bytes.Cut(rest, []byte("\n")); complete || len(lines) == 0 {
			lines = append(lines, bytes.TrimRight(one, "\r"))
		}
	}
	var ok bool
	if p.form, ok = detectTableSyntax(line, lines); !ok {
		return p, false
	}
	if len(stated) == 1 && bytes.IndexByte([]byte("+-.0123456789Ee"), stated[0]) < 0 { // no character of a number
		p.form.delimiter, p.form.bars = stated[0], p.form.bars && stated[0] == '|'
	}
	cells, err := p.form.splitCells(nil, line)
	if err != nil {
		return p, false
	}
	p.width, p.lines = len(cells), number
	if !slices.ContainsFunc(cells, isTextCell) {
		p.lines--
		if names, err := p.form.splitCells(nil, comment); err == nil && len(names) == len(cells) && slices.ContainsFunc(names, isTextCell) {
			p.header = columnNames(names)
		}
		return p, true
	}
	if !ended && len(cells) > 2 { // the header is longer than the text, and its last name is cut
		cells = cells[:len(cells)-1]
	}
	p.header = columnNames(cells)
	return p, true
}

// headerIsRow reports whether the table has no header, so that the supposed header is its first
// row. The user's mappings must identify columns by position, these cells must contain the numbers
// that their fields require, and no cell may be the name of a known column.
func (p preamble) headerIsRow(mappings []ColumnMapping) bool {
	numbers := 0
	for _, m := range mappings {
		if m.position == 0 || m.position > len(p.header) {
			return false
		}
		cell := p.header[m.position-1]
		if f := fieldNamed(m.Field); f != nil && f.Kind == fields.Text {
			continue
		}
		if cell == "" || !looksNumeric([]byte(cell)) {
			return false
		}
		numbers++
	}
	return numbers > 0 && !slices.ContainsFunc(p.header, func(name string) bool {
		f, _ := lookUpColumn(name, tableKind)
		return f != nil
	})
}

func isTextCell(c scan.Cell) bool { return !looksNumeric(c.Text) }

func columnNames(cells []scan.Cell) []string {
	names := make([]string, len(cells))
	for i, c := range cells {
		names[i] = strings.ToValidUTF8(string(c.Text), "\ufffd")
	}
	return names
}

// looksNumeric reports whether a cell is empty or a number with any decimal mark.
func looksNumeric(cell []byte) bool {
	if isUnmeasured(cell) {
		return true
	}
	if _, ok := (numberFormat{decimal: '.'}).parse(cell); ok {
		return true
	}
	return new(decimalMarkCounts).addCell(cell)
}

// decimalMarkCounts counts the numbers in a column by what they show about its decimal mark.
type decimalMarkCounts struct {
	decimalComma, groupComma, anyComma int // 0,607; 1,234,567 or 1,234.5; 1,234
	decimalPoint, groupPoint, anyPoint int // 0.607; 1.234.567 or 1.234,5; 1.234
	example                            string
}

func (e *decimalMarkCounts) addCell(cell []byte) bool {
	body := bytes.TrimLeft(cell, "+-")
	if i := bytes.IndexAny(body, "eE"); i > 0 {
		body = body[:i]
	}
	for _, c := range body {
		if !scan.IsDigit(c) && c != ',' && c != '.' {
			return false
		}
	}
	commas, points := bytes.Count(body, []byte{','}), bytes.Count(body, []byte{'.'})
	ambiguous := func(mark string) bool {
		i := strings.Index(string(body), mark)
		return len(body)-i == 4 && i >= 1 && i <= 3 && body[0] != '0' && len(body) == len(bytes.TrimLeft(cell, "+-"))
	}
	switch {
	case commas+points == 0, len(body) == commas+points:
		return false
	case commas > 0 && points > 0:
		if bytes.LastIndexByte(body, '.') > bytes.LastIndexByte(body, ',') {
			if points > 1 || !hasThousandsGroups(body, numberFormat{decimal: '.', group: ','}) {
				return false
			}
			e.groupComma++
			return true
		}
		if commas > 1 || !hasThousandsGroups(body, numberFormat{decimal: ',', group: '.'}) {
			return false
		}
		e.decimalComma++
		e.groupPoint++
	case commas > 1:
		if !hasThousandsGroups(body, numberFormat{decimal: '.', group: ','}) {
			return false
		}
		e.groupComma++
	case points > 1:
		if !hasThousandsGroups(body, numberFormat{decimal: ',', group: '.'}) {
			return false
		}
		e.groupPoint++
	case commas == 1 && ambiguous(","):
		e.anyComma++
		e.keepExample(cell)
	case commas == 1:
		e.decimalComma++
	case ambiguous("."):
		e.anyPoint++
		e.keepExample(cell)
	default:
		e.decimalPoint++
	}
	return true
}

func (e *decimalMarkCounts) keepExample(cell []byte) {
	if e.example == "" {
		e.example = string(cell)
	}
}

type columnSurvey struct {
	numbers, texts int
	whole          int // numbers that are integers and not negative
	positive       int // those of them that are not 0
	large          int // numbers that are seconds since 1970, if they are a time
	marks          decimalMarkCounts
	form           numberFormat
	assumed        string // explanation of form, if it is an assumption
}

// surveyRows surveys text, the complete lines after the header.
func surveyRows(f tableSyntax, width int, text []byte) []columnSurvey {
	s := make([]columnSurvey, width)
	for cells, ok := range f.rowsOf(text, width) {
		for i := 0; ok && i < width; i++ {
			s[i].addCell(&cells[i])
		}
	}
	decideDecimalMarks(f, s)
	return s
}

func (s *columnSurvey) addCell(c *scan.Cell) {
	cell := c.Text
	if c.Length > 0 && c.Length == len(cell) { // usually
		if bytes.IndexByte(cell, '.') >= 0 {
			s.marks.addCell(cell)
		}
		s.addNumber(c.Number)
		return
	}
	if isUnmeasured(cell) {
		return
	}
	number := cell
	for n := len(number); n > 0 && !scan.IsDigit(number[n-1]) && n > 1 && scan.IsDigit(cell[0]); n-- { // a unit
		number = number[:n-1]
	}
	number = bytes.TrimSpace(number)
	marked := s.marks.addCell(number)
	v, plain := numberFormat{decimal: '.'}.parse(cell)
	_, duration := numberFormat{decimal: '.'}.parseMeasurement(fields.Seconds, 1, cell)
	_, measured := numberFormat{decimal: '.'}.parseMeasurement(fields.Number, 1, cell)
	if !plain && !duration && !measured && !marked {
		s.texts++
		return
	}
	if !plain {
		v = -1
	}
	s.addNumber(v)
}

func (s *columnSurvey) addNumber(v float64) {
	s.numbers++
	if v >= 1e8 {
		s.large++
	}
	if v >= 0 && v < 1<<53 && v == float64(int64(v)) {
		s.whole++
		if v > 0 {
			s.positive++
		}
	}
}

// decideDecimalMarks decides which decimal mark each column has. A number that is valid with only
// one mark decides its column; otherwise the other columns and the delimiter do.
func decideDecimalMarks(f tableSyntax, s []columnSurvey) {
	commas, points := false, false
	for i := range s {
		m := s[i].marks
		comma, point := m.decimalComma+m.groupPoint, m.decimalPoint+m.groupComma
		commas, points = commas || comma > point, points || point > comma
	}
	for i := range s {
		m := s[i].marks
		comma, point := m.decimalComma+m.groupPoint, m.decimalPoint+m.groupComma
		s[i].form = numberFormat{decimal: '.'}
		switch {
		case comma > point:
			s[i].form = numberFormat{decimal: ','}
			if m.groupPoint > 0 || m.anyPoint > 0 && m.decimalPoint == 0 {
				s[i].form.group = '.'
			}
			s[i].assumed = "a comma is the decimal mark"
		case point > comma:
			if m.groupComma+m.anyComma > 0 {
				s[i].form.group = ','
				s[i].assumed = "commas separate thousands"
			}
		case m.anyComma > 0 && (commas || !points && f.delimiter != ',' && !f.bars):
			s[i].form = numberFormat{decimal: ','}
			s[i].assumed = "a comma is the decimal mark, as in " + m.example + describeMarkSource(commas)
		case m.anyComma > 0:
			s[i].form.group = ','
			s[i].assumed = "commas separate thousands, as in " + m.example + describeMarkSource(points)
		case m.anyPoint > 0 && commas:
			s[i].form = numberFormat{decimal: ',', group: '.'}
			s[i].assumed = "points separate thousands, as in " + m.example + describeMarkSource(commas)
		}
	}
}

func describeMarkSource(others bool) string {
	if others {
		return " (by the other columns)"
	}
	return " (by the delimiter)"
}
