package suggest

import (
	"cmp"
	"fmt"
	"slices"
)

// Result contains the proposed templates.
type Result struct {
	// Templates contains lines of settings first, then lines of epochs, of values
	// without an epoch, and of steps.
	Templates []Template
	Notes     []string // lines that might contain values but have no template, and why
}

// Template is a proposed template of lines.
type Template struct {
	Text    string
	Kind    Kind
	Example string // the first line of this form
	Lines   int    // number of lines of this form in the sample
	Fields  []Field
}

// Field is a number of a template with the reason for its meaning.
type Field struct {
	Name    string // empty if the number is skipped
	Example string // its text in the first line
	Why     string
	Guessed bool // the name is made of the words beside the number
}

// Kind is the kind of the lines of a template.
type Kind int

// The kinds of lines, in the order in which templates are proposed.
const (
	Setting Kind = iota // a property of the complete run
	Opener              // only the number of the epoch whose values follow
	Epoch               // values with the number of the epoch
	Value               // values without the number of an epoch or step
	Step                // values with the number of a step
	other               // no values
)

// String returns the name of the kind for messages.
func (k Kind) String() string {
	return [...]string{"setting", "beginning of an epoch", "epoch", "values without an epoch", "step", "other"}[k]
}

// maxTemplates limits the number of proposed templates.
const maxTemplates = 16

// candidate is a shape with the meanings of its numbers.
type candidate struct {
	*shape
	numbers  []number
	meanings []meaning
	kind     Kind
	ordered  bool // numberByOrder has removed the epoch
}

// Lines proposes templates for lines that repeat and contain values.
func Lines(files []File) Result {
	shapes := findShapes(files)
	setHeadings(files, shapes)
	var all []*candidate
	for _, s := range shapes {
		c := &candidate{shape: s, numbers: s.numbers(), meanings: make([]meaning, len(s.values))}
		c.findPositions()
		all = append(all, c)
	}
	findUnnamedPositions(all)
	validated := slices.ContainsFunc(all, (*candidate).namesValidation)
	for _, c := range all {
		c.findMeasures(validated)
	}
	findUnnamedLosses(all)
	for _, c := range all {
		c.refuseCommas()
		c.setKind()
	}
	var result Result
	keepBestSettings(all, &result)
	chosen := choose(all, &result)
	result.Templates = templates(chosen, &result)
	return result
}

// findPositions finds the numbers of epochs, steps, ranks and settings.
func (c *candidate) findPositions() {
	taken := map[string]bool{}
	var previous meaning
	for i := range c.numbers {
		m := c.numbers[i].positionOf(previous)
		if m.field != "" && taken[m.field] {
			m = meaning{}
		}
		if s := c.numbers[i].series; m.field == stepField && taken[epochField] && s.n > 1 && s.distinct == 1 {
			m = meaning{} // the number of steps of each epoch
		}
		if m.field == "" && c.isProgress(i) {
			m = because(stepField, "a whole number with a total that rises within each epoch")
		}
		if m.field != "" {
			taken[m.field] = true
		}
		c.meanings[i], previous = m, m
	}
}

// isProgress reports whether number i, which has no name, counts the steps of an
// epoch: it is followed by a total, and the line has the epoch.
func (c *candidate) isProgress(i int) bool {
	n := c.numbers[i]
	return i > 0 && i+1 < len(c.numbers) && c.numbers[i+1].ofTotal && n.series.whole && !n.ofTotal && len(n.before) == 0 &&
		slices.ContainsFunc(c.meanings[:i], func(m meaning) bool { return m.field == epochField })
}

// has reports whether one of the numbers has the field.
func (c *candidate) has(field string) bool {
	return slices.ContainsFunc(c.meanings, func(m meaning) bool { return m.field == field })
}

