//go:build notebook

package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cosmos72/gomacro/base"
	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/go/etoken"

	"lockstep/kernels/internal/cell"
)

// noStatement replaces a statement's index while declarations run; see insertChecks.
const noStatement = -1

// cellFileName is the interpreter's file name for a cell.
func cellFileName(cell int) string { return fmt.Sprintf("cell[%d]", cell) }

// positionPattern matches the position at the start of an interpreter's message.
var positionPattern = regexp.MustCompile(`^cell\[(\d+)\]:(\d+):(\d+): `)

// internalText matches the interpreter's own data in its messages: the statement that it compiles, and an
// expression's representation.
var internalText = regexp.MustCompile(`^error compiling assignment: .*\n\t(?:cell\[\d+\]:\d+:\d+: )?| == Expr\{.*\}$`)

// simplifyMessage puts the interpreter's message in terms of the cell's source.
func simplifyMessage(message string) string {
	return cell.RestoreSource(internalText.ReplaceAllString(message, ""))
}

type cellPosition struct {
	cell         int // the cell's number, such as 3 for In [3] in a notebook
	line, column int // counted from 1
}

func (p cellPosition) String() string { return fmt.Sprintf("line %d, column %d", p.line, p.column) }

type cellSources struct {
	current int
	code    map[int]string // source by cell number
}

func (c *cellSources) add(number int, code string) {
	if c.code == nil {
		c.code = map[int]string{}
	}
	c.current, c.code[number] = number, code
}

// positionInCell returns the position in a cell, or the zero value outside of cells.
func positionInCell(files *etoken.FileSet, at token.Pos) cellPosition {
	p := files.Position(at)
	m := positionPattern.FindStringSubmatch(fmt.Sprintf("%s:%d:%d: ", p.Filename, p.Line, p.Column))
	if m == nil {
		return cellPosition{}
	}
	return parsePosition(m)
}

func parsePosition(m []string) cellPosition {
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	return cellPosition{cell: number(m[1]), line: number(m[2]), column: number(m[3])}
}

// formatPosition formats a position for a message in the current cell, and names other cells.
func (c *cellSources) formatPosition(p cellPosition) string {
	if p.cell == c.current {
		return p.String()
	}
	return fmt.Sprintf("%v of cell [%d]", p, p.cell)
}

type cellError struct {
	name   string // kind of error: nameError, namePanic or nameCompile
	text   string // message, which begins with the place
	err    error
	places []cellPosition // the statement that ran in the cell, then the statement that failed in a called function
}

func (e *cellError) Error() string { return e.text }
func (e *cellError) Unwrap() error { return e.err }

// Values of cellError.name.
const (
	nameError   = "error" // an error returned by a call that the cell does not handle
	namePanic   = "panic"
	nameCompile = "compile error"
)

// newCellError returns the error of a cell that panicked with v. k.at is the index in nodes of the running
// statement, if there was one. The message begins with the position in the cell.
func (k *kernelState) newCellError(ir *interp.Interp, nodes []ast.Node, v any) error {
	err, ok := v.(error)
	if !ok {
		err = fmt.Errorf("%v", v)
	}
	if v == base.SigInterrupt {
		return errInterrupted
	}
	if failed, ok := v.(*cellError); ok {
		return failed
	}
	failed := &cellError{name: namePanic, err: err}
	at, called := k.inner, k.called
	if e, ok := v.(*unhandledError); ok {
		failed.name, failed.err = nameError, e.err
		if e.at.IsValid() {
			at, called = e.at, true
		}
	}
	inner := positionInCell(ir.Comp.Fileset, at)
	text := failed.err.Error()
	if failed.name == namePanic {
		text = explainPanic(text)
	}
	if m := positionPattern.FindStringSubmatch(text); m != nil {
		p := parsePosition(m)
		failed.name, failed.places = nameCompile, []cellPosition{p}
		text = simplifyMessage(strings.TrimPrefix(text, m[0]))
		failed.text = fmt.Sprintf("%s: %s", k.cells.formatPosition(p), text)
		return failed
	}
	if k.at < 0 || k.at >= len(nodes) {
		if inner.line == 0 {
			return err
		}
		failed.text, failed.places = fmt.Sprintf("%s: %s", k.cells.formatPosition(inner), text), []cellPosition{inner}
		return failed
	}
	node := nodes[k.at]
	if failed.name == namePanic {
		text += callOrZero(func() string { return adviseRuntime(ir, node, text) })
	}
	outer := positionInCell(ir.Comp.Fileset, node.Pos())
	within := node.Pos() <= at && at < node.End()
	switch {
	case inner.line == 0 || inner.cell == outer.cell && inner.line == outer.line:
		if failed.name == nameError && inner.line > 0 {
			outer = inner
		}
		failed.text, failed.places = fmt.Sprintf("%v: %s", outer, text), []cellPosition{outer}
	case inner.cell != outer.cell:
		failed.text, failed.places = fmt.Sprintf("%v: %s (%s)", outer, text, k.cells.formatPosition(inner)), []cellPosition{outer, inner}
	case within:
		failed.text, failed.places = fmt.Sprintf("%v: %s", inner, text), []cellPosition{inner}
	case called:
		failed.text, failed.places = fmt.Sprintf("%v: %s (called from line %d)", inner, text, outer.line), []cellPosition{outer, inner}
	default:
		failed.text, failed.places = fmt.Sprintf("%v: %s", outer, text), []cellPosition{outer}
	}
	return failed
}

