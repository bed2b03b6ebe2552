package suggest

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the kind of a token of a line.
type tokenKind int

const (
	blankToken  tokenKind = iota // one or more blanks
	wordToken                    // a word, also with digits inside, such as top5
	numberToken                  // a number with its attached unit, or a duration such as 3m12s
	clockToken                   // a time of day or a duration, such as 1:02:03
	stampToken                   // a date, also with a time of day
	markToken                    // one character of punctuation
)

// token is a part of a line.
type token struct {
	kind  tokenKind
	text  string  // as in the line, without the unit of a number
	unit  string  // unit of time attached to a number, "compound" for 3m12s, otherwise empty
	value float64 // of a number or clock; a duration in seconds
	whole bool    // the number is written without a fraction, an exponent and a unit
	comma bool    // the number has a decimal comma
}

// isSlot reports whether the token is a value that a field can match.
func (t token) isSlot() bool { return t.kind == numberToken || t.kind == clockToken }

// maxTokens limits the tokens of a line; the rest of a longer line is one word.
const maxTokens = 400

var (
	stampPattern = regexp.MustCompile(`^(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2}|\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)),?(?: \d{4})?)(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?Z|[+-]\d{2}:?\d{2}| UTC)?(?: \d{4})?)?(?:\b|$)`)
	clockPattern = regexp.MustCompile(`^(?:\d+:)?\d{1,2}:\d{2}(?:[.,]\d+)?`)
	// compoundPattern matches durations of several parts, such as 1h02m03s and 3m 12.5s.
	compoundPattern = regexp.MustCompile(`^(?:(\d+) ?d(?:ays?)?,? ?)?(?:(\d+) ?h(?:rs?|ours?)? ?)?(?:(\d+) ?m(?:ins?|inutes?)? ?)?(?:(\d+(?:\.\d+)?) ?s(?:ecs?|econds?)?)?`)
	numberPattern   = regexp.MustCompile(`^[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?`)
	notFinite       = regexp.MustCompile(`^([+-]?(?i:nan|infinity|inf))(?:[^A-Za-z0-9_]|$)`)
	addressPattern  = regexp.MustCompile(`^\d+(?:\.\d+){2,}|^0x[0-9a-fA-F]+`)
	unitPattern     = regexp.MustCompile(`^(?:S|SECS?|SECONDS?|MINS?|ms|msec|us|µs|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)(?:[^A-Za-z0-9_/]|/[a-zA-Z]|$)`)
)

// isIndexWord reports whether a word may be followed directly by a number, as in
// rank0 and epoch12. The single letters count only at the beginning of a line or
// after a bracket, since r2 and e5 have other meanings.
func isIndexWord(word string, first bool) bool {
	switch strings.ToLower(word) {
	case "epoch", "ep", "rank", "gpu", "worker", "iter", "step", "cuda", "proc", "seed", "node", "round", "device":
		return true
	case "e", "r", "w":
		return first
	}
	return false
}

// tokenize splits a line into tokens. commas states whether the line has decimal commas.
func tokenize(line string, commas bool) []token {
	var found []token
	for rest := line; rest != ""; {
		if len(found) >= maxTokens {
			return append(found, token{kind: wordToken, text: rest})
		}
		t, n := nextToken(rest, found, commas)
		found, rest = append(found, t), rest[n:]
	}
	return found
}

// nextToken returns the first token of rest and its length in bytes. before
// contains the previous tokens of the line.
func nextToken(rest string, before []token, commas bool) (t token, n int) {
	c, size := utf8.DecodeRuneInString(rest)
	if c == ' ' || c == '\t' {
		n = len(rest) - len(strings.TrimLeft(rest, " \t"))
		return token{kind: blankToken, text: rest[:n]}, n
	}
	if isDigit(rest[0]) || isLetter(c) && strings.IndexByte("JFMASONDTW", rest[0]) >= 0 {
		if m := stampPattern.FindString(rest); m != "" {
			return token{kind: stampToken, text: m}, len(m)
		}
	}
	if isDigit(rest[0]) || strings.IndexByte("+-.nNiI", rest[0]) >= 0 {
		if t, n := numberAt(rest, before, commas); n > 0 {
			return t, n
		}
	}
	if isLetter(c) || isDigit(rest[0]) {
		return wordAt(rest, before)
	}
	return token{kind: markToken, text: rest[:size]}, size
}