// findUnnamedPositions finds whole numbers that rise by one but have no known
// name. They count epochs, or steps if other lines have the epoch.
func findUnnamedPositions(all []*candidate) {
	epochs := slices.ContainsFunc(all, func(c *candidate) bool { return c.has(epochField) })
	for _, c := range all {
		if c.has(epochField) || c.has(stepField) {
			continue
		}
		for i := range c.numbers {
			n := &c.numbers[i]
			s := n.series
			if c.meanings[i].field != "" || n.unit.kind != noUnit || n.ofTotal || n.inParentheses || !s.byOne || s.min < 0 {
				continue
			}
			hasTotal := i+1 < len(c.numbers) && c.numbers[i+1].ofTotal
			if s.min > 1 && !hasTotal {
				continue
			}
			if hasAny(n.before, lossWords, accuracyWords, iouWords, diceWords, timeWords, " errors count warnings ") || hasAny(n.after, countWords) {
				continue
			}
			switch {
			case c.isSlowerThanNext(i):
				c.meanings[i] = because(epochField, "a whole number with a total that rises more slowly than the next one")
				c.meanings[i+2] = because(stepField, "a whole number with a total that rises within each epoch")
				c.meanings[i+3] = c.numbers[i+3].positionOf(c.meanings[i+2])
			case epochs:
				c.meanings[i] = because(stepField, "a whole number that rises by one from line to line, and other lines have the epoch")
			default:
				c.meanings[i] = because(epochField, "a whole number that rises by one from line to line")
			}
			if hasTotal {
				c.meanings[i+1] = c.numbers[i+1].positionOf(c.meanings[i])
			}
			break
		}
	}
}

// isSlowerThanNext reports whether number i and the next one both have totals and no
// names, and the next one starts again when number i rises, as in "[1/3][ 50/200]".
func (c *candidate) isSlowerThanNext(i int) bool {
	if i+3 >= len(c.numbers) || !c.numbers[i+1].ofTotal || !c.numbers[i+3].ofTotal || c.meanings[i+2].field != "" || len(c.numbers[i+2].before) > 0 {
		return false
	}
	slow, fast := c.numbers[i].series, c.numbers[i+2].series
	return fast.whole && slow.distinct > 1 && fast.distinct > 1 && slow.rises && slow.distinct < slow.n && fast.restarts == slow.distinct-1
}

// findMeasures finds the meanings of the other numbers.
func (c *candidate) findMeasures(validated bool) {
	context := lineContext{step: c.has(stepField), validated: validated, taken: map[string]bool{}}
	for _, m := range c.meanings {
		context.taken[m.field] = m.field != ""
	}
	for i := range c.numbers {
		if c.meanings[i].field != "" {
			continue
		}
		n := &c.numbers[i]
		if i+2 < len(c.numbers) && len(c.numbers[i+2].counted) > 0 && c.numbers[i+2].unit.kind == percentUnit && hasAny(n.before, accuracyWords) {
			c.meanings[i] = skip("a count; the percentage in parentheses is used")
			continue
		}
		if n.unit.kind == percentUnit && hasAny(n.counted, accuracyWords) {
			n.before, n.inParentheses = n.counted, false
		}
		m := n.measureOf(context)
		m.scale = n.scaleOf(m)
		if m.field != "" && context.taken[m.field] {
			m = n.free(m, context)
		}
		c.meanings[i] = m
		context.taken[m.field] = m.field != ""
	}
}

// namesValidation reports whether a number of the line belongs to the validation.
func (c *candidate) namesValidation() bool {
	return slices.ContainsFunc(c.numbers, func(n number) bool { return n.roleName() == valRole })
}

// findUnnamedLosses makes metrics that name a part of the data set and fall the
// losses of this part, if no other number of the log is its loss.
func findUnnamedLosses(all []*candidate) {
	for _, field := range []string{trainLossField, valLossField} {
		if slices.ContainsFunc(all, func(c *candidate) bool { return c.has(field) }) {
			continue
		}
		for _, c := range all {
			for i := range c.numbers {
				m, n := &c.meanings[i], &c.numbers[i]
				switch {
				case !m.guessed || c.has(field):
				case field == trainLossField && slices.Equal(n.before, []string{"l"}) && n.roleName() == "" && n.series.falls && n.unit.kind == noUnit:
					*m = because(field, "after \"L\", and it falls with time: perhaps a loss")
				case n.lossField() == field:
					*m = because(field, "of the %s part of the data, and it falls with time: perhaps a loss", n.roleName())
				}
			}
		}
	}
}

