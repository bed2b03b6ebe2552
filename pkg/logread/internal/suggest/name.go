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

// datasetPart returns the part of the data set that a word refers to, such as the validation set,
// or "" if it refers to none.
func datasetPart(word string) string {
	switch {
	case isOneOf(word, "train training trained trn tr"):
		return trainPart
	case isOneOf(word, "val valid validation validating validate dev eval evaluation evaluating evaluate heldout va vali"):
		return valPart
	case isOneOf(word, "test testing tested tst"):
		return testPart
	}
	return ""
}

func isOneOf(word, list string) bool { return slices.Contains(strings.Fields(list), word) }

// isNoise reports whether a word does not change the meaning of a name.
func isNoise(word string) bool {
	return isOneOf(word, "avg average mean current cur running value the is was are at of in after with on over for by and to nach tensor array np float float32 info")
}

// isProgressWord reports whether a word only says that something begins or ends.
func isProgressWord(word string) bool {
	return isOneOf(word, "start starting started begin done end finished complete completed abgeschlossen")
}

// excludesMeasurement reports whether a word shows that the numbers after it are not measured now: the best
// value so far, a limit, or a checkpoint's value.
func excludesMeasurement(word string) bool {
	return isOneOf(word, "best max min maximum minimum save saved saving saves checkpoint resume resumed resuming target threshold patience early improved")
}

// splitWords splits an identifier into words in lower case. It returns val and loss for both
// valLoss and val_loss.
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
		if last = c; !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			c = ' '
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return strings.Fields(b.String())
}

// name is the meaning of the words that name a number: a field and what qualifies it.
type name struct {
	field *fields.Field // nil if the words are no name
	weak  bool          // the words have other meanings too
	unit  string        // of time, in the name, such as ms, or ""
	words string
}

// nameUnit matches the units of time that may end a name, as in time_ms.
var nameUnit = regexp.MustCompile(`^` + timeUnitRegexp + `$`)

// resolveName returns the meaning of words that name a value. part is the part of the data set that
// the line names, or "" if it names none.
func resolveName(words []string, part string) name {
	n := name{words: strings.Join(words, " ")}
	plain := slices.DeleteFunc(slices.Clone(words), isNoise)
	lists := [][]string{words, plain, slices.DeleteFunc(slices.Clone(plain), isProgressWord)}
	last := ""
	if k := len(plain) - 1; k > 0 { // without "epoch", the mean over an epoch, or a unit of time
		last = plain[k]
		lists = append(lists, plain[:k])
	}
	for i, list := range lists {
		for _, n.weak = range []bool{false, true} {
			f := lookUpField(list, part, n.weak)
			switch {
			case f == nil:
			case i < 3, last == "epoch" && f.OfEpoch != nil:
				n.field = f
				return n
			case f.Kind == fields.Seconds && nameUnit.MatchString(last):
				n.field, n.unit = f, last
				return n
			}
		}
	}
	n.weak = false
	return n
}

// lookUpField returns the field that words show as a whole, or nil.
func lookUpField(words []string, part string, weak bool) *fields.Field {
	find := fields.Lookup
	if weak {
		find = fields.LookupWeakName
	}
	own, base := "", []string(nil) // the part that the words name, and the other words
	for _, w := range words {
		p := datasetPart(w)
		switch {
		case p == "":
			base = append(base, w)
		case own != "" && own != p:
			return nil
		default:
			own = p
		}
	}
	f, plain := find(strings.Join(words, " ")), find(strings.Join(base, " "))
	if own != "" && plain != nil && (plain.Name == fields.Epoch || plain.Name == fields.Step) {
		return plain // such as "Train Epoch: 1"
	}
	if own != "" {
		part = own
	}
	switch {
	case f != nil && (f.Kind == fields.Text || f.Kind == fields.Moment || f.Name == fields.SamplesPerSecond && !containsRateWord(words)):
		return nil // "imgs" is not img/s
	case f != nil && own == "" && isCounter(f):
		return f
	case part == testPart:
		return nil // a test is no validation
	case part == valPart:
		if f != nil && own == valPart && f.OfEpoch != nil {
			return f
		}
		return fields.LookupValidationField(strings.Join(base, " "), find)
	case f == nil && own == trainPart:
		if f = find("train_" + strings.Join(base, " ")); f == nil {
			f = plain
			if f != nil && !f.DescribesTraining() && f.Name != fields.Time {
				return nil
			}
		}
	}
	if f != nil && part == trainPart && (f.Name == fields.IoU || f.Name == fields.Dice) {
		return nil // these fields are those of the validation
	}
	return f
}

