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

// TimeUnit returns the number of seconds of a unit of time, or 0 if word is no unit of
// time. Units of one or two letters are in lower case, since M is a multiple.
func TimeUnit(word []byte) float64 {
	switch len(word) {
	case 1:
		switch word[0] {
		case 's':
			return 1
		case 'm':
			return 60
		case 'h':
			return 3600
		case 'd':
			return 86400
		}
		return 0
	case 2:
		switch string(word) {
		case "ns":
			return 1e-9
		case "us":
			return 1e-6
		case "ms":
			return 1e-3
		}
	}
	if len(word) > len("milliseconds") {
		return 0
	}
	var buf [len("milliseconds")]byte
	for i, c := range word {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	switch string(buf[:len(word)]) {
	case "sec", "secs", "second", "seconds":
		return 1
	case "min", "mins", "minute", "minutes":
		return 60
	case "h", "hr", "hrs", "hour", "hours":
		return 3600
	case "day", "days":
		return 86400
	case "msec", "msecs", "millisecond", "milliseconds":
		return 1e-3
	case "usec", "microseconds", "µs", "μs":
		return 1e-6
	case "nanoseconds":
		return 1e-9
	}
	return 0
}