// numberAt returns the number, time or duration at the beginning of rest and its
// length, or 0 if there is none.
func numberAt(rest string, before []token, commas bool) (t token, n int) {
	if isDigit(rest[0]) {
		if m := addressPattern.FindString(rest); m != "" {
			return token{kind: wordToken, text: m}, len(m)
		}
		if m := clockPattern.FindString(rest); m != "" && !continuesWord(rest[len(m):]) {
			return token{kind: clockToken, text: m, value: clockSeconds(m)}, len(m)
		}
		if t, n := durationAt(rest); n > 0 {
			return t, n
		}
	}
	if m := notFinite.FindStringSubmatch(rest); m != nil {
		return token{kind: numberToken, text: m[1], value: math.NaN()}, len(m[1])
	}
	if (rest[0] == '-' || rest[0] == '+') && !signAllowed(before) {
		return t, 0
	}
	m, plain := numberPattern.FindString(rest), strings.NewReplacer(",", "")
	comma := commas && commaPattern.MatchString(rest)
	if comma {
		m, plain = commaPattern.FindString(rest), strings.NewReplacer(".", "", ",", ".")
	}
	if m == "" {
		return t, 0
	}
	m = strings.TrimSuffix(m, ".") // the end of a sentence
	n = len(m)
	v, err := strconv.ParseFloat(plain.Replace(m), 64)
	if err != nil {
		v = math.Inf(1)
	}
	t = token{kind: numberToken, text: m, value: v, whole: !comma && !strings.ContainsAny(m, ".eE"), comma: comma}
	after := rest[n:]
	switch {
	case unitPattern.MatchString(after):
		t.unit = after[:len(after)-len(strings.TrimLeftFunc(after, unicode.IsLetter))]
		t.whole = false
		return t, n + len(t.unit)
	case len(after) > 0 && strings.IndexByte("kKM", after[0]) >= 0 && !continuesWord(after[1:]):
		t.text, t.whole = rest[:n+1], false
		t.value *= map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6}[after[0]]
		return t, n + 1
	case rateUnitPattern.MatchString(after):
		return t, n
	case continuesWord(after): // 3d, 16bit, 5th
		return token{}, 0
	}
	return t, n
}

// rateUnitPattern matches a unit that is attached to a number and is not a unit
// of time: 3.2it/s, 120x, 12GB.
var rateUnitPattern = regexp.MustCompile(`^(?:[A-Za-z]+/[a-z]+|x|[KMGT]i?B|[GT]|epochs?)(?:[^A-Za-z0-9_]|$)`)

// durationAt returns the duration of at least two parts at the beginning of rest
// and its length, or 0 if there is none.
func durationAt(rest string) (t token, n int) {
	m := compoundPattern.FindStringSubmatch(rest)
	parts := 0
	seconds := 0.0
	for i, factor := range []float64{86400, 3600, 60, 1} {
		if m[i+1] == "" {
			continue
		}
		parts++
		v, _ := strconv.ParseFloat(m[i+1], 64) // the pattern matches only numbers
		seconds += v * factor
	}
	text := strings.TrimRight(m[0], " ")
	if parts < 2 || continuesWord(rest[len(text):]) {
		return t, 0
	}
	return token{kind: numberToken, text: text, unit: "compound", value: seconds}, len(text)
}

