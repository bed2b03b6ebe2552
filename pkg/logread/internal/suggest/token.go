package suggest

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"lockstep/pkg/logread/internal/template"
)

type tokenKind int

const (
	wordToken   tokenKind = iota // a word, also with digits inside, such as top5, or an address
	numberToken                  // a number with its attached unit, or a duration such as 3m12s and 1:02:03
	stampToken                   // a date, a list such as 0,1, a progress bar before a message, or the color of a terminal
	markToken                    // one character of punctuation
)

type token struct {
	kind  tokenKind
	text  string  // as in the line, without the unit of a number
	space byte    // a blank or a tab before the token, or 0
	end   int     // index in the line after the token with its unit
	unit  string  // unit of time attached to a number; durationUnit for 3m12s; otherwise empty
	value float64 // of a number; seconds of a time with its unit; of a date, the seconds of its time of day
	clock bool    // the number is a time such as 1:02:03, or the date has a time of day
	whole bool    // the number is written without a fraction, an exponent and a unit
}

// durationUnit is the unit of a duration whose text contains its units.
const durationUnit = "duration"

func (t token) isWord(list string) bool {
	return t.kind == wordToken && isOneOf(strings.ToLower(t.text), list)
}

func (t token) isMark(marks string) bool {
	return t.kind == markToken && strings.Contains(marks, t.text)
}

// maxTokens limits the tokens of a line; the rest of a longer line is one word.
const maxTokens = 400

// timeUnitRegexp is a regular expression for a unit of time. It does not contain M, which means a million
// in some programs.
const timeUnitRegexp = `(?:S|SECS?|SECONDS?|MINS?|ms|msecs?|milliseconds?|us|µs|secs?|seconds?|s|mins?|minutes?|m|hrs?|hours?|h)`

var (
	stampPattern = regexp.MustCompile(`^(?:\x1b\[[0-9;?]*[A-Za-z]|(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2}|\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)),?(?: \d{4})?)(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?Z|[+-]\d{2}:?\d{2}| UTC)?(?: \d{4})?)?(?:\b|$))`)
	// barPattern matches a progress bar before a message on the same line. Its label and rate are
	// not the message's.
	barPattern = regexp.MustCompile(`^(?:[^|]*\|[^|]*\| *[\d.]+[kMG]?/\S+|.*?\b\d+it) \[[^\]]*\]`)
	// timePattern matches times of at least two parts, such as 12:30, 4 days, 1:02:03 and 3m 12s.
	timePattern    = regexp.MustCompile(`^(?:(?:\d+ days?,? )?(?:\d+:)?\d{1,2}:\d{2}(?:\.\d+)?|(?:\d+ ?(?:d(?:ays?)?|h(?:rs?|ours?)?|m(?:ins?|inutes?)?),? ?)+\d+(?:\.\d+)? ?(?:h(?:rs?|ours?)?|m(?:ins?|inutes?)?|s(?:ecs?|econds?)?))`)
	dayTimePattern = regexp.MustCompile(`\d{1,2}:\d{2}:\d{2}`)
	numberPattern  = regexp.MustCompile(`^[+-]?(?:(?i:nan|infinity|inf)\b|(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)`)
	listPattern    = regexp.MustCompile(`^[+-]?\d[\d.]*(?:,\d[\d.]*)+`)
	addressPattern = regexp.MustCompile(`^(?:\d+(?:\.\d+){2,}|0x[0-9a-fA-F]+)`)
	unitPattern    = regexp.MustCompile(`^(` + timeUnitRegexp + `)(?:[^A-Za-z0-9_/]|$)`)
	// otherUnitPattern matches an attached unit that is not one of time: 3.2it/s, 120x, 12GB.
	otherUnitPattern = regexp.MustCompile(`^(?:[A-Za-z]+/[a-z]+|x|[KMGT]i?[Bb]|[GTW]|epochs?)(?:[^A-Za-z0-9_]|$)`)
	// counterPattern matches a word that may be followed directly by a number, as in rank0.
	counterPattern = regexp.MustCompile(`^((?i:epoch|ep|rank|gpu|worker|iter|step|cuda|proc|seed|node|round|device|e|r|w)_?)\d+(?:[^\pL\d_]|$)`)
	wordPattern    = regexp.MustCompile(`^(?:(?i:top)-\d+|[\pL_][\pL\p{Nd}_]*(?:@\d+)?|[\pL\p{Nd}_]+)`)
)

