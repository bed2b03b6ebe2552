package suggest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/textlog"
)

// Result contains the templates that ProposeTemplates proposes.
type Result struct {
	// Templates contains settings first, then lines of epochs, of values without an epoch, and of
	// steps. If nothing is known, it contains the most frequent lines with numbered places only.
	Templates []Template
	Notes     []string // lines that contain values but have no template, and why

	rejected []string // reasons that the notes contain
}

// Template is a proposed template for lines.
type Template struct {
	Rule    string
	Kind    LineKind
	Example string // the first such line
	Count   int    // number of such lines
	Fields  []TemplateField
}

// TemplateField is the proposed meaning of a number of a line.
type TemplateField struct {
	Name    string // of a field, or of a place such as ?1, whose meaning is not known
	Example string // its first two values
	Why     string // the evidence; empty for a place
}

// LineKind states what the lines of a template describe. Messages contain it.
type LineKind string

// The kinds of lines.
const (
	Setting LineKind = "setting" // a property of the complete run
	Opener  LineKind = "beginning of an epoch"
	Epoch   LineKind = "epoch" // values with the number of the epoch
	Value   LineKind = "values without an epoch"
	Step    LineKind = "step" // values with the number of a step
	Unknown LineKind = "numbers of unknown meaning"
)

// maxTemplates limits the number of proposed templates. maxUnknown limits the number of those that
// contain only numbered placeholders.
const (
	maxTemplates = 16
	maxUnknown   = 3
)

// ProposeTemplates proposes templates for lines of files that repeat and contain values.
func ProposeTemplates(files [][]textlog.Message) Result {
	var all []*candidate
	for _, s := range findLineShapes(files) {
		c := newCandidate(s)
		c.nameMeasures()
		c.nameSettings()
		c.determineLineKind()
		all = append(all, c)
	}
	var result Result
	result.removeContradictions(all)
	for _, c := range result.chooseCandidates(all) {
		result.Templates = append(result.Templates, c.buildTemplate())
	}
	if n := len(result.Templates); n > maxTemplates {
		result.addNote("only the first %d of %d templates are shown", maxTemplates, n)
		result.Templates = result.Templates[:maxTemplates]
	}
	if len(result.Templates) > 0 {
		return result
	}
	slices.SortStableFunc(all, func(a, b *candidate) int { return cmp.Compare(len(b.lines), len(a.lines)) })
	for _, c := range all {
		words := slices.ContainsFunc(c.numbers, func(n describedNumber) bool { return n.field != nil })
		for i := range c.numbers {
			c.numbers[i].decision = decision{}
		}
		c.kind = Unknown
		if t := c.buildTemplate(); words && len(c.lines) > 1 && len(t.Fields) > 0 && len(result.Templates) < maxUnknown {
			result.Templates = append(result.Templates, t)
		}
	}
	return result
}

func (r *Result) addNote(format string, a ...any) {
	if note := fmt.Sprintf(format, a...); !slices.Contains(r.Notes, note) {
		r.Notes = append(r.Notes, note)
	}
}

func (c *candidate) determineLineKind() {
	measured, setting := false, false
	for i := range c.numbers {
		switch f := fields.ByName(c.numbers[i].as); {
		case f == nil, slices.Contains([]string{fields.Epoch, fields.Step, fields.Rank, fields.Epochs, fields.Steps}, f.Name):
		case isCounter(f):
			setting = true
		default:
			measured = true
		}
	}
	epoch, step := c.hasField(fields.Epoch), c.hasField(fields.Step)
	switch {
	case step && measured:
		c.kind = Step
	case !step && epoch && measured:
		c.kind = Epoch
	case !step && epoch:
		c.kind = Opener
	case !step && measured:
		c.kind = Value
	case setting:
		c.kind = Setting
	default:
		c.kind = Unknown
	}
}

// removeContradictions keeps each setting in only one template. It removes a setting for which the
// lines state different values.
func (r *Result) removeContradictions(all []*candidate) {
	for _, field := range []string{fields.Workers, fields.Nodes, fields.Seed, fields.Batch} {
		var with []*candidate
		differs := false
		for _, c := range all {
			if n := c.findField(field); n != nil {
				with = append(with, c)
				differs = differs || n.values[0] != with[0].findField(field).values[0]
			}
		}
		for i, c := range with {
			if i > 0 || differs {
				c.findField(field).decision = decision{}
				c.determineLineKind()
			}
		}
		if differs {
			r.addNote("%s is not named: the lines give different numbers", field)
		}
	}
}

// acceptOrNote reports whether the candidate is accepted, that is, whether why is empty. Otherwise
// why is the reason for rejecting it, which acceptOrNote adds to the notes once.
func (r *Result) acceptOrNote(c *candidate, why string) bool {
	if why != "" && !slices.Contains(r.rejected, why) {
		r.rejected = append(r.rejected, why)
		r.addNote("no template for lines such as %q: %s", c.first, why)
	}
	return why == ""
}

// severalPerEpochReason is the reason for rejecting lines that occur several times per epoch
// without a number that shows their order.
const severalPerEpochReason = "there are several of them in an epoch, and nothing numbers them"

