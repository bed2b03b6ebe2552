package suggest

import (
	"regexp"
	"slices"
	"strings"
)

// numbers returns the numbers of the shape with the words beside them.
func (s *shape) numbers() []number {
	p := &phrase{shape: s, tokens: s.variants[0].tokens}
	for _, t := range p.tokens {
		p.starts = append(p.starts, len(p.line))
		p.line += t.text + attachedUnit(t)
	}
	for i := range p.tokens {
		if p.tokens[i].isSlot() {
			p.addNumber(i)
		}
	}
	p.splitPairs()
	for i := range p.found {
		if i < len(s.headings) && s.headings[i] != "" {
			n := &p.found[i]
			n.before, n.after = headingWords(s.headings[i]), nil
			n.readUnitInHeading(s.headings[i])
		}
	}
	return p.found
}

// splitPairs gives each number of a pair its part of the data set, as in
// "loss (train/val): 0.91/0.95".
func (p *phrase) splitPairs() {
	for i := 1; i < len(p.found); i++ {
		a, b := &p.found[i-1], &p.found[i]
		var roles []int // indexes of the words that name a part
		for k, w := range a.before {
			if roleOf(w) != "" {
				roles = append(roles, k)
			}
		}
		if len(roles) != 2 || roleOf(a.before[roles[0]]) == roleOf(a.before[roles[1]]) || len(b.before) > 0 || b.inParentheses {
			continue
		}
		words := a.before
		a.before = slices.Delete(slices.Clone(words), roles[1], roles[1]+1)
		b.before = slices.Delete(slices.Clone(words), roles[0], roles[0]+1)
		b.ofTotal = false
	}
}

// rateInHeading matches a rate in the heading of a column: thr (img/s),
// samples_per_sec.
var rateInHeading = regexp.MustCompile(`(?i)([a-z]+)(?:/|[_ ]per[_ ])(s|sec|secs|second|seconds)[^a-z0-9]*$`)

// readUnitInHeading sets the unit if the heading of the number's column has one.
func (n *number) readUnitInHeading(heading string) {
	if m := rateInHeading.FindStringSubmatch(heading); m != nil && n.unit.kind == noUnit {
		n.unit, n.unitInName = unit{kind: rateUnit, text: m[0], subject: strings.ToLower(m[1])}, true
		return
	}
	n.readUnitInName()
}

// readUnitInName sets the unit if the words before the number end with one.
func (n *number) readUnitInName() {
	if n.unit.kind == noUnit {
		n.unit = unitOfName(n.before)
		n.unitInName = n.unit.kind != noUnit
	}
}

// attachedUnit returns the unit as in the line. The text of a duration of several
// parts contains its units.
func attachedUnit(t token) string {
	if t.unit == "compound" {
		return ""
	}
	return t.unit
}

// phrase is a line whose numbers are described.
type phrase struct {
	shape  *shape
	tokens []token
	starts []int // by token: offset in line
	line   string
	found  []number
	end    int    // index of the first token after the last number and its unit
	role   string // of the section of the line
	last   string // last role in the line
}

// addNumber describes the number at token i, which follows the numbers found.
func (p *phrase) addNumber(i int) {
	t := p.tokens[i]
	n := number{text: t.text + attachedUnit(t), clock: t.kind == clockToken, first: len(p.found) == 0, series: p.shape.describeSeries(len(p.found))}
	between := p.tokens[min(p.end, i):i]
	p.readRoles(min(p.end, i), i)
	n.role, n.lastRole = p.role, p.last
	all := wordsOf(between)
	n.before = wordsOf(between[afterSeparator(between):])
	if len(n.before) == 0 && len(p.found) == 0 {
		n.before = all
	}
	n.afterEnd = hasAny(wordsOf(p.tokens[:i]), endWords)
	marks := marksOf(between)
	if k := len(p.found); k > 0 {
		previous := p.found[k-1]
		n.ofTotal = (marks == "/" && len(all) == 0 || (marks == "" || marks == "(") && isOf(all)) && previous.series.whole && n.series.whole
		n.inParentheses = strings.HasPrefix(marks, "(") && !hasMeaning(all)
		n.remains = marks == "<" && n.clock && previous.clock // as in a progress bar: [00:33<00:10
		if n.inParentheses && k > 1 && previous.ofTotal {
			n.counted = p.found[k-2].before
		}
	}
	p.end = i + 1
	after := p.line[p.starts[i]+len(t.text):]
	if t.unit == "compound" {
		n.unit = unit{kind: timeUnit, text: "compound", scale: "compound"}
	} else {
		var length int
		n.unit, length = unitAfter(after)
		for p.end < len(p.tokens) && p.starts[p.end] < p.starts[i]+len(t.text)+length && !p.tokens[p.end].isSlot() {
			p.end++
		}
	}
	next := p.end
	for next < len(p.tokens) && !p.tokens[next].isSlot() {
		next++
	}
	following := p.tokens[min(p.end, next):next]
	n.after = wordsOf(following[:untilSeparator(following)])
	if len(between) > 0 {
		n.readUnitInHeading(p.line[p.starts[i-len(between)+afterSeparator(between)]:p.starts[i]])
	}
	p.found = append(p.found, n)
	counts := n.series.byOne && hasAny(n.after, lossWords, accuracyWords, iouWords, diceWords, " lr ") // "1 loss 0.35": the loss is the next number
	named := !counts && n.unit.kind == noUnit && namesValue(n.after) || n.unit.kind == timeUnit && namesPart(n.after)
	if !n.ofTotal && !n.inParentheses && named && isConnective(n.before) {
		p.readRoles(p.end, next)
		p.found[len(p.found)-1].lastRole, p.found[len(p.found)-1].namedAfter = p.last, true
		p.end += untilSeparator(following) // the words belong to this number, not to the next one
	}
}

