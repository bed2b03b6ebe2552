package pickle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// call executes the opcodes that name and call Python functions. It calls nothing: it
// builds NumPy's arrays itself, and any other function is an error.
func (r *reader) call(op byte) error {
	switch op {
	case 'c': // GLOBAL
		module, err := r.line()
		if err != nil {
			return err
		}
		function, err := r.line()
		if err != nil {
			return err
		}
		return r.named(module, function)
	case 0x93: // STACK_GLOBAL
		v, err := r.last(2)
		if err != nil {
			return err
		}
		module, _ := v[0].(string)
		function, _ := v[1].(string)
		return r.named(module, function)
	case 'i': // INST: names a class and makes one at once
		module, err := r.line()
		if err != nil {
			return err
		}
		class, err := r.line()
		if err != nil {
			return err
		}
		if _, err := global(module, class); err != nil {
			return err
		}
		return errors.New("an object of a class is made the old way: refused")
	case 'R', 0x81: // REDUCE, NEWOBJ: function and arguments
		v, err := r.last(2)
		if err != nil {
			return err
		}
		function, ok := v[0].(name)
		arguments, isTuple := v[1].(Tuple)
		if !ok || !isTuple {
			return errors.New("it calls what is no function")
		}
		made, err := construct(function, arguments)
		if err != nil {
			return err
		}
		r.push(made)
		return nil
	case 'b': // BUILD
		return r.build()
	}
	return fmt.Errorf("instruction %q makes objects of classes or refers to other files: refused; only numbers, text, lists, dicts and NumPy arrays are read", op)
}

func (r *reader) named(module, function string) error {
	n, err := global(module, function)
	if err == nil {
		r.push(n)
	}
	return err
}

// construct returns the value that a known function returns for the arguments v.
func construct(function name, v Tuple) (any, error) {
	wrong := fmt.Errorf("the arguments of %s are not as NumPy writes them", function)
	switch function {
	case "reconstruct": // (ndarray, (0,), b'b'), filled by BUILD
		return &Array{}, nil
	case "dtype":
		if len(v) == 0 {
			return nil, wrong
		}
		kind, ok := Text(v[0])
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
		order, _ := Text(v[3])
		a := &Array{}
		return a, a.fill(v[2], v[1], order == "F", v[0])
	case "encode": // (text of characters up to 255, "latin1")
		s, ok := v.first().(string)
		if !ok {
			return nil, wrong
		}
		return latin1(s)
	case "bytes":
		if len(v) == 0 {
			return []byte{}, nil
		}
		if b, ok := v[0].([]byte); ok {
			return b, nil
		}
		if s, ok := v[0].(string); ok {
			return latin1(s)
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
	return nil, fmt.Errorf("%s is not called", function)
}

func (t Tuple) first() any {
	if len(t) == 0 {
		return nil
	}
	return t[0]
}

// latin1 converts text of protocol 2 to the bytes that it stands for.
func latin1(s string) ([]byte, error) {
	b := make([]byte, 0, utf8.RuneCountInString(s))
	for _, c := range s {
		if c > 255 {
			return nil, fmt.Errorf("character %q stands for no byte", c)
		}
		b = append(b, byte(c))
	}
	return b, nil
}

// kinds contains the supported NumPy types, with their sizes in bytes.
var kinds = []string{"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"}

func newDtype(kind string) (*dtype, error) {
	t := &dtype{kind: strings.TrimLeft(kind, "<>|="), big: strings.HasPrefix(kind, ">")}
	if !slices.Contains(kinds, t.kind) {
		return nil, fmt.Errorf("arrays of NumPy's type %q are not read: use whole numbers or floats", kind)
	}
	return t, nil
}

// build executes BUILD: it sets the state of the value below the top of the stack.
func (r *reader) build() error {
	v, err := r.last(2)
	if err != nil {
		return err
	}
	r.push(v[0])
	state, _ := v[1].(Tuple)
	switch of := v[0].(type) {
	case *dtype: // (version, byte order, …)
		if len(state) >= 2 {
			order, _ := Text(state[1])
			of.big = order == ">"
			return nil
		}
	case *Array: // (version, shape, dtype, Fortran order, bytes)
		if len(state) == 5 {
			fortran, _ := Int(state[3])
			return of.fill(state[1], state[2], fortran != 0, state[4])
		}
	}
	return errors.New("it sets the state of an object that is not known: refused")
}

// fill sets the contents of an array. It returns an error unless the number of bytes
// fits shape and type.
func (a *Array) fill(shape, of any, fortran bool, data any) error {
	dims, ok := shape.(Tuple)
	t, isType := of.(*dtype)
	bytes, isBytes := data.([]byte)
	if !ok || !isType || !isBytes {
		return errors.New("an array is not as NumPy writes it")
	}
	size := int64(t.kind[1] - '0')
	a.Kind, a.Big, a.Fortran, a.Data, a.Shape = t.kind, t.big, fortran, bytes, make([]int, len(dims))
	for i, d := range dims {
		n, ok := Int(d)
		if !ok || n < 0 || (n > 0 && size > int64(len(bytes))/n) {
			return fmt.Errorf("an array of %s has shape %v and %d bytes", t.kind, []any(dims), len(bytes))
		}
		a.Shape[i] = int(n)
		size *= n
	}
	if size != int64(len(bytes)) {
		return fmt.Errorf("an array of %s has shape %v, which needs %d bytes, and %d bytes", t.kind, a.Shape, size, len(bytes))
	}
	return nil
}
