package template

import (
	"bytes"
	"regexp"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
)

func describeUnits(k fields.Kind) string {
	switch k {
	case fields.Seconds:
		return "a unit of time such as ms, s or min, or a comma if it is the decimal mark"
	case fields.Fraction:
		return "%"
	case fields.Metric:
		return "a unit of time, k, M, G or %"
	case fields.Number, fields.Whole:
		return "k, M or G"
	case fields.Moment, fields.Text:
	}
	return "none"
}

// excludesUnit reports whether the literal text after a field shows that the number has no unit.
func excludesUnit(kind fields.Kind, text string) bool {
	b := []byte(strings.TrimLeft(text, " "))
	if len(b) > 0 && b[0] == '.' {
		return false // may belong to the number
	}
	if len(b) < len(text) && kind != fields.Seconds && kind != fields.Fraction {
		return true // only these units may follow a blank
	}
	if kind == fields.Number || kind == fields.Whole {
		return !scan.IsLetter(b[0])
	}
	return len(b) > 0 && b[0] != '%' && b[0] != ':' && !scan.IsLetter(b[0]) && b[0] < 0x80
}

// literalUnitFactor returns the factor of the unit at the beginning of text, the literal text after
// a field. It returns 0 if text does not begin with a unit or, if whole is set, contains anything
// else.
func literalUnitFactor(kind fields.Kind, text string, whole bool) float64 {
	b := []byte(strings.TrimLeft(text, " "))
	attached := len(b) == len(text)
	n := scan.LengthOfUnit(b)
	word := b[:n]
	if whole && n < len(b) && string(b) != "%" || n < len(b) && (scan.IsDigit(b[n]) || b[n] == '_') {
		return 0
	}
	switch kind {
	case fields.Seconds:
		return scan.SecondsPerUnit(word)
	case fields.Fraction:
		if len(b) > 0 && b[0] == '%' || string(word) == "percent" {
			return 0.01
		}
	case fields.Metric:
		if string(b) == "%" && whole {
			return 1
		}
		if f := scan.SecondsPerUnit(word); attached && f > 0 && (string(word) != "m" || whole) {
			return f
		}
		fallthrough
	case fields.Number, fields.Whole:
		if attached {
			return scan.SIPrefixFactor(word)
		}
	case fields.Moment, fields.Text:
	}
	return 0
}

// readUnit reads the unit after the number v, which ends before index at of the line. It returns
// the converted value and the index after the unit. Without a unit, it returns v and at.
func readUnit(kind fields.Kind, line []byte, at int, v float64) (float64, int) {
	if at == len(line) {
		return v, at
	}
	c := line[at]
	if c != ' ' && c != '\t' && c != ':' && c != '%' && !scan.IsLetter(c) && c < 0x80 {
		return v, at // the usual case
	}
	switch kind {
	case fields.Seconds:
		return scan.ReadRestOfTime(line, at, v, true)
	case fields.Metric:
		switch word := line[at : at+scan.LengthOfUnit(line[at:])]; {
		case c == '%':
			return v, at + 1
		case c == ' ' || c == '\t':
			return v, at
		case len(word) == 1 && scan.SIPrefixFactor(word) > 0:
			return v * scan.SIPrefixFactor(word), at + 1
		default:
			w, end := scan.ReadRestOfTime(line, at, v, false)
			if string(line[at:end]) == "m" {
				return v, at // minutes, meters or millions
			}
			return w, end
		}
	case fields.Fraction:
		end := at
		for end < len(line) && line[end] == ' ' {
			end++
		}
		if end < len(line) && line[end] == '%' {
			return v / 100, end + 1
		}
	case fields.Number, fields.Whole:
		if n := scan.LengthOfUnit(line[at:]); n == 1 && scan.SIPrefixFactor(line[at:at+1]) > 0 {
			return v * scan.SIPrefixFactor(line[at:at+1]), at + 1
		}
	case fields.Moment, fields.Text:
	}
	return v, at
}

const maxNumberBytes = 64

