//go:build notebook

package main

import (
	"reflect"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/xreflect"
)

// firstResults evaluates e and returns the first n of its values, as a call, because builtin functions may
// return nothing else.
func firstResults(c *interp.Comp, e *interp.Expr, n int) *interp.Call {
	if e.NumOut() == 1 && n == 1 {
		return identityCall(c, e)
	}
	if n == 0 {
		t := c.Universe.FuncOf([]xreflect.Type{c.TypeOfInterface()}, nil, false)
		drop := &interp.Expr{Lit: interp.Lit{Type: t, Value: func(xreflect.Value) {}}}
		return &interp.Call{Fun: drop, Args: []*interp.Expr{{Lit: interp.Lit{Type: c.TypeOfInterface()}, Fun: firstValue(e)}}}
	}
	if n > 1 {
		return newCall(c, e.Types, e.Types[:n], []*interp.Expr{e}, func(in []reflect.Value) []reflect.Value { return in[:n] })
	}
	one := &interp.Expr{Lit: interp.Lit{Type: e.Type}, Fun: firstValue(e)}
	if b, ok := basicKinds[e.Type.Kind()]; ok {
		one.Fun = b.read(firstValue(e))
	}
	return identityCall(c, one)
}

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

// identityCall returns a call whose result is e's only value.
func identityCall(c *interp.Comp, e *interp.Expr) *interp.Call {
	t := e.Type
	if e.Const() {
		t = e.DefaultType()
		e.ConstTo(t)
	}
	call := &interp.Call{Args: []*interp.Expr{e}, OutTypes: []xreflect.Type{t}, Const: e.Const()}
	b, ok := basicKinds[t.Kind()]
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

// A basicKind contains functions for expressions of a basic type T, which the interpreter compiles to a
// func(*interp.Env) T.
type basicKind struct {
	same any                                        // the identity function, of type func(T) T
	read func(func(*interp.Env) xreflect.Value) any // converts a function that returns a reflected value to a func(*interp.Env) T
}

// basicKinds contains the functions for each basic type.
var basicKinds = map[reflect.Kind]basicKind{
	reflect.Bool: newBasicKind(xreflect.Value.Bool), reflect.String: newBasicKind(xreflect.Value.String),
	reflect.Int: signedKind[int](), reflect.Int8: signedKind[int8](), reflect.Int16: signedKind[int16](),
	reflect.Int32: signedKind[int32](), reflect.Int64: signedKind[int64](),
	reflect.Uint: unsignedKind[uint](), reflect.Uint8: unsignedKind[uint8](), reflect.Uint16: unsignedKind[uint16](),
	reflect.Uint32: unsignedKind[uint32](), reflect.Uint64: unsignedKind[uint64](), reflect.Uintptr: unsignedKind[uintptr](),
	reflect.Float32:   newBasicKind(func(v xreflect.Value) float32 { return float32(v.Float()) }),
	reflect.Float64:   newBasicKind(xreflect.Value.Float),
	reflect.Complex64: newBasicKind(func(v xreflect.Value) complex64 { return complex64(v.Complex()) }), reflect.Complex128: newBasicKind(xreflect.Value.Complex),
}

func newBasicKind[T any](convert func(xreflect.Value) T) basicKind {
	return basicKind{
		same: func(v T) T { return v },
		read: func(get func(*interp.Env) xreflect.Value) any {
			return func(env *interp.Env) T { return convert(get(env)) }
		},
	}
}

func signedKind[T int | int8 | int16 | int32 | int64]() basicKind {
	return newBasicKind(func(v xreflect.Value) T { return T(v.Int()) })
}

func unsignedKind[T uint | uint8 | uint16 | uint32 | uint64 | uintptr]() basicKind {
	return newBasicKind(func(v xreflect.Value) T { return T(v.Uint()) })
}
