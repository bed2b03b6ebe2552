//go:build notebook

package main

import (
	"go/ast"
	_ "unsafe" // for go:linkname

	interp "github.com/cosmos72/gomacro/fast"
)

// The interpreter compiles a call in two steps, and exports neither. The kernel needs to
// run them separately: between the two it examines the result types, and a call that it
// does not change has no extra cost at run time.

// prepareCall compiles the function and the arguments of a call. If fun is not nil, it is
// the function, already compiled.
//
//go:linkname prepareCall github.com/cosmos72/gomacro/fast.(*Comp).prepareCall
func prepareCall(c *interp.Comp, node *ast.CallExpr, fun *interp.Expr) *interp.Call

// finishCall compiles the call itself from the result of prepareCall.
//
//go:linkname finishCall github.com/cosmos72/gomacro/fast.(*Comp).call_any
func finishCall(c *interp.Comp, call *interp.Call) *interp.Expr

// goroutineRun returns the state of the interpreter in the goroutine with the given gls.GoID, or nil
// if that goroutine has interpreted no function.
//
//go:linkname goroutineRun github.com/cosmos72/gomacro/fast.(*IrGlobals).glsGet
func goroutineRun(g *interp.IrGlobals, goid uintptr) *interp.Run
