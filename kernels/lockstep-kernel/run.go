//go:build notebook

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/cosmos72/gomacro/ast2"
	"github.com/cosmos72/gomacro/base"
	basereflect "github.com/cosmos72/gomacro/base/reflect"
	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/cell"
)

// checkName is the function that stands between the statements of a cell. No
// program can write the name, since it begins with a character that no Go
// identifier may hold.
const checkName = "\u00b7interrupted"

// guardName and spreadName are the functions that a go statement of a cell calls
// first.
const (
	guardName  = "\u00b7guard"
	spreadName = "\u00b7spread"
)

// declareHelpers lets the interpreter find the functions that the kernel puts
// into a cell.
func (k *kernelState) declareHelpers(ir *interp.Interp) {
	ir.DeclFunc(checkName, func(next int) {
		if k.session.Interrupted() {
			panic(base.SigInterrupt)
		}
		k.at = next
	})
	ir.DeclBuiltin(guardName, interp.Builtin{Compile: k.compileGuard(false), ArgMin: 1, ArgMax: 2})
	ir.DeclBuiltin(spreadName, interp.Builtin{Compile: k.compileGuard(true), ArgMin: 1, ArgMax: 2})
	k.declareWaits(ir)
	k.declareChecks(ir)
}

// An outcome is what comes of a cell: the values of the last line if that is an
// expression with a value, or an error.
type outcome struct {
	vals  []interface{}
	types []xreflect.Type
	err   error
}

// run parses, compiles and runs a cell. A panic of the cell is the error, and so
// is what ends its goroutine; out is a parameter because run does not return
// then.
func (k *kernelState) run(ir *interp.Interp, outerr OutErr, code string, out *outcome) {
	var rest []ast.Node
	k.at, k.inner = nowhere, token.NoPos
	before := maps.Clone(ir.Comp.Binds)
	over := false
	defer func() {
		r := recover()
		if r == nil && !over {
			r = k.exited()
		}
		if r != nil {
			forget(ir, before, rest, k.at)
			*out = outcome{err: k.explained(code, k.failure(ir, rest, r))}
		}
	}()
	out.vals, out.types = k.values(ir, outerr, code, &rest)
	over = true
}

// values runs a cell. It stores what of the cell runs after its declarations in
// rest.
func (k *kernelState) values(ir *interp.Interp, outerr OutErr, code string, rest *[]ast.Node) (vals []interface{}, types []xreflect.Type) {
	code = evalSpecialCommands(ir, outerr, code)
	// A panic must come here and not be printed by the interpreter, and the
	// lines in its errors are those of the cell.
	ir.Comp.Options &^= base.OptShowPrompt | base.OptTrapPanic
	ir.Comp.Line = 0
	ir.Comp.Filepath = fileOf(ExecCounter)
	k.cells.add(ExecCounter, code)
	k.errors.newCell()

	nodes := ir.Comp.ParseBytes([]byte(code))
	if len(nodes) == 0 {
		return nil, nil
	}
	_, ends := nodes[len(nodes)-1].(ast.Expr)
	unused := cell.UnusedErrors(nodes)
	plan := cell.Order(nodes)
	if *rest = plan.Rest; len(plan.Types) > 0 {
		ir.RunExpr(ir.CompileAst(ast2.AnyToAst(plan.Types, "cell")))
	}
	k.errors.redeclared(nodes)
	rewrite(ir, plan.Declarations(), false)
	rewrite(ir, *rest, ends)
	compiled := compile(ir, plan)
	for _, id := range unused {
		fmt.Fprintf(k.stderr.File(), "line %d: %s is assigned and not used in this cell; without it, an error ends the cell\n",
			ir.Comp.Fileset.Position(id.Pos()).Line, id.Name)
	}
	if len(*rest) == 0 {
		return nil, nil
	}
	results, types := k.runExpr(ir, compiled)
	if !ends {
		return nil, nil
	}
	some := false
	for _, r := range results {
		v := basereflect.ValueInterface(r)
		vals, some = append(vals, v), some || v != nil
	}
	if !some {
		return nil, nil // nil is not worth a line
	}
	return vals, types
}

