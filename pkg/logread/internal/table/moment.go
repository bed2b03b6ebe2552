package table

import (
	"math"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/scan"
)

// momentLayouts contains the forms of dates and times that are read. Times without a zone are
// taken as UTC.
var momentLayouts = [...]string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
	"2006/01/02 15:04:05.999999999", "2006-01-02 15:04", "02.01.2006 15:04:05", "Mon Jan _2 15:04:05 2006",
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
	if v, ok := c.parseStamp(cell); ok { // usually
		return v, true
	}
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
	for i := range momentLayouts {
		k := (c.moment + i) % len(momentLayouts)
		if at, err := time.Parse(momentLayouts[k], text); err == nil {
			c.moment = k
			return float64(at.UnixNano()) / 1e9, true
		}
	}
	return 0, false
}

// parseStamp parses a date with a time and without a zone, such as 2006-01-02 15:04:05.999.
func (c *column) parseStamp(cell []byte) (float64, bool) {
	const shortest = len(time.DateTime)
	if len(cell) < shortest || len(cell) > shortest+10 || cell[10] != ' ' && cell[10] != 'T' {
		return 0, false
	}
	midnight, isDate := c.day.Midnight(cell[:10])
	seconds, isTime := scan.ParseTimeOfDay(cell[11:shortest])
	nanoseconds, unit := int64(0), int64(1e9)
	for i, digit := range cell[shortest:] {
		if i == 0 && len(cell) > shortest+1 && (digit == '.' || digit == ',') {
			continue
		}
		unit /= 10
		nanoseconds += unit * int64(digit-'0')
		isTime = isTime && i > 0 && scan.IsDigit(digit)
	}
	return float64(midnight*1e6+seconds*1e9+nanoseconds) / 1e9, isDate && isTime
}
