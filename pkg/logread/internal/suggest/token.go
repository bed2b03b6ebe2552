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
	wordToken   tokenKind = iota // a word, also with digits inside, such as top5
	numberToken                  // a number with its attached unit, or a duration such as 3m12s and 1:02:03
	stampToken                   // a date, a progress bar before a message, or the color of a terminal
	markToken                    // one character of punctuation
)

// token is a part of a line.
type token struct {
	kind  tokenKind
	text  string  // as in the line, without the unit of a number
	space byte    // a blank or a tab before the token, or 0
	unit  string  // unit of time attached to a number; durationUnit for 3m12s; otherwise empty
	value float64 // of a number; seconds of a duration
	clock bool    // the number is a time such as 1:02:03
	whole bool    // the number is written without a fraction, an exponent and a unit
	comma bool    // the number has a decimal comma
}

// durationUnit is the unit of a duration whose text contains its units.
const durationUnit = "duration"

// isWord reports whether the token is one of the words.
func (t token) isWord(words ...string) bool {
	for _, w := range words {
		if t.kind == wordToken && strings.EqualFold(t.text, w) {
			return true
		}
	}
	return false
}

// isMark reports whether the token is one of the characters of marks.
func (t token) isMark(marks string) bool {
	return t.kind == markToken && strings.Contains(marks, t.text)
}

// maxTokens limits the tokens of a line; the rest of a longer line is one word.
const maxTokens = 400

var (
	stampPattern = regexp.MustCompile(`^(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2}|\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)),?(?: \d{4})?)(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?Z|[+-]\d{2}:?\d{2}| UTC)?(?: \d{4})?)?(?:\b|$)`)
	// clockPattern matches times such as 12:30, 1:02:03 and 4 days, 1:02:03.
	clockPattern    = regexp.MustCompile(`^(?:(\d+) days?,? )?((?:\d+:)?\d{1,2}:\d{2}(?:[.,]\d+)?)`)
	durationPattern = regexp.MustCompile(`^(?:(\d+) ?d(?:ays?)?,? ?)?(?:(\d+) ?h(?:rs?|ours?)? ?)?(?:(\d+) ?m(?:ins?|inutes?)? ?)?(?:(\d+(?:\.\d+)?) ?s(?:ecs?|econds?)?)?`)
	// barPattern matches a progress bar that a message follows on the same line. Its label and its rate are not those of
	// the message.
	barPattern = regexp.MustCompile(`^(?:[^|]*\|[^|]*\| *[\d.]+[kMG]?/\S+|.*?\b\d+it) \[[^\]]*\]`)
	// colorPattern matches a command to a terminal, such as a color.
	colorPattern   = regexp.MustCompile(`^\x1b\[[0-9;?]*[A-Za-z]`)
	numberPattern  = regexp.MustCompile(`^[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?`)
	commaPattern   = regexp.MustCompile(`^[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?:[eE][+-]?\d+)?`)
	notFinite      = regexp.MustCompile(`^([+-]?(?i:nan|infinity|inf))(?:[^A-Za-z0-9_]|$)`)
	addressPattern = regexp.MustCompile(`^\d+(?:\.\d+){2,}|^0x[0-9a-fA-F]+`)
	unitPattern    = regexp.MustCompile(`^(?:S|SECS?|SECONDS?|MINS?|ms|msec|us|µs|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)(?:[^A-Za-z0-9_/]|$)`)
	// otherUnitPattern matches an attached unit that is not one of time: 3.2it/s, 120x, 12GB.
	otherUnitPattern = regexp.MustCompile(`^(?:[A-Za-z]+/[a-z]+|x|[KMGT]i?[Bb]|[GTW]|epochs?)(?:[^A-Za-z0-9_]|$)`)
	// counterPattern matches a word that may be followed directly by a number, as in rank0.
	counterPattern = regexp.MustCompile(`^(?i:epoch|ep|rank|gpu|worker|iter|step|cuda|proc|seed|node|round|device|e|r|w)_?$`)
)

