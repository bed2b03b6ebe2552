package scan

import "bytes"

// ParseClock parses a time as [[hours:]minutes:]seconds, with a decimal point or
// comma, and returns the number of seconds.
func ParseClock(text []byte) (seconds float64, ok bool) {
	fields := bytes.Split(WithDecimalPoints(text), []byte(":"))
	if len(fields) > 3 {
		return 0, false
	}
	for _, f := range fields {
		v, n := ParseDecimal(f)
		if n == 0 || n < len(f) || !(v >= 0) {
			return 0, false
		}
		seconds = seconds*60 + v
	}
	return seconds, seconds > 0
}

// WithDecimalPoints returns text with a point for each comma between digits.
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
