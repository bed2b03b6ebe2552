package logread

import (
	"bytes"
	"math"
	"strconv"

	"lockstep/pkg/runs"
)

// parseFloat is the number that is the whole of text.
func parseFloat(text []byte) (float64, bool) {
	if v, n := decimal(text); n == len(text) && n > 0 {
		return v, true
	}
	if len(text) == 0 || len(text) > 64 {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(text), 64) // which keeps none of it: no copy on the heap
	return v, err == nil
}

func nan() float64 { return math.NaN() }

// unmeasured is an epoch of which nothing is known but where it stands.
func unmeasured(n, line int) runs.Epoch {
	x := nan()
	return runs.Epoch{
		Epoch: n, Line: line, Seconds: x, SamplesPerSecond: x, TrainLoss: x, ValLoss: x, IoU: x, Dice: x,
		ValSeconds: x, LearningRate: x, Accuracy: x, ValAccuracy: x,
	}
}

// cursor reads a line from the left; once something is not as expected, it
// stays failed.
type cursor struct {
	b      []byte
	failed bool
}

// lit must come next.
func (c *cursor) lit(text string) *cursor {
	if !has(c.b, text) {
		c.failed = true
		return c
	}
	c.b = c.b[len(text):]
	return c
}

// opt may come next.
func (c *cursor) opt(text string) bool {
	if has(c.b, text) {
		c.b = c.b[len(text):]
		return true
	}
	return false
}

// blank skips blanks and tabs.
func (c *cursor) blank() *cursor {
	for len(c.b) > 0 && (c.b[0] == ' ' || c.b[0] == '\t') {
		c.b = c.b[1:]
	}
	return c
}

// num is the number that comes next: digits with sign, point and exponent, or
// nan or inf.
func (c *cursor) num() float64 {
	if v, n := decimal(c.b); n > 0 && (n == len(c.b) || c.b[n] != '+' && c.b[n] != '-' && c.b[n] != '.') {
		c.b = c.b[n:]
		return v
	}
	n := 0
	for n < len(c.b) {
		x := c.b[n]
		if !digit(x) && x != '.' && x != '-' && x != '+' && !(n > 0 && (x == 'e' || x == 'E') && digit(c.b[n-1]) && exponent(c.b[n+1:])) {
			break
		}
		n++
	}
	if n <= 1 { // nan, inf, -inf
		for k := n; k < len(c.b) && k < n+8 && letter(c.b[k]); k++ {
			if word := string(bytes.ToLower(c.b[n : k+1])); word == "nan" || word == "inf" && !bytes.HasPrefix(bytes.ToLower(c.b[n:]), []byte("infinity")) || word == "infinity" {
				n = k + 1
				break
			}
		}
	}
	v, ok := parseFloat(c.b[:n])
	if !ok {
		c.failed = true
		return nan()
	}
	c.b = c.b[n:]
	return v
}

// exponent says whether b goes on as an exponent does.
func exponent(b []byte) bool {
	return len(b) > 0 && (digit(b[0]) || len(b) > 1 && (b[0] == '-' || b[0] == '+') && digit(b[1]))
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// count is the number without sign that comes next, below 2^31.
func (c *cursor) count() int {
	n, v := 0, 0
	for n < len(c.b) && digit(c.b[n]) && v < 1<<31 {
		v = 10*v + int(c.b[n]-'0')
		n++
	}
	if n == 0 || v >= 1<<31 {
		c.failed = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// end says whether all was as expected, up to the end.
func (c *cursor) end() bool { return !c.failed && len(bytes.TrimSpace(c.b)) == 0 }
