package scan

import (
	"bytes"
	"math"
	"strings"
	"time"
)

// ParseClock parses a time such as 1:02:03, 2:03.45 or 13.012, with a decimal point or comma, or
// with units, into seconds.
func ParseClock(text []byte) (seconds float64, ok bool) {
	text = WithDecimalPoints(text)
	seconds, n := ParseDecimal(text)
	if ok = n == len(text); !ok {
		seconds, ok = ParseDuration(text)
	}
	return seconds, ok && seconds > 0
}

// WithDecimalPoints returns text with each comma between two digits replaced by a point.
func WithDecimalPoints(text []byte) []byte {
	if bytes.IndexByte(text, ',') < 0 {
		return text
	}
	text = bytes.Clone(text)
	for i := 1; i+1 < len(text); i++ {
		if text[i] == ',' && IsDigit(text[i-1]) && IsDigit(text[i+1]) {
			text[i] = '.'
		}
	}
	return text
}

// AppendLower appends text to b, with ASCII letters in lower case.
func AppendLower(b, text []byte) []byte {
	for _, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// SecondsPerUnit returns the seconds of a unit of time, or 0 for other words. Units of one or two letters
// are in lower case, since M is a multiple.
func SecondsPerUnit(word []byte) float64 {
	var buf [len("milliseconds")]byte
	if len(word) > len(buf) {
		return 0
	}
	lower := AppendLower(buf[:0], word)
	if len(word) < 3 && !bytes.Equal(lower, word) && string(lower) != "hr" {
		return 0
	}
	switch string(lower) {
	case "s", "sec", "secs", "second", "seconds":
		return 1
	case "m", "min", "mins", "minute", "minutes":
		return 60
	case "h", "hr", "hrs", "hour", "hours":
		return 3600
	case "d", "day", "days":
		return 86400
	case "ms", "msec", "msecs", "millisecond", "milliseconds":
		return 1e-3
	case "us", "usec", "microseconds", "µs", "μs":
		return 1e-6
	case "ns", "nanoseconds":
		return 1e-9
	}
	return 0
}

// SIPrefixFactor returns the factor of an SI prefix such as k or M, or 0 for other words.
func SIPrefixFactor(word []byte) float64 {
	if len(word) != 1 {
		return 0
	}
	switch word[0] {
	case 'k', 'K':
		return 1e3
	case 'M':
		return 1e6
	case 'G':
		return 1e9
	}
	return 0
}

// ScaleExactly returns v times factor. If factor is less than 1, it divides by the inverse, so that 13 ms
// is exactly 0.013.
func ScaleExactly(v, factor float64) float64 {
	if factor < 1 {
		return v / math.RoundToEven(1/factor) // one instruction, unlike math.Round
	}
	return v * factor
}

// LengthOfUnit returns the length of the letters at the beginning of b.
func LengthOfUnit(b []byte) int {
	n := 0
	for n < len(b) && (IsLetter(b[n]) || b[n] >= 0x80) {
		n++
	}
	return n
}

// ParseDuration parses a duration such as 1:02:03, 3m12s, 4.5 min or "1 day, 2:03:04" into seconds.
// ok is false for another text, such as a number without a unit.
func ParseDuration(text []byte) (seconds float64, ok bool) {
	v, n := ParseDecimal(text)
	if n == 0 || n == len(text) {
		return 0, false
	}
	seconds, end := ReadRestOfTime(text, n, v, true)
	return seconds, end == len(text)
}

// ReadRestOfTime completes a time whose first number v ends at index at of line. The rest is a
// unit, or the remainder of a time such as 1:02:03, 3m12s or 1 day, 2:03:04. It returns the time in
// seconds and the index after it. If mayHaveBlank is set, a blank may precede the unit.
func ReadRestOfTime(line []byte, at int, v float64, mayHaveBlank bool) (float64, int) {
	if line[at] == ':' {
		return readRestOfClock(line, at, v)
	}
	skipBlanks := func(p int) int {
		for mayHaveBlank && p < len(line) && isBlank(line[p]) {
			p++
		}
		return p
	}
	total, end, last := 0.0, at, math.Inf(1)
	for number, p := v, at; ; {
		from := skipBlanks(p)
		to := from + LengthOfUnit(line[from:])
		f := SecondsPerUnit(line[from:to])
		if f == 0 || f >= last || to < len(line) && line[to] == '_' {
			if end == at || !isBlank(line[end]) && line[end] != ',' {
				return v, at // no unit, or something such as 3m12
			}
			return total, end // another number follows the time
		}
		total, end, last = total+ScaleExactly(number, f), to, f
		if p = end; f == 86400 && p < len(line) && line[p] == ',' {
			p++
		}
		p = skipBlanks(p)
		if f <= 1 || p == len(line) || !IsDigit(line[p]) {
			return total, end
		}
		var n int
		if number, n = ParseDecimal(line[p:]); n == 0 {
			return total, end
		}
		if p += n; f == 86400 && p < len(line) && line[p] == ':' {
			if clock, after := readRestOfClock(line, p, number); after > p {
				return total + clock, after
			}
		}
	}
}

// readRestOfClock completes a time such as 1:02:03.5 or 12:30, whose first number v ends at index
// at of line. It returns the time in seconds and the index after it.
func readRestOfClock(line []byte, at int, v float64) (float64, int) {
	if v < 0 || v != math.Trunc(v) {
		return v, at
	}
	two := func(p int) float64 { // the number :NN at p, or -1
		if p+3 > len(line) || line[p] != ':' || line[p+1] < '0' || line[p+1] > '5' || !IsDigit(line[p+2]) {
			return -1
		}
		return float64(10*(line[p+1]-'0') + line[p+2] - '0')
	}
	total, end := v, at
	for range 2 {
		n := two(end)
		if n < 0 {
			break
		}
		total, end = 60*total+n, end+3
	}
	if end == at || end < len(line) && (IsDigit(line[end]) || line[end] == ':') {
		return v, at
	}
	if end+1 < len(line) && line[end] == '.' && IsDigit(line[end+1]) {
		if fraction, n := ParseDecimal(line[end:]); n > 0 {
			return total + fraction, end + n
		}
	}
	return total, end
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// DateCache is the date of the last time stamp, which the next one usually has too.
type DateCache struct {
	text     []byte
	midnight int64
	invalid  bool
}

// Midnight returns the beginning of a date such as 2006-01-02 or 2006/01/02 in milliseconds since
// 1970. ok is false for an invalid date.
func (d *DateCache) Midnight(date []byte) (ms int64, ok bool) {
	if !bytes.Equal(date, d.text) {
		d.text = append(d.text[:0], date...)
		at, err := time.Parse(time.DateOnly, strings.ReplaceAll(string(date), "/", "-"))
		d.midnight, d.invalid = at.UnixMilli(), err != nil
	}
	return d.midnight, !d.invalid
}

// ParseTimeOfDay parses a time of the form 15:04:05 and returns the seconds since midnight.
func ParseTimeOfDay(text []byte) (seconds int64, ok bool) {
	if len(text) != len(time.TimeOnly) || text[2] != ':' || text[5] != ':' {
		return 0, false
	}
	two := func(i int) int64 { // the value of two digits, or at least 100
		a, b := text[i]-'0', text[i+1]-'0'
		if a > 9 || b > 9 {
			return 100
		}
		return int64(10*a + b)
	}
	hour, minute, second := two(0), two(3), two(6)
	return (hour*60+minute)*60 + second, hour < 24 && minute < 60 && second < 60
}
