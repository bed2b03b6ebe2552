package suggest

import (
	"fmt"
	"slices"
	"strings"
)

// The fields of templates that this package gives to numbers. Other names become
// logged metrics.
const (
	epochField   = "epoch"
	epochsField  = "epochs"
	stepField    = "step"
	stepsField   = "steps"
	rankField    = "rank"
	workersField = "workers"
	nodesField   = "nodes"
	seedField    = "seed"
	batchField   = "batch"
	samplesField = "samples"

	secondsField     = "seconds"
	stepSecondsField = "step_seconds"
	valSecondsField  = "val_seconds"
	rateField        = "samples_per_second"
	trainLossField   = "train_loss"
	valLossField     = "val_loss"
	iouField         = "iou"
	diceField        = "dice"
	accuracyField    = "accuracy"
	valAccuracyField = "val_accuracy"
	lrField          = "lr"

	// A field of tables; in lines, a metric.
	elapsedField = "elapsed_seconds"
)

// isKnownField reports whether a field has a meaning of its own, so that a metric
// must not have its name.
func isKnownField(name string) bool {
	return isPosition(name) || isSetting(name) || isMeasure(name) || name == "model" || name == "series"
}

// isPosition reports whether a field states to which epoch, step or rank the
// values of a line belong.
func isPosition(name string) bool {
	return slices.Contains([]string{epochField, epochsField, stepField, stepsField, rankField}, name)
}

// isSetting reports whether a field is a property of the complete run.
func isSetting(name string) bool {
	return slices.Contains([]string{workersField, nodesField, seedField, batchField, samplesField}, name)
}

// isMeasure reports whether a field is a measured value of known meaning.
func isMeasure(name string) bool {
	return slices.Contains([]string{
		secondsField, stepSecondsField, valSecondsField, rateField, trainLossField, valLossField,
		iouField, diceField, accuracyField, valAccuracyField, lrField,
	}, name)
}

// number is a number of a shape with everything that shows its meaning.
type number struct {
	before, after []string // words beside it, the nearest last and first
	namedAfter    bool     // the words after it name it
	unit          unit
	unitInName    bool   // the unit is before the number, as in time_ms=3
	role          string // part of the data set that the line or its section names
	lastRole      string // last part of the data set that the line names before the number
	ofTotal       bool   // it follows "/" or "of" after a number
	inParentheses bool   // it follows a number and is in parentheses
	text          string // in the first line
	clock         bool   // written as 1:02:03
	first         bool   // the first number of the line
	remains       bool   // the time that remains
	afterEnd      bool   // a word before it, such as "finished", ends some work
	// counted is the quality "correct" of 98 in "correct 49/50 (98%)": the words
	// before the first number.
	counted []string
	series  series
}

// meaning is the decision about a number.
type meaning struct {
	field string // field or metric; empty if the number is skipped
	why   string
	scale string // unit that the line does not show beside the number, such as ms
	// guessed is set for a metric that has only the name of the words beside it.
	guessed bool
}

// skip returns the meaning of a number that is not used.
func skip(why string) meaning { return meaning{why: why} }

// because returns a meaning with the given field and the formatted reason for it.
func because(field, format string, a ...any) meaning {
	return meaning{field: field, why: fmt.Sprintf(format, a...)}
}