// tokenize splits a line into tokens. commas states whether the line has decimal commas.
func tokenize(line string, commas bool) []token {
	var found []token
	if m := barPattern.FindString(line); len(m) < len(line) && m != "" {
		found, line = append(found, token{kind: stampToken, text: m}), line[len(m):]
	}
	for {
		rest := strings.TrimLeft(line, " \t")
		var space byte
		if blanks := line[:len(line)-len(rest)]; strings.Contains(blanks, "\t") {
			space = '\t'
		} else if blanks != "" {
			space = ' '
		}
		if rest == "" {
			return found
		}
		if len(found) >= maxTokens {
			return append(found, token{kind: wordToken, text: rest, space: space})
		}
		before := token{}
		if len(found) > 0 {
			before = found[len(found)-1]
		}
		t, n := nextToken(rest, before, len(found) == 0, space, commas)
		t.space = space
		found, line = append(found, t), rest[n:]
	}
}

// nextToken returns the first token of rest and its length in bytes. before is the previous token,
// if the token is not the first one.
func nextToken(rest string, before token, first bool, space byte, commas bool) (t token, n int) {
	c, size := utf8.DecodeRuneInString(rest)
	digit := isDigit(rest[0])
	if m := colorPattern.FindString(rest); m != "" {
		return token{kind: stampToken, text: m}, len(m)
	}
	if digit || isLetter(c) && strings.IndexByte("JFMASONDTW", rest[0]) >= 0 {
		if m := stampPattern.FindString(rest); m != "" {
			return token{kind: stampToken, text: m}, len(m)
		}
	}
	if digit || strings.IndexByte("+-.nNiI", rest[0]) >= 0 {
		signed := rest[0] == '+' || rest[0] == '-'
		if !signed || first || space != 0 || before.isMark("=:([,|{<>\"'") { // otherwise - is a hyphen
			if t, n := numberAt(rest, commas); n > 0 {
				return t, n
			}
		}
	}
	if isLetter(c) || digit {
		return wordAt(rest, first || before.isMark("[(<"))
	}
	return token{kind: markToken, text: rest[:size]}, size
}

// numberAt returns the number or duration at the beginning of rest and its length, or 0 if there is
// none.
func numberAt(rest string, commas bool) (t token, n int) {
	if isDigit(rest[0]) {
		if m := addressPattern.FindString(rest); m != "" {
			return token{kind: wordToken, text: m}, len(m)
		}
		if m := clockPattern.FindStringSubmatch(rest); m != nil && !continuesWord(rest[len(m[0]):]) {
			days, _ := strconv.ParseFloat(m[1], 64) // 0 without days
			return token{kind: numberToken, text: m[0], unit: durationUnit, clock: true, value: 86400*days + clockSeconds(m[2])}, len(m[0])
		}
		if t, n := durationAt(rest); n > 0 {
			return t, n
		}
	}
	if m := notFinite.FindStringSubmatch(rest); m != nil {
		return token{kind: numberToken, text: m[1], value: math.NaN()}, len(m[1])
	}
	m, plain := numberPattern.FindString(rest), strings.NewReplacer(",", "")
	comma := commas && commaPattern.MatchString(rest)
	if comma {
		m, plain = commaPattern.FindString(rest), strings.NewReplacer(".", "", ",", ".")
	}
	if m = strings.TrimSuffix(m, "."); m == "" || m == "+" || m == "-" { // the point ends a sentence
		return t, 0
	}
	v, err := strconv.ParseFloat(plain.Replace(m), 64)
	if err != nil {
		v = math.Inf(1)
	}
	n = len(m)
	t = token{kind: numberToken, text: m, value: v, whole: !comma && !strings.ContainsAny(m, ".eE"), comma: comma}
	switch after := rest[n:]; {
	case unitPattern.MatchString(after):
		t.unit = after[:len(after)-len(strings.TrimLeftFunc(after, unicode.IsLetter))]
		t.whole = false
		return t, n + len(t.unit)
	case len(after) > 0 && strings.IndexByte("kKM", after[0]) >= 0 && !continuesWord(after[1:]):
		t.text, t.whole = rest[:n+1], false
		t.value *= map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6}[after[0]]
		return t, n + 1
	case !otherUnitPattern.MatchString(after) && continuesWord(after): // 3d, 16bit, 5th
		return token{}, 0
	}
	return t, n
}