// isCounter reports whether a field counts epochs, steps, ranks or workers, or is a setting.
func isCounter(f *fields.Field) bool { return f.Kind == fields.Whole && f.Name != fields.Samples }

func containsRateWord(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return isOneOf(w, "s sec second per throughput ips sps") })
}

type unitKind int

const (
	noUnit       unitKind = iota
	timeUnitKind          // s, ms, min, h
	percentUnit           // %
	epochUnit             // s/epoch
	stepUnit              // s/step
	rateUnit              // samples/s
	otherUnit             // GB, tokens/s
)

var (
	inverseAfter = regexp.MustCompile(`^\s*` + timeUnitRegexp + `(?:\s*/|\s+per\s+)\s*([A-Za-z]+)\b`)
	timeAfter    = regexp.MustCompile(`^(\s*` + timeUnitRegexp + `)(?:[^A-Za-z0-9_/]|$)`)
	rateAfter    = regexp.MustCompile(`^\s*([A-Za-z]+(?:\s*/\s*(?:s|sec|second)|\s+per\s+sec(?:ond)?)\b|ips\b|[a-z]+/[A-Za-z]+\b)(\s*(?:/|per\b)\s*[A-Za-z]+)?`)
	otherAfter   = regexp.MustCompile(`^\s*(?:[KMGT]i?B|bytes|[KMGT]i?B/s|GB/sec|MB/sec)\b`)
)

// unitAfter returns the unit directly after a number, and its length. A word before = or : is the
// name of the next value, not a unit.
func unitAfter(text string) (kind unitKind, n int) {
	kind, n = findUnit(text)
	if rest := strings.TrimLeft(text[n:], " "); n > 0 && (text[0] == ' ' || text[0] == '\t') && rest != "" && strings.IndexByte("=:", rest[0]) >= 0 {
		return noUnit, 0
	}
	return kind, n
}

// findUnit is like unitAfter, but also accepts a word that is the name of the next value.
func findUnit(text string) (kind unitKind, n int) {
	is := func(name, field string) bool {
		f, weak := fields.Lookup(name), fields.LookupWeakName(name)
		return f != nil && f.Name == field || weak != nil && weak.Name == field
	}
	if rest, ok := strings.CutPrefix(strings.TrimLeft(text, " \t"), "%"); ok {
		return percentUnit, len(text) - len(rest)
	}
	if m := inverseAfter.FindStringSubmatch(text); m != nil {
		switch {
		case is(m[1], fields.Epoch):
			return epochUnit, len(m[0])
		case is(m[1], fields.Step):
			return stepUnit, len(m[0])
		}
		return otherUnit, len(m[0])
	}
	if m := timeAfter.FindStringSubmatch(text); m != nil {
		return timeUnitKind, len(m[1])
	}
	if m := otherAfter.FindString(text); m != "" {
		return otherUnit, len(m)
	}
	if m := rateAfter.FindStringSubmatch(text); m != nil {
		if is(m[1], fields.SamplesPerSecond) && m[2] == "" { // not of one GPU
			return rateUnit, len(m[0])
		}
		return otherUnit, len(m[0])
	}
	return noUnit, 0
}