// positionOf returns the meaning of a number that counts epochs, steps, ranks or
// workers. If the number counts none of these, the meaning has no field. previous is the meaning of the number before it.
func (n *number) positionOf(previous meaning) meaning {
	words, s := n.before, n.series
	for len(words) > 0 && hasAny(lastWords(words, 1), " is are was of the to equals ") {
		words = words[:len(words)-1]
	}
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
	}
	if n.ofTotal {
		switch previous.field {
		case epochField:
			return because(epochsField, "after the number of the epoch: the planned epochs")
		case stepField:
			return because(stepsField, "after the number of the step: the number of steps")
		case rankField:
			return because(workersField, "after the rank: the number of workers")
		}
		return meaning{}
	}
	if !s.whole || n.unit.kind != noUnit {
		return meaning{}
	}
	named := func(lists ...wordList) bool { return hasAny([]string{last}, lists...) }
	next := ""
	if len(n.after) > 0 {
		next = n.after[0]
	}
	quoted := strings.Join(lastWords(words, 2), " ")
	evaluation := n.role == valRole || n.role == testRole || slices.ContainsFunc(words, func(w string) bool { r := roleOf(w); return r == valRole || r == testRole })
	switch {
	case last == "size" && hasAny(words, " world "), named(countWords) && !hasAny(words, loadWords) && !(last == "workers" && hasAny(words, " num ")):
		return because(workersField, "after %q: the number of workers", quoted)
	case countWords.has(next) && s.distinct == 1 && !hasAny(words, loadWords):
		return because(workersField, "before %q: the number of workers", next)
	case hasAny([]string{next}, " nodes hosts machines ") && s.distinct == 1, named(" nnodes nodes "):
		return because(nodesField, "beside the word for nodes")
	case hasAny(words, batchWords) && hasAny(words, " size bs batchsize ") && s.distinct == 1:
		return because(batchField, "after %q: a batch size", strings.Join(words, " "))
	case named(rankWords) && !hasAny(words, " local "):
		return because(rankField, "after %q: the rank that writes the line", last)
	case named(placeWords):
		return because(rankField, "a number after %q: the rank that writes the line", last)
	case named(seedWords):
		return because(seedField, "after %q", last)
	case named(epochWords) && last == "epochs" && s.distinct == 1, last == "" && next == "epochs" && s.distinct == 1:
		return because(epochsField, "beside \"epochs\": the planned epochs")
	case named(epochWords) && n.unit.kind == noUnit && !hasAny([]string{next}, " s sec seconds "):
		return because(epochField, "after %q%s", last, s.risingText())
	case named(stepWords, batchWords) && (s.distinct > 1 || last != "steps"):
		return because(stepField, "after %q%s", last, s.risingText())
	case hasAny([]string{next}, " epoch epochs ep ") && !hasMeaning(words) && (s.byOne || s.n == 1):
		return because(epochField, "before %q%s", next, s.risingText())
	case (named(sampleWords) || sampleWords.has(next)) && s.distinct == 1 && s.min >= 1 && !evaluation:
		return because(samplesField, "beside a word for samples: the samples of an epoch")
	}
	return meaning{}
}

// risingText describes how the values of a number rise, for a reason.
func (d series) risingText() string {
	switch {
	case d.byOne:
		return ": a whole number that rises by one"
	case d.rises:
		return ": a whole number that rises"
	}
	return ""
}

// lastWords returns the last n words.
func lastWords(words []string, n int) []string { return words[max(0, len(words)-n):] }

// lineContext is what the other numbers of a line and of the log show.
type lineContext struct {
	step bool // the line has the number of a step
	// validated is set if lines of the log name the validation, so that values of
	// a test are others.
	validated bool
	taken     map[string]bool
}

// measureOf returns the meaning of a measured number.
func (n *number) measureOf(c lineContext) meaning {
	words := n.before
	if n.namedAfter {
		words = n.after
	}
	role := n.role
	for _, w := range words {
		if r := roleOf(w); r != "" {
			role = r
		}
	}
	switch {
	case n.remains, hasAny(words, restWords), len(n.after) > 0 && hasAny(n.after[:1], " remaining left "):
		return skip("the time that remains")
	case n.ofTotal:
		return skip("a total")
	case n.inParentheses && (n.unit.kind == noUnit || n.unit.kind == percentUnit):
		return skip("in parentheses after a number, such as an average")
	case n.unit.kind == rateUnit:
		return n.rate(role)
	case n.unit.kind == inverseUnit:
		return n.timePer(role)
	case isTime(n, words):
		return n.time(words, role, c)
	case n.unit.kind == bytesUnit:
		return n.metric(words, role, c)
	}
	return n.quality(words, role, c)
}

