package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// executeOpcode executes one opcode. done is true if it was the last one of the pickle.
func (r *unpickler) executeOpcode() (done bool, err error) {
	op, err := r.nextBytes(1)
	if err != nil {
		return false, err
	}
	switch op[0] {
	case '.':
		return true, nil
	case 0x80: // PROTO
		v, err := r.readUint(1)
		if err == nil && v > 5 {
			err = fmt.Errorf("unsupported pickle protocol %d: protocols 0 to 5 are supported", v)
		}
		return false, err
	case 0x95: // FRAME: its length is not needed
		_, err := r.readUint(8)
		return false, err
	case '(':
		r.marks = append(r.marks, len(r.stack))
	case '0': // POP
		if len(r.marks) > 0 && len(r.stack) == r.markHeight() {
			r.marks = r.marks[:len(r.marks)-1]
			return false, nil
		}
		_, err = r.pop()
	case '1': // POP_MARK
		_, err = r.popToMark()
	case '2': // DUP
		v, err := r.top()
		if err != nil {
			return false, err
		}
		r.push(v)
	case 'c', 0x93, 'R', 0x81, 'b', 'i', 'o', 'P', 'Q', 0x82, 0x83, 0x84, 0x92, 0x97:
		err = r.executeCallOpcode(op[0])
	case 'p', 'q', 'r', 0x94, 'g', 'h', 'j':
		err = r.executeMemoOpcode(op[0])
	case ')', ']', '}', 't', 0x85, 0x86, 0x87, 'l', 'd', 'a', 'e', 's', 'u', 0x8f, 0x90, 0x91:
		err = r.executeCollectionOpcode(op[0])
	case 0x98: // READONLY_BUFFER: does not change the value on top of the stack
	default:
		var v any
		if v, err = r.readScalar(op[0]); err == nil {
			r.push(v)
		}
	}
	return false, err
}

// readScalar executes an opcode that pushes a number, text or bytes, and returns the value.
func (r *unpickler) readScalar(op byte) (any, error) {
	switch op {
	case 'N':
		return nil, nil
	case 0x88:
		return true, nil
	case 0x89:
		return false, nil
	case 'J':
		v, err := r.readUint(4)
		return int64(int32(v)), err
	case 'K':
		v, err := r.readUint(1)
		return int64(v), err
	case 'M':
		v, err := r.readUint(2)
		return int64(v), err
	case 'G':
		b, err := r.nextBytes(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case 'I', 'L':
		s, err := r.readLine()
		if err != nil {
			return nil, err
		}
		return parseInt(s)
	case 'F':
		s, err := r.readLine()
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, fmt.Errorf("invalid number %q", s)
		}
		return v, nil
	case 0x8a, 0x8b: // LONG1, LONG4
		b, err := r.readLengthPrefixed(map[byte]uint64{0x8a: 1, 0x8b: 4}[op])
		if err != nil {
			return nil, err
		}
		return parseLong(b)
	case 'S', 'V':
		return r.readTextLine(op)
	case 'U', 'C': // SHORT_BINSTRING, SHORT_BINBYTES
		return r.readLengthPrefixed(1)
	case 'T', 'B': // BINSTRING, BINBYTES
		return r.readLengthPrefixed(4)
	case 0x8e, 0x96: // BINBYTES8, BYTEARRAY8
		return r.readLengthPrefixed(8)
	case 0x8c, 'X', 0x8d: // unicode of a short, middle and long length
		b, err := r.readLengthPrefixed(map[byte]uint64{0x8c: 1, 'X': 4, 0x8d: 8}[op])
		return string(b), err
	}
	return nil, fmt.Errorf("unknown opcode %#02x: the file is damaged or not a pickle", op)
}

// readTextLine reads the argument of the opcodes STRING (a quoted Python string) and UNICODE (text
// with the escapes \u and \U) of protocol 0.
func (r *unpickler) readTextLine(op byte) (any, error) {
	s, err := r.readLine()
	if err != nil {
		return nil, err
	}
	if op == 'S' {
		if len(s) < 2 || s[0] != s[len(s)-1] || (s[0] != '\'' && s[0] != '"') {
			return nil, fmt.Errorf("text %.20q is not in quotes: the file is damaged", s)
		}
		return unescape(s[1 : len(s)-1])
	}
	return decodeRawUnicode(s)
}

