// Package pickle reads the pickles that data sets come in: numbers, text, bytes,
// lists, dicts and NumPy arrays, of any protocol (0 to 5). A pickle is a program
// that can call any Python function; this package calls nothing.
// It knows the few functions that build NumPy's arrays; any other name is an error.
//
// Memory use is bounded by the length of the pickle, whatever sizes it
// claims.
//
// The opcodes are those of Python's Lib/pickletools.py.
package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The values that Read returns are nil, bool, int64, float64, string, []byte (also
// Python 2's str), Tuple, *List, *Dict and *Array.
type (
	// Tuple is a tuple.
	Tuple []any
	// List is a list; also a set.
	List struct{ Items []any }
	// Dict is a dict in the order of the file. A key may occur several times.
	Dict struct{ Keys, Values []any }
	// Array is a NumPy array, or with no shape a NumPy number.
	Array struct {
		Kind    string // dtype: u1, i4, f4, …; empty until the array is filled
		Big     bool   // bytes of a value are in big-endian order
		Fortran bool   // the first axis runs fastest
		Shape   []int
		Data    []byte
	}
	// name is the name of a Python class or function that a pickle may use.
	name string
	// dtype is numpy.dtype, before and after its state is set.
	dtype struct {
		kind string
		big  bool
	}
)

// Text returns v as a string. ok is false unless v is a string or bytes.
func Text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// Get returns the last value whose key is the given text. ok is false if there is none.
func (d *Dict) Get(key string) (any, bool) {
	for i := len(d.Keys) - 1; i >= 0; i-- {
		if k, ok := Text(d.Keys[i]); ok && k == key {
			return d.Values[i], true
		}
	}
	return nil, false
}

// Int returns v as an integer. ok is false unless v is an int, a bool or an integer
// NumPy number.
func Int(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case *Array:
		if len(v.Shape) == 0 {
			return v.int()
		}
	}
	return 0, false
}

// int returns the only value of an array of one integer.
func (a *Array) int() (int64, bool) {
	var order binary.ByteOrder = binary.LittleEndian
	if a.Big {
		order = binary.BigEndian
	}
	switch {
	case len(a.Data) == 1 && a.Kind == "u1":
		return int64(a.Data[0]), true
	case len(a.Data) == 1 && a.Kind == "i1":
		return int64(int8(a.Data[0])), true
	case len(a.Data) == 2 && a.Kind == "i2":
		return int64(int16(order.Uint16(a.Data))), true
	case len(a.Data) == 2 && a.Kind == "u2":
		return int64(order.Uint16(a.Data)), true
	case len(a.Data) == 4 && a.Kind == "i4":
		return int64(int32(order.Uint32(a.Data))), true
	case len(a.Data) == 4 && a.Kind == "u4":
		return int64(order.Uint32(a.Data)), true
	case len(a.Data) == 8 && (a.Kind == "i8" || a.Kind == "u8"):
		v := order.Uint64(a.Data)
		return int64(v), a.Kind == "i8" || v <= math.MaxInt64
	}
	return 0, false
}

// names contains the Python names that a pickle may use.
var names = map[string]name{
	"numpy.core.multiarray._reconstruct":  "reconstruct",
	"numpy._core.multiarray._reconstruct": "reconstruct",
	"numpy.core.multiarray.scalar":        "scalar",
	"numpy._core.multiarray.scalar":       "scalar",
	"numpy.core.numeric._frombuffer":      "frombuffer",
	"numpy._core.numeric._frombuffer":     "frombuffer",
	"numpy.ndarray":                       "ndarray",
	"numpy.dtype":                         "dtype",
	"_codecs.encode":                      "encode",
	"builtins.bytes":                      "bytes",
	"__builtin__.bytes":                   "bytes",
	"builtins.bytearray":                  "bytes",
	"__builtin__.bytearray":               "bytes",
	"builtins.list":                       "list",
	"__builtin__.list":                    "list",
	"builtins.dict":                       "dict",
	"__builtin__.dict":                    "dict",
	"collections.OrderedDict":             "dict",
}

// errUnderflow is returned if an opcode needs more values than the stack has.
var errUnderflow = errors.New("it takes values that are not there")

