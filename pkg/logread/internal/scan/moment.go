package scan

import (
	"bytes"
	"strings"
	"time"
)

// Day is the date of the last time stamp, which the next one usually has too.
type Day struct {
	text     []byte
	midnight int64
	invalid  bool
}

// Midnight returns the beginning of a date such as 2006-01-02 or 2006/01/02 in milliseconds since 1970. ok is
// false if the date is not valid.
func (d *Day) Midnight(date []byte) (ms int64, ok bool) {
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
