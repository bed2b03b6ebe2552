//go:build notebook

package main

import (
	"go/ast"
	"reflect"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/cell"
)

// checkFuncNames returns the functions in which the kernel wraps a cell's calls, so that an unhandled error
// ends the cell; see package cell.
func checkFuncNames(c *interp.Comp) cell.CheckFuncNames {
	return cell.CheckFuncNames{
		Values: "\u00b7values", Last: "\u00b7last", Argument: "\u00b7argument", Ignored: "\u00b7ignored",
		Deferred: "\u00b7deferred", Body: "\u00b7body",
		IsType: func(e ast.Expr) bool { return isType(c, e) },
	}
}

func isType(c *interp.Comp, e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		for ; c != nil; c = c.Outer {
			if c.Binds[e.Name] != nil {
				return false
			}
			if c.Types[e.Name] != nil {
				return true
			}
		}
	case *ast.SelectorExpr:
		imp := selectedPackage(c, e)
		return imp != nil && imp.Types[e.Sel.Name] != nil
	}
	return false
}

// selectedPackage returns the package that e selects from, such as fmt in fmt.Println, or nil.
func selectedPackage(c *interp.Comp, e *ast.SelectorExpr) *interp.Import {
	id, ok := e.X.(*ast.Ident)
	if !ok {
		return nil
	}
	sym := c.TryResolve(id.Name)
	if sym == nil {
		return nil
	}
	imp, _ := sym.Value.(*interp.Import)
	return imp
}

func (k *kernelState) declareChecks(ir *interp.Interp) {
	names := checkFuncNames(ir.Comp)
	ir.DeclBuiltin(names.Values, interp.Builtin{Compile: k.compileUsedCall, ArgMin: 2, ArgMax: 2})
	ir.DeclBuiltin(names.Last, interp.Builtin{Compile: k.compileLastCall, ArgMin: 1, ArgMax: 1})
	ir.DeclBuiltin(names.Argument, interp.Builtin{Compile: k.compileArgumentCall, ArgMin: 1, ArgMax: 1})
	ir.DeclBuiltin(names.Ignored, interp.Builtin{Compile: k.compileIgnoredCall, ArgMin: 2, ArgMax: 2})
	ir.DeclBuiltin(names.Deferred, interp.Builtin{Compile: k.compileDeferred, ArgMin: 1, ArgMax: 1})
	ir.DeclBuiltin(names.Body, interp.Builtin{Compile: k.compileBody, ArgMin: 2, ArgMax: 2})

	binds := ir.Comp.TopComp().Binds
	for name, wrap := range map[string]func(compileFunc) compileFunc{"recover": wrapRecover, "print": k.notePrint, "println": k.notePrint} {
		b := binds[name].Value.(interp.Builtin)
		b.Compile = wrap(b.Compile)
		binds[name].Value = b
	}
}

type compileFunc = func(*interp.Comp, interp.Symbol, *ast.CallExpr) *interp.Call

// notePrint makes calls of print or println also show a note: whoever expects Python's function does not
// know that the output is an error message.
func (k *kernelState) notePrint(compile compileFunc) compileFunc {
	return func(c *interp.Comp, sym interp.Symbol, node *ast.CallExpr) *interp.Call {
		k.errors.notes[node.Pos()] = sym.Name + " writes to standard error, which tools take for a failure; write fmt.Println"
		return compile(c, sym, node)
	}
}

// compileUsedCall compiles values(f(), n): f(), of which the cell uses n results. If the last result is an
// error, and the cell uses either all results before it or none, the error is checked.
func (k *kernelState) compileUsedCall(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	inner, n := cell.ParseCheckCall(node)
	call := k.compileCall(c, inner)
	out := len(call.OutTypes)
	switch {
	case !returnsError(call), out == n:
		if id := k.errors.unused[inner]; id != nil && returnsError(call) {
			k.errors.notes[id.Pos()] = id.Name + " is assigned but not used in this cell; without the assignment, an error ends the cell"
		}
		return asBuiltinCall(call)
	case n == 0 || out == n+1:
		return k.compileCheckedCall(c, call, inner, n)
	}
	c.Pos = inner.Pos()
	c.Errorf("%v returns %d values and an error, but the cell uses %d: assign the values to %d variables", inner, out-1, n, out-1)
	return nil
}

// compileLastCall compiles a call in the cell's last line, whose results the notebook shows.
func (k *kernelState) compileLastCall(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	inner, _ := cell.ParseCheckCall(node)
	call := k.compileCall(c, inner)
	if !returnsError(call) {
		return asBuiltinCall(call)
	}
	return k.compileCheckedCall(c, call, inner, len(call.OutTypes)-1)
}

// compileArgumentCall compiles a call that is the only argument of another call. The outer function receives
// all results if its parameters accept them, including the error; otherwise the call is checked.
func (k *kernelState) compileArgumentCall(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	outer := k.errors.callee
	inner, _ := cell.ParseCheckCall(node)
	call := k.compileCall(c, inner)
	if out := len(call.OutTypes); returnsError(call) && out > 1 && !acceptsArguments(outer, call.OutTypes) {
		return k.compileCheckedCall(c, call, inner, out-1)
	}
	return asBuiltinCall(call)
}

