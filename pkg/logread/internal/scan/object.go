package scan

import "bytes"

// Object gives the members of a JSON object one by one, without a copy. It
// checks no more than it must to find where each ends: quotes, brackets.
type Object struct {
	Text  []byte
	at    int // of the next member, in b
	begun bool
	Bad   bool // it is not closed, or is none
}

// Next is the next member: the key without quotes and as it stands there,
// escapes included; the value as it stands there. ok is false at the end.
func (o *Object) Next() (key, value []byte, ok bool) {
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
		return o.broken()
	}
	if o.peek() != '"' {
		return o.broken()
	}
	n := stringLength(o.Text[o.at:])
	if n == 0 {
		return o.broken()
	}
	key = o.Text[o.at+1 : o.at+n-1]
	o.at += n
	if o.peek() != ':' {
		return o.broken()
	}
	o.at++
	o.peek()
	if n = valueLength(o.Text[o.at:]); n == 0 {
		return o.broken()
	}
	value = o.Text[o.at : o.at+n]
	o.at += n
	return key, value, true
}

func (o *Object) broken() (key, value []byte, ok bool) {
	o.Bad = true
	return nil, nil, false
}

// peek skips blanks and gives the byte behind them, 0 at the end.
func (o *Object) peek() byte {
	for ; o.at < len(o.Text); o.at++ {
		if c := o.Text[o.at]; c != ' ' && c != '\t' {
			return c
		}
	}
	return 0
}

// stringLength is that of the string, quotes included, at the beginning of b; 0
// where it does not end.
func stringLength(b []byte) int {
	for i := 1; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		i += n + 1
		slashes := 0 // an odd number of them makes the quote a part of the string
		for k := i - 2; k > 0 && b[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
	return 0
}

// valueLength is that of the value at the beginning of b; 0 where it does not
// end or is none.
func valueLength(b []byte) int {
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
		if c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' {
			return i
		}
	}
	return len(b)
}

// Unquote is a string's content, where it holds no escape; else the value as it
// stands.
func Unquote(value []byte) []byte {
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}

// JSONFloat is a number, also one that is written as a string.
func JSONFloat(value []byte) (float64, bool) { return ParseFloat(Unquote(value)) }