// isTime reports whether the number is a duration.
func isTime(n *number, words []string) bool {
	if n.endsWork(words) {
		return true
	}
	if n.clock {
		return hasAny(words, timeWords) || n.unit.kind == timeUnit || !hasMeaning(words) && !n.first && n.series.n > 1 && !n.series.rises
	}
	isLoss := hasAny(words, lossWords, rateWords) && !(hasAny(words, " cost ") && hasAny(words, " time ")) // a "time cost" is no loss
	return n.unit.kind == timeUnit || n.unit.kind == noUnit && hasAny(lastWords(words, 3), timeWords) && !isLoss
}

// endsWork reports whether the number is what some work took, as in "finished in 0:01:21".
// A number without a unit must be the last of its sentence: "done in 3 steps" is no duration.
func (n *number) endsWork(words []string) bool {
	if !hasAny(lastWords(words, 1), " in after ") || n.unit.kind != noUnit && n.unit.kind != timeUnit {
		return false
	}
	if n.clock {
		return true
	}
	return n.afterEnd && len(n.after) == 0 && !n.series.whole
}

// rate returns the meaning of a number with a unit such as samples/s.
func (n *number) rate(role string) meaning {
	switch {
	case role == valRole || role == testRole:
		return meaning{field: role + "_" + rateField, why: n.unitText() + ", of the evaluation"}
	case sampleWords.has(n.unit.subject):
		return because(rateField, "%s: throughput", n.unitText())
	case tokenWords.has(n.unit.subject):
		return because(rateField, "%s: throughput, where a token counts as a sample", n.unitText())
	}
	name := n.unit.subject
	if stepWords.has(name) || batchWords.has(name) {
		name = "steps"
	}
	return meaning{field: name + "_per_second", why: n.unitText() + ": a rate, but not of samples"}
}

// unitText describes where the unit is, for a reason.
func (n *number) unitText() string {
	if n.unitInName {
		return fmt.Sprintf("its name has the unit %q", n.unit.text)
	}
	return fmt.Sprintf("followed by %q", n.unit.text)
}

// timePer returns the meaning of a number with a unit such as ms/step.
func (n *number) timePer(role string) meaning {
	switch s := n.unit.subject; {
	case epochWords.has(s):
		return because(secondsField, "%s: the time of an epoch", n.unitText())
	case stepWords.has(s), batchWords.has(s):
		if role == valRole || role == testRole {
			return meaning{field: role + "_step_seconds", why: n.unitText() + ", of the evaluation"}
		}
		return because(stepSecondsField, "%s: the time of a step", n.unitText())
	}
	return meaning{field: "seconds_per_" + identifier([]string{n.unit.subject}), why: n.unitText(), guessed: true}
}

// time returns the meaning of a duration.
func (n *number) time(words []string, role string, c lineContext) meaning {
	why := fmt.Sprintf("after %q", strings.Join(lastWords(words, 2), " "))
	switch {
	case n.unit.kind == timeUnit && n.unit.text != "compound" && n.unit.text != "":
		why = n.unitText()
	case n.clock || n.unit.kind == timeUnit:
		why = "written as a duration"
		if n.clock && !hasMeaning(words) {
			why = "written as a time, which does not rise like the time of day"
		}
	case n.unit.kind == noUnit:
		why += ", without a unit: taken as seconds"
	}
	perEpoch := hasAny(words, epochWords)
	perStep := hasAny(words, stepWords, batchWords)
	switch {
	case hasAny(words, loadWords):
		return n.timeMetric("data_seconds", why+", beside a word for loading data", c)
	case hasAny(words, otherWork):
		return n.timeMetric(identifier(words)+"_seconds", why, c)
	case hasAny(words, " forward fwd backward bwd comm communication allreduce optimizer sync compute "):
		return n.timeMetric(identifier(words)+"_seconds", why, c)
	case role == testRole && c.validated:
		return n.timeMetric("test_seconds", why+", of a test", c)
	case role == valRole || role == testRole:
		if perStep || c.step {
			return n.timeMetric(role+"_step_seconds", why+", of the evaluation", c)
		}
		return n.free(because(valSecondsField, "%s, of the evaluation", why), c)
	case !perEpoch && n.isCumulative(words):
		return n.timeMetric(elapsedField, why+", and rises from line to line: the time since the start, not of an epoch", c)
	case !perEpoch && (perStep || c.step):
		return n.free(because(stepSecondsField, "%s: the time of a step", why), c)
	case hasAny(words, totalWords) && c.taken[secondsField]:
		return n.timeMetric("total_seconds", why, c)
	}
	return n.free(because(secondsField, "%s: the time of the epoch", why), c)
}