func (k *kernelState) newSyntaxError(code string, err error) error {
	var s *cell.SyntaxError
	if !errors.As(err, &s) {
		return err
	}
	p := cellPosition{ExecCounter, s.Line, s.Column}
	text := callOrZero(func() string { return k.inspector.Explain(code, p.line, p.column, s.Message) })
	return &cellError{name: nameCompile, text: fmt.Sprintf("%v: %s", p, cmp.Or(text, s.Message)), err: err, places: []cellPosition{p}}
}

// explainPanic returns the text of a panic as a Go program prints it. The interpreter implements pointers,
// slices and functions by package reflect, whose panics name its own methods.
func explainPanic(text string) string {
	switch {
	case strings.HasPrefix(text, "reflect") && strings.Contains(text, "index out of"):
		return "runtime error: index out of range"
	case strings.HasPrefix(text, "reflect.MakeSlice: negative"), strings.HasPrefix(text, "reflect.MakeChan: negative"):
		return "runtime error: make: negative size"
	case strings.HasPrefix(text, "reflect") && (strings.Contains(text, "on zero Value") || strings.Contains(text, "zero Value argument") || strings.Contains(text, "nil interface value")):
		return "runtime error: invalid memory address or nil pointer dereference"
	}
	return text
}

// adviseRuntime returns advice on a panic in node: which variables are nil, or how to index from the end of
// a slice.
func adviseRuntime(ir *interp.Interp, node ast.Node, text string) (advice string) {
	isNil := strings.Contains(text, "nil pointer") || strings.Contains(text, "nil map") || strings.Contains(text, "nil channel")
	isIndex := strings.Contains(text, "index out of range")
	selected := map[*ast.Ident]bool{}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.SelectorExpr:
			selected[n.Sel] = true
		case *ast.IndexExpr:
			if u, ok := n.Index.(*ast.UnaryExpr); ok && isIndex && u.Op == token.SUB {
				advice = "; the last element of x is x[len(x)-1]"
			}
		case *ast.Ident:
			b := ir.Comp.Binds[n.Name]
			if !isNil || selected[n] || b == nil || b.Desc.Class() != interp.VarBind {
				break
			}
			switch v := ir.ValueOf(n.Name); {
			case v.Kind() == reflect.Map && v.IsNil():
				advice = fmt.Sprintf("; %s is nil: write %[1]s = make(%v)", n.Name, b.Type)
			case slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Interface, reflect.Func, reflect.Chan}, v.Kind()) && v.IsNil():
				advice = fmt.Sprintf("; %s is nil", n.Name)
			}
		}
		return true
	})
	return advice
}

// publishError shows a cell's error. It replaces PublishExecutionError of gophernotes.
func publishError(receipt msgReceipt, reply map[string]interface{}, err error) error {
	if stopsOnError(receipt) {
		globalKernel.queue.abort()
	}
	name, trace := globalKernel.cells.formatTrace(err)
	reply["ename"], reply["evalue"], reply["traceback"] = name, err.Error(), trace
	return receipt.Publish("error", MIMEMap{"ename": name, "evalue": err.Error(), "traceback": trace})
}

// ANSI sequences for the colors that IPython uses.
const (
	red   = "\x1b[0;31m"
	green = "\x1b[0;32m"
	plain = "\x1b[0m"
)

// formatTrace returns err's name (nameError, namePanic or nameCompile) and the lines that a notebook shows
// for it, as in IPython: lines of the cell around each of cellError.places, and the text.
func (c *cellSources) formatTrace(err error) (name string, lines []string) {
	name = nameError
	var places []cellPosition
	var failed *cellError
	if errors.As(err, &failed) {
		name, places = failed.name, failed.places
	}
	lines = []string{red + strings.Repeat("-", 75) + plain}
	for _, p := range places {
		lines = append(lines, c.formatExcerpt(p)...)
	}
	return name, append(lines, fmt.Sprintf("%s%s%s: %s", red, name, plain, err))
}

// formatExcerpt returns the lines around a position, with an arrow at its line.
func (c *cellSources) formatExcerpt(p cellPosition) []string {
	const before, after = 2, 2 // lines
	list := []string{fmt.Sprintf("Cell %sIn[%d], line %d%s", green, p.cell, p.line, plain)}
	code := strings.Split(c.code[p.cell], "\n")
	for i := max(1, p.line-before); i <= min(len(code), p.line+after); i++ {
		if i == p.line {
			list = append(list, fmt.Sprintf("%s----> %d%s %s", green, i, plain, code[i-1]))
		} else {
			list = append(list, fmt.Sprintf("%s%7d%s %s", green, i, plain, code[i-1]))
		}
	}
	return append(list, "")
}