// Read returns the value of a pickle. Bytes after its end are ignored, as in Python.
func Read(text []byte) (v any, err error) {
	r := &reader{text: text, memo: map[int64]any{}}
	for {
		start := r.at
		done, err := r.step()
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("read pickle: it is cut off at byte %d of %d: %w", start, len(text), err)
			}
			return nil, fmt.Errorf("read pickle: byte %d: %w", start, err)
		}
		if done {
			return r.pop()
		}
	}
}

type reader struct {
	text  []byte
	at    int
	stack []any
	marks []int // heights of stack
	memo  map[int64]any
}

func (r *reader) take(n uint64) ([]byte, error) {
	if n > uint64(len(r.text)-r.at) {
		return nil, io.ErrUnexpectedEOF
	}
	b := r.text[r.at:][:n]
	r.at += int(n)
	return b, nil
}

// number reads an unsigned little-endian number of n bytes.
func (r *reader) number(n uint64) (uint64, error) {
	b, err := r.take(n)
	if err != nil {
		return 0, err
	}
	var v [8]byte
	copy(v[:], b)
	return binary.LittleEndian.Uint64(v[:]), nil
}

// counted reads a length of n bytes, and then that number of bytes.
func (r *reader) counted(n uint64) ([]byte, error) {
	size, err := r.number(n)
	if err != nil {
		return nil, err
	}
	return r.take(size)
}

func (r *reader) line() (string, error) {
	n := bytes.IndexByte(r.text[r.at:], '\n')
	if n < 0 {
		return "", io.ErrUnexpectedEOF
	}
	s := string(r.text[r.at:][:n])
	r.at += n + 1
	return strings.TrimSuffix(s, "\r"), nil
}

func (r *reader) push(v any) { r.stack = append(r.stack, v) }

// floor returns the stack height at the newest mark. Values below it cannot be popped.
func (r *reader) floor() int {
	if len(r.marks) == 0 {
		return 0
	}
	return r.marks[len(r.marks)-1]
}

func (r *reader) pop() (any, error) {
	if len(r.stack) <= r.floor() {
		return nil, errUnderflow
	}
	v := r.stack[len(r.stack)-1]
	r.stack = r.stack[:len(r.stack)-1]
	return v, nil
}

func (r *reader) top() (any, error) {
	if len(r.stack) <= r.floor() {
		return nil, errUnderflow
	}
	return r.stack[len(r.stack)-1], nil
}

// toMark pops the values above the newest mark, and the mark, and returns the values.
func (r *reader) toMark() ([]any, error) {
	if len(r.marks) == 0 {
		return nil, errors.New("it takes values up to a mark that was not set")
	}
	from := r.floor()
	r.marks = r.marks[:len(r.marks)-1]
	values := append([]any(nil), r.stack[from:]...)
	r.stack = r.stack[:from]
	return values, nil
}

// last pops the last n values and returns them.
func (r *reader) last(n int) ([]any, error) {
	if len(r.stack)-n < r.floor() {
		return nil, errUnderflow
	}
	values := append([]any(nil), r.stack[len(r.stack)-n:]...)
	r.stack = r.stack[:len(r.stack)-n]
	return values, nil
}

// global returns the class or function of a name. A name that is not in names is an
// error.
func global(module, function string) (name, error) {
	full := module + "." + function
	n, ok := names[full]
	if !ok {
		return "", fmt.Errorf("it names %s, which would be run: refused; only numbers, text, lists, dicts and NumPy arrays are read", strconv.Quote(full))
	}
	return n, nil
}

// parseInt parses a decimal integer of protocol 0.
func parseInt(s string) (any, error) {
	switch s {
	case "00":
		return false, nil
	case "01":
		return true, nil
	}
	v, err := strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number of 64 bits", s)
	}
	return v, nil
}

// long converts a little-endian two's complement number of any length. It is an error if
// the number does not fit.
func long(b []byte) (any, error) {
	if len(b) > 8 {
		return nil, fmt.Errorf("a number of %d bytes: at most 8 are read", len(b))
	}
	if len(b) == 0 {
		return int64(0), nil
	}
	var v [8]byte
	if b[len(b)-1] >= 0x80 {
		v = [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	copy(v[:], b)
	return int64(binary.LittleEndian.Uint64(v[:])), nil
}