// durationAt returns the duration of at least two parts at the beginning of rest, such as 3m 12.5s, and
// its length, or 0 if there is none.
func durationAt(rest string) (t token, n int) {
	m := durationPattern.FindStringSubmatch(rest)
	parts, seconds := 0, 0.0
	for i, factor := range []float64{86400, 3600, 60, 1} {
		if v, err := strconv.ParseFloat(m[i+1], 64); err == nil {
			parts++
			seconds += v * factor
		}
	}
	text := strings.TrimRight(m[0], " ")
	if parts < 2 || continuesWord(rest[len(text):]) {
		return t, 0
	}
	return token{kind: numberToken, text: text, unit: durationUnit, value: seconds}, len(text)
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

// wordAt returns the word at the beginning of rest and its length. Digits after a counter, as in
// rank0, are not part of it; a single letter counts only at the beginning of the line or after a
// bracket, since r2 and e5 have other meanings.
func wordAt(rest string, first bool) (t token, n int) {
	letters := len(rest) - len(strings.TrimLeftFunc(rest, isLetter))
	n = letters + len(rest[letters:]) - len(strings.TrimLeftFunc(rest[letters:], func(c rune) bool { return isLetter(c) || unicode.IsDigit(c) }))
	digits := rest[letters:n]
	if digits != "" && strings.Trim(digits, "0123456789") == "" && counterPattern.MatchString(rest[:letters]) && (first || letters > 1) {
		return token{kind: wordToken, text: rest[:letters]}, letters
	}
	for _, sep := range []string{"@", "-"} { // acc@1, top-5
		after, ok := strings.CutPrefix(rest[n:], sep)
		if !ok || sep == "-" && !strings.EqualFold(rest[:n], "top") {
			continue
		}
		if k := len(after) - len(strings.TrimLeft(after, "0123456789")); k > 0 && !strings.HasPrefix(after[k:], ".") {
			n += 1 + k
		}
	}
	n = max(n, 1)
	return token{kind: wordToken, text: rest[:n]}, n
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c rune) bool { return c == '_' || unicode.IsLetter(c) }

// continuesWord reports whether rest begins with a letter or digit.
func continuesWord(rest string) bool {
	c, _ := utf8.DecodeRuneInString(rest)
	return rest != "" && (isLetter(c) || isDigit(rest[0]))
}

// Programs in some languages print 12,4 instead of 12.4. A comma between digits is a decimal comma
// only if the lines of the file show it: it may also separate thousands (1,234) or two numbers
// (devices 0,1).
var (
	// aloneWithComma matches two numbers with a comma between them, and nothing but a unit attached.
	aloneWithComma = regexp.MustCompile(`(?:^|[\s=(\[|]|[^\d\s]:)([+-]?\d+,\d+)(?:$|[^\d,.]|[,.](?:$|\D))`)
	// thousands matches a number whose comma may separate thousands.
	thousands = regexp.MustCompile(`^[+-]?[1-9]\d{0,2},\d{3}$`)
	// pointOrList matches a decimal point, and a list of at least three numbers without blanks.
	pointOrList = regexp.MustCompile(`(?:^|[^\d.,])\d+\.\d+(?:$|[^\d.,]|[,.](?:$|\D))|\d,\d+,\d`)
)

// mayHaveCommas reports whether all numbers of a line that have a fraction may have a decimal comma.
func mayHaveCommas(text string) bool {
	return strings.Contains(text, ",") && !pointOrList.MatchString(text)
}

// hasDecimalCommas reports whether the numbers of a file have decimal commas: at least two different
// numbers must have a comma that cannot separate thousands, and none of their lines may have a
// decimal point or a list.
func hasDecimalCommas(file File) bool {
	numbers := map[string]bool{}
	for _, line := range file.Lines {
		if line.Used || !strings.Contains(line.Text, ",") {
			continue
		}
		for _, m := range aloneWithComma.FindAllStringSubmatch(line.Text, -1) {
			if thousands.MatchString(m[1]) {
				continue
			}
			if !mayHaveCommas(line.Text) {
				return false
			}
			numbers[m[1]] = true
		}
	}
	return len(numbers) > 1
}
