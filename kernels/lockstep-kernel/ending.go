//go:build notebook

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cosmos72/gomacro/base"
	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/go/etoken"
	"github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/cell"
)

// An unhandledError is the panic value that ends a cell because of an error that it does not handle.
type unhandledError struct {
	err error
	at  token.Pos

	// bodies is the number of interpreted function bodies that the panic ends. Compiled code has called the
	// outermost one and gets zero values. If bodies is negative, the panic ends the cell, its goroutine or
	// its deferred call.
	bodies int
}

func (e *unhandledError) Error() string { return e.err.Error() }
func (e *unhandledError) Unwrap() error { return e.err }

// An errorState contains what the kernel needs to handle errors in cells.
type errorState struct {
	// While a cell is compiled:
	callee     xreflect.Type                // type of the function whose only argument is compiled next
	mayEnd     bool                         // the function being compiled may end the cell
	bodyMayEnd bool                         // the last compiled function may end the cell
	safe       map[string]bool              // functions declared in cells that cannot end a cell
	unused     map[*ast.CallExpr]*ast.Ident // see cell.FindUnusedResults
	notes      map[token.Pos]string         // notes about the cell, by position

	mu       sync.Mutex
	reported map[string]bool // errors that were printed in the output of this cell
}

// removeRedeclared removes the functions that a cell declares from s.safe, because the new ones may end the cell.
func (s *errorState) removeRedeclared(nodes []ast.Node) {
	for _, n := range nodes {
		if d, ok := n.(*ast.FuncDecl); ok {
			delete(s.safe, d.Name.Name)
		}
	}
}

// endCell ends the cell or goroutine because of an error that the cell does not handle. If compiled code has
// called the current function, endCell only prints the error.
func (k *kernelState) endCell(at token.Pos, err error) {
	e := &unhandledError{err: err, at: at, bodies: countInterpretedBodies()}
	if e.bodies == 0 { // a panic through the compiled code would be unsafe
		k.reportError(e, inCallbackText)
		return
	}
	panic(e)
}

// inCallbackText ends the message about an error in a function that compiled code called, which cannot end
// the cell.
const inCallbackText = "in a function that compiled code called, which got zero values"

// ownPrefix begins the names of this package's functions: "main." in the kernel.
var ownPrefix = reflect.TypeFor[kernelState]().PkgPath() + "."

// countInterpretedBodies inspects the stack of a goroutine that interprets a cell. It returns the number of
// interpreted function bodies above the topmost compiled code, or -1 if the stack has none above the
// kernel's own call.
func countInterpretedBodies() int {
	pcs := make([]uintptr, 256)
	n := runtime.Callers(3, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 4*len(pcs))
		n = runtime.Callers(3, pcs)
	}
	frames := runtime.CallersFrames(pcs[:n])
	for bodies := 0; ; {
		frame, more := frames.Next()
		name := frame.Function
		switch {
		case strings.HasPrefix(name, ownPrefix+"(*kernelState).runBody"):
			bodies++
		case slices.ContainsFunc([]string{"runExpr", "guard", "startGuardedGoroutine", "runDeferred"}, func(f string) bool {
			return strings.HasPrefix(name, ownPrefix+"(*kernelState)."+f)
		}):
			return -1
		case !more || !slices.ContainsFunc([]string{ownPrefix, "runtime.", "reflect.", "internal/", "github.com/cosmos72/gomacro/"}, func(p string) bool {
			return strings.HasPrefix(name, p)
		}):
			return bodies
		}
	}
}

// reportError prints an error that could not end the cell, and its place, where. It prints a text once per cell.
func (k *kernelState) reportError(e *unhandledError, where string) {
	text := fmt.Sprintf("%s: %v (%s)", k.cells.formatPosition(positionInCell(k.inspector.Interp.Comp.Fileset, e.at)), e.err, where)
	k.errors.mu.Lock()
	defer k.errors.mu.Unlock()
	if !k.errors.reported[text] {
		k.errors.reported[text] = true
		fmt.Fprintln(k.stderr.File(), text)
	}
}

// reset clears the previous cell's state.
func (s *errorState) reset() {
	s.callee, s.mayEnd = nil, false
	s.notes = map[token.Pos]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = map[string]bool{}
}

// errorPosition returns the start of a call or, in a chain of calls over several lines, the method's name.
func errorPosition(files *etoken.FileSet, node *ast.CallExpr) token.Pos {
	if sel, ok := ast.Unparen(node.Fun).(*ast.SelectorExpr); ok && files.Position(sel.Sel.Pos()).Line > files.Position(node.Pos()).Line {
		return sel.Sel.Pos()
	}
	return node.Pos()
}

// compileBody compiles a call of cell.CheckFuncNames.Body with a function's body, which runs in runBody if
// it may end the cell.
func (k *kernelState) compileBody(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	name, body := cell.ParseBodyCall(node)
	outer := k.errors.mayEnd
	k.errors.mayEnd, k.errors.safe[name] = false, true // a recursive call does not make the function unsafe
	defer func() {
		k.errors.bodyMayEnd, k.errors.safe[name] = k.errors.mayEnd, !k.errors.mayEnd && name != ""
		k.errors.mayEnd = outer
	}()
	start := c.Code.Len()
	if c.Func != nil {
		for _, s := range body.List {
			c.Stmt(s)
		}
	} else {
		c.Block(body)
	}
	if k.errors.mayEnd {
		k.wrapStatements(c, start, body.Pos())
	}
	// The statement is replaced by a constant, which does nothing.
	return identityCall(c, &interp.Expr{Lit: interp.Lit{Type: c.TypeOfBool(), Value: true}})
}

