package suggest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"lockstep/pkg/logread/internal/fields"
)

// Result contains the proposed templates.
type Result struct {
	// Templates contains lines of settings first, then lines of epochs, of values without an epoch,
	// and of steps. If nothing is known, it contains the most frequent lines with numbered places only.
	Templates []Template
	Notes     []string // lines that contain values but have no template, and why
}

// Template is a proposed template of lines.
type Template struct {
	Text    string
	Kind    Kind
	Example string // the first line of this form
	Lines   int    // number of lines of this form in the sample
	Fields  []Field
}

// Field is a number of a template with the evidence for its meaning.
type Field struct {
	Name    string // of a field, or of a numbered place such as ?1
	Example string // its first two values
	Why     string // empty for a numbered place
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
	Unknown             // numbers of unknown meaning
)

// String returns the name of the kind for messages.
func (k Kind) String() string {
	return [...]string{"setting", "beginning of an epoch", "epoch", "values without an epoch", "step", "numbers of unknown meaning"}[k]
}

// maxTemplates limits the number of proposed templates, and maxUnknown that of templates with numbered
// places only.
const (
	maxTemplates = 16
	maxUnknown   = 3
)

// Lines proposes templates for lines that repeat and contain values.
func Lines(files []File) Result {
	var all []*candidate
	for _, s := range findShapes(files) {
		c := newCandidate(s, s.headings(files))
		c.nameMeasures()
		c.nameSettings()
		c.setKind()
		all = append(all, c)
	}
	var result Result
	removeContradictions(all, &result)
	for _, c := range choose(all, &result) {
		result.Templates = append(result.Templates, c.template())
	}
	if n := len(result.Templates); n > maxTemplates {
		result.Notes = append(result.Notes, fmt.Sprintf("only the first %d of %d templates are shown", maxTemplates, n))
		result.Templates = result.Templates[:maxTemplates]
	}
	if len(result.Templates) == 0 {
		slices.SortStableFunc(all, func(a, b *candidate) int { return cmp.Compare(len(b.lines), len(a.lines)) })
		for _, c := range all {
			words := false
			for i := range c.numbers {
				c.numbers[i].decision = decision{}
				words = words || c.numbers[i].field != nil
			}
			c.kind = Unknown
			if t := c.template(); words && len(c.lines) > 1 && len(t.Fields) > 0 && len(result.Templates) < maxUnknown {
				result.Templates = append(result.Templates, t)
			}
		}
	}
	return result
}

// setKind sets the kind of the lines.
func (c *candidate) setKind() {
	measured, setting := false, false
	for i := range c.numbers {
		switch f := fields.Named(c.numbers[i].as); {
		case f == nil, slices.Contains([]string{fields.Epoch, fields.Step, fields.Rank, fields.Epochs, fields.Steps}, f.Name):
		case isCounter(f):
			setting = true
		default:
			measured = true
		}
	}
	switch {
	case c.has(fields.Step) && measured:
		c.kind = Step
	case c.has(fields.Epoch) && !c.has(fields.Step) && measured:
		c.kind = Epoch
	case c.has(fields.Epoch) && !measured && !c.has(fields.Step):
		c.kind = Opener
	case measured && !c.has(fields.Step):
		c.kind = Value
	case setting:
		c.kind = Setting
	default:
		c.kind = Unknown
	}
}

// removeContradictions removes a setting whose lines give different values in a file, and keeps it in
// one form of lines.
func removeContradictions(all []*candidate, result *Result) {
	for _, field := range []string{fields.Workers, fields.Nodes, fields.Seed, fields.Batch} {
		var first *candidate
		differs := false
		for _, c := range all {
			switch n := c.find(field); {
			case n == nil:
			case first == nil:
				first = c
			default:
				differs = differs || n.values[0] != first.find(field).values[0]
				n.decision = decision{}
				c.setKind()
			}
		}
		if differs {
			result.Notes = append(result.Notes, fmt.Sprintf("%s is not named: the lines give different numbers", field))
			first.find(field).decision = decision{}
			first.setKind()
		}
	}
}

// choose returns the candidates that are proposed.
func choose(all []*candidate, result *Result) []*candidate {
	of := func(kinds ...Kind) []*candidate {
		return slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return !slices.Contains(kinds, c.kind) })
	}
	rejected := map[string]bool{}
	reject := func(c *candidate, why string) bool {
		if why != "" && !rejected[why] {
			result.Notes = append(result.Notes, fmt.Sprintf("no template for lines such as %q: %s", c.first, why))
			rejected[why] = true
		}
		return why != ""
	}
	numberByOrder(all)
	epochs := slices.DeleteFunc(of(Epoch), func(c *candidate) bool {
		step := slices.ContainsFunc(c.numbers, func(n number) bool { return n.isNamed(fields.Step) && n.max() <= 1 }) // the first step of each evaluation
		return step && c.namesEvaluation() || 10*c.repeatsEpochs() > len(c.lines) && reject(c, "there are several of them in an epoch, and nothing numbers them")
	})
	steps := slices.DeleteFunc(of(Step), func(c *candidate) bool {
		opened := slices.ContainsFunc(all, func(o *candidate) bool { return o != c && o.has(fields.Epoch) })
		return c.namesEvaluation() || 10*c.restarts > len(c.lines) && !opened || !c.has(fields.Epoch) && slices.ContainsFunc(of(Step), func(o *candidate) bool { return o.has(fields.Epoch) })
	})
	openers := of(Opener)
	numbered := slices.Concat(openers, epochs, steps)
	values := slices.DeleteFunc(of(Value), func(c *candidate) bool { return reject(c, c.rejectValue(numbered, of(Setting))) })
	unnumbered := len(values) > 0 || slices.ContainsFunc(steps, func(c *candidate) bool { return !c.has(fields.Epoch) })
	openers = slices.DeleteFunc(openers, func(c *candidate) bool { // the first one of a file opens the epoch
		return !unnumbered || slices.ContainsFunc(openers, func(o *candidate) bool {
			return o.lines[0].file == c.lines[0].file && o.lines[0].isBefore(c.lines[0])
		})
	})
	skipRepeatedValues(slices.Concat(epochs, values, steps))
	isEmpty := func(c *candidate) bool { return c.kind != Epoch && c.kind != Value && c.kind != Step }
	return slices.Concat(of(Setting), openers, slices.DeleteFunc(epochs, isEmpty), slices.DeleteFunc(values, isEmpty), slices.DeleteFunc(steps, isEmpty))
}