// forget makes the session know the variables that the statement at, which failed,
// and those after it declare as they were before the cell, or not at all: they
// have no value. If at is nowhere, a declaration failed, and which one is unknown.
func forget(ir *interp.Interp, before map[string]*interp.Bind, rest []ast.Node, at int) {
	if at == nowhere {
		rest = slices.DeleteFunc(slices.Clone(rest), statement)
	} else if at < len(rest) {
		rest = rest[at:]
	}
	for _, name := range cell.Variables(rest) {
		if b := before[name]; b != nil {
			ir.Comp.Binds[name] = b
		} else {
			delete(ir.Comp.Binds, name)
		}
	}
}

// rewrite puts the kernel's own functions into nodes of a cell; shows is set if
// the cell shows the last of them.
func rewrite(ir *interp.Interp, nodes []ast.Node, shows bool) {
	checks(ir.Comp).Apply(nodes, shows)
	cell.Guard(nodes, guardName, spreadName)
	waits().Waiting(nodes)
}

// runExpr is the interpreter's RunExpr, except that it notes which statement
// panicked, in the innermost function that is interpreted.
func (k *kernelState) runExpr(ir *interp.Interp, e *interp.Expr) (values []xreflect.Value, types []xreflect.Type) {
	env := ir.PrepareEnv()
	if e.Untyped() {
		e.ConstTo(e.DefaultType())
	}
	r := env.Run
	caller, over := r.CurrEnv, false
	r.CurrEnv = env
	env.DebugPos = nil // of the last cell; one that is all expressions sets none
	defer func() {
		if at := r.CurrEnv; !over && at != nil && at.IP >= 0 && at.IP < len(at.DebugPos) {
			k.inner, k.called = at.DebugPos[at.IP], at != env
		}
		r.CurrEnv = caller
	}()
	v, vs := e.AsXV(interp.COptKeepUntyped)(env)
	over = true
	return basereflect.PackValues(v, vs), basereflect.PackTypes(e.Type, e.Types)
}

// compile compiles the functions and the rest of a cell. If it cannot, the
// session knows the names that it knew before: a variable that was declared and
// never set, or a function without its body, would only break a later cell.
func compile(ir *interp.Interp, plan cell.Plan) *interp.Expr {
	before := maps.Clone(ir.Comp.Binds)
	defer func() {
		if r := recover(); r != nil {
			r = placed(ir, r)
			ir.Comp.Binds = before
			ir.Comp.Code.Clear()
			panic(r)
		}
	}()
	declare(ir, plan)
	if len(plan.Rest) == 0 {
		return nil
	}
	return ir.CompileAst(ast2.AnyToAst(withChecks(plan.Rest), "cell"))
}

// declare compiles the methods and functions that come first. One is made known
// before any of them is compiled, since they may need each other.
func declare(ir *interp.Interp, plan cell.Plan) {
	for _, d := range plan.Methods {
		if plan.Own[cell.Receiver(d)] {
			ir.RunExpr(ir.CompileNode(cell.Stub(d)))
		}
	}
	for _, d := range plan.Functions {
		if ir.Comp.TryResolve(d.Name.Name) == nil {
			ir.RunExpr(ir.CompileNode(cell.Stub(d)))
		}
	}
	for _, d := range plan.Methods {
		ir.RunExpr(ir.CompileNode(d))
	}
	for _, d := range plan.Functions {
		ir.RunExpr(ir.CompileNode(d))
	}
}

// withChecks puts a call of the check before each statement and expression of a
// cell that follows another or begins the cell. The interpreter runs these one
// after the other and looks for an interrupt only inside of some, so that the
// lines after an interrupted call would still be run. The check is told which
// node comes next; between declarations, which the interpreter orders by what
// they need, there is none, and the next is nowhere.
func withChecks(nodes []ast.Node) []ast.Node {
	var list []ast.Node
	for i, n := range nodes {
		if i > 0 && statement(nodes[i-1]) || i == 0 && statement(n) {
			next := nowhere
			if statement(n) {
				next = i
			}
			list = append(list, &ast.CallExpr{
				Fun: &ast.Ident{NamePos: n.Pos(), Name: checkName}, Lparen: n.Pos(), Rparen: n.Pos(),
				Args: []ast.Expr{&ast.BasicLit{ValuePos: n.Pos(), Kind: token.INT, Value: strconv.Itoa(next)}},
			})
		}
		list = append(list, n)
	}
	return list
}

// statement reports whether a node is run in its turn.
func statement(n ast.Node) bool {
	switch n.(type) {
	case ast.Expr, ast.Stmt:
		return true
	}
	return false
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
