package suggest

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"lockstep/pkg/logread/internal/fields"
)

// The parts of a data set that a value belongs to.
const (
	trainPart = "train"
	valPart   = "val"
	testPart  = "test"
)

// partOf returns the part of the data set that a word names, or "".
func partOf(word string) string {
	switch word {
	case "train", "training", "trained", "trn", "tr":
		return trainPart
	case "val", "valid", "validation", "validating", "validate", "dev", "eval", "evaluation", "evaluating", "evaluate", "heldout", "va", "vali":
		return valPart
	case "test", "testing", "tested", "tst":
		return testPart
	}
	return ""
}

// isNoise reports whether a word does not change the meaning of a name.
func isNoise(word string) bool {
	return slices.Contains(strings.Fields("avg average mean current cur running value the is was are at of in after with on over for by and to nach tensor array np float float32 info"), word)
}

// isProgress reports whether a word only says that something begins or ends.
func isProgress(word string) bool {
	return slices.Contains(strings.Fields("start starting started begin done end finished complete completed abgeschlossen"), word)
}

// isConnective reports whether a word connects a number with the words before it, so that they do not
// name the number.
func isConnective(word string) bool {
	return slices.Contains(strings.Fields("in after with on using across at and took nach"), word)
}

// isVeto reports whether a word shows that the numbers after it are not measured now: the best value so far, a
// limit, or a value that a checkpoint has.
func isVeto(word string) bool {
	return slices.Contains(strings.Fields("best max min maximum minimum save saved saving saves checkpoint resume resumed resuming target threshold patience early improved"), word)
}

// splitWords returns the parts of an identifier in lower case: valLoss and val_loss are val and loss.
func splitWords(identifier string) []string {
	if fields.LookupColumn(identifier) != nil && !strings.ContainsAny(identifier, "_-") { // such as mIoU
		return []string{strings.ToLower(identifier)}
	}
	var b strings.Builder
	var last rune
	for _, c := range identifier {
		if unicode.IsUpper(c) && unicode.IsLower(last) {
			b.WriteByte(' ')
		}
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			b.WriteRune(unicode.ToLower(c))
		} else {
			b.WriteByte(' ')
		}
		last = c
	}
	return strings.Fields(b.String())
}

// name is the field that words show.
type name struct {
	field *fields.Field // nil if the words are no name
	weak  bool          // the words have other meanings too
	unit  string        // of time, in the name, such as ms, or ""
	words string
}

// timeUnits matches the units of time that may end a name, as in time_ms.
var timeUnits = regexp.MustCompile(`^(?:s|secs?|seconds?|ms|msecs?|milliseconds|us|mins?|minutes?|h|hrs?|hours?)$`)

// nameOf returns the field that words show for a value of a part of the data set, which is "" if the
// line does not say.
func nameOf(words []string, part string) name {
	if len(words) == 0 {
		return name{}
	}
	n := name{words: strings.Join(words, " ")}
	plain := slices.DeleteFunc(slices.Clone(words), isNoise)
	short := slices.DeleteFunc(slices.Clone(plain), isProgress)
	for _, list := range [][]string{words, plain, short} {
		for _, n.weak = range []bool{false, true} {
			if n.field = lookUp(list, part, n.weak); n.field != nil {
				return n
			}
		}
	}
	for _, weak := range []bool{false, true} {
		n.weak = weak
		if k := len(plain) - 1; k > 0 && plain[k] == "epoch" { // the mean over an epoch, as in loss_epoch
			if n.field = lookUp(plain[:k], part, weak); n.field != nil && n.field.OfEpoch != nil {
				return n
			}
		}
		if k := len(plain) - 1; k > 0 && timeUnits.MatchString(plain[k]) {
			if n.field = lookUp(plain[:k], part, weak); n.field != nil && n.field.Kind == fields.Seconds {
				n.unit = plain[k]
				return n
			}
		}
	}
	n.field, n.weak = nil, false
	return n
}

