//go:build notebook

package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"reflect"
	"time"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/gls"
	"github.com/cosmos72/gomacro/imports"
	"github.com/cosmos72/gomacro/xreflect"
)

// compileGuard compiles the call guard(f) in a go statement of a cell to a function of f's type that calls f
// and recovers from its panic, so that the interpreter converts the arguments as for f. If spread is set, a
// variadic parameter becomes a slice.
func (k *kernelState) compileGuard(spread bool) func(*interp.Comp, interp.Symbol, *ast.CallExpr) *interp.Call {
	return func(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
		f := k.replaceFatal(c, c.Expr1(node.Args[0], nil), node.Args[0])
		if f.Type == nil || f.Type.Kind() != reflect.Func {
			c.Errorf("call of non-function: %v <%v>", node.Args[0], f.Type)
		}
		if len(node.Args) > 1 && c.Expr(node.Args[1], nil).NumOut() > 1 {
			c.Errorf("go statement: the results of %v cannot be passed to a goroutine directly; assign them to variables first", node.Args[1])
		}
		out := f.Type
		if spread {
			out = c.Universe.FuncOf(collectTypes(f.Type.NumIn(), f.Type.In), collectTypes(f.Type.NumOut(), f.Type.Out), false)
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

func collectTypes(n int, typeAt func(int) xreflect.Type) []xreflect.Type {
	types := make([]xreflect.Type, n)
	for i := range types {
		types[i] = typeAt(i)
	}
	return types
}

// guard returns a function of type t that calls f and recovers from its panic. It reports an error of f at
// the go statement.
func (k *kernelState) guard(f reflect.Value, t reflect.Type, at token.Pos) reflect.Value {
	cell := k.session.CellNumber()
	return reflect.MakeFunc(t, func(in []reflect.Value) (out []reflect.Value) {
		out = zeroResults(t) // the results if the call panics
		defer k.recoverPanic(cell)
		out = callFunction(f, in)
		k.reportResult(at, out, inGoroutineText)
		return out
	})
}

// inGoroutineText ends the message about an error in a goroutine, which cannot end the cell.
const inGoroutineText = "in a goroutine"

// startGuardedGoroutine implements notebook.Go in this kernel.
func (k *kernelState) startGuardedGoroutine(f func()) {
	cell := k.session.CellNumber()
	go func() {
		defer k.recoverPanic(cell)
		f()
	}()
}

// replaceAfterFunc makes time.AfterFunc and context.AfterFunc in cells recover from a panic in their goroutine.
func (k *kernelState) replaceAfterFunc() {
	guarded := func(f func()) func() {
		cell := k.session.CellNumber()
		return func() {
			defer k.recoverPanic(cell)
			f()
		}
	}
	imports.Packages["time"].Binds["AfterFunc"] = reflect.ValueOf(func(d time.Duration, f func()) *time.Timer {
		return time.AfterFunc(d, guarded(f))
	})
	imports.Packages["context"].Binds["AfterFunc"] = reflect.ValueOf(func(ctx context.Context, f func()) (stop func() bool) {
		return context.AfterFunc(ctx, guarded(f))
	})
}

// guardWaitGroup returns the function to call instead of f, the compiled function of a call: one that
// recovers from a panic in the goroutine if f is the method Go of a sync.WaitGroup, otherwise f.
func (k *kernelState) guardWaitGroup(c *interp.Comp, f *interp.Expr, node ast.Expr) *interp.Expr {
	sel, ok := ast.Unparen(node).(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Go" || selectedPackage(c, sel) != nil || !isWaitGroup(c, sel.X) {
		return f
	}
	get := f.AsX1()
	return &interp.Expr{Lit: interp.Lit{Type: f.Type}, Fun: func(env *interp.Env) xreflect.Value {
		start, _ := get(env).Interface().(func(func()))
		cell := k.session.CellNumber()
		return xreflect.ValueOf(func(body func()) {
			start(func() {
				defer k.recoverPanic(cell)
				body()
			})
		})
	}}
}

// recoverPanic recovers from a panic. It must be deferred by a goroutine that the given cell started. It
// prints an unhandledError. Any other panic ends the cell, or is printed if the cell has ended.
func (k *kernelState) recoverPanic(cell int) {
	r := recover()
	if r == nil {
		return
	}
	if e, ok := r.(*unhandledError); ok {
		k.reportError(e, inGoroutineText)
		return
	}
	k.failGoroutine(cell, namePanic, explainPanic(fmt.Sprint(r)))
}

// failGoroutine ends the given cell because of an error in the calling goroutine, or prints the error if the
// cell has ended. name is the kind of the error.
func (k *kernelState) failGoroutine(cell int, name, text string) {
	failed := &cellError{name: name, text: fmt.Sprintf("%s (%s)", text, inGoroutineText)}
	ir := k.inspector.Interp
	if run := goroutineRun(ir.Comp.IrGlobals, gls.GoID()); run != nil {
		if at := positionInCell(ir.Comp.Fileset, panicPosition(run)); at.line > 0 {
			failed.text = fmt.Sprintf("%s: %s", k.cells.formatPosition(at), failed.text)
			failed.places = []cellPosition{at}
		}
		run.PanicPos = token.NoPos // the next goroutine may get the same ID
	}
	failed.err = errors.New(failed.text)
	if !k.session.Fail(cell, failed) {
		fmt.Fprintln(k.stderr.File(), failed)
	}
}