// isOf reports whether the words between two numbers mean that the second one is a total.
func isOf(words []string) bool {
	return slices.Contains([]string{"of", "out of", "von", "de", "sur"}, strings.Join(words, " "))
}

// namesValue reports whether the words after a number may name it, as in
// "0.35 loss".
func namesValue(words []string) bool {
	return hasAny(words, lossWords, accuracyWords, iouWords, diceWords, " lr epoch epochs ", countWords, sampleWords)
}

// namesPart reports whether the words after a time only name a part of the data set, as
// in "43.5s train".
func namesPart(words []string) bool {
	return len(words) > 0 && roleOf(words[0]) != "" && !slices.ContainsFunc(words, func(w string) bool { return roleOf(w) == "" && !timeWords.has(w) })
}

// isConnective reports whether all words only connect values, as in "with 0.35
// loss".
func isConnective(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !connectives.has(w) })
}

// readRoles updates the roles according to the words in tokens[from:to].
func (p *phrase) readRoles(from, to int) {
	for i := from; i < to; i++ {
		t := p.tokens[i]
		if t.kind != wordToken {
			continue
		}
		words := splitWords(t.text)
		for _, w := range words {
			r := roleOf(w)
			if r == "" {
				continue
			}
			p.last = r
			before, after := p.markBeside(i, -1), p.markBeside(i, 1)
			if p.isInPair(i, r) {
				continue
			}
			if p.namesNumber(i) && p.otherRole(r) {
				continue // "train: 0.81 | valid: 0.85 | 15 sec": the time is not of the validation
			}
			if len(words) == 1 && (i == 0 || strings.Contains("[(<", before) && before != "" || strings.Contains(":])|>-}", after) && after != "") {
				p.role = r
			}
		}
	}
}

// namesNumber reports whether a number follows the word at token i and a colon or an
// equals sign.
func (p *phrase) namesNumber(i int) bool {
	next := slices.IndexFunc(p.tokens[i+1:], func(t token) bool {
		return t.kind != blankToken && (t.kind != markToken || !strings.Contains(":=", t.text))
	})
	return next > 0 && p.tokens[i+1+next].isSlot()
}

// isInPair reports whether the word at token i, which names the part role, and the name of
// another part are joined by a slash, as in "train/val".
func (p *phrase) isInPair(i int, role string) bool {
	for _, k := range []int{i - 2, i + 2} {
		if k < 0 || k >= len(p.tokens) || p.tokens[(i+k)/2].text != "/" || p.tokens[k].kind != wordToken {
			continue
		}
		if other := roleOf(strings.ToLower(p.tokens[k].text)); other != "" && other != role {
			return true
		}
	}
	return false
}

// otherRole reports whether the line names another part of the data set than role.
func (p *phrase) otherRole(role string) bool {
	return slices.ContainsFunc(wordsOf(p.tokens), func(w string) bool {
		r := roleOf(w)
		return r != "" && r != role
	})
}

// markBeside returns the punctuation next to token i, without blanks, or "".
func (p *phrase) markBeside(i, direction int) string {
	for i += direction; i >= 0 && i < len(p.tokens); i += direction {
		switch p.tokens[i].kind {
		case blankToken:
		case markToken:
			return p.tokens[i].text
		case wordToken, numberToken, clockToken, stampToken:
			return ""
		}
	}
	return ""
}

// isSeparator reports whether tokens[i] separates the values of a line.
func isSeparator(tokens []token, i int) bool {
	t := tokens[i]
	switch {
	case t.kind == markToken && strings.Contains(",;|•·", t.text), t.kind == blankToken && strings.Contains(t.text, "\t"):
		return true
	case t.kind == markToken && t.text == "-":
		return i > 0 && tokens[i-1].kind == blankToken && i+1 < len(tokens) && tokens[i+1].kind == blankToken
	case t.kind == markToken && t.text == ".": // the end of a sentence, not of an abbreviation
		return i > 0 && len(tokens[i-1].text) > len("valid") && tokens[i-1].kind == wordToken && roleOf(tokens[i-1].text) == "" && i+1 < len(tokens) && tokens[i+1].kind == blankToken
	}
	return false
}

// afterSeparator returns the index after the last separator of tokens, or 0.
func afterSeparator(tokens []token) int {
	for i := len(tokens) - 1; i >= 0; i-- {
		if isSeparator(tokens, i) {
			return i + 1
		}
	}
	return 0
}

// untilSeparator returns the index of the first separator or closing bracket of
// tokens, or the number of tokens.
func untilSeparator(tokens []token) int {
	for i, t := range tokens {
		switch {
		case isSeparator(tokens, i), t.kind == markToken && strings.Contains("([", t.text):
			return i
		case t.kind == markToken && strings.Contains(":=", t.text): // the words name the next value
			return 0
		}
	}
	return len(tokens)
}

// wordsOf returns the words of tokens in lower case. Held-out is one word.
func wordsOf(tokens []token) []string {
	var words []string
	for _, t := range tokens {
		if t.kind == wordToken {
			words = append(words, splitWords(t.text)...)
		}
		if n := len(words); n > 1 && words[n-2] == "held" && words[n-1] == "out" {
			words = append(words[:n-2], "heldout")
		}
	}
	return words
}

// marksOf returns the punctuation of tokens.
func marksOf(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		if t.kind == markToken {
			b.WriteString(t.text)
		}
	}
	return b.String()
}

// headingWords returns the words of a column's heading.
func headingWords(text string) []string { return wordsOf(tokenize(text, false)) }
