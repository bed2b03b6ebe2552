//go:build notebook

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"reflect"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/xreflect"
)

// compileGuard returns the compiler of the call guard(f) in a go statement of a cell. The
// result of that call is a function of the same type as f that calls f and recovers from
// its panic, so the interpreter converts the arguments as it would for f. If spread is
// set, a variadic parameter becomes a plain slice.
func (k *kernelState) compileGuard(spread bool) func(*interp.Comp, interp.Symbol, *ast.CallExpr) *interp.Call {
	return func(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
		f := k.exiting(c, c.Expr1(node.Args[0], nil), node.Args[0])
		if f.Type == nil || f.Type.Kind() != reflect.Func {
			c.Errorf("call of non-function: %v <%v>", node.Args[0], f.Type)
		}
		if len(node.Args) > 1 && c.Expr(node.Args[1], nil).NumOut() > 1 {
			c.Errorf("go statement: a goroutine cannot be given the several results of %v; assign them to variables first", node.Args[1])
		}
		out := f.Type
		if spread {
			out = c.Universe.FuncOf(list(f.Type.NumIn(), f.Type.In), list(f.Type.NumOut(), f.Type.Out), false)
		}
		typ := c.Universe.FuncOf([]xreflect.Type{f.Type}, []xreflect.Type{out}, false)
		guard := xreflect.ValueOf(reflect.MakeFunc(typ.ReflectType(), func(in []reflect.Value) []reflect.Value {
			return []reflect.Value{k.guard(in[0], out.ReflectType(), node.Pos())}
		}).Interface())
		return &interp.Call{
			Fun:      &interp.Expr{Lit: interp.Lit{Type: typ}, Fun: func(*interp.Env) xreflect.Value { return guard }},
			Args:     []*interp.Expr{f},
			OutTypes: []xreflect.Type{out},
		}
	}
}

func list(n int, at func(int) xreflect.Type) []xreflect.Type {
	types := make([]xreflect.Type, n)
	for i := range types {
		types[i] = at(i)
	}
	return types
}

// guard returns a function of type t that calls f and recovers from its panic. If f
// returns an error, it is reported with the position of the go statement.
func (k *kernelState) guard(f reflect.Value, t reflect.Type, at token.Pos) reflect.Value {
	cell := k.session.Cell()
	return reflect.MakeFunc(t, func(in []reflect.Value) (out []reflect.Value) {
		out = zeros(t) //nolint:wastedassign // the results if the call panics
		defer k.survive(cell)
		out = call(f, in)
		k.reportResult(at, out, inGoroutine)
		return out
	})
}

// inGoroutine describes in a message where an error occurred that could not end the cell.
const inGoroutine = "in a goroutine"

// guardedGo implements notebook.Go in this kernel.
func (k *kernelState) guardedGo(f func()) {
	cell := k.session.Cell()
	go func() {
		defer k.survive(cell)
		f()
	}()
}

// survive recovers from a panic; goroutines that a cell starts defer it. The panic ends
// the cell, or is printed if the cell has ended already.
func (k *kernelState) survive(cell int) {
	r := recover()
	if r == nil {
		return
	}
	if e, ok := r.(*ending); ok {
		k.report(e, inGoroutine)
		return
	}
	err := fmt.Errorf("panic in a goroutine: %v", r)
	if !k.session.Fail(cell, err) {
		fmt.Fprintln(k.stderr.File(), err)
	}
}
