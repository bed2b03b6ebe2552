package suggest

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// buildTemplate returns the template for the lines of the candidate. It contains a numbered
// placeholder for a number of unknown meaning that varies, and * for one that is constant.
func (c *candidate) buildTemplate() Template {
	t := Template{Kind: c.kind, Example: c.first, Count: len(c.lines)}
	var parts []string
	kept := c.keptTokens()
	slot, places := 0, 0
	for i, x := range c.tokens {
		n := (*describedNumber)(nil)
		if x.kind == numberToken {
			n = &c.numbers[slot]
			slot++
		}
		if kept[i] && x.space != 0 && i > 0 && !(n != nil && n.blanksDiffer) { // a field also matches blanks before its number
			parts = append(parts, " ")
		}
		switch {
		case !kept[i], n != nil && n.as == "" && len(n.texts) < 2, x.kind == stampToken, !isPrintable(x.text):
			parts = append(parts, "*")
		case n != nil:
			f := TemplateField{Name: n.as, Example: strings.Join(n.texts, ", "), Why: n.why}
			if f.Name == "" {
				places++
				f.Name = fmt.Sprintf("?%d", places)
			}
			t.Fields = append(t.Fields, f)
			parts = append(parts, n.templateText(f.Name))
		default:
			parts = append(parts, strings.NewReplacer("{", "{{", "}", "}}").Replace(x.text))
		}
	}
	if c.openEnd {
		parts = append(parts, "*")
	}
	parts = slices.CompactFunc(parts, func(a, b string) bool { return a == "*" && b == "*" })
	t.Rule = strings.TrimSpace(strings.Join(parts, ""))
	if strings.HasPrefix(t.Rule, "/") { // not a regular expression
		t.Rule = "*" + t.Rule[1:]
	}
	return t
}

// templateText returns the text for the number in a template: the field with the given name and the
// unit. The unit is omitted if it differs between the lines, since the field then reads it.
func (n *describedNumber) templateText(name string) string {
	text := "{" + name + "}"
	if n.scale != "" {
		text = "{" + name + ":" + n.scale + "}"
	}
	if n.token.unit == durationUnit || n.unitsDiffer || n.as == "" {
		return text
	}
	return text + n.token.unit
}

// keptTokens reports, for each token, whether the template contains it. A template for settings
// contains only the named numbers and the words next to them, because other settings may differ
// between runs.
func (c *candidate) keptTokens() []bool {
	kept := make([]bool, len(c.tokens))
	for i := range kept {
		kept[i] = c.kind != Setting
	}
	for i := range c.numbers {
		if c.numbers[i].as == "" {
			continue
		}
		from, until := c.numbers[i].at, c.numbers[i].at+1
		for from > 0 && c.tokens[from].kind != wordToken {
			from--
		}
		for from > 0 && c.tokens[from-1].kind == wordToken {
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