// isCumulative reports whether the durations count from the start of the run:
// they rise in each line by about as much as the first one.
func (n *number) isCumulative(words []string) bool {
	s := n.series
	if !s.rises || s.n < 3 || s.distinct < s.n {
		return false
	}
	return s.max > 0.5*float64(s.n)*s.min && (s.n > 3 || hasAny(words, totalWords))
}

// timeMetric returns the meaning of a duration that has no field of its own.
func (n *number) timeMetric(name, why string, c lineContext) meaning {
	return n.free(meaning{field: name, why: why}, c)
}

// free returns m, or a numbered metric if the line has the field already.
func (n *number) free(m meaning, c lineContext) meaning {
	if !c.taken[m.field] {
		return m
	}
	for i := 2; ; i++ {
		if name := fmt.Sprintf("%s_%d", m.field, i); !c.taken[name] {
			return meaning{field: name, why: m.why + "; the line has such a value already", guessed: true}
		}
	}
}

// quality returns the meaning of a loss, an accuracy or another number without a
// unit of time.
func (n *number) quality(words []string, role string, c lineContext) meaning {
	last := lastWords(words, 1)
	near := lastWords(words, 3)
	evaluation := role == valRole || role == testRole
	if role == testRole && c.validated {
		return n.metric(words, role, c)
	}
	testText := ""
	if role == testRole {
		testText = "; a test in each epoch is taken as the validation"
	}
	switch quoted := strings.Join(lastWords(words, 2), " "); {
	case hasAny(words, lossWords) && isPlain(words, lossWords) && n.unit.kind != percentUnit:
		field := trainLossField
		if evaluation || role == "" && c.taken[field] && n.isAfterEvaluation() {
			field = valLossField
		}
		if c.taken[field] {
			break
		}
		text := ""
		if n.series.falls {
			text = ", and it falls with time"
		}
		return because(field, "after %q%s%s", quoted, text, testText)
	case len(words) > 0 && role != "" && n.series.falls && isPlain(words, "") && !c.taken[map[bool]string{true: valLossField, false: trainLossField}[evaluation]]:
		field := trainLossField
		if evaluation {
			field = valLossField
		}
		return because(field, "after %q without another word, and it falls with time: a loss", quoted)
	case hasAny(words, accuracyWords) && isPlain(words, accuracyWords) && n.series.min >= 0:
		field := accuracyField
		if evaluation || role == "" && c.taken[field] && n.isAfterEvaluation() {
			field = valAccuracyField
		}
		if c.taken[field] {
			break
		}
		return because(field, "after %q, %s%s", quoted, n.rangeText(), testText)
	case hasAny(words, iouWords) && isPlain(words, iouWords) && role != trainRole && !c.taken[iouField]:
		return because(iouField, "after %q, %s", quoted, n.rangeText())
	case hasAny(words, diceWords) && isPlain(words, diceWords) && role != trainRole && !c.taken[diceField]:
		return because(diceField, "after %q, %s", quoted, n.rangeText())
	case (slices.Contains(near, "lr") || slices.Contains(near, "learning") && slices.Contains(near, "rate")) && !c.taken[lrField]:
		return because(lrField, "after %q: the learning rate", quoted)
	case hasAny(near, rateWords) && !slices.Contains(near, "rate") && n.unit.kind == noUnit && !evaluation && !c.taken[rateField],
		slices.Contains(words, "per") && hasAny(words, sampleWords) && hasAny(words, " s sec second ") && !c.taken[rateField],
		n.unit.kind == noUnit && hasAny(words, sampleWords) && hasAny(last, " s sec second ") && !c.taken[rateField]:
		return because(rateField, "after %q: throughput", quoted)
	}
	return n.metric(words, role, c)
}