// lookUp returns the field that words show as a whole, or nil.
func lookUp(words []string, part string, weak bool) *fields.Field {
	find := fields.Lookup
	if weak {
		find = fields.LookupWeak
	}
	own, base := "", []string(nil) // the part that the words name, and the other words
	for _, w := range words {
		p := partOf(w)
		switch {
		case p == "":
			base = append(base, w)
		case own != "" && own != p:
			return nil
		default:
			own = p
		}
	}
	f := find(strings.Join(words, " "))
	if count := find(strings.Join(base, " ")); own != "" && count != nil && (count.Name == fields.Epoch || count.Name == fields.Step) {
		return count // such as "Train Epoch: 1"
	}
	switch {
	case f != nil && (f.Kind == fields.Text || f.Kind == fields.Moment || f.Name == fields.SamplesPerSecond && !isRate(words)):
		return nil // "imgs" is not img/s
	case f != nil && own == "" && isCounter(f):
		return f
	case own == testPart, own == "" && part == testPart:
		return nil // a test is no validation
	case own == valPart, own == "" && part == valPart:
		if f != nil && own == valPart && f.OfEpoch != nil {
			return f
		}
		return fields.OfValidation(strings.Join(base, " "), find)
	case f == nil && own == trainPart:
		if f = find("train_" + strings.Join(base, " ")); f != nil {
			break
		}
		if f = find(strings.Join(base, " ")); f != nil && !f.IsOfTraining() && f.Name != fields.Time {
			return nil
		}
	}
	if f != nil && (own == trainPart || part == trainPart) && (f.Name == fields.IoU || f.Name == fields.Dice) {
		return nil // these fields are those of the validation
	}
	return f
}

// isCounter reports whether a field counts epochs, steps, ranks or workers, or is a setting.
func isCounter(f *fields.Field) bool { return f.Kind == fields.Whole && f.Name != fields.Samples }

// isRate reports whether words end with a unit of a rate.
func isRate(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains(strings.Fields("s sec second per throughput ips sps"), w)
	})
}

// unitKind is the kind of a unit that follows a number.
type unitKind int

const (
	noUnit      unitKind = iota
	timeUnit             // s, ms, min, h
	percentUnit          // %
	epochUnit            // s/epoch
	stepUnit             // s/step
	rateUnit             // samples/s
	otherUnit            // GB, tokens/s
)

var (
	percentAfter = regexp.MustCompile(`^\s*%`)
	inverseAfter = regexp.MustCompile(`^\s*(?:ms|us|s|secs?|seconds?|mins?|minutes?|h)(?:\s*/|\s+per\s+)\s*([A-Za-z]+)\b`)
	timeAfter    = regexp.MustCompile(`^\s*(?:S|SECS?|SECONDS?|MINS?|ms|msecs?|milliseconds?|us|µs|secs?|seconds?|s|mins?|minutes?|m|hrs?|hours?|h)(?:[^A-Za-z0-9_/]|$)`)
	rateAfter    = regexp.MustCompile(`^\s*([A-Za-z]+(?:\s*/\s*(?:s|sec|second)|\s+per\s+sec(?:ond)?)\b|ips\b|[a-z]+/[A-Za-z]+\b)(\s*(?:/|per\b)\s*[A-Za-z]+)?`)
	bytesAfter   = regexp.MustCompile(`^\s*(?:[KMGT]i?B|bytes|[KMGT]i?B/s|GB/sec|MB/sec)\b`)
)

// unitAfter returns the unit at the beginning of text, which follows a number, and its length. A word before =
// or : is the name of the next value, not a unit.
func unitAfter(text string) (kind unitKind, n int) {
	kind, n = findUnit(text)
	if rest := strings.TrimLeft(text[n:], " "); n > 0 && text[0] == ' ' && rest != "" && strings.IndexByte("=:", rest[0]) >= 0 {
		return noUnit, 0
	}
	return kind, n
}

// findUnit is like unitAfter, but also returns names of values.
func findUnit(text string) (kind unitKind, n int) {
	if m := percentAfter.FindString(text); m != "" {
		return percentUnit, len(m)
	}
	if m := inverseAfter.FindStringSubmatch(text); m != nil {
		f := fields.Lookup(m[1])
		if f == nil {
			f = fields.LookupWeak(m[1])
		}
		switch {
		case f != nil && f.Name == fields.Epoch:
			return epochUnit, len(m[0])
		case f != nil && f.Name == fields.Step:
			return stepUnit, len(m[0])
		}
		return otherUnit, len(m[0])
	}
	if m := timeAfter.FindString(text); m != "" {
		return timeUnit, len(strings.TrimRightFunc(m, func(c rune) bool { return !unicode.IsLetter(c) }))
	}
	if m := bytesAfter.FindString(text); m != "" {
		return otherUnit, len(m)
	}
	if m := rateAfter.FindStringSubmatch(text); m != nil {
		rate := func(find func(string) *fields.Field) bool {
			f := find(m[1])
			return f != nil && f.Name == fields.SamplesPerSecond && m[2] == "" // not of one GPU
		}
		if rate(fields.Lookup) || rate(fields.LookupWeak) {
			return rateUnit, len(m[0])
		}
		return otherUnit, len(m[0])
	}
	return noUnit, 0
}
