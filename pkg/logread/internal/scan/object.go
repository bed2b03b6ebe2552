package scan

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
)

// ObjectIterator iterates over the members of a JSON object without copying
// them. It checks only the syntax that it needs to find the end of each member:
// quotes and brackets.
type ObjectIterator struct {
	Text  []byte // the JSON object
	at    int    // index in Text of the next member
	begun bool   // the opening brace was read
	Bad   bool   // the text is not a complete object
}

// Next returns the key of the next member, without quotes, and its value.
// Escape sequences are not decoded. ok is false after the last member or if the
// object is malformed, which sets Bad.
func (o *ObjectIterator) Next() (key, value []byte, ok bool) {
	switch c := o.peek(); {
	case c == '}' && o.begun:
		o.at++
		o.peek()
		o.Bad = o.at < len(o.Text)
		return nil, nil, false
	case c == '{' && !o.begun:
		o.begun = true
		o.at++
		if o.peek() == '}' {
			return o.Next()
		}
	case c == ',' && o.begun:
		o.at++
	default:
		return o.fail()
	}
	if o.peek() != '"' {
		return o.fail()
	}
	n := stringLength(o.Text[o.at:])
	if n == 0 {
		return o.fail()
	}
	key = o.Text[o.at+1 : o.at+n-1]
	o.at += n
	if o.peek() != ':' {
		return o.fail()
	}
	o.at++
	o.peek()
	if n = ValueLength(o.Text[o.at:]); n == 0 {
		return o.fail()
	}
	value = o.Text[o.at : o.at+n]
	o.at += n
	return key, value, true
}

// Members iterates over the members of the object, as Next returns them.
func (o *ObjectIterator) Members() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for key, value, ok := o.Next(); ok && yield(key, value); key, value, ok = o.Next() {
		}
	}
}

// fail marks the object as malformed and returns the results with which Next
// reports this.
func (o *ObjectIterator) fail() (key, value []byte, ok bool) {
	o.Bad = true
	return nil, nil, false
}

// Offset returns the index in Text after the last member. If the object is malformed, it is that
// of the first byte that does not fit.
func (o *ObjectIterator) Offset() int { return o.at }

// peek skips white space and returns the byte after it, or 0 at the end.
func (o *ObjectIterator) peek() byte {
	for ; o.at < len(o.Text); o.at++ {
		if c := o.Text[o.at]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// stringLength returns the length of the string at the beginning of b,
// including its quotes, or 0 if the closing quote is missing.
func stringLength(b []byte) int {
	for i := 1; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		i += n + 1
		slashes := 0 // an odd number escapes the quote
		for k := i - 2; k > 0 && b[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
	return 0
}

// ValueLength returns the length of the value at the beginning of b, or 0 if b
// does not begin with a value or the value is incomplete.
func ValueLength(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		return stringLength(b)
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
				n := stringLength(b[i:])
				if n == 0 {
					return 0
				}
				i += n - 1
			}
		}
		return 0
	}
	for i, c := range b {
		if c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			return i
		}
	}
	return len(b)
}

// Unquote returns the content of a JSON string without decoding escape
// sequences. Any other value is returned unchanged.
func Unquote(value []byte) []byte {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}

// ParseJSONFloat parses a JSON number, or a JSON string that contains a number.
func ParseJSONFloat(value []byte) (float64, bool) { return ParseFloat(Unquote(value)) }

// JSONFloat is like ParseJSONFloat, and returns NaN for any other value.
func JSONFloat(value []byte) float64 {
	if v, ok := ParseJSONFloat(value); ok {
		return v
	}
	return math.NaN()
}

// Elements iterates over the elements of a JSON list. It ends early if the list is malformed.
func Elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(list) == 0 || list[0] != '[' {
			return
		}
		for rest := list[1:]; ; {
			rest = bytes.TrimLeft(rest, ", \t\r\n")
			n := ValueLength(rest)
			if n == 0 || !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// DecodeString decodes the escape sequences in the content of a JSON string, as Unquote returns it. It returns
// malformed text unchanged.
func DecodeString(content []byte) string {
	var text string
	if bytes.IndexByte(content, '\\') < 0 || json.Unmarshal(append(append([]byte{'"'}, content...), '"'), &text) != nil {
		return string(content)
	}
	return text
}
