package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// template returns the template of the lines. Numbers of unknown meaning are numbered places if they
// vary, and * otherwise.
func (c *candidate) template() Template {
	t := Template{Kind: c.kind, Example: c.first, Lines: len(c.lines)}
	var parts []string
	kept := c.keptTokens()
	slot := 0
	for i, x := range c.tokens {
		n := (*number)(nil)
		if x.kind == numberToken {
			n = &c.numbers[slot]
			slot++
		}
		if !kept[i] {
			parts = append(parts, "*")
			continue
		}
		if x.space != 0 && i > 0 && !(n != nil && n.blanksDiffer) { // a field also matches blanks before its number
			parts = append(parts, " ")
		}
		switch {
		case n != nil && n.as == "" && len(n.texts) < 2:
			parts = append(parts, "*")
		case n != nil:
			f := Field{Name: n.as, Example: strings.Join(n.texts, ", "), Why: n.why}
			if f.Name == "" {
				f.Name = fmt.Sprintf("?%d", 1+len(slices.DeleteFunc(slices.Clone(t.Fields), func(f Field) bool { return f.Name[0] != '?' })))
			}
			t.Fields = append(t.Fields, f)
			parts = append(parts, n.text(f.Name))
		case x.kind == stampToken || !isPrintable(x.text):
			parts = append(parts, "*")
		default:
			parts = append(parts, strings.NewReplacer("{", "{{", "}", "}}").Replace(x.text))
		}
	}
	if c.openEnd {
		parts = append(parts, "*")
	}
	t.Text = collapse(parts)
	return t
}

// text returns the text of the number in a template. If the units differ between the lines, the template
// has none, since the field reads them.
func (n *number) text(name string) string {
	format := ""
	if n.commas && n.as != "" {
		format = ":,"
	}
	if n.scale != "" {
		format = cmp.Or(format, ":") + n.scale
	}
	text := "{" + name + format + "}"
	if n.token.unit == durationUnit || n.unitsDiffer || n.as == "" {
		return text
	}
	return text + n.token.unit
}

// maxSettingsLine is the length in bytes up to which the template of a line of settings keeps all words
// of the line.
const maxSettingsLine = 72

// keptTokens reports for each token whether the template contains it. Of a long line of settings, which differ
// between runs, the template contains only the named numbers and the words beside them.
func (c *candidate) keptTokens() []bool {
	kept := make([]bool, len(c.tokens))
	for i := range kept {
		kept[i] = c.kind != Setting || len(c.first) <= maxSettingsLine
	}
	for i := range c.numbers {
		at := c.numbers[i].at
		if c.numbers[i].as == "" {
			continue
		}
		from, until := at, at+1
		for from > 0 && c.tokens[from].kind != wordToken {
			from--
		}
		if from > 0 && c.tokens[from-1].kind == markToken { // world_size is not distributed_world_size
			from--
		}
		for until < len(c.tokens) && c.tokens[until].kind == wordToken {
			until++
		}
		for k := from; k < until; k++ {
			kept[k] = true
		}
	}
	return kept
}

// isPrintable reports whether text has no control characters, which a terminal would execute.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// collapse joins the parts of a template, and joins wildcards that follow each other.
func collapse(parts []string) string {
	var b strings.Builder
	last := ""
	for _, p := range parts {
		if p != "*" || last != "*" {
			b.WriteString(p)
		}
		last = p
	}
	text := strings.TrimSpace(b.String())
	if strings.HasPrefix(text, "/") { // not a regular expression
		text = "*" + text[1:]
	}
	return text
}

// headings returns the headings of the columns by slot, if the lines are rows of a table without words: the
// nearest of the three lines above the first row that has as many columns. A row of units, such as
// "[ms] [-]", is joined with the names above it.
func (s *shape) headings(files []File) []string {
	if len(s.slots) < 2 || slices.ContainsFunc(s.tokens, func(t token) bool { return t.kind == wordToken }) {
		return nil
	}
	at := s.lines[0]
	lines := files[at.file].Lines
	row := cellsOf(s.first, 0)
	for i := at.line - 1; i >= max(0, at.line-3); i-- {
		names := cellsOf(lines[i].Text, len(row))
		if units := strings.FieldsFunc(lines[i].Text, isCellBoundary); i > 0 && isUnitRow(units) {
			names = cellsOf(lines[i-1].Text, len(row))
			skipped := len(names) - len(units)
			if skipped != 0 && skipped != 1 { // the first column, which counts, may have no unit
				return nil
			}
			for k, u := range units {
				names[skipped+k] += " " + u
			}
		}
		if names == nil || !strings.ContainsFunc(strings.Join(names, ""), isLetter) {
			continue
		}
		var headings []string
		for k, cell := range row {
			numbers := 0
			for _, t := range tokenize(cell, false) {
				if t.kind != numberToken {
					continue
				}
				if numbers++; numbers > 1 { // 1/10: the total
					headings = append(headings, "")
				} else {
					headings = append(headings, names[k])
				}
			}
		}
		if len(headings) == len(s.slots) {
			return headings
		}
		return nil
	}
	return nil
}

// cellsOf returns the cells of a line, or nil if it has not n of them. If n is 0, any number is right.
func cellsOf(line string, n int) []string {
	line = strings.TrimSpace(line)
	var splits [][]string
	switch {
	case strings.Contains(line, "|"):
		splits = [][]string{strings.Split(strings.Trim(line, "|"), "|")}
	case strings.Contains(line, "\t"):
		splits = [][]string{strings.Split(line, "\t")}
	default: // names of several words have at least two blanks between them
		several := slices.DeleteFunc(strings.Split(line, "  "), func(cell string) bool { return strings.TrimSpace(cell) == "" })
		splits = [][]string{strings.Fields(line), several}
	}
	for _, cells := range splits {
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if n == 0 || len(cells) == n {
			return cells
		}
	}
	return nil
}

// isUnitRow reports whether each cell is a unit in brackets, as in "[min]  [-]  [%]".
func isUnitRow(cells []string) bool {
	return len(cells) > 0 && !slices.ContainsFunc(cells, func(cell string) bool {
		return len(cell) < 2 || !strings.Contains("[(", cell[:1]) || !strings.Contains("])", cell[len(cell)-1:])
	})
}

// isCellBoundary reports whether c separates the cells of a row of units.
func isCellBoundary(c rune) bool { return strings.ContainsRune(" \t|#", c) }

// setHeading sets the name of a number by the heading of its column, such as "time (ms)".
func (n *number) setHeading(heading string) {
	base, unit, inBrackets := strings.Cut(strings.NewReplacer("[", "(", "]", ")").Replace(heading), "(")
	unit = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(unit), ")"))
	if heading == "" {
		return
	}
	words := splitWords(base)
	n.bare = false
	n.setName(nameOf(words, ""), words)
	if !inBrackets {
		return
	}
	switch kind, length := unitAfter(unit); {
	case length < len(unit): // an unknown remark
	case kind == timeUnit && n.field != nil:
		n.name.unit = unit
	case kind == percentUnit:
		n.unit, n.unitInHeading = percentUnit, true
	case kind == rateUnit:
		n.unit = rateUnit
	}
}
