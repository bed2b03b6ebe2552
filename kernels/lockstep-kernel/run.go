//go:build notebook

package main

import (
	"fmt"
	"go/ast"
	"os"

	"github.com/cosmos72/gomacro/ast2"
	"github.com/cosmos72/gomacro/base"
	basereflect "github.com/cosmos72/gomacro/base/reflect"
	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/xreflect"
)

// checkName is the function that stands between the statements of a cell. No
// program can write the name, since it begins with a character that no Go
// identifier may hold.
const checkName = "\u00b7interrupted"

// declareCheck lets the interpreter find the function that ends an interrupted
// cell.
func (k *kernelState) declareCheck(ir *interp.Interp) {
	ir.DeclFunc(checkName, func() {
		if k.session.Interrupted() {
			panic(base.SigInterrupt)
		}
	})
}

// run parses, compiles and runs a cell. It returns the values of the last line
// if that is an expression with a value; a panic of the cell is the error.
func (k *kernelState) run(ir *interp.Interp, outerr OutErr, code string) (vals []interface{}, types []xreflect.Type, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			vals, types, err = nil, nil, r
		default:
			vals, types, err = nil, nil, fmt.Errorf("%v", r)
		}
	}()
	code = evalSpecialCommands(ir, outerr, code)
	// A panic must come here and not be printed by the interpreter, and the
	// lines in its errors are those of the cell.
	ir.Comp.Options &^= base.OptShowPrompt | base.OptTrapPanic
	ir.Comp.Line = 0

	nodes := ir.Comp.ParseBytes([]byte(code))
	if len(nodes) == 0 {
		return nil, nil, nil
	}
	_, ends := nodes[len(nodes)-1].(ast.Expr)
	compiled := ir.CompileAst(ast2.AnyToAst(withChecks(nodes), "cell"))
	results, types := ir.RunExpr(compiled)
	if !ends {
		return nil, nil, nil
	}
	some := false
	for _, r := range results {
		v := basereflect.ValueInterface(r)
		vals, some = append(vals, v), some || v != nil
	}
	if !some {
		return nil, nil, nil // nil is not worth a line
	}
	return vals, types, nil
}

// withChecks puts a call of the check behind each statement and expression of a
// cell but the last. The interpreter runs these one after the other and looks
// for an interrupt only inside of some, so that the lines after an interrupted
// call would still be run.
func withChecks(nodes []ast.Node) []ast.Node {
	var list []ast.Node
	for i, n := range nodes {
		list = append(list, n)
		switch n.(type) {
		case ast.Expr, ast.Stmt:
			if i < len(nodes)-1 {
				list = append(list, &ast.CallExpr{Fun: &ast.Ident{NamePos: n.End(), Name: checkName}, Lparen: n.End(), Rparen: n.End()})
			}
		}
	}
	return list
}

// stopper returns the function that stops the cell which is about to run.
//
// Inside of a block the interpreter looks for an interrupt only every 15
// statements. Therefore the statements of the block that runs are overwritten
// too. Like the interpreter's own flag this is not synchronised with the cell,
// which is the price for statements that run without a check: each write is of
// one word, and the cell finds the old statement or the new one.
func stopper(ir *interp.Interp) func() {
	env := ir.PrepareEnv()
	return func() {
		ir.Interrupt(os.Interrupt)
		for i := range env.Code {
			env.Code[i] = stopCell
		}
	}
}

// stopCell is the statement that ends an interrupted cell.
func stopCell(*interp.Env) (interp.Stmt, *interp.Env) { panic(base.SigInterrupt) }