// namesEvaluation reports whether a number of known meaning belongs to an evaluation.
func (c *candidate) namesEvaluation() bool {
	return slices.ContainsFunc(c.numbers, func(n number) bool { return n.as != "" && (n.part == valPart || n.part == testPart) })
}

// numberByOrder removes the epoch from lines that end an epoch, if other lines without an epoch come
// before them and both are equally many: the n-th line of each form then belongs to epoch n.
func numberByOrder(all []*candidate) {
	var end *candidate
	for _, c := range all {
		if c.has(fields.Epoch) && len(c.lines) > 1 {
			if end != nil || c.kind == Step {
				return
			}
			end = c
		}
	}
	if end == nil {
		return
	}
	epoch := end.find(fields.Epoch)
	byOne := epoch.values[0] <= 1
	end.eachPair(func(i, j int) { byOne = byOne && epoch.values[j] == epoch.values[i]+1 })
	if !byOne || !slices.ContainsFunc(all, func(c *candidate) bool {
		return c.kind == Value && len(c.lines) == len(end.lines) && c.lines[0].isBefore(end.lines[0]) && c.lines[0].file == end.lines[0].file
	}) {
		return
	}
	for i := range end.numbers {
		if n := &end.numbers[i]; n.as == fields.Epoch || n.as == fields.Epochs {
			n.decision = decision{}
		}
	}
	end.setKind()
	for _, c := range all {
		c.ordered = len(c.lines) == len(end.lines) && c.lines[0].file == end.lines[0].file
	}
}

// rejectValue returns the reason why lines without an epoch are not used, or "". numbered contains the lines with
// numbers of epochs, and settings those with settings.
func (c *candidate) rejectValue(numbered, settings []*candidate) string {
	type mark struct {
		place
		epoch float64
	}
	var marks []mark
	for _, o := range numbered {
		if epoch := o.find(fields.Epoch); epoch != nil {
			for i, at := range o.lines {
				marks = append(marks, mark{at, epoch.values[i]})
			}
		}
	}
	if len(marks) == 0 {
		one := len(c.lines) > 1 && c.lines[len(c.lines)-1].file == c.lines[0].file+len(c.lines)-1 // each file is the result of a run
		if c.ordered || one && slices.ContainsFunc(settings, func(o *candidate) bool { n := o.find(fields.Workers); return n != nil && len(n.texts) > 1 }) {
			return ""
		}
		return "no line has the number of an epoch, so nothing shows that each of them is an epoch"
	}
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line)) })
	repeated, last := 0, mark{epoch: math.NaN()}
	for _, at := range c.lines {
		i := sort.Search(len(marks), func(i int) bool { return at.isBefore(marks[i].place) })
		if i == 0 || marks[i-1].file != at.file {
			return "the first of them is before the first line with an epoch"
		}
		if epoch := marks[i-1].epoch; last.file == at.file && last.epoch == epoch && last.rank == at.rank {
			repeated++
		}
		last = mark{at, marks[i-1].epoch}
	}
	switch {
	case 10*repeated > len(c.lines):
		return "there are several of them in an epoch, and nothing numbers them"
	case len(c.lines) == 1 && len(marks) > 2*len(numbered):
		return "there is only one such line"
	}
	return ""
}

// skipRepeatedValues skips values that another line of the same epoch or step gives too. Of two lines, the one with
// the number of the epoch counts, then the one with more values. A loss or an accuracy without a label may be one of
// an evaluation if the lines of steps have that of the training.
func skipRepeatedValues(all []*candidate) {
	named := func(c *candidate) int {
		return len(slices.DeleteFunc(slices.Clone(c.numbers), func(n number) bool { return n.as == "" }))
	}
	better := slices.Clone(all)
	slices.SortStableFunc(better, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(named(b), named(a)))
	})
	keys := []string{fields.Epoch, fields.Epochs, fields.Step, fields.Steps, fields.Rank}
	for i, c := range better {
		for j, o := range better {
			for k := range o.numbers {
				n := &o.numbers[k]
				repeated := i < j && (c.kind == Step) == (o.kind == Step) && alternate(c.lines, o.lines)
				evaluated := c.kind == Step && o.kind == Value && n.part == "" && (n.as == fields.TrainLoss || n.as == fields.Accuracy)
				if (repeated || evaluated) && n.as != "" && c.has(n.as) && !slices.Contains(keys, n.as) {
					n.decision = decision{}
					o.setKind()
				}
			}
		}
	}
}

// alternate reports whether lines of two forms follow each other by turns, so that each epoch has both.
func alternate(a, b []place) bool {
	if b[0].isBefore(a[0]) {
		a, b = b, a
	}
	d := len(a) - len(b)
	return d >= -1 && d <= 1 && a[0].file == b[0].file && (len(a) == 1 || b[0].isBefore(a[1]))
}
