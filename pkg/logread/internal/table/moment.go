package table

import (
	"math"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/scan"
)

// momentLayouts returns the forms of dates and times that are read. Times without a zone are
// taken as UTC.
func momentLayouts() []string {
	return []string{
		time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
		"2006/01/02 15:04:05.999999999", "2006-01-02 15:04", "02.01.2006 15:04:05", "Mon Jan _2 15:04:05 2006",
	}
}

// Units of numbers that are times since 1970: a number above a limit has the unit.
const (
	millisecondsFrom = 1e11 // 5138 in seconds, 1973 in milliseconds
	microsecondsFrom = 1e14
	nanosecondsFrom  = 1e17
)

// parseMoment parses a date with a time, or a number of seconds, milliseconds, microseconds or
// nanoseconds since 1970, and returns the seconds since 1970. The form of the column's last date
// is tried first.
func (c *column) parseMoment(cell []byte) (float64, bool) {
	if v, ok := scan.ParseFloat(cell); ok {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0) || v < 0:
			return 0, false
		case v >= nanosecondsFrom:
			v /= 1e9
		case v >= microsecondsFrom:
			v /= 1e6
		case v >= millisecondsFrom:
			v /= 1e3
		}
		return v, true
	}
	text := string(cell)
	if len(text) > 40 {
		return 0, false
	}
	if i := strings.LastIndexByte(text, ','); i > 0 && len(text)-i == 4 { // as Python's logging writes milliseconds
		text = text[:i] + "." + text[i+1:]
	}
	layouts := momentLayouts()
	for i := range layouts {
		k := (c.moment + i) % len(layouts)
		if at, err := time.Parse(layouts[k], text); err == nil {
			c.moment = k
			return float64(at.UnixNano()) / 1e9, true
		}
	}
	return 0, false
}
