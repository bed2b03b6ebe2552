package scan

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
)

// ObjectIterator iterates over the members of a JSON object without copying them. It checks only
// the syntax that shows where members end: quotes and brackets.
type ObjectIterator struct {
	Text   []byte // the JSON object
	within bool   // more text may follow the object in Text
	at     int    // index in Text of the next member
	begun  bool   // the opening brace was read
	Bad    bool   // the text is not a complete object
}

// NextKey advances to the next member and returns its key without quotes, undecoded. The caller
// must then read the value with Value or Number. ok is false after the last member, or if the
// object is malformed, which sets Bad.
func (o *ObjectIterator) NextKey() (key []byte, ok bool) {
	switch c := o.peek(); {
	case c == '}' && o.begun:
		if o.at++; !o.within {
			o.peek()
			o.Bad = o.at < len(o.Text)
		}
		return nil, false
	case c == '{' && !o.begun:
		o.begun = true
		o.at++
		if o.peek() == '}' {
			return o.NextKey()
		}
	case c == ',' && o.begun:
		o.at++
	default:
		o.Bad = true
		return nil, false
	}
	n := 0
	if o.peek() == '"' {
		n = jsonStringLength(o.Text[o.at:])
	}
	if o.Bad = n == 0; o.Bad {
		return nil, false
	}
	key = o.Text[o.at+1 : o.at+n-1]
	o.at += n
	if o.Bad = o.peek() != ':'; o.Bad {
		return nil, false
	}
	o.at++
	o.peek()
	return key, true
}

// SkipTo skips text if the object continues with it, and reports whether it does. text is what
// NextKey skipped at the same place in another object.
func (o *ObjectIterator) SkipTo(text []byte) bool {
	if !bytes.HasPrefix(o.Text[o.at:], text) {
		return false
	}
	o.at += len(text)
	o.begun = true
	o.peek()
	return true
}

// Value returns the value after a key. ok is false if it is incomplete.
func (o *ObjectIterator) Value() (value []byte, ok bool) {
	n := JSONValueLength(o.Text[o.at:])
	value, o.Bad = o.Text[o.at:o.at+n], n == 0
	o.at += n
	return value, n > 0
}

// Number returns the number after a key. If the value is not a plain number, ok is false and the
// caller can read it with Value.
func (o *ObjectIterator) Number() (v float64, ok bool) {
	v, n := ParseDecimal(o.Text[o.at:])
	if end := o.at + n; n > 0 && end < len(o.Text) && valueTerminators[o.Text[end]] {
		o.at = end
		return v, true
	}
	return 0, false
}

// Members iterates over the remaining members and yields their keys and values.
func (o *ObjectIterator) Members() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for key, ok := o.NextKey(); ok; key, ok = o.NextKey() {
			if value, ok := o.Value(); !ok || !yield(key, value) {
				return
			}
		}
	}
}

// Offset returns the index in Text after the last member, or of the first byte that does not fit.
func (o *ObjectIterator) Offset() int { return o.at }

// peek skips white space and returns the byte after it, or 0 at the end.
func (o *ObjectIterator) peek() byte {
	for ; o.at < len(o.Text); o.at++ {
		if c := o.Text[o.at]; c > ' ' || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// jsonStringLength returns the length of the string at the beginning of b with its quotes, or 0 if the
// closing quote is missing.
func jsonStringLength(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}

// JSONValueLength returns the length of the JSON value at the beginning of b. It returns 0 if there is
// no value or the value is incomplete.
func JSONValueLength(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		return jsonStringLength(b)
	case '{', '[':
		depth := 0
		for i := 0; i < len(b); i++ {
			switch b[i] {
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			case '"':
				n := jsonStringLength(b[i:])
				if n == 0 {
					return 0
				}
				i += n - 1
			}
		}
		return 0
	}
	for i, c := range b {
		if valueTerminators[c] {
			return i
		}
	}
	return len(b)
}

// valueTerminators contains the characters that end a value other than a string, object or list.
// Quotes and opening brackets are included so that brackets are paired in every object that NextKey
// accepts, as JSONValueLength assumes.
var valueTerminators = [256]bool{',': true, '}': true, ']': true, ' ': true, '\t': true, '\n': true, '\r': true, '"': true, '{': true, '[': true}

// UnquoteJSON returns the undecoded content of a JSON string, or any other value unchanged.
func UnquoteJSON(value []byte) []byte {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}

// ParseJSONFloat parses a JSON number, or a JSON string that contains a number.
func ParseJSONFloat(value []byte) (float64, bool) { return ParseFloat(UnquoteJSON(value)) }

// JSONFloat is like ParseJSONFloat, but returns NaN if the value is not a number.
func JSONFloat(value []byte) float64 {
	if v, ok := ParseJSONFloat(value); ok {
		return v
	}
	return math.NaN()
}

// JSONElements iterates over the elements of a JSON list. It ends early if the list is malformed.
func JSONElements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(list) == 0 || list[0] != '[' {
			return
		}
		for rest := list[1:]; ; {
			rest = bytes.TrimLeft(rest, ", \t\r\n")
			n := JSONValueLength(rest)
			if n == 0 || !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// DecodeJSONString decodes the escape sequences in a JSON string without quotes. It returns malformed
// text unchanged.
func DecodeJSONString(content []byte) string {
	var text string
	if bytes.IndexByte(content, '\\') < 0 || json.Unmarshal(append(append([]byte{'"'}, content...), '"'), &text) != nil {
		return string(content)
	}
	return text
}
