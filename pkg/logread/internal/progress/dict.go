package progress

import (
	"bytes"
	"math"

	"lockstep/pkg/logread/internal/scan"
)

// DictEntry is an entry of a Python dictionary.
type DictEntry struct {
	Key   []byte
	Value float64
}

// DictEntries contains the entries of a dictionary.
type DictEntries []DictEntry

// Value returns the first value with the given key, or NaN if there is none.
func (e DictEntries) Value(key string) float64 {
	for i := range e {
		if string(e[i].Key) == key {
			return e[i].Value
		}
	}
	return math.NaN()
}

// AppendDict appends the entries with numbers of a dictionary that Python printed:
//
//	{'loss': 0.4, 'learning_rate': 5e-05, 'epoch': 0.5}
//
// Numbers may be in quotes. Entries with other values are omitted. ok is false
// if the line is not a dictionary whose keys are texts.
func AppendDict(entries DictEntries, line []byte) (all DictEntries, ok bool) {
	text := bytes.TrimSpace(line)
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' {
		return entries, false
	}
	for text = text[1 : len(text)-1]; ; {
		key, rest, ok := cutQuoted(scan.SkipBlanks(text))
		if !ok || len(rest) == 0 || rest[0] != ':' || len(key) == 0 {
			return entries, false
		}
		rest = scan.SkipBlanks(rest[1:])
		v, n := scan.ParseDecimal(rest)
		more := n > 0 && n < len(rest) && rest[n] == ','
		if ok = more; more { // usually
			text = rest[n+1:]
		} else {
			var value []byte
			if value, text, more = cutValue(rest); len(value) == 0 {
				return entries, false
			}
			if inner, rest, quoted := cutQuoted(value); quoted && len(rest) == 0 {
				value = inner
			}
			v, ok = scan.ParseFloat(value)
		}
		if ok && len(key) <= maxValueNameLength {
			entries = append(entries, DictEntry{key, v})
		}
		if !more {
			return entries, true
		}
	}
}

func cutQuoted(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '\'' && b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case b[0]:
			return b[1:i], b[i+1:], true
		}
	}
	return nil, nil, false
}

// cutValue cuts b at the first comma outside of quotes and brackets. more is false without one.
func cutValue(b []byte) (value, rest []byte, more bool) {
	depth, quote := 0, byte(0)
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quote != 0:
			switch c {
			case '\\':
				i++
			case quote:
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '[' || c == '(' || c == '{':
			depth++
		case c == ']' || c == ')' || c == '}':
			depth--
		case c == ',' && depth == 0:
			return bytes.TrimSpace(b[:i]), b[i+1:], true
		}
	}
	if depth != 0 || quote != 0 {
		return nil, nil, false
	}
	return bytes.TrimSpace(b), nil, false
}
