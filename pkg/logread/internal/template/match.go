package template

import (
	"bytes"
	"math"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

// Match reports whether the template matches the line, and sets values[i] to the value of field i.
// values must have one element per field and is undefined without a match. Match allocates no
// memory, unless the template is a regular expression.
//
// The time is linear in the length of the line, except that a literal text after * is
// searched as bytes.Index does.
func (t *Template) Match(line []byte, values []Value) bool {
	if t.regexp != nil {
		return t.matchRegexp(line, values)
	}
	line, at := cutBlanks(line)
	end := len(line)
	for i := range t.segments {
		s := &t.segments[i]
		last := i == len(t.segments)-1 && !t.open
		if !s.anywhere {
			at = s.match(line, at, values)
			if at < 0 || last && at < end {
				return false
			}
			continue
		}
		from := at
		begin := s.findMatch(line, &at, values, last)
		if begin < 0 {
			return false
		}
		if s.field >= 0 {
			for isBlank(line[from]) && from < begin-1 {
				from++
			}
			text := bytes.TrimRight(line[from:begin], " \t")
			values[s.field] = Value{From: from, To: from + len(text)}
		}
	}
	return true
}

// cutBlanks returns a line without the blanks at its end, and the index of its first other character.
func cutBlanks(line []byte) (cut []byte, begin int) {
	end := len(line)
	for end > 0 && isBlank(line[end-1]) {
		end--
	}
	return line[:end], end - len(scan.SkipBlanks(line[:end]))
}

// findMatch finds the first match of the segment at or after *at, sets *at to the index after it, and
// returns the index where it begins, or -1. If last is set, the match must end with the line.
func (s *segment) findMatch(line []byte, at *int, values []Value, last bool) int {
	from := *at
	if s.field >= 0 {
		from++ // the text before the segment is not empty
	}
	if s.lead.text == "" && len(s.numbers) == 0 { // after a text at the end
		if from > len(line) {
			return -1
		}
		*at = len(line)
		return len(line)
	}
	if last && len(s.numbers) == 0 && !s.lead.blanks { // a literal text at the end
		from = max(from, len(line)-len(s.lead.text))
	}
	for {
		begin := s.nextMatchStart(line, from)
		if begin < 0 {
			return -1
		}
		if end := s.match(line, begin, values); end >= 0 && (!last || end == len(line)) {
			*at = end
			return begin
		}
		from = begin + 1
	}
}

// nextMatchStart returns the first index, not less than from, at which the segment may begin, or -1
// if there is none.
func (s *segment) nextMatchStart(line []byte, from int) int {
	if from > len(line) {
		return -1
	}
	switch {
	case s.lead.text == "":
		for ; from < len(line); from++ {
			c := line[from]
			if !scan.IsDigit(c) && c != '-' && c != '+' && c != '.' && c|0x20 != 'n' && c|0x20 != 'i' {
				continue
			}
			if from == 0 || !continuesToken(line[from-1], c) {
				return from
			}
		}
		return -1
	case s.lead.text[0] == ' ':
		for ; from < len(line); from++ {
			if isBlank(line[from]) && (from == 0 || !isBlank(line[from-1])) {
				return from
			}
		}
		return -1
	}
	i := indexString(line[from:], s.lead.text)
	if s.lead.blanks {
		word, _, _ := strings.Cut(s.lead.text, " ")
		i = indexString(line[from:], word)
	}
	if i < 0 {
		return -1
	}
	return from + i
}

// continuesToken reports whether c, which follows before, cannot be the first character of a
// number.
func continuesToken(before, c byte) bool {
	if scan.IsDigit(before) || before == '.' || before == '_' {
		return true
	}
	return (c|0x20 == 'n' || c|0x20 == 'i') && (scan.IsLetter(before) || before == '-' || before == '+') ||
		(before == '-' || before == '+')
}

func indexString(b []byte, text string) int {
	for i := 0; ; {
		k := bytes.IndexByte(b[i:], text[0])
		if k < 0 {
			return -1
		}
		i += k
		if scan.HasPrefix(b[i:], text) {
			return i
		}
		i++
	}
}

func (s *segment) match(line []byte, at int, values []Value) int {
	if at = s.lead.match(line, at); at < 0 {
		return -1
	}
	for i := range s.numbers {
		if at = s.numbers[i].match(line, at, &values[s.numbers[i].field]); at < 0 {
			return -1
		}
	}
	return at
}

// match matches the text at the given index of the line and returns the index after it, or -1. If
// the text ends with a blank, the line may have more, which what follows skips.
func (l *literal) match(line []byte, at int) int {
	if scan.HasPrefix(line[at:], l.text) {
		return at + len(l.text)
	}
	if !l.blanks {
		return -1
	}
	for i := range len(l.text) {
		if at == len(line) || line[at] != l.text[i] && (l.text[i] != ' ' || line[at] != '\t') {
			return -1
		}
		at++
		for l.text[i] == ' ' && at < len(line) && isBlank(line[at]) {
			at++
		}
	}
	return at
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// match matches the number and the literal text after it, sets the value and returns the index
// after the text, or -1.
func (x *numberField) match(line []byte, at int, value *Value) int {
	for at < len(line) && isBlank(line[at]) {
		at++
	}
	if x.plain { // usually
		v, n := scan.ParseDecimal(line[at:])
		end := at + n
		next := end + len(x.after.text)
		if !scan.HasPrefix(line[end:], x.after.text) {
			next = x.after.match(line, end) // with other blanks
		}
		if n > 0 && next >= 0 && (x.kind != fields.Whole || v == float64(int64(v)) && v <= 1<<53 && v >= -1<<53) {
			if x.factor > 0 {
				v = scan.ScaleExactly(v, x.factor)
			}
			value.Number, value.From, value.To = v, at, end
			return next
		}
	}
	v, n := parseNumber(line[at:], x.separated)
	if x.comma {
		v, n = parseDecimalComma(line[at:])
	}
	if n == 0 {
		return -1
	}
	end := at + n
	if line[end-1] == '.' && len(x.after.text) > 0 && x.after.text[0] == '.' { // the end of a sentence
		end--
	}
	value.From = at
	if x.factor > 0 {
		if next := x.matchAfter(line, end); next >= 0 {
			return x.setValue(value, scan.ScaleExactly(v, x.factor), end, next)
		}
	}
	if w, after := readUnit(x.kind, line, end, v); after > end {
		if next := x.matchAfter(line, after); next >= 0 {
			return x.setValue(value, w, after, next)
		}
	}
	if x.factor > 0 {
		return -1
	}
	return x.setValue(value, v, end, x.matchAfter(line, end))
}

func (x *numberField) setValue(value *Value, v float64, end, next int) int {
	if x.kind == fields.Whole {
		if rounded := math.Round(v); v != rounded {
			if math.Abs(v-rounded) > 1e-9*math.Abs(v) || v != v { // 1.2k is not exactly 1200
				return -1
			}
			v = rounded
		}
		if math.Abs(v) > 1<<53 {
			return -1
		}
	}
	value.Number, value.To = v, end
	return next
}

func (x *numberField) matchAfter(line []byte, at int) int {
	if x.after.text != "" {
		return x.after.match(line, at)
	}
	if at < len(line) && (x.next == nextEnd || scan.IsLetter(line[at]) || scan.IsDigit(line[at]) || line[at] == '_') {
		return -1
	}
	return at
}

func (t *Template) matchRegexp(line []byte, values []Value) bool {
	found := t.regexp.FindSubmatchIndex(line)
	if found == nil {
		return false
	}
	for i, group := range t.groups {
		from, to := found[2*group], found[2*group+1]
		values[i] = Value{From: from, To: to}
		if from < 0 || t.fields[i].Kind == fields.Text {
			continue
		}
		if t.numbers[i].match(line[:to], from, &values[i]) != to {
			return false
		}
	}
	return true
}
