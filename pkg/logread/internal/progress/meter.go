package progress

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/scan"
)

// Meter is a value that a program prints with its mean so far:
//
//	Acc@1   1.56 (  1.25)     PyTorch's ImageNet example
//	acc1: 1.5625 (1.2500)     torchvision's references
//	lr: 0.1
type Meter struct {
	Name  []byte
	Value float64 // current value
	Mean  float64 // mean so far; NaN if none is printed
}

// NextMeter parses the meter at the beginning of text, up to a tab or two blanks, and returns the
// rest. ok is false if text does not begin with a meter.
func NextMeter(text []byte) (m Meter, rest []byte, ok bool) {
	text = scan.SkipBlanks(text)
	n := 0 // length of the name
	for n < len(text) && text[n] != ':' && text[n] != '\t' && (text[n] != ' ' || continuesName(text[n:])) {
		n++
	}
	if n == 0 || n == len(text) || n > maxValueNameLength || text[n] == '\t' {
		return m, nil, false
	}
	m.Name, m.Mean = text[:n], math.NaN()
	c := scan.Cursor{Rest: text[n:]}
	c.Accept(":")
	m.Value = c.SkipBlanks().ReadFloat()
	if c.Accept(" (") {
		m.Mean = c.SkipBlanks().ReadFloat()
		c.Expect(")")
	}
	separated := scan.HasPrefix(c.Rest, "\t") || scan.HasPrefix(c.Rest, "  ") || len(bytes.TrimSpace(c.Rest)) == 0
	return m, c.Rest, separated && !c.Failed
}

// continuesName reports whether text, which begins with a blank, continues with another word of the
// same name, as in "max mem:".
func continuesName(text []byte) bool {
	if len(text) < 2 || !scan.IsLetter(text[1]) {
		return false
	}
	for _, c := range text[1:] {
		switch {
		case c == ':':
			return true
		case scan.IsDigit(c), c == '-', c == '\t', c == '(':
			return false
		}
	}
	return false
}
