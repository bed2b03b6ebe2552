package pickle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// executeCallOpcode executes the opcodes that name and call Python functions. It calls no Python
// code: it constructs NumPy arrays itself, and every other function is an error.
func (r *unpickler) executeCallOpcode(op byte) error {
	switch op {
	case 'c': // GLOBAL
		module, err := r.readLine()
		if err != nil {
			return err
		}
		function, err := r.readLine()
		if err != nil {
			return err
		}
		return r.pushName(module, function)
	case 0x93: // STACK_GLOBAL
		v, err := r.popN(2)
		if err != nil {
			return err
		}
		module, _ := v[0].(string)
		function, _ := v[1].(string)
		return r.pushName(module, function)
	case 'i': // INST: names a class and makes one at once
		module, err := r.readLine()
		if err != nil {
			return err
		}
		class, err := r.readLine()
		if err != nil {
			return err
		}
		if _, err := lookUpName(module, class); err != nil {
			return err
		}
		return errors.New("refused opcode INST, which creates an object of a Python class")
	case 'R', 0x81: // REDUCE, NEWOBJ: function and arguments
		v, err := r.popN(2)
		if err != nil {
			return err
		}
		function, ok := v[0].(name)
		arguments, isTuple := v[1].(Tuple)
		if !ok || !isTuple {
			return errors.New("the pickle calls a value that is not a function")
		}
		made, err := constructValue(function, arguments)
		if err != nil {
			return err
		}
		r.push(made)
		return nil
	case 'b': // BUILD
		return r.executeBuild()
	}
	return fmt.Errorf("refused opcode %q, which creates objects of Python classes or refers to other files: only numbers, text, lists, dicts and NumPy arrays are supported", op)
}

// pushName pushes the short name of module.function. It returns an error if the name is not in
// allowedPythonNames.
func (r *unpickler) pushName(module, function string) error {
	n, err := lookUpName(module, function)
	if err == nil {
		r.push(n)
	}
	return err
}

// constructValue returns the value that Python would return for a call of function with the arguments v.
func constructValue(function name, v Tuple) (any, error) {
	wrong := fmt.Errorf("unexpected arguments of %s: want the arguments that NumPy writes", function)
	switch function {
	case "reconstruct": // (ndarray, (0,), b'b'), filled by BUILD
		return &Array{}, nil
	case "dtype":
		if len(v) == 0 {
			return nil, wrong
		}
		kind, ok := AsText(v[0])
		if !ok {
			return nil, wrong
		}
		return newDtype(kind)
	case "scalar": // (dtype, bytes)
		if len(v) != 2 {
			return nil, wrong
		}
		t, ok := v[0].(*dtype)
		data, isBytes := v[1].([]byte)
		if !ok || !isBytes {
			return nil, wrong
		}
		return &Array{Kind: t.kind, Big: t.big, Data: data}, nil
	case "frombuffer": // (bytes, dtype, shape, order)
		if len(v) != 4 {
			return nil, wrong
		}
		order, _ := AsText(v[3])
		a := &Array{}
		return a, a.setContents(v[2], v[1], order == "F", v[0])
	case "encode": // (text of characters up to 255, "latin1")
		s, ok := v.first().(string)
		if !ok {
			return nil, wrong
		}
		return encodeLatin1(s)
	case "bytes":
		if len(v) == 0 {
			return []byte{}, nil
		}
		if b, ok := v[0].([]byte); ok {
			return b, nil
		}
		if s, ok := v[0].(string); ok {
			return encodeLatin1(s)
		}
		return nil, wrong
	case "list", "dict":
		if len(v) != 0 {
			return nil, wrong
		}
		if function == "list" {
			return &List{}, nil
		}
		return &Dict{}, nil
	}
	return nil, fmt.Errorf("calls of %s are not supported", function)
}

func (t Tuple) first() any {
	if len(t) == 0 {
		return nil
	}
	return t[0]
}

// encodeLatin1 encodes text in Latin-1, in which protocol 2 stores bytes.
func encodeLatin1(s string) ([]byte, error) {
	b := make([]byte, 0, utf8.RuneCountInString(s))
	for _, c := range s {
		if c > 255 {
			return nil, fmt.Errorf("character %q of a byte string is not in Latin-1: the file is damaged", c)
		}
		b = append(b, byte(c))
	}
	return b, nil
}

// dtypeKinds lists the supported NumPy types: kind and size in bytes.
var dtypeKinds = []string{"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"}

func newDtype(kind string) (*dtype, error) {
	t := &dtype{kind: strings.TrimLeft(kind, "<>|="), big: strings.HasPrefix(kind, ">")}
	if !slices.Contains(dtypeKinds, t.kind) {
		return nil, fmt.Errorf("unsupported NumPy type %q: use integers or floats", kind)
	}
	return t, nil
}

// executeBuild executes BUILD: it pops a state and applies it to the value below it on the stack.
func (r *unpickler) executeBuild() error {
	v, err := r.popN(2)
	if err != nil {
		return err
	}
	r.push(v[0])
	state, _ := v[1].(Tuple)
	switch of := v[0].(type) {
	case *dtype: // (version, byte order, …)
		if len(state) >= 2 {
			order, _ := AsText(state[1])
			of.big = order == ">"
			return nil
		}
	case *Array: // (version, shape, dtype, Fortran order, bytes)
		if len(state) == 5 {
			fortran, _ := AsInt(state[3])
			return of.setContents(state[1], state[2], fortran != 0, state[4])
		}
	}
	return errors.New("refused opcode BUILD for an object that is neither a NumPy type nor an array")
}

// setContents sets type, shape, order and data. It returns an error if the length of data does not
// match shape and type.
func (a *Array) setContents(shape, elementType any, fortran bool, data any) error {
	dims, ok := shape.(Tuple)
	t, isType := elementType.(*dtype)
	bytes, isBytes := data.([]byte)
	if !ok || !isType || !isBytes {
		return errors.New("unexpected state of an array: want the state that NumPy writes")
	}
	size := int64(t.kind[1] - '0')
	a.Kind, a.Big, a.Fortran, a.Data, a.Shape = t.kind, t.big, fortran, bytes, make([]int, len(dims))
	for i, d := range dims {
		n, ok := AsInt(d)
		if !ok || n < 0 || (n > 0 && size > int64(len(bytes))/n) {
			return fmt.Errorf("array of type %s and shape %v does not match its %d bytes of data", t.kind, []any(dims), len(bytes))
		}
		a.Shape[i] = int(n)
		size *= n
	}
	if size != int64(len(bytes)) {
		return fmt.Errorf("array of type %s and shape %v needs %d bytes of data, got %d", t.kind, a.Shape, size, len(bytes))
	}
	return nil
}
