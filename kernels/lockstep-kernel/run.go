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

// checkFuncName is called between the statements of a cell. Go does not allow its first character in
// identifiers, so no program can use it.
const checkFuncName = "\u00b7interrupted"

// These wrap the function of a go statement; see cell.GuardGoroutines.
const (
	guardFuncName  = "\u00b7guard"
	spreadFuncName = "\u00b7spread"
)

const oneFuncName = "\u00b7one"

// declareHelpers declares the functions that the kernel inserts into cells.
func (k *kernelState) declareHelpers(ir *interp.Interp) {
	ir.DeclFunc(checkFuncName, func(next int) {
		if k.session.Interrupted() {
			panic(base.SigInterrupt)
		}
		k.at = next
	})
	ir.DeclBuiltin(guardFuncName, interp.Builtin{Compile: k.compileGuard(false), ArgMin: 1, ArgMax: 2})
	ir.DeclBuiltin(spreadFuncName, interp.Builtin{Compile: k.compileGuard(true), ArgMin: 1, ArgMax: 2})
	ir.DeclBuiltin(oneFuncName, interp.Builtin{Compile: func(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
		return identityCall(c, c.Expr1(node.Args[0], nil))
	}, ArgMin: 1, ArgMax: 1})
	k.declareWaits(ir)
	k.declareChecks(ir)
}

// A cellOutcome is a cell's error, or the values of its last line if that is an expression.
type cellOutcome struct {
	vals  []interface{}
	types []xreflect.Type
	err   error
}

// run parses, compiles and runs a cell and stores its result or error in out. This is a parameter because
// run does not return if the cell ends its goroutine.
func (k *kernelState) run(ir *interp.Interp, code string, out *cellOutcome) {
	var rest []ast.Node
	k.at, k.inner = noStatement, token.NoPos
	before := maps.Clone(ir.Comp.Binds)
	over := false
	defer func() {
		r := recover()
		if r == nil && !over {
			r = k.takeExitError()
		}
		if r != nil {
			restoreVariables(ir, before, rest, k.at)
			*out = cellOutcome{err: k.addAdvice(code, k.newCellError(ir, rest, r))}
		}
	}()
	out.vals, out.types = k.evaluate(ir, code, &rest)
	over = true
}

// evaluate runs a cell and returns the values and types of its last line. rest receives the nodes after the
// declarations.
func (k *kernelState) evaluate(ir *interp.Interp, code string, rest *[]ast.Node) (vals []interface{}, types []xreflect.Type) {
	k.runCommands(code)
	code = cell.BlankOutCommands(code)
	// The interpreter must not print panics, since run handles them, and must count lines from the start of
	// the cell.
	ir.Comp.Options &^= base.OptShowPrompt | base.OptTrapPanic
	ir.Comp.Line = 0
	ir.Comp.Filepath = cellFileName(ExecCounter)
	k.errors.reset()

	nodes := ir.Comp.ParseBytes([]byte(code))
	if len(nodes) == 0 {
		return nil, nil
	}
	_, ends := nodes[len(nodes)-1].(ast.Expr)
	k.errors.unused = cell.FindUnusedResults(nodes)
	if main := cell.FindUncalledMain(nodes); main != nil {
		k.errors.notes[main.Pos()] = "a cell does not call main: write its statements without func main, or main() in the last line"
	}
	plan := cell.NewCompilePlan(nodes)
	ir.Comp.Pos = nodes[0].Pos()
	if *rest = plan.Rest; len(plan.Types) > 0 {
		ir.RunExpr(compileNodes(ir, plan.Types))
	}
	k.errors.removeRedeclared(nodes)
	insertKernelCalls(ir, plan.Declarations(), false)
	insertKernelCalls(ir, *rest, ends)
	if ends {
		(*rest)[len(*rest)-1] = useOneValue((*rest)[len(*rest)-1])
	}
	compiled := compileCell(ir, plan)
	for _, at := range slices.Sorted(maps.Keys(k.errors.notes)) {
		fmt.Fprintf(k.stdout.File(), "line %d: %s\n", ir.Comp.Fileset.Position(at).Line, k.errors.notes[at])
	}
	k.stdout.Flush() // before what the cell writes to standard error
	if compiled == nil {
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
		return nil, nil // nil alone is not shown
	}
	return vals, types
}

// restoreVariables restores variables after the statement rest[failed] has failed. The variables that it and
// later statements declare get their value from before the cell, or become undeclared. If failed is
// noStatement, it is unknown which declaration failed, and the variables of all declarations are restored.
func restoreVariables(ir *interp.Interp, before map[string]*interp.Bind, rest []ast.Node, failed int) {
	if failed == noStatement {
		rest = slices.DeleteFunc(slices.Clone(rest), isStatement)
	} else if failed < len(rest) {
		rest = rest[failed:]
	}
	for _, name := range cell.DeclaredVariables(rest) {
		if b := before[name]; b != nil {
			ir.Comp.Binds[name] = b
		} else {
			delete(ir.Comp.Binds, name)
		}
	}
}