// parseNumber parses the number at the beginning of b. n is its length, or 0 if there is none. If
// separated is set, the number may have thousands separators.
func parseNumber(b []byte, separated bool) (v float64, n int) {
	b = b[:min(len(b), maxNumberBytes+1)]
	v, n = scan.ParseDecimal(b)
	switch {
	case n == 0:
		return parseUnusualNumber(b)
	case n > maxNumberBytes:
		return 0, 0
	case n == len(b):
		return v, n
	case b[n] == '.' && n+1 < len(b) && scan.IsDigit(b[n+1]):
		return 0, 0 // such as 1.2.3
	case b[n] == ',' && separated:
		if w, m := parseThousands(b); m > n {
			return w, m
		}
	}
	return v, n
}

// parseThousands parses a number with commas as thousands separators, as in 1,234.5. n is its
// length, or 0 if b does not begin with such a number: in 0,625, the comma is the decimal mark.
func parseThousands(b []byte) (v float64, n int) {
	var buf [maxNumberBytes]byte
	k := 0 // length of the number without commas
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		buf[0], k, n = b[0], 1, 1
	}
	digits, groups := 0, 0 // since the last comma
	for n < len(b) && k < len(buf)-1 {
		switch c := b[n]; {
		case scan.IsDigit(c):
			digits++
			buf[k] = c
			k++
			n++
			continue
		case c == ',' && (groups == 0 && 1 <= digits && digits <= 3 && buf[k-digits] != '0' || groups > 0 && digits == 3) && hasThreeDigits(b[n+1:]):
			groups++
			digits = 0
			n++
			continue
		}
		break
	}
	if groups == 0 || digits != 3 {
		return 0, 0
	}
	if n+1 < len(b) && b[n] == '.' && scan.IsDigit(b[n+1]) {
		for n < len(b) && k < len(buf) && (scan.IsDigit(b[n]) || b[n] == '.') {
			buf[k] = b[n]
			k++
			n++
		}
	}
	v, ok := scan.ParseFloat(buf[:k])
	if !ok {
		return 0, 0
	}
	return v, n
}

// decimalCommaPattern matches a number with a decimal comma and, optionally, points as thousands
// separators.
var decimalCommaPattern = regexp.MustCompile(`^[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?:[eE][+-]?\d+)?`)

// parseDecimalComma parses a number with a decimal comma, such as 12,4 or 1.234,5, and returns its
// length, or 0. It reads a number without a comma as parseNumber does, but refuses one with a
// point: 1.234 may be 1234.
func parseDecimalComma(b []byte) (v float64, n int) {
	b = b[:min(len(b), maxNumberBytes)]
	m := decimalCommaPattern.Find(b)
	if m == nil {
		if v, n = parseNumber(b, false); bytes.IndexByte(bytes.TrimSuffix(b[:n], []byte(".")), '.') >= 0 {
			return 0, 0
		}
		return v, n
	}
	n = len(m)
	if n == maxNumberBytes || n+1 < len(b) && (b[n] == ',' || b[n] == '.') && scan.IsDigit(b[n+1]) { // a list
		return 0, 0
	}
	v, ok := scan.ParseFloat([]byte(strings.NewReplacer(".", "", ",", ".").Replace(string(m))))
	if !ok {
		return 0, 0
	}
	return v, n
}

func hasThreeDigits(b []byte) bool {
	return len(b) >= 3 && scan.IsDigit(b[0]) && scan.IsDigit(b[1]) && scan.IsDigit(b[2]) && (len(b) == 3 || !scan.IsDigit(b[3]))
}

func parseUnusualNumber(b []byte) (v float64, n int) {
	b = b[:min(len(b), maxNumberBytes)]
	c := scan.Cursor{Rest: b}
	v = c.ReadFloat()
	n = len(b) - len(c.Rest)
	isWord := n > 0 && !scan.IsDigit(b[n-1]) && b[n-1] != '.' // nan or inf
	if c.Failed || n == maxNumberBytes || n < len(b) && (b[n]|0x20 == 'x' || isWord && scan.LengthOfUnit(b[n:]) > 0) {
		return 0, 0
	}
	return v, n
}
