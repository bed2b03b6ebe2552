package template

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"

	"lockstep/pkg/logread/internal/scan"
)

// Match reports whether the template matches the line, and sets values[i] to the value of
// field i. values must have one element per field; if the line does not match, their
// contents are undefined. Match allocates no memory, unless the template is a regular
// expression.
//
// The time is linear in the length of the line, except that a literal text after * is
// searched as bytes.Index does.
func (t *Template) Match(line []byte, values []Value) bool {
	if t.regexp != nil {
		return t.matchRegexp(line, values)
	}
	at, end := 0, len(line)
	for at < end && isBlank(line[at]) {
		at++
	}
	for end > at && isBlank(line[end-1]) {
		end--
	}
	line = line[:end]
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
		begin := s.find(line, &at, values, last)
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

// MatchFirst matches the first line of text, which may contain further lines, without
// finding the end of the line first. It returns the length of the line with its line end, or
// 0 if the template does not match, the line is incomplete, or Match has to examine it: a
// line with blanks or \r at its ends or with other blanks before its first number, and any line if the template contains text between
// two * or is a regular expression.
func (t *Template) MatchFirst(text []byte, values []Value) (length int) {
	if p := t.plain; p != nil && cap(text) >= literalBytes && len(p.lead.text) <= min(literalBytes, len(text)) && !p.lead.differs(text[:literalBytes]) {
		if n := p.matchPlain(text, len(p.lead.text), values); n > 0 {
			return n
		}
	}
	if len(t.segments) != 1 || t.segments[0].anywhere || !t.segments[0].lead.isAt(text, 0) {
		return 0
	}
	s := &t.segments[0]
	at := s.match(text, 0, values)
	if at < 0 {
		return 0
	}
	if t.open {
		for at < len(text) && text[at] != '\n' { // usually a few bytes
			if text[at] == '\r' {
				return 0
			}
			at++
		}
	}
	if at == len(text) || text[at] != '\n' {
		return 0
	}
	return at + 1
}

// Lead returns the text before the first field, or "" if the template begins with a field or
// with *, or is a regular expression.
func (t *Template) Lead() string {
	if len(t.segments) == 0 {
		return ""
	}
	return t.segments[0].lead.text
}

// MatchAfterLead is MatchFirst for text that follows Lead, which the caller has compared. It
// returns the length of the rest of the line with its line end. It returns 0 also if a number
// or a blank has an unusual form.
func (t *Template) MatchAfterLead(text []byte, values []Value) (length int) {
	if t.plain == nil {
		return 0
	}
	return t.plain.matchPlain(text, 0, values)
}

// matchPlain matches the rest of the segment at text[at:], after its lead. It returns the index
// after the segment, and after the line end if the template ends with the segment. It returns 0
// if the text does not match, a number has an unusual form, or the blanks are not exactly those
// of the template. It is a faster match for long texts of similar lines: one function, which
// calls others only to parse numbers.
func (s *segment) matchPlain(text []byte, at int, values []Value) int {
	for i := range s.numbers {
		x := &s.numbers[i]
		var v float64
		var n int
		if x.kind == Whole {
			var k int
			k, n = scan.ParseShortInteger(text[at:])
			v = float64(k)
		} else {
			v, n = scan.ParseDecimal(text[at:])
		}
		if n == 0 {
			return 0
		}
		value := &values[x.field]
		value.Number, value.From, value.To = v, at, at+n
		at += n
		w, l := text[at:cap(text)], &x.lineEnd
		if len(w) < literalBytes || l.differs(w) {
			return 0
		}
		at += len(l.text)
		if at > len(text) || len(l.text) > literalBytes && string(text[at-len(l.text)+literalBytes:at]) != l.text[literalBytes:] {
			return 0
		}
	}
	return at
}

// find finds the first place at or after *at where the segment matches, sets *at to the
// index after the match, and returns the index where the match begins, or -1. If last is
// set, the match must end at the end of the line.
func (s *segment) find(line []byte, at *int, values []Value, last bool) int {
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
		begin := s.nextCandidate(line, from)
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

// nextCandidate returns the first index at or after from at which the segment may begin,
// or -1.
func (s *segment) nextCandidate(line []byte, from int) int {
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

// continuesToken reports whether a character c after the character before is not the
// beginning of a number.
func continuesToken(before, c byte) bool {
	if scan.IsDigit(before) || before == '.' || before == '_' {
		return true
	}
	return (c|0x20 == 'n' || c|0x20 == 'i') && (scan.IsLetter(before) || before == '-' || before == '+') ||
		(before == '-' || before == '+')
}

// indexString returns the index of text in b, or -1.
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

// match matches the segment at the given index and returns the index after it, or -1.
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

// literalBytes is the number of bytes that literal.differs compares.
const literalBytes = 24

// differs reports whether the first bytes of w, which has at least literalBytes bytes, differ
// from the beginning of the text.
func (l *literal) differs(w []byte) bool {
	d := (binary.LittleEndian.Uint64(w) ^ l.word[0]) & l.mask[0]
	if len(l.text) > 8 {
		d |= (binary.LittleEndian.Uint64(w[8:])^l.word[1])&l.mask[1] | (binary.LittleEndian.Uint64(w[16:])^l.word[2])&l.mask[2]
	}
	return d != 0
}

// isAt reports whether the text is at the given index of the line, with the same blanks. It
// compares words of memory, as long as the line's buffer is long enough.
func (l *literal) isAt(line []byte, at int) bool {
	w := line[at:cap(line)]
	if len(w) < literalBytes {
		return scan.HasPrefix(line[at:], l.text)
	}
	if l.differs(w) || at+len(l.text) > len(line) {
		return false
	}
	return len(l.text) <= literalBytes || string(line[at+literalBytes:at+len(l.text)]) == l.text[literalBytes:]
}

// match matches the text at the given index of the line and returns the index after it, or
// -1. If the text ends with a blank, the line may have further blanks there, which what
// follows skips.
func (l *literal) match(line []byte, at int) int {
	if l.isAt(line, at) {
		return at + len(l.text)
	}
	if !l.blanks {
		return -1
	}
	for i := range len(l.text) {
		switch {
		case at == len(line):
			return -1
		case l.text[i] != ' ':
			if line[at] != l.text[i] {
				return -1
			}
			at++
		case !isBlank(line[at]):
			return -1
		default:
			for at < len(line) && isBlank(line[at]) {
				at++
			}
		}
	}
	return at
}

// isBlank reports whether c is a blank.
func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// match matches the number and the literal text after it, sets the value and returns the
// index after the text, or -1.
func (x *numeric) match(line []byte, at int, value *Value) int {
	if at < len(line) && isBlank(line[at]) {
		for at < len(line) && isBlank(line[at]) {
			at++
		}
	}
	if x.plain { // the usual case
		v, n := scan.ParseDecimal(line[at:])
		if end := at + n; n > 0 && x.after.isAt(line, end) && (x.kind != Whole || v == float64(int64(v)) && v <= 1<<53 && v >= -1<<53) {
			if x.factor > 0 && x.factor != 1 {
				v = scale(v, x.factor)
			}
			value.Number, value.From, value.To = v, at, end
			return end + len(x.after.text)
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
			return x.set(value, scale(v, x.factor), end, next)
		}
	}
	if w, after := addUnit(x.kind, line, end, v); after > end {
		if next := x.matchAfter(line, after); next >= 0 {
			return x.set(value, w, after, next)
		}
	}
	if x.factor > 0 {
		return -1
	}
	return x.set(value, v, end, x.matchAfter(line, end))
}

// set sets the value and returns next, or -1 if the number is not valid for the field.
func (x *numeric) set(value *Value, v float64, end, next int) int {
	if x.kind == Whole {
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

// matchAfter matches the literal text after the number and returns the index after it, or
// -1.
func (x *numeric) matchAfter(line []byte, at int) int {
	if x.after.text != "" {
		return x.after.match(line, at)
	}
	if at < len(line) && (x.next == nextEnd && line[at] != '\n' || scan.IsLetter(line[at]) || scan.IsDigit(line[at]) || line[at] == '_') {
		return -1
	}
	return at
}

// matchRegexp is Match for a regular expression.
func (t *Template) matchRegexp(line []byte, values []Value) bool {
	found := t.regexp.FindSubmatchIndex(line)
	if found == nil {
		return false
	}
	for i, group := range t.groups {
		from, to := found[2*group], found[2*group+1]
		values[i] = Value{From: from, To: to}
		if from < 0 || t.fields[i].Kind == Text {
			continue
		}
		if t.numbers[i].match(line[:to], from, &values[i]) != to {
			return false
		}
	}
	return true
}
