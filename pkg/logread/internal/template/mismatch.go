package template

import (
	"fmt"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

// Mismatch describes where a line begins to differ from a template.
type Mismatch struct {
	Offset   int    // index in the line
	Expected string // what the template has at this place, such as `" time "` or "a number for {seconds}"
	Matched  int    // number of characters and fields of the template that match before it; 0 if the line has nothing in common with the template
}

// maxMismatchCandidates is the number of places at which Mismatch tries the text after *.
const maxMismatchCandidates = 32

// FindMismatch returns where the line begins to differ from the template. Match must have returned
// false for the line. If the template is a regular expression, FindMismatch only returns the
// beginning of the line.
func (t *Template) FindMismatch(line []byte) Mismatch {
	if t.regexp != nil {
		return Mismatch{Expected: "a text that the regular expression matches"}
	}
	values := make([]Value, len(t.fields))
	line, at := cutBlanks(line)
	end, matched := len(line), 0
	for i := range t.segments {
		s := &t.segments[i]
		last := i == len(t.segments)-1 && !t.open
		if s.anywhere {
			if next := at; s.findMatch(line, &next, values, last) >= 0 {
				at, matched = next, matched+s.fullMatchSize()
				continue
			}
			m := t.nearestCandidate(s, line, at)
			m.Matched += matched
			return m
		}
		m, next := t.matchOrExplain(s, line, at)
		if m.Matched += matched; next < 0 {
			return m
		}
		if at, matched = next, m.Matched; last && at < end {
			return Mismatch{Offset: at, Expected: "the end of the line", Matched: matched}
		}
	}
	return Mismatch{Offset: end, Expected: "a number that the field can have", Matched: matched}
}

func (s *segment) fullMatchSize() int {
	n := len(s.lead.text)
	for i := range s.numbers {
		n += 1 + len(s.numbers[i].after.text)
	}
	return n
}

// nearestCandidate finds the place at or after from where most of segment s matches, and returns
// where the line differs from s there.
func (t *Template) nearestCandidate(s *segment, line []byte, from int) Mismatch {
	best := Mismatch{Offset: from, Expected: fmt.Sprintf("the text %q", s.lead.text)}
	if s.lead.text == "" {
		best.Expected = "a number"
	}
	for range maxMismatchCandidates {
		begin := s.nextMatchStart(line, from)
		if begin < 0 {
			break
		}
		m, next := t.matchOrExplain(s, line, begin)
		if next >= 0 {
			m = Mismatch{Offset: next, Expected: "the end of the line", Matched: s.fullMatchSize()}
		}
		if m.Matched > best.Matched {
			best = m
		}
		from = begin + 1
	}
	return best
}

// matchOrExplain matches segment s at index at of the line, and counts the characters and fields
// that match. next is the index after the match. It is -1 if the segment does not match; m then
// describes where the line differs.
func (t *Template) matchOrExplain(s *segment, line []byte, at int) (m Mismatch, next int) {
	m.Matched, next = matchedBytes(line, at, s.lead.text)
	if m.Matched < len(s.lead.text) {
		m.Offset, m.Expected = next, fmt.Sprintf("%q", s.lead.text[m.Matched:])
		return m, -1
	}
	at = next
	var value Value
	for i := range s.numbers {
		x := &s.numbers[i]
		if next = x.match(line, at, &value); next >= 0 {
			at = next
			m.Matched += 1 + len(x.after.text)
			continue
		}
		for at < len(line) && isBlank(line[at]) {
			at++
		}
		v, n := parseNumber(line[at:], x.separated)
		f := t.fields[x.field]
		m.Offset, m.Expected = at, fmt.Sprintf("a number for {%s}", f.Name)
		if x.kind == fields.Whole {
			m.Expected = fmt.Sprintf("a whole number for {%s}", f.Name)
		}
		if n == 0 || x.setValue(&value, v, 0, 0) < 0 {
			return m, -1
		}
		_, end := readUnit(x.kind, line, at+n, v)
		if x.factor > 0 {
			end = at + n
		}
		more, differs := matchedBytes(line, end, x.after.text)
		m.Matched += 1 + more
		m.Offset, m.Expected = differs, fmt.Sprintf("%q", x.after.text[more:])
		if x.after.text == "" {
			m.Expected = "the end of the line"
			if differs < len(line) && scan.IsLetter(line[differs]) {
				m.Expected = "the end of the number or a known unit"
			}
		}
		if !x.comma && differs == end && end+1 < len(line) && line[end] == ',' && scan.IsDigit(line[end+1]) {
			m.Expected += fmt.Sprintf("; if the comma is the decimal mark, write {%s:,} in the template", f.Name)
		}
		return m, -1
	}
	return m, at
}

// matchedBytes returns how many bytes of text match the line at an index, and the line's index after them.
func matchedBytes(line []byte, at int, text string) (n, next int) {
	for ; n < len(text) && at < len(line); n++ {
		if text[n] == ' ' && isBlank(line[at]) {
			for at < len(line) && isBlank(line[at]) {
				at++
			}
			continue
		}
		if text[n] != line[at] {
			break
		}
		at++
	}
	return n, at
}