// setKind sets the kind of the lines.
func (c *candidate) setKind() {
	measures, metrics, settings := 0, 0, 0
	for i, m := range c.meanings {
		switch {
		case m.field == "" || isPosition(m.field):
		case isSetting(m.field):
			settings++
		case isMeasure(m.field) || !m.guessed:
			measures++
		case !c.numbers[i].series.whole:
			metrics++
		}
	}
	switch {
	case c.has(stepField):
		c.kind = Step
		if measures+metrics == 0 {
			c.kind = other
		}
	case c.has(epochField):
		c.kind = Epoch
		if measures+metrics == 0 {
			c.kind = Opener
		}
	case measures > 0:
		c.kind = Value
	case settings > 0 || c.has(workersField):
		c.kind = Setting
	default:
		c.kind = other
	}
}

// keepBestSettings keeps each setting in the line that names it best.
func keepBestSettings(all []*candidate, result *Result) {
	for _, field := range []string{workersField, nodesField, seedField, batchField, samplesField} {
		var best *candidate
		bestAt := 0
		for _, c := range all {
			at := slices.IndexFunc(c.meanings, func(m meaning) bool { return m.field == field })
			if at < 0 {
				continue
			}
			if best == nil {
				best, bestAt = c, at
				continue
			}
			loser, loserAt := c, at
			if c.settingRank(at) > best.settingRank(bestAt) {
				loser, loserAt = best, bestAt
				best, bestAt = c, at
			}
			if loser.numbers[loserAt].series.max != best.numbers[bestAt].series.max {
				result.Notes = append(result.Notes, fmt.Sprintf("%s is taken from %q, not from %q, whose value is another", field, best.variants[0].first, loser.variants[0].first))
				loser.meanings[loserAt] = skip("another line gives the " + field)
				loser.setKind()
			}
		}
	}
}

// settingRank returns how clearly the words beside a number name a setting.
func (c *candidate) settingRank(i int) int {
	n := &c.numbers[i]
	switch {
	case c.meanings[i].field == samplesField && slices.ContainsFunc(n.before, func(w string) bool { return roleOf(w) == trainRole }):
		return 3
	case hasAny(n.before, " world worldsize "), n.ofTotal:
		return 3
	case hasAny(n.before, " ranks workers processes replicas nproc "), hasAny(n.after, " ranks workers processes replicas "):
		return 2
	case hasAny(n.before, " available found detected total global "), hasAny(n.after, " available found detected visible "):
		return 0
	}
	return 1
}

// templates returns the templates of the chosen shapes, one for each spelling.
func templates(chosen []*candidate, result *Result) []Template {
	var found []Template
	seen := map[string]bool{}
	for _, c := range chosen {
		differences := c.compareSpellings()
		for _, v := range c.variants {
			t := Template{Text: c.templateText(v, differences, c.meanings), Kind: c.kind, Example: v.first, Lines: v.lines}
			if c.kind == Setting {
				t.Text = c.settingsText(v, differences, c.meanings)
			}
			if seen[t.Text] {
				i := slices.IndexFunc(found, func(f Template) bool { return f.Text == t.Text })
				found[i].Lines += v.lines
				continue
			}
			seen[t.Text] = true
			slot := 0
			for _, token := range v.tokens {
				if token.isSlot() {
					m := c.meanings[slot]
					t.Fields = append(t.Fields, Field{Name: m.field, Example: token.text + attachedUnit(token), Why: m.why, Guessed: m.guessed})
					slot++
				}
			}
			found = append(found, t)
		}
	}
	if len(found) > maxTemplates {
		byLines := slices.Clone(found)
		slices.SortStableFunc(byLines, func(a, b Template) int { return cmp.Compare(b.score(), a.score()) })
		least := byLines[maxTemplates-1].score()
		result.Notes = append(result.Notes, fmt.Sprintf("only the %d most useful of %d templates are shown", maxTemplates, len(found)))
		found = slices.DeleteFunc(found, func(t Template) bool { return t.score() < least })
		found = found[:min(len(found), maxTemplates)]
	}
	return found
}

// score returns how useful a template is: the number of values that it gives.
func (t Template) score() int {
	n := 0
	for _, f := range t.Fields {
		if isMeasure(f.Name) || isSetting(f.Name) {
			n += 3
		}
	}
	if t.Kind <= Epoch {
		n *= 100
	}
	return n * t.Lines
}
