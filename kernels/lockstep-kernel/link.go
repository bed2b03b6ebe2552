//go:build notebook

package main

import (
	"go/ast"
	_ "unsafe" // for go:linkname

	interp "github.com/cosmos72/gomacro/fast"
)

// The interpreter compiles a call in two steps, and exports neither. The kernel needs both: between them it
// examines the result types, and a call that it does not change has no extra cost at run time.

// prepareCall compiles the function and the arguments of a call. fun is the compiled function, or nil.
//
//go:linkname prepareCall github.com/cosmos72/gomacro/fast.(*Comp).prepareCall
func prepareCall(c *interp.Comp, node *ast.CallExpr, fun *interp.Expr) *interp.Call

// finishCall compiles the call itself from prepareCall's result.
//
//go:linkname finishCall github.com/cosmos72/gomacro/fast.(*Comp).call_any
func finishCall(c *interp.Comp, call *interp.Call) *interp.Expr

// goroutineRun returns the interpreter's state in the goroutine with the given gls.GoID, or nil if that has
// interpreted no function.
//
//go:linkname goroutineRun github.com/cosmos72/gomacro/fast.(*IrGlobals).glsGet
func goroutineRun(g *interp.IrGlobals, goid uintptr) *interp.Run
