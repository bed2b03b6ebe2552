// Package pickle reads Python pickles of data: numbers, text, bytes, lists, dicts and NumPy arrays, in any
// protocol (0 to 5). A pickle is a program that can call any Python function. This package runs no Python
// code: it implements the few functions that create NumPy arrays, and every other function is an error.
//
// Memory use is limited by the length of the pickle, not by the sizes that it states.
//
// Source of the opcodes: Lib/pickletools.py of Python.
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

// These types, and nil, bool, int64, float64, string and []byte, are the types of the values that
// Read returns. A []byte is a Python bytes, or a str of Python 2.
type (
	// Tuple is a Python tuple.
	Tuple []any
	// List is a Python list or set.
	List struct{ Items []any }
	// Dict is a Python dict. Its keys are in the order of the file, and a key may occur several times.
	Dict struct{ Keys, Values []any }
	// Array is a NumPy array, or a NumPy number if Shape is empty.
	Array struct {
		Kind    string // data type: u1, i4, f4, …; empty if the pickle did not set the contents
		Big     bool   // values are big-endian
		Fortran bool   // values are in column-major order
		Shape   []int
		Data    []byte
	}
	// name is the short name of a Python class or function that a pickle may use.
	name string
	// dtype is a value of the Python type numpy.dtype.
	dtype struct {
		kind string
		big  bool
	}
)

// AsText returns a string or []byte as a string. ok is false for other values.
func AsText(v any) (s string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// Get returns the value of the string key, which the file may store as bytes. If the key occurs
// several times, Get returns the last value. ok is false if the key does not occur.
func (d *Dict) Get(key string) (v any, ok bool) {
	for i := len(d.Keys) - 1; i >= 0; i-- {
		if k, ok := AsText(d.Keys[i]); ok && k == key {
			return d.Values[i], true
		}
	}
	return nil, false
}

// AsInt returns an integer, a bool or a NumPy integer. ok is false for other values.
func AsInt(v any) (i int64, ok bool) {
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
			return v.asInt()
		}
	}
	return 0, false
}

// asInt returns the value of an array that contains one integer. ok is false for others.
func (a *Array) asInt() (i int64, ok bool) {
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

// allowedPythonNames maps the Python names that a pickle may use to short names.
var allowedPythonNames = map[string]name{
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

// errStackUnderflow is returned if an opcode needs more values than the stack contains.
var errStackUnderflow = errors.New("stack underflow: the opcode needs more values than the stack contains")

// Read returns the value of a pickle. Bytes after its end are ignored, as in Python.
func Read(text []byte) (v any, err error) {
	r := &unpickler{text: text, memo: map[int64]any{}}
	for {
		start := r.at
		done, err := r.executeOpcode()
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("read pickle: truncated at byte %d of %d: %w", start, len(text), err)
			}
			return nil, fmt.Errorf("read pickle: byte %d: %w", start, err)
		}
		if done {
			return r.pop()
		}
	}
}

// unpickler executes the opcodes of a pickle.
type unpickler struct {
	text  []byte
	at    int
	stack []any
	marks []int // heights of the stack at the marks that were set
	memo  map[int64]any
}

func (r *unpickler) nextBytes(n uint64) ([]byte, error) {
	if n > uint64(len(r.text)-r.at) {
		return nil, io.ErrUnexpectedEOF
	}
	b := r.text[r.at:][:n]
	r.at += int(n)
	return b, nil
}

func (r *unpickler) readUint(n uint64) (uint64, error) {
	b, err := r.nextBytes(n)
	if err != nil {
		return 0, err
	}
	var v [8]byte
	copy(v[:], b)
	return binary.LittleEndian.Uint64(v[:]), nil
}

// readLengthPrefixed reads a length, stored in n bytes, and as many bytes as the length says.
func (r *unpickler) readLengthPrefixed(n uint64) ([]byte, error) {
	size, err := r.readUint(n)
	if err != nil {
		return nil, err
	}
	return r.nextBytes(size)
}

func (r *unpickler) readLine() (string, error) {
	n := bytes.IndexByte(r.text[r.at:], '\n')
	if n < 0 {
		return "", io.ErrUnexpectedEOF
	}
	s := string(r.text[r.at:][:n])
	r.at += n + 1
	return strings.TrimSuffix(s, "\r"), nil
}

func (r *unpickler) push(v any) { r.stack = append(r.stack, v) }

// markHeight returns the stack's height at the latest mark, or 0 without a mark. Values below it
// cannot be popped.
func (r *unpickler) markHeight() int {
	if len(r.marks) == 0 {
		return 0
	}
	return r.marks[len(r.marks)-1]
}

func (r *unpickler) pop() (any, error) {
	if len(r.stack) <= r.markHeight() {
		return nil, errStackUnderflow
	}
	v := r.stack[len(r.stack)-1]
	r.stack = r.stack[:len(r.stack)-1]
	return v, nil
}

func (r *unpickler) top() (any, error) {
	if len(r.stack) <= r.markHeight() {
		return nil, errStackUnderflow
	}
	return r.stack[len(r.stack)-1], nil
}

// popToMark pops the values above the latest mark, in the order in which they were pushed, and the mark.
func (r *unpickler) popToMark() ([]any, error) {
	if len(r.marks) == 0 {
		return nil, errors.New("the opcode needs a mark, but none was set")
	}
	from := r.markHeight()
	r.marks = r.marks[:len(r.marks)-1]
	values := append([]any(nil), r.stack[from:]...)
	r.stack = r.stack[:from]
	return values, nil
}

func (r *unpickler) popN(n int) ([]any, error) {
	if len(r.stack)-n < r.markHeight() {
		return nil, errStackUnderflow
	}
	values := append([]any(nil), r.stack[len(r.stack)-n:]...)
	r.stack = r.stack[:len(r.stack)-n]
	return values, nil
}

// lookUpName returns the short name of a Python name. It returns an error if the name is not in
// allowedPythonNames.
func lookUpName(module, function string) (name, error) {
	full := module + "." + function
	n, ok := allowedPythonNames[full]
	if !ok {
		return "", fmt.Errorf("refused Python function %s: only numbers, text, lists, dicts and NumPy arrays are supported", strconv.Quote(full))
	}
	return n, nil
}

// parseInt parses a decimal integer, or 00 and 01, the booleans of protocol 0.
func parseInt(s string) (any, error) {
	switch s {
	case "00":
		return false, nil
	case "01":
		return true, nil
	}
	v, err := strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("invalid integer %q: want a decimal number of at most 64 bits", s)
	}
	return v, nil
}

// parseLong decodes a little-endian two's complement integer. More than 8 bytes are an error.
func parseLong(b []byte) (any, error) {
	if len(b) > 8 {
		return nil, fmt.Errorf("integer has %d bytes, want at most 8", len(b))
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
