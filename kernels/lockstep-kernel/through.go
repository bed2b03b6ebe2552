//go:build notebook

package main

import (
	"reflect"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/xreflect"
)

// first returns a call that evaluates e and returns the first n of its values. It must be
// a call, because the interpreter allows built-in functions to return only calls.
func first(c *interp.Comp, e *interp.Expr, n int) *interp.Call {
	if e.NumOut() == 1 && n == 1 {
		return same(c, e)
	}
	if n == 0 {
		t := c.Universe.FuncOf([]xreflect.Type{c.TypeOfInterface()}, nil, false)
		drop := &interp.Expr{Lit: interp.Lit{Type: t, Value: func(xreflect.Value) {}}}
		return &interp.Call{Fun: drop, Args: []*interp.Expr{{Lit: interp.Lit{Type: c.TypeOfInterface()}, Fun: firstValue(e)}}}
	}
	if n > 1 {
		return made(c, e.Types, e.Types[:n], []*interp.Expr{e}, func(in []reflect.Value) []reflect.Value { return in[:n] })
	}
	one := &interp.Expr{Lit: interp.Lit{Type: e.Type}, Fun: firstValue(e)}
	if b, ok := basics[e.Type.Kind()]; ok {
		one.Fun = b.read(firstValue(e))
	}
	return same(c, one)
}

// firstValue evaluates e and returns its first value.
func firstValue(e *interp.Expr) func(*interp.Env) xreflect.Value {
	if e.NumOut() == 1 {
		return e.AsX1()
	}
	all := e.AsXV(interp.COptDefaults)
	return func(env *interp.Env) xreflect.Value {
		v, _ := all(env)
		return v
	}
}

// same returns a call whose result is the only value of e.
func same(c *interp.Comp, e *interp.Expr) *interp.Call {
	t := e.Type
	if e.Const() {
		t = e.DefaultType()
		e.ConstTo(t)
	}
	call := &interp.Call{Args: []*interp.Expr{e}, OutTypes: []xreflect.Type{t}, Const: e.Const()}
	b, ok := basics[t.Kind()]
	if !ok {
		f := c.Universe.FuncOf(call.OutTypes, call.OutTypes, false)
		call.Fun = &interp.Expr{Lit: interp.Lit{Type: f, Value: func(v xreflect.Value) xreflect.Value { return v }}}
		return call
	}
	// The interpreter represents a value of a named type by its basic type.
	unnamed := []xreflect.Type{c.Universe.BasicTypes[t.Kind()]}
	f := xreflect.ValueOf(b.same)
	call.Fun = &interp.Expr{
		Lit: interp.Lit{Type: c.Universe.FuncOf(unnamed, unnamed, false)},
		Fun: func(*interp.Env) xreflect.Value { return f },
	}
	return call
}

// A basic contains functions for expressions of a basic type T, which the interpreter
// compiles to functions of type func(*interp.Env) T.
type basic struct {
	same any                                        // the identity function, of type func(T) T
	read func(func(*interp.Env) xreflect.Value) any // converts a function that returns a reflected value to a func(*interp.Env) T
}

var basics = map[reflect.Kind]basic{
	reflect.Bool: basicOf(xreflect.Value.Bool), reflect.String: basicOf(xreflect.Value.String),
	reflect.Int: signed[int](), reflect.Int8: signed[int8](), reflect.Int16: signed[int16](),
	reflect.Int32: signed[int32](), reflect.Int64: signed[int64](),
	reflect.Uint: unsigned[uint](), reflect.Uint8: unsigned[uint8](), reflect.Uint16: unsigned[uint16](),
	reflect.Uint32: unsigned[uint32](), reflect.Uint64: unsigned[uint64](), reflect.Uintptr: unsigned[uintptr](),
	reflect.Float32:   basicOf(func(v xreflect.Value) float32 { return float32(v.Float()) }),
	reflect.Float64:   basicOf(xreflect.Value.Float),
	reflect.Complex64: basicOf(func(v xreflect.Value) complex64 { return complex64(v.Complex()) }), reflect.Complex128: basicOf(xreflect.Value.Complex),
}

func basicOf[T any](convert func(xreflect.Value) T) basic {
	return basic{
		same: func(v T) T { return v },
		read: func(get func(*interp.Env) xreflect.Value) any {
			return func(env *interp.Env) T { return convert(get(env)) }
		},
	}
}

func signed[T int | int8 | int16 | int32 | int64]() basic {
	return basicOf(func(v xreflect.Value) T { return T(v.Int()) })
}

func unsigned[T uint | uint8 | uint16 | uint32 | uint64 | uintptr]() basic {
	return basicOf(func(v xreflect.Value) T { return T(v.Uint()) })
}