// decodeRawUnicode decodes Python's raw-unicode-escape: each byte is a character, except for \uXXXX
// and \UXXXXXXXX.
func decodeRawUnicode(s string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		n := 0
		if s[i] == '\\' && i+1 < len(s) {
			n = map[byte]int{'u': 4, 'U': 8}[s[i+1]]
		}
		if n == 0 {
			out.WriteRune(rune(s[i]))
			continue
		}
		if i+2+n > len(s) {
			return "", fmt.Errorf("escape sequence in %q is truncated", s[i:])
		}
		v, err := strconv.ParseUint(s[i+2:i+2+n], 16, 32)
		if err != nil || v > unicode.MaxRune {
			return "", fmt.Errorf("invalid escape sequence %q: want the number of a Unicode character in hexadecimal digits", s[i:i+2+n])
		}
		out.WriteRune(rune(v))
		i += 1 + n
	}
	return out.String(), nil
}

// unescape decodes the backslash escapes that Python's repr writes.
func unescape(s string) ([]byte, error) {
	out := make([]byte, 0, len(s))
	for s != "" {
		if s[0] != '\\' || len(s) < 2 {
			out, s = append(out, s[0]), s[1:]
			continue
		}
		if s[1] == '\'' || s[1] == '"' {
			out, s = append(out, s[1]), s[2:]
			continue
		}
		v, wide, rest, err := strconv.UnquoteChar(s, 0)
		if err != nil {
			return nil, fmt.Errorf("unknown escape sequence in %.20q", s)
		}
		if wide {
			out = append(out, string(v)...)
		} else {
			out = append(out, byte(v))
		}
		s = rest
	}
	return out, nil
}

// executeMemoOpcode executes the opcodes that store the top of the stack in the memo, or push a
// value of the memo.
func (r *unpickler) executeMemoOpcode(op byte) error {
	var key int64
	switch op {
	case 0x94: // MEMOIZE
		key = int64(len(r.memo))
	case 'p', 'g':
		s, err := r.readLine()
		if err != nil {
			return err
		}
		if key, err = strconv.ParseInt(s, 10, 64); err != nil {
			return fmt.Errorf("invalid memo index %q", s)
		}
	default:
		v, err := r.readUint(map[byte]uint64{'q': 1, 'h': 1, 'r': 4, 'j': 4}[op])
		if err != nil {
			return err
		}
		key = int64(v)
	}
	switch op {
	case 'g', 'h', 'j':
		v, ok := r.memo[key]
		if !ok {
			return fmt.Errorf("memo index %d was not set", key)
		}
		r.push(v)
		return nil
	}
	v, err := r.top()
	if err == nil {
		r.memo[key] = v
	}
	return err
}

// executeCollectionOpcode creates and fills tuples, lists, dicts and sets.
func (r *unpickler) executeCollectionOpcode(op byte) error {
	switch op {
	case ')':
		r.push(Tuple{})
		return nil
	case ']', 0x8f:
		r.push(&List{})
		return nil
	case '}':
		r.push(&Dict{})
		return nil
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		v, err := r.popN(int(op) - 0x84)
		if err == nil {
			r.push(Tuple(v))
		}
		return err
	case 'a': // APPEND
		v, err := r.popN(1)
		if err != nil {
			return err
		}
		return r.appendToList(v)
	case 's': // SETITEM
		v, err := r.popN(2)
		if err != nil {
			return err
		}
		return r.setDictItems(v)
	}
	v, err := r.popToMark()
	if err != nil {
		return err
	}
	switch op {
	case 't':
		r.push(Tuple(v))
	case 'l', 0x91:
		r.push(&List{v})
	case 'd':
		r.push(&Dict{})
		return r.setDictItems(v)
	case 'e', 0x90:
		return r.appendToList(v)
	case 'u':
		return r.setDictItems(v)
	}
	return nil
}

func (r *unpickler) appendToList(v []any) error {
	top, err := r.top()
	if err != nil {
		return err
	}
	l, ok := top.(*List)
	if !ok {
		return errors.New("append items: the value on the stack is not a list")
	}
	l.Items = append(l.Items, v...)
	return nil
}

func (r *unpickler) setDictItems(v []any) error {
	top, err := r.top()
	if err != nil {
		return err
	}
	d, ok := top.(*Dict)
	if !ok || len(v)%2 != 0 {
		return errors.New("set items: want a dict on the stack and pairs of keys and values")
	}
	for i := 0; i < len(v); i += 2 {
		d.Keys, d.Values = append(d.Keys, v[i]), append(d.Values, v[i+1])
	}
	return nil
}