// scaleOf returns the unit of a number that has no unit directly after it: a unit
// elsewhere in the line, or the unit in which such values are usually written.
func (n *number) scaleOf(m meaning) string {
	switch {
	case slices.Contains([]string{iouField, diceField, accuracyField, valAccuracyField}, m.field):
		if n.unit.kind != percentUnit && n.series.max > 1 && n.series.max <= 100 || n.unit.kind == percentUnit && n.unitInName {
			return "%"
		}
	case m.field != "" && n.unitInName && n.unit.kind == timeUnit && !isSecond(n.unit.scale):
		return n.unit.scale
	}
	return ""
}

// rangeText describes the range of values of a share, for a reason.
func (n *number) rangeText() string {
	switch s := n.series; {
	case n.unit.kind == percentUnit:
		return "followed by %"
	case s.max <= 1:
		return "from 0 to 1"
	case s.max <= 100:
		return "up to 100: percent without its sign"
	}
	return "above 100"
}

// isAfterEvaluation reports whether the last part of the data set that the line
// names before the number is not the training set.
func (n *number) isAfterEvaluation() bool { return n.lastRole == valRole || n.lastRole == testRole }

// isPlain reports whether words contain only words of the list, the names of
// parts of the data set, and words without meaning, so that "loss" is the loss
// and "box loss" is not.
func isPlain(words []string, list wordList) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		return !hasAny([]string{w}, list, ignoredWords, epochWords, plainWords) && roleOf(w) == ""
	})
}

// metric returns the meaning of a number of unknown kind: a metric with the name
// of the words beside it.
func (n *number) metric(words []string, role string, c lineContext) meaning {
	if n.unit.kind == percentUnit && len(words) == 0 {
		return skip("a percentage without a name")
	}
	name := identifier(words)
	switch {
	case name == "":
		return skip("nothing beside it names it")
	case n.series.whole && n.series.n > 1 && n.series.distinct == 1:
		return skip("a whole number that does not change")
	}
	if role != "" && role != trainRole && !strings.Contains(name, role) && !slices.ContainsFunc(words, func(w string) bool { return roleOf(w) != "" }) {
		name = role + "_" + name
	}
	if n.unit.kind == bytesUnit {
		name += "_" + identifier([]string{strings.ToLower(strings.ReplaceAll(n.unit.text, "/", "_per_"))})
	}
	if isKnownField(name) {
		name = "logged_" + name
	}
	return n.free(meaning{field: name, why: fmt.Sprintf("the words beside it are %q: a metric of this name", strings.Join(lastWords(words, 3), " ")), guessed: true}, c)
}

// identifier returns a name made of the last meaningful words, or "".
func identifier(words []string) string {
	kept := slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		return ignoredWords.has(w) || len(w) > 24
	})
	if !slices.ContainsFunc(kept, func(w string) bool { return roleOf(w) == "" }) { // only a part of the data set
		kept = slices.Clone(words)
	}
	var parts []string
	for _, w := range lastWords(kept, 3) {
		clean := strings.Map(func(c rune) rune {
			if c == '_' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
				return c
			}
			return -1
		}, strings.ToLower(w))
		if clean != "" {
			parts = append(parts, clean)
		}
	}
	name := strings.Join(parts, "_")
	if name != "" && isDigit(name[0]) {
		name = "n" + name
	}
	return name
}

// hasMeaning reports whether words contain one that can name a value.
func hasMeaning(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return !ignoredWords.has(w) })
}
