package scan

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// ParseFloat parses text, which must consist of exactly one number. The bool is false otherwise.
func ParseFloat(text []byte) (float64, bool) {
	if v, n := ParseDecimal(text); n == len(text) && n > 0 {
		return v, true
	}
	if len(text) == 0 || len(text) > 64 || !mayBeNumber(text) { // an error of strconv takes much longer
		return 0, false
	}
	v, err := strconv.ParseFloat(string(text), 64) // it keeps no reference, so the string is not allocated
	return v, err == nil
}

// mayBeNumber reports whether text contains only characters of numbers that strconv parses,
// including hexadecimal digits, underscores, infinity and nan.
func mayBeNumber(text []byte) bool {
	const letters = 1<<('a'&31) | 1<<('b'&31) | 1<<('c'&31) | 1<<('d'&31) | 1<<('e'&31) | 1<<('f'&31) |
		1<<('x'&31) | 1<<('p'&31) | 1<<('i'&31) | 1<<('n'&31) | 1<<('t'&31) | 1<<('y'&31)
	for _, c := range text {
		if !IsDigit(c) && c != '.' && c != '-' && c != '+' && c != '_' && (!IsLetter(c) || letters>>(c&31)&1 == 0) {
			return false
		}
	}
	return true
}

// Cursor parses a line from left to right. After the first mismatch, Failed stays set.
type Cursor struct {
	Rest   []byte
	Failed bool
}

// Expect consumes text. The cursor fails if the rest does not begin with it.
func (c *Cursor) Expect(text string) *Cursor {
	if !HasPrefix(c.Rest, text) {
		c.Failed = true
		return c
	}
	c.Rest = c.Rest[len(text):]
	return c
}

// Accept consumes text if the rest begins with it, and reports whether it did.
func (c *Cursor) Accept(text string) bool {
	if HasPrefix(c.Rest, text) {
		c.Rest = c.Rest[len(text):]
		return true
	}
	return false
}

// SkipBlanks skips spaces and tabs.
func (c *Cursor) SkipBlanks() *Cursor {
	for len(c.Rest) > 0 && (c.Rest[0] == ' ' || c.Rest[0] == '\t') {
		c.Rest = c.Rest[1:]
	}
	return c
}

// ReadFloat parses a number: digits with optional sign, point and exponent, or
// nan or inf. On a mismatch the cursor fails and ReadFloat returns NaN.
func (c *Cursor) ReadFloat() float64 {
	if v, n := ParseDecimal(c.Rest); n > 0 && (n == len(c.Rest) || c.Rest[n] != '+' && c.Rest[n] != '-' && c.Rest[n] != '.') {
		c.Rest = c.Rest[n:]
		return v
	}
	n := 0
	for n < len(c.Rest) {
		x := c.Rest[n]
		if !IsDigit(x) && x != '.' && x != '-' && x != '+' && !(n > 0 && (x == 'e' || x == 'E') && IsDigit(c.Rest[n-1]) && startsExponent(c.Rest[n+1:])) {
			break
		}
		n++
	}
	for _, word := range [...]string{"nan", "infinity", "inf"} {
		if n <= 1 && len(c.Rest)-n >= len(word) && c.Rest[n]|0x20 == word[0] && strings.EqualFold(string(c.Rest[n:n+len(word)]), word) {
			n += len(word)
		}
	}
	v, ok := ParseFloat(c.Rest[:n])
	if !ok {
		c.Failed = true
		return math.NaN()
	}
	c.Rest = c.Rest[n:]
	return v
}

// startsExponent reports whether b, the text after the letter e in a number, begins with an
// exponent.
func startsExponent(b []byte) bool {
	return len(b) > 0 && (IsDigit(b[0]) || len(b) > 1 && (b[0] == '-' || b[0] == '+') && IsDigit(b[1]))
}

// IsLetter reports whether c is an ASCII letter.
func IsLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// ReadInteger parses an integer without sign, below 2^31. On a mismatch the
// cursor fails and ReadInteger returns 0.
func (c *Cursor) ReadInteger() int {
	n, v := 0, 0
	for n < len(c.Rest) && IsDigit(c.Rest[n]) && v < 1<<31 {
		v = 10*v + int(c.Rest[n]-'0')
		n++
	}
	if n == 0 || v >= 1<<31 {
		c.Failed = true
		return 0
	}
	c.Rest = c.Rest[n:]
	return v
}

// IsComplete reports whether the cursor did not fail and at most white space is left.
func (c *Cursor) IsComplete() bool { return !c.Failed && len(bytes.TrimSpace(c.Rest)) == 0 }

// IsName reports whether b looks like a name in a program's output: at most 100
// letters, digits, and the characters "_-.", with no digit at its beginning.
func IsName(b []byte) bool {
	for i, c := range b {
		if !IsLetter(c) && c != '_' && c != '-' && c != '.' && (i == 0 || !IsDigit(c)) {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 100
}

// HasPrefix reports whether m begins with prefix. Unlike for bytes.HasPrefix, prefix is a string,
// so that the compiler compares a constant in machine words.
func HasPrefix(m []byte, prefix string) bool {
	return len(m) >= len(prefix) && string(m[:len(prefix)]) == prefix
}

// IsDigit reports whether c is a decimal digit.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

// SkipBlanks returns b without the spaces and tabs at its beginning.
// bytes.TrimLeft would build a table of the characters for every line.
func SkipBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}
