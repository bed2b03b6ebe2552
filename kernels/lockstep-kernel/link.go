//go:build notebook

package main

import (
	"go/ast"
	_ "unsafe" // for go:linkname

	interp "github.com/cosmos72/gomacro/fast"
)

// The interpreter compiles a call in two steps, of which it exports neither. The
// kernel needs the first alone: between the two it looks at the result types, and
// a call that it leaves as it is costs nothing when it runs.

// prepareCall compiles the function and the arguments of a call. The function is
// compiled already if fun is set.
//
//go:linkname prepareCall github.com/cosmos72/gomacro/fast.(*Comp).prepareCall
func prepareCall(c *interp.Comp, node *ast.CallExpr, fun *interp.Expr) *interp.Call

// finishCall compiles what prepareCall returned.
//
//go:linkname finishCall github.com/cosmos72/gomacro/fast.(*Comp).call_any
func finishCall(c *interp.Comp, call *interp.Call) *interp.Expr