// clockSeconds returns the seconds of a time such as 1:02:03 or 2:03.
func clockSeconds(text string) float64 {
	seconds := 0.0
	for part := range strings.SplitSeq(strings.ReplaceAll(text, ",", "."), ":") {
		v, _ := strconv.ParseFloat(part, 64) // the pattern matches only numbers
		seconds = 60*seconds + v
	}
	return seconds
}

// signAllowed reports whether a + or - that follows the tokens in before is the
// sign of a number. After a word or a number it is not.
func signAllowed(before []token) bool {
	if len(before) == 0 {
		return true
	}
	switch last := before[len(before)-1]; last.kind {
	case blankToken:
		return true
	case markToken:
		return strings.Contains("=:([,|{<>\"'", last.text)
	default:
		return false
	}
}

// wordAt returns the word at the beginning of rest and its length. Digits after
// an index word (rank0) are not part of it.
func wordAt(rest string, before []token) (t token, n int) {
	letters := len(rest)
	for i, c := range rest {
		if !isLetter(c) {
			letters = i
			break
		}
	}
	first := len(before) == 0 || strings.Contains("[(<", before[len(before)-1].text)
	n = letters
	for n < len(rest) {
		c, size := utf8.DecodeRuneInString(rest[n:])
		if !isLetter(c) && !isDigit(rest[n]) {
			break
		}
		n += size
	}
	digits := rest[letters:n]
	if digits != "" && strings.Trim(digits, "0123456789") == "" && isIndexWord(strings.TrimRight(rest[:letters], "_"), first) {
		return token{kind: wordToken, text: rest[:letters]}, letters
	}
	for _, sep := range []string{"@", "-"} { // acc@1, top-5
		after, ok := strings.CutPrefix(rest[n:], sep)
		if !ok || sep == "-" && !strings.EqualFold(rest[:n], "top") {
			continue
		}
		k := len(after) - len(strings.TrimLeft(after, "0123456789"))
		if k > 0 && !strings.HasPrefix(after[k:], ".") {
			n += 1 + k
		}
	}
	if n == 0 { // a digit that begins no number, as in 3d
		n = len(rest) - len(strings.TrimLeftFunc(rest, func(c rune) bool { return isLetter(c) || unicode.IsDigit(c) }))
		n = max(n, 1)
	}
	return token{kind: wordToken, text: rest[:n]}, n
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c rune) bool { return c == '_' || unicode.IsLetter(c) }

// continuesWord reports whether rest begins with a letter or digit.
func continuesWord(rest string) bool {
	c, _ := utf8.DecodeRuneInString(rest)
	return rest != "" && (isLetter(c) || isDigit(rest[0]))
}

// mixedCase replaces words of the vocabulary with capitals inside.
var mixedCase = strings.NewReplacer("mIoU", "miou", "mIOU", "miou", "IoU", "iou", "mAP", "map", "mDice", "mdice", "mDSC", "mdsc",
	"top-1", "top1", "Top-1", "top1", "TOP-1", "top1", "top-5", "top5", "Top-5", "top5", "TOP-5", "top5")

// splitWords returns the parts of identifiers in lower case: valLoss and
// val_loss are val and loss.
func splitWords(identifier string) []string {
	identifier = mixedCase.Replace(identifier)
	var words []string
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			words = append(words, splitCompound(strings.ToLower(b.String()))...)
			b.Reset()
		}
	}
	var last rune
	for _, c := range identifier {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '@':
			flush()
		case unicode.IsUpper(c) && unicode.IsLower(last):
			flush()
			b.WriteRune(c)
		default:
			b.WriteRune(c)
		}
		last = c
	}
	flush()
	return words
}

// splitCompound returns the parts of a German compound whose last part names a value:
// trainingsverlust is trainings and verlust. Other words are one part.
func splitCompound(word string) []string {
	for _, last := range []string{"verlust", "genauigkeit", "dauer", "zeit"} {
		if first, ok := strings.CutSuffix(word, last); ok && (roleOf(first) != "" || epochWords.has(first)) {
			return []string{first, last}
		}
	}
	return []string{word}
}
