package suggest

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// spellingDifferences contains what differs between the spellings of a shape, by
// slot.
type spellingDifferences struct {
	units  []bool // the attached units differ
	blanks []bool // only some lines have blanks before the number
}

// compareSpellings returns what differs between the spellings.
func (s *shape) compareSpellings() spellingDifferences {
	d := spellingDifferences{make([]bool, len(s.values)), make([]bool, len(s.values))}
	units, blanks := make([]string, len(s.values)), make([]bool, len(s.values))
	for i, v := range s.variants {
		slot := 0
		for k, t := range v.tokens {
			if !t.isSlot() {
				continue
			}
			blank := k > 0 && v.tokens[k-1].kind == blankToken
			if i == 0 {
				units[slot], blanks[slot] = t.unit, blank
			}
			d.units[slot] = d.units[slot] || t.unit != units[slot]
			d.blanks[slot] = d.blanks[slot] || blank != blanks[slot]
			slot++
		}
	}
	return d
}

// templateText returns the template of the lines with one spelling. meanings
// contains the meanings of the slots.
func (s *shape) templateText(v spelling, d spellingDifferences, meanings []meaning) string {
	var parts []string
	slot, word := 0, 0
	for i, t := range v.tokens {
		switch {
		case t.kind == blankToken:
			if i+1 == len(v.tokens) || !v.tokens[i+1].isSlot() || !d.blanks[slot] { // a field also matches blanks before its number
				parts = append(parts, " ")
			}
			continue
		case t.isSlot():
			parts = append(parts, fieldText(t, meanings[slot], d.units[slot], s.commas[slot]))
			slot++
		case t.kind == stampToken || word < len(s.varying) && s.varying[word] || !isPrintable(t.text):
			parts = append(parts, "*")
		default:
			parts = append(parts, escapeLiteral(t.text))
		}
		word++
	}
	if s.openEnd {
		parts = append(parts, "*")
	}
	return collapse(parts)
}

// fieldText returns the text of a number in a template. If the units differ
// between the lines, the template has none, since the field reads them. commas states whether
// numbers have decimal commas.
func fieldText(t token, m meaning, unitsDiffer, commas bool) string {
	format := ""
	if commas {
		format = ":,"
	}
	switch {
	case m.field == "":
		return "*"
	case m.scale != "":
		return "{" + m.field + cmp.Or(format, ":") + m.scale + "}"
	case t.unit == "compound" || unitsDiffer:
		return "{" + m.field + format + "}"
	}
	return "{" + m.field + format + "}" + t.unit
}

// escapeLiteral returns text as a literal of a template. A literal * becomes the
// wildcard *, which also matches it.
func escapeLiteral(text string) string {
	return strings.NewReplacer("{", "{{", "}", "}}").Replace(text)
}

// isPrintable reports whether text has no control characters, which a terminal
// would execute.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// collapse joins the parts of a template, and joins wildcards that follow each
// other.
func collapse(parts []string) string {
	var b strings.Builder
	last := ""
	for _, p := range parts {
		if p == "*" && last == "*" {
			continue
		}
		b.WriteString(p)
		last = p
	}
	text := strings.TrimSpace(b.String())
	if strings.HasPrefix(text, "/") { // not a regular expression
		text = "*" + text[1:]
	}
	return text
}

// maxSettingsLine is the length in bytes up to which the template of a line of
// settings keeps all words of the line.
const maxSettingsLine = 72

// settingsText returns the template of a long line of settings: only one word on
// each side of a field is kept, since the other settings differ between runs.
func (s *shape) settingsText(v spelling, d spellingDifferences, meanings []meaning) string {
	if len(v.first) <= maxSettingsLine {
		return s.templateText(v, d, meanings)
	}
	var parts []string
	slot, from := 0, 0
	for i, t := range v.tokens {
		if !t.isSlot() {
			continue
		}
		m := meanings[slot]
		slot++
		if m.field == "" {
			continue
		}
		start, words := i, 0
		for start > from && words == 0 && !v.tokens[start-1].isSlot() && v.tokens[start-1].kind != stampToken {
			start--
			words += wordsIn(v.tokens[start : start+1])
		}
		end := i + 1
		for end < len(v.tokens) && end < i+3 && (v.tokens[end].kind == blankToken || v.tokens[end].kind == wordToken) {
			end++
		}
		if start > from {
			parts = append(parts, "*")
		}
		for k := start; k < end; k++ {
			switch t := v.tokens[k]; {
			case k == i:
				parts = append(parts, fieldText(t, m, d.units[slot-1], s.commas[slot-1]))
			case t.kind == blankToken:
				parts = append(parts, " ")
			case !isPrintable(t.text):
				parts = append(parts, "*")
			default:
				parts = append(parts, escapeLiteral(t.text))
			}
		}
		from = end
	}
	if from < len(v.tokens) {
		parts = append(parts, "*")
	}
	return collapse(parts)
}

// wordsIn returns the number of words of tokens.
func wordsIn(tokens []token) int {
	return len(slices.DeleteFunc(slices.Clone(tokens), func(t token) bool { return t.kind != wordToken }))
}