// wrapStatements replaces the compiled statements from start on by one, which runs them in runBody.
func (k *kernelState) wrapStatements(c *interp.Comp, start int, at token.Pos) {
	// Statements refer to each other by index, so they must keep their indices.
	code := interp.Code{List: slices.Clone(c.Code.List), DebugPos: slices.Clone(c.Code.DebugPos), WithDefers: c.Code.WithDefers}
	if start > 0 {
		code.List[0] = func(env *interp.Env) (interp.Stmt, *interp.Env) {
			env.IP = start
			return env.Code[start], env
		}
	}
	body := code.Exec()
	c.Code.Truncate(start)
	c.Code.WithDefers = false
	c.Append(func(env *interp.Env) (interp.Stmt, *interp.Env) {
		k.runBody(env, body)
		env.Run.Signals.Sync = base.SigReturn
		return env.Run.Interrupt, env
	}, at)
}

// runBody runs the body of a function. If compiled code has called it, runBody recovers from an
// unhandledError and reports it.
func (k *kernelState) runBody(env *interp.Env, body func(*interp.Env)) {
	run := env.Run
	interrupt, flags := run.Interrupt, run.ExecFlags
	run.ExecFlags.SetStartDefer(flags.IsDefer()) // so that recover works in the body
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *unhandledError:
			if e.bodies--; e.bodies != 0 {
				panic(e)
			}
			run.Interrupt, run.ExecFlags, run.Signals.Sync = interrupt, flags, base.SigNone
			run.Panic, run.PanicFun, run.PanicPos = nil, nil, token.NoPos
			k.reportError(e, inCallbackText)
		default:
			panic(e)
		}
	}()
	body(env)
}

// compileDeferred compiles deferred(f), where f is the function of a defer statement, to a function of f's
// type that calls f and reports its error.
func (k *kernelState) compileDeferred(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	f := k.replaceFatal(c, c.Expr1(node.Args[0], nil), node.Args[0])
	t := f.Type
	if t == nil || t.Kind() != reflect.Func {
		c.Errorf("call of non-function: %v <%v>", node.Args[0], t)
	}
	mayEnd := k.mayEndCell(c, f, node.Args[0])
	if _, ok := node.Args[0].(*ast.FuncLit); ok {
		mayEnd = k.errors.bodyMayEnd
	}
	if !mayEnd && !isErrorType(lastResultType(t)) {
		return identityCall(c, f)
	}
	at := node.Pos()
	return newCall(c, []xreflect.Type{t}, []xreflect.Type{t}, []*interp.Expr{f}, func(in []reflect.Value) []reflect.Value {
		return []reflect.Value{reflect.MakeFunc(t.ReflectType(), func(args []reflect.Value) []reflect.Value {
			return k.runDeferred(at, in[0], args)
		})}
	})
}

func (k *kernelState) runDeferred(at token.Pos, f reflect.Value, args []reflect.Value) (results []reflect.Value) {
	results = zeroResults(f.Type()) // the results if the call panics
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *unhandledError:
			k.reportError(e, "in a deferred call")
		default:
			panic(e)
		}
	}()
	results = callFunction(f, args)
	k.reportResult(at, results, "in a deferred call")
	return results
}

// reportResult prints the error among the results of a call, which no code receives.
func (k *kernelState) reportResult(at token.Pos, results []reflect.Value, where string) {
	if n := len(results); n > 0 && results[n-1].Type() == errorType {
		if err, ok := results[n-1].Interface().(error); ok {
			k.reportError(&unhandledError{err: err, at: at}, where)
		}
	}
}

// zeroResults returns the results of a function of type t that did not return.
func zeroResults(t reflect.Type) (list []reflect.Value) {
	for i := range t.NumOut() {
		list = append(list, reflect.Zero(t.Out(i)))
	}
	return list
}

// callFunction calls f. args are as reflect.MakeFunc passes them: the last one of a variadic function is a slice.
func callFunction(f reflect.Value, args []reflect.Value) []reflect.Value {
	if f.Type().IsVariadic() {
		return f.CallSlice(args)
	}
	return f.Call(args)
}

// wrapRecover makes recover return nil for an unhandledError, so that a cell cannot recover from it.
func wrapRecover(compile compileFunc) compileFunc {
	return func(c *interp.Comp, sym interp.Symbol, node *ast.CallExpr) *interp.Call {
		call := compile(c, sym, node)
		recovered := call.Fun.Value.(func(xreflect.Value) xreflect.Value)
		none := xreflect.Zero(c.TypeOfInterface())
		call.Fun.Value = func(v xreflect.Value) xreflect.Value {
			if env, ok := v.Interface().(*interp.Env); ok {
				if _, ok := env.Run.Panic.(*unhandledError); ok {
					return none
				}
			}
			return recovered(v)
		}
		return call
	}
}