func (r *Result) chooseCandidates(all []*candidate) []*candidate {
	of := func(kind LineKind, keep func(*candidate) bool) []*candidate {
		return slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return c.kind != kind || !keep(c) })
	}
	each := func(*candidate) bool { return true }
	settings, openers := of(Setting, each), of(Opener, each)
	epochs := of(Epoch, func(c *candidate) bool {
		switch {
		case 10*c.countRepeatedEpochs() > len(c.lines):
			return r.acceptOrNote(c, severalPerEpochReason)
		case c.hasOnlyFirstSteps():
			return r.acceptOrNote(c, "they are of the first step of each epoch")
		}
		return true
	})
	hasEpoch := func(c *candidate) bool { return c.hasField(fields.Epoch) }
	numberedSteps := len(of(Step, hasEpoch)) > 0
	steps := of(Step, func(c *candidate) bool {
		isOpened := slices.ContainsFunc(all, func(o *candidate) bool { return o != c && hasEpoch(o) })
		step := c.findField(fields.Step)
		// If an evaluation follows each step, the steps are perhaps passes over the data.
		isEvaluated := step.max()-step.min() < float64(len(c.lines)) && slices.ContainsFunc(all, func(o *candidate) bool {
			return o.kind == Step && o.hasNamedEvaluation() && !hasEpoch(c) && linesAlternate(c.lines, o.lines)
		})
		return !c.hasNamedEvaluation() && !isEvaluated && (isOpened || 10*c.restarts <= len(c.lines)) && (hasEpoch(c) || !numberedSteps)
	})
	numbered := slices.Concat(openers, epochs, steps)
	values := of(Value, func(c *candidate) bool { return r.acceptOrNote(c, c.rejectionReason(numbered, settings)) })
	if len(values) == 0 && !slices.ContainsFunc(steps, func(c *candidate) bool { return !hasEpoch(c) }) {
		openers = nil // all lines have the number of the epoch
	}
	opened := map[int]bool{}
	openers = slices.DeleteFunc(openers, func(c *candidate) bool { // the first one of a file opens the epoch
		file := c.lines[0].file
		follows := opened[file]
		opened[file] = true
		return follows
	})
	measured := slices.Concat(epochs, values, steps)
	skipRepeatedValues(measured)
	measured = slices.DeleteFunc(measured, func(c *candidate) bool { return c.kind != Epoch && c.kind != Value && c.kind != Step })
	return slices.Concat(settings, openers, measured)
}

// hasOnlyFirstSteps reports whether all lines are of the first step of an epoch, or of an evaluation, that has more steps.
func (c *candidate) hasOnlyFirstSteps() bool {
	for i := range c.numbers {
		n, total := &c.numbers[i], math.Inf(1)
		isStep := n.isNamed(fields.Step)
		if i+1 < len(c.numbers) && c.numbers[i+1].ofTotal {
			total = c.numbers[i+1].max()
			isStep = isStep || n.bare && i > 0 && slices.Contains([]string{fields.Epoch, fields.Epochs}, c.numbers[i-1].as)
		}
		if isStep && n.whole && n.max() <= 1 && total > 1 {
			return true
		}
	}
	return false
}

func (c *candidate) hasNamedEvaluation() bool {
	return slices.ContainsFunc(c.numbers, func(n describedNumber) bool { return n.as != "" && n.describesEvaluation() })
}

// rejectionReason returns the reason for rejecting lines without an epoch number, or "" if they can
// be used. numbered contains the candidates with epoch numbers, and settings contains those with
// settings.
func (c *candidate) rejectionReason(numbered, settings []*candidate) string {
	type mark struct {
		place
		epoch float64
	}
	var marks []mark
	for _, o := range numbered {
		if epoch := o.findField(fields.Epoch); epoch != nil {
			for i, at := range o.lines {
				marks = append(marks, mark{at, epoch.values[i]})
			}
		}
	}
	if len(marks) == 0 {
		isResult := len(c.lines) > 1 && c.lines[len(c.lines)-1].file == c.lines[0].file+len(c.lines)-1 // each file is the result of a run
		if isResult && slices.ContainsFunc(settings, func(o *candidate) bool { return o.hasField(fields.Workers) && len(o.lines) > 1 }) {
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
		return severalPerEpochReason
	case len(c.lines) == 1 && len(marks) > 2*len(numbered):
		return "there is only one such line"
	}
	return ""
}

// skipRepeatedValues skips a value if another line of the same epoch or step contains it too. It
// prefers lines with an epoch number, then lines with more values.
func skipRepeatedValues(all []*candidate) {
	named := func(c *candidate) int {
		return len(slices.DeleteFunc(slices.Clone(c.numbers), func(n describedNumber) bool { return n.as == "" }))
	}
	keys := []string{fields.Epoch, fields.Epochs, fields.Step, fields.Steps, fields.Rank}
	for i, c := range all {
		for j, o := range all {
			better := c.kind == Epoch && o.kind == Value || c.kind == o.kind && cmp.Or(cmp.Compare(named(c), named(o)), cmp.Compare(j, i)) > 0
			for k := range o.numbers {
				if n := &o.numbers[k]; better && n.as != "" && c.hasField(n.as) && !slices.Contains(keys, n.as) && linesAlternate(c.lines, o.lines) {
					n.decision = decision{}
					o.determineLineKind()
				}
			}
		}
	}
}

// linesAlternate reports whether lines of two forms alternate, so that each epoch has both.
func linesAlternate(a, b []place) bool {
	if b[0].isBefore(a[0]) {
		a, b = b, a
	}
	d := len(a) - len(b)
	return d >= -1 && d <= 1 && a[0].file == b[0].file && (len(a) == 1 || b[0].isBefore(a[1]))
}