// useOneValue wraps a receive, an index of a map or a type assertion as the cell's last expression. In the
// interpreter these have a second result, which reports whether there is a value.
func useOneValue(n ast.Node) ast.Node {
	e, _ := n.(ast.Expr)
	switch x := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		if x.Op != token.ARROW {
			return n
		}
	case *ast.IndexExpr, *ast.TypeAssertExpr:
	default:
		return n
	}
	return &ast.CallExpr{Fun: &ast.Ident{NamePos: n.Pos(), Name: oneFuncName}, Lparen: n.Pos(), Args: []ast.Expr{e}, Rparen: n.End()}
}

// insertKernelCalls inserts calls of the kernel's functions. showsLast reports whether the notebook shows
// the value of the last node.
func insertKernelCalls(ir *interp.Interp, nodes []ast.Node, showsLast bool) {
	checkFuncNames(ir.Comp).WrapCalls(nodes, showsLast)
	cell.GuardGoroutines(nodes, guardFuncName, spreadFuncName)
	waitFuncNames().RewriteWaits(nodes)
}

// runExpr runs e as the interpreter's RunExpr does, and records which statement of the innermost interpreted
// function panicked.
func (k *kernelState) runExpr(ir *interp.Interp, e *interp.Expr) (values []xreflect.Value, types []xreflect.Type) {
	env := ir.PrepareEnv()
	if e.Untyped() {
		e.ConstTo(e.DefaultType())
	}
	r := env.Run
	caller, over := r.CurrEnv, false
	r.CurrEnv = env
	env.DebugPos = nil // clear the last cell's value; a cell with only expressions does not set it
	r.PanicPos = token.NoPos
	defer func() {
		if !over {
			k.inner, k.called = panicPosition(r), r.PanicPos.IsValid() || r.CurrEnv != env
		}
		r.CurrEnv = caller
	}()
	v, vs := e.AsXV(interp.COptKeepUntyped)(env)
	over = true
	return basereflect.PackValues(v, vs), basereflect.PackTypes(e.Type, e.Types)
}

func panicPosition(r *interp.Run) token.Pos {
	if r.PanicPos.IsValid() {
		return r.PanicPos
	}
	return r.CurrEnv.Pos()
}

// compileCell compiles the functions and the remaining nodes of a cell. If that fails, it restores the
// previous declarations: variables without a value and functions without a body would cause errors in later
// cells.
func compileCell(ir *interp.Interp, plan cell.CompilePlan) *interp.Expr {
	before := maps.Clone(ir.Comp.Binds)
	defer func() {
		if r := recover(); r != nil {
			r = addPosition(ir, r)
			ir.Comp.Binds = before
			ir.Comp.Code.Clear()
			panic(r)
		}
	}()
	compileDeclarations(ir, plan)
	return compileNodes(ir, insertChecks(plan.Rest))
}

// compileNodes compiles nodes. The result is nil if there is nothing to run.
func compileNodes(ir *interp.Interp, nodes []ast.Node) *interp.Expr {
	if len(nodes) == 0 {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			panic(addPosition(ir, r))
		}
	}()
	return ir.CompileAst(ast2.AnyToAst(nodes, "cell"))
}

// compileDeclarations compiles the plan's methods and functions. It declares all before it compiles the
// first body, since they may call each other.
func compileDeclarations(ir *interp.Interp, plan cell.CompilePlan) {
	for _, d := range plan.Methods {
		if plan.Own[cell.ReceiverTypeName(d)] {
			ir.RunExpr(ir.CompileNode(cell.NewStub(d)))
		}
	}
	for _, d := range plan.Functions {
		if ir.Comp.TryResolve(d.Name.Name) == nil {
			ir.RunExpr(ir.CompileNode(cell.NewStub(d)))
		}
	}
	for _, d := range plan.Methods {
		ir.RunExpr(ir.CompileNode(d))
	}
	for _, d := range plan.Functions {
		ir.RunExpr(ir.CompileNode(d))
	}
}

// insertChecks inserts calls of checkFuncName before each statement or expression, and before each
// declaration that follows one. The interpreter checks for an interrupt only inside some of them, so the
// lines after an interrupted call would still run.
//
// The argument is the index of the next node, or noStatement for a declaration, because the interpreter
// orders declarations by their dependencies.
func insertChecks(nodes []ast.Node) []ast.Node {
	var list []ast.Node
	for i, n := range nodes {
		if isStatement(n) || i > 0 && isStatement(nodes[i-1]) {
			next := noStatement
			if isStatement(n) {
				next = i
			}
			list = append(list, &ast.CallExpr{
				Fun: &ast.Ident{NamePos: n.Pos(), Name: checkFuncName}, Lparen: n.Pos(), Rparen: n.Pos(),
				Args: []ast.Expr{&ast.BasicLit{ValuePos: n.Pos(), Kind: token.INT, Value: strconv.Itoa(next)}},
			})
		}
		list = append(list, n)
	}
	return list
}

// isStatement reports whether the interpreter runs a node in the order of the source.
func isStatement(n ast.Node) bool {
	switch n.(type) {
	case ast.Expr, ast.Stmt:
		return true
	}
	return false
}

// newStopper returns the function that stops the cell that is about to run.
//
// Inside a block the interpreter checks for an interrupt only every 15 statements, so the function also
// overwrites the block's statements. Like the interpreter's own flag, this is not synchronized with the
// cell, so that statements cost no check. Each write is one word, so the cell reads the old or the new
// statement.
func newStopper(ir *interp.Interp) func() {
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