func tokenize(line string) []token {
	var found []token
	length := len(line)
	if m := barPattern.FindString(line); len(m) < len(line) && m != "" {
		found, line = append(found, token{kind: stampToken, text: m, end: len(m)}), line[len(m):]
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
			return append(found, token{kind: wordToken, text: rest, space: space, end: length})
		}
		before := token{}
		if len(found) > 0 {
			before = found[len(found)-1]
		}
		t, n := nextToken(rest, before, len(found) == 0, space)
		t.space, line = space, rest[n:]
		t.end = length - len(line)
		found = append(found, t)
	}
}

// nextToken returns the first token of rest and its length in bytes. before is the previous token,
// unless first is set.
func nextToken(rest string, before token, first bool, space byte) (t token, n int) {
	if strings.IndexByte("\x1b0123456789JFMASONDTW", rest[0]) >= 0 {
		if m := stampPattern.FindString(rest); m != "" {
			v, ok := secondsOf(dayTimePattern.FindString(m))
			return token{kind: stampToken, text: m, value: v, clock: ok}, len(m)
		}
	}
	_, size := utf8.DecodeRuneInString(rest)
	if strings.IndexByte("+-.nNiI0123456789", rest[0]) >= 0 {
		signed := rest[0] == '+' || rest[0] == '-'
		if !signed || first || space != 0 || before.isMark("=:([,|{<>\"'") { // otherwise - is a hyphen
			if t, n := parseNumberToken(rest); n > 0 {
				return t, n
			}
		}
	}
	// Digits after a counter, as in rank0, are not part of the word. A single letter counts only at
	// the beginning or after a bracket, since r2 and e5 have other meanings.
	if m := counterPattern.FindStringSubmatch(rest); m != nil && (len(m[1]) > 1 || first || before.isMark("[(<")) {
		return token{kind: wordToken, text: m[1]}, len(m[1])
	}
	if m := wordPattern.FindString(rest); m != "" {
		if k := strings.IndexByte(m, '@'); k >= 0 && strings.HasPrefix(rest[len(m):], ".") { // AP@0.5
			m = m[:k]
		}
		return token{kind: wordToken, text: m}, len(m)
	}
	return token{kind: markToken, text: rest[:size]}, size
}

// parseNumberToken returns the number, time, address or list of numbers at the beginning of rest and its
// length, or 0.
func parseNumberToken(rest string) (t token, n int) {
	if m := addressPattern.FindString(rest); m != "" {
		return token{kind: wordToken, text: m}, len(m)
	}
	if m := timePattern.FindString(rest); m != "" && !continuesWord(rest[len(m):]) {
		if v, ok := secondsOf(m); ok {
			return token{kind: numberToken, text: m, unit: durationUnit, clock: strings.Contains(m, ":"), value: v}, len(m)
		}
	}
	m := strings.TrimSuffix(numberPattern.FindString(rest), ".") // the point ends a sentence
	if list := strings.TrimSuffix(listPattern.FindString(rest), "."); len(list) > len(m) {
		return token{kind: stampToken, text: list}, len(list)
	}
	if m == "" {
		return t, 0
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(m, ",", ""), 64)
	if err != nil {
		v = math.Inf(1)
	}
	n = len(m)
	t = token{kind: numberToken, text: m, value: v, whole: strings.Trim(m, "+-0123456789,") == ""}
	after := rest[n:]
	if u := unitPattern.FindStringSubmatch(after); u != nil {
		t.unit, t.whole = u[1], false
		t.value *= secondsPer(t.unit)
		return t, n + len(t.unit)
	}
	switch {
	case after != "" && strings.IndexByte("kKM", after[0]) >= 0 && !continuesWord(after[1:]):
		t.text, t.whole = rest[:n+1], false
		t.value *= map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6}[after[0]]
		return t, n + 1
	case !otherUnitPattern.MatchString(after) && continuesWord(after): // 3d, 16bit, 5th
		return token{}, 0
	}
	return t, n
}

// timeTemplate reads times as the proposed templates do.
var timeTemplate = template.MustParse("{seconds}")

// secondsOf returns the seconds of a time such as 1:02:03 or 3m12s. ok is false if templates cannot read it.
func secondsOf(text string) (v float64, ok bool) {
	var values [1]template.Value
	ok = timeTemplate.Match([]byte(text), values[:])
	return values[0].Number, ok
}

// secondsPer returns the seconds of a unit of time, or 1 if templates do not know it.
func secondsPer(unit string) float64 {
	if v, ok := secondsOf("1 " + unit); ok && unit != "" {
		return v
	}
	return 1
}

func continuesWord(rest string) bool {
	c, _ := utf8.DecodeRuneInString(rest)
	return rest != "" && (c == '_' || unicode.IsLetter(c) || '0' <= c && c <= '9')
}