func acceptsArguments(f xreflect.Type, args []xreflect.Type) bool {
	if f == nil || f.Kind() != reflect.Func {
		return false
	}
	n := f.NumIn()
	if len(args) != n && (!f.IsVariadic() || len(args) < n-1) {
		return false
	}
	for i, a := range args {
		var parameter xreflect.Type
		if f.IsVariadic() && i >= n-1 {
			parameter = f.In(n - 1).Elem()
		} else {
			parameter = f.In(i)
		}
		if a == nil || !a.AssignableTo(parameter) {
			return false
		}
	}
	return true
}

// compileIgnoredCall compiles a call whose n results are assigned to blanks: the cell ignores its error
// deliberately.
func (k *kernelState) compileIgnoredCall(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	inner, n := cell.ParseCheckCall(node)
	call := k.compileCall(c, inner)
	if returnsError(call) && len(call.OutTypes) == n+1 {
		return firstResults(c, finishCall(c, call), n)
	}
	return asBuiltinCall(call)
}

// compileCall compiles a call or a conversion, which the syntax does not distinguish.
func (k *kernelState) compileCall(c *interp.Comp, node *ast.CallExpr) *interp.Call {
	var fun *interp.Expr
	if _, literal := node.Fun.(*ast.FuncLit); len(node.Args) <= 1 && !literal {
		var t xreflect.Type
		if fun, t = c.Expr1OrType(node.Fun); t != nil {
			return firstResults(c, c.CallExpr(node), 1)
		}
	} else {
		fun = c.Expr1(node.Fun, nil)
	}
	fun = k.guardWaitGroup(c, k.replaceFatal(c, fun, node.Fun), node.Fun)
	k.errors.callee = fun.Type
	call := prepareCall(c, node, fun)
	k.errors.callee = nil
	if !call.Builtin && k.mayEndCell(c, call.Fun, node.Fun) {
		k.errors.mayEnd = true
	}
	return call
}

func returnsError(call *interp.Call) bool {
	n := len(call.OutTypes)
	return n > 0 && isErrorType(call.OutTypes[n-1])
}

// lastResultType returns the type of f's last result, or nil.
func lastResultType(f xreflect.Type) xreflect.Type {
	if n := f.NumOut(); n > 0 {
		return f.Out(n - 1)
	}
	return nil
}

var errorType = reflect.TypeFor[error]()

func isErrorType(t xreflect.Type) bool {
	return t != nil && t.ReflectType() == errorType && t.Name() == "error"
}

// asBuiltinCall returns the call as the interpreter's callBuiltin expects it: the function must not be a constant.
func asBuiltinCall(call *interp.Call) *interp.Call {
	if !call.Builtin && call.Fun.Const() {
		fun := *call.Fun
		fun.WithFun()
		fun.Value, fun.EFlags = nil, 0
		call.Fun = &fun
	}
	return call
}

// compileCheckedCall compiles a call that ends the cell if its last result is a non-nil error, and otherwise
// returns the first n results.
func (k *kernelState) compileCheckedCall(c *interp.Comp, call *interp.Call, node *ast.CallExpr, n int) *interp.Call {
	k.errors.mayEnd = true
	at := errorPosition(c.Fileset, node)
	e := finishCall(c, call)
	last := e.NumOut() - 1
	if last == 0 {
		get := e.AsX1()
		return firstResults(c, &interp.Expr{Lit: interp.Lit{Type: e.Type}, Fun: func(env *interp.Env) xreflect.Value {
			v := get(env)
			if err := toError(v); err != nil {
				k.endCell(at, err)
			}
			return v
		}}, 0)
	}
	get := e.AsXV(interp.COptDefaults)
	return firstResults(c, &interp.Expr{Lit: interp.Lit{Type: e.Out(0)}, Types: e.Types, Fun: func(env *interp.Env) (xreflect.Value, []xreflect.Value) {
		v, all := get(env)
		if err := toError(all[last]); err != nil {
			k.endCell(at, err)
		}
		return v, all
	}}, n)
}

// toError converts a value of type error. It may return nil.
func toError(v xreflect.Value) error {
	if !v.IsValid() || v.IsNil() {
		return nil
	}
	err, _ := v.Interface().(error)
	return err
}

// mayEndCell reports whether a call of f may end the cell: if f was declared in a cell, with a checked call
// in its body. Compiled functions return their errors instead.
func (k *kernelState) mayEndCell(c *interp.Comp, f *interp.Expr, node ast.Expr) bool {
	if f.Const() {
		return false
	}
	if f.Sym != nil && f.Sym.Desc.Class() == interp.FuncBind {
		return !k.errors.safe[f.Sym.Name]
	}
	sel, ok := ast.Unparen(node).(*ast.SelectorExpr)
	return !ok || selectedPackage(c, sel) == nil && !isCompiledMethod(c, sel)
}

// isCompiledMethod reports whether e selects a compiled type's method from a variable or its field.
func isCompiledMethod(c *interp.Comp, e *ast.SelectorExpr) (is bool) {
	for x := e.X; ; {
		if sel, ok := x.(*ast.SelectorExpr); ok {
			x = sel.X
		} else if _, ok := x.(*ast.Ident); ok {
			break
		} else {
			return false
		}
	}
	defer func() { _ = recover() }() // e.X has no value
	t := c.Expr1(e.X, nil).Type.ReflectType()
	if t.Kind() == reflect.Interface {
		return false
	}
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t)
	}
	_, is = t.MethodByName(e.Sel.Name)
	return is
}
